//! A folder that goes with its value: for stores that are files.

use std::fs;
use std::path::{Path, PathBuf};

use super::redis::own_folder;

/// A new folder among the system's temporary ones. It is removed when this value is dropped.
#[derive(Debug)]
pub struct TempFolder(PathBuf);

impl TempFolder {
    /// An empty folder that no other test uses.
    ///
    /// # Panics
    ///
    /// If it cannot be made.
    pub fn new() -> Self {
        Self(own_folder())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Default for TempFolder {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
