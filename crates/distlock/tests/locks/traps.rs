//! What the sources do wrong, line by line, and that we do not. Names begin with the line's id.

mod s1;
mod s1_guards;
mod s2;
mod s3;
mod s4_s5;
