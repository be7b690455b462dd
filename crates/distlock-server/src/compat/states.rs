//! Terraform states, in a file of the service's own.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};

use crate::sync::lock;

const SCHEMA: &str = include_str!("states.sql");

/// How long another process may keep the file busy.
const BUSY_MAX: Duration = Duration::from_secs(5);

/// The file, opened when it is first needed.
#[derive(Clone, Debug)]
pub(crate) struct States {
    path: PathBuf,
    file: Arc<Mutex<Option<Connection>>>,
}

/// Why a state could not be read or written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unkept {
    #[error("use the file of the states: {0}")]
    File(#[from] rusqlite::Error),
    #[error("make the folder of the states: {0}")]
    Folder(#[from] std::io::Error),
    #[error("read or write a state: the work was cut off")]
    CutOff,
}

impl States {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, file: Arc::default() }
    }

    pub(crate) async fn get(&self, name: String) -> Result<Option<Vec<u8>>, Unkept> {
        self.with(move |file| {
            let sql = "SELECT body FROM state WHERE name = ?1";
            file.query_row(sql, [name], |row| row.get(0)).optional()
        })
        .await
    }

    /// Writes a state, unless it was written under a larger fence. True if it was written.
    pub(crate) async fn put(
        &self,
        name: String,
        fence: u64,
        body: bytes::Bytes,
    ) -> Result<bool, Unkept> {
        let fence = i64::try_from(fence).unwrap_or(i64::MAX);
        self.with(move |file| {
            let sql = "INSERT INTO state VALUES (?1, ?2, ?3) ON CONFLICT (name) DO UPDATE \
                       SET fence = ?2, body = ?3 WHERE fence <= ?2";
            Ok(file.execute(sql, params![name, fence, body.as_ref()])? == 1)
        })
        .await
    }

    pub(crate) async fn delete(&self, name: String) -> Result<(), Unkept> {
        self.with(move |file| file.execute("DELETE FROM state WHERE name = ?1", [name]).map(|_| ()))
            .await
    }

    /// Works on the file where blocking does no harm.
    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, rusqlite::Error> + Send + 'static,
    ) -> Result<T, Unkept> {
        let this = self.clone();
        let done = tokio::task::spawn_blocking(move || {
            let mut file = lock(&this.file);
            if file.is_none() {
                *file = Some(this.open()?);
            }
            match &*file {
                Some(file) => work(file).map_err(Unkept::from),
                None => Err(Unkept::CutOff),
            }
        });
        done.await.map_err(|_| Unkept::CutOff)?
    }

    fn open(&self) -> Result<Connection, Unkept> {
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let file = Connection::open(&self.path)?;
        // States have secrets in them.
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(&self.path, std::fs::Permissions::from_mode(0o600))?;
        }
        file.busy_timeout(BUSY_MAX)?;
        file.execute_batch(SCHEMA)?;
        Ok(file)
    }
}
