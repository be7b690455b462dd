//! Defects of other lock libraries, and that distlock does not have them.

mod guards;
mod owners_and_waiting;
mod queues_and_extensions;
mod readers_and_writers;
mod renewals;
