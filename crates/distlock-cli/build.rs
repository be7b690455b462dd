//! Links the unwinder into the command instead of leaving it to be found at every start.
//!
//! The shared one examines the processor whenever a program starts, and in a virtual machine every
//! question to the processor is answered by the host: a tenth of a millisecond for `distlock run`,
//! and as much for the process that becomes its command.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    // Elsewhere it has another name, and what is found on this machine may be for this machine.
    let known = is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu");
    if !known || env::var("HOST").ok() != env::var("TARGET").ok() {
        return;
    }
    let linker = env::var_os("RUSTC_LINKER").unwrap_or_else(|| "cc".into());
    let Ok(answer) = Command::new(linker).arg("-print-file-name=libgcc_eh.a").output() else {
        return;
    };
    let answer = String::from_utf8_lossy(&answer.stdout);
    // A bare name means that there is none. Then the shared one does.
    let library = Path::new(answer.trim());
    if let Some(folder) = library.parent().filter(|_| library.is_absolute() && library.exists()) {
        println!("cargo::rustc-link-search=native={}", folder.display());
        println!("cargo::rustc-link-lib=static=gcc_eh");
    }
}
