//! Terraform states, in a file of the service's own.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Transaction, params};
use tokio::sync::Mutex;

use super::spool::Spool;

const SCHEMA: &str = include_str!("states.sql");

/// How long another process may keep the file busy.
const BUSY_MAX: Duration = Duration::from_secs(5);

/// The size of the parts that a state is kept in.
const PART: usize = 256 * 1024;

/// The file, opened when it is first needed. One call at a time uses it.
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
    #[error("use the folder of the states: {0}")]
    Folder(#[from] std::io::Error),
    #[error("read or write a state: the work was cut off")]
    CutOff,
}

/// Under which right a state is deleted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Right {
    /// The lock with this fence.
    Fence(u64),
    /// An operator's.
    Operator,
}

impl States {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, file: Arc::default() }
    }

    /// An empty file for a state on its way.
    pub(crate) async fn spool(&self) -> Result<Spool, Unkept> {
        let folder = self.folder().to_owned();
        let made = tokio::task::spawn_blocking(move || {
            make_folder(&folder)?;
            Spool::create(&folder)
        });
        Ok(made.await.map_err(|_| Unkept::CutOff)??)
    }

    /// A copy of a state; none if there is none.
    pub(crate) async fn get(&self, name: String) -> Result<Option<Spool>, Unkept> {
        let mut spool = self.spool().await?;
        self.with(move |file| {
            let snapshot = file.transaction()?;
            let size = "SELECT size FROM document WHERE name = ?1 AND size IS NOT NULL";
            let found = snapshot.query_row(size, [&name], |row| row.get::<_, i64>(0)).optional()?;
            if found.is_none() {
                return Ok(None);
            }
            let mut parts =
                snapshot.prepare("SELECT body FROM part WHERE name = ?1 ORDER BY number")?;
            let mut rows = parts.query([&name])?;
            while let Some(row) = rows.next()? {
                spool.append(row.get_ref(0)?.as_blob().map_err(rusqlite::Error::from)?)?;
            }
            Ok(Some(spool))
        })
        .await
    }

    /// Writes a state, unless it was written under a larger fence. True if it was written.
    pub(crate) async fn put(
        &self,
        name: String,
        fence: u64,
        mut body: Spool,
    ) -> Result<bool, Unkept> {
        self.with(move |file| {
            let change = file.transaction()?;
            let size = body.rewind()?;
            let sql = "INSERT INTO document VALUES (?1, ?2, ?3) ON CONFLICT (name) DO UPDATE \
                       SET fence = ?2, size = ?3 WHERE fence <= ?2";
            if change.execute(sql, params![name, number(fence), number(size)])? == 0 {
                return Ok(false);
            }
            write_parts(&change, &name, |buffer| body.fill(buffer))?;
            change.commit()?;
            Ok(true)
        })
        .await
    }

    /// Deletes a state, unless it was written under a larger fence. True if it is gone. Its fence
    /// stays.
    pub(crate) async fn delete(&self, name: String, right: Right) -> Result<bool, Unkept> {
        self.with(move |file| {
            let change = file.transaction()?;
            let fence = match right {
                Right::Fence(fence) => number(fence),
                Right::Operator => i64::MAX,
            };
            let newer = "SELECT 1 FROM document WHERE name = ?1 AND fence > ?2";
            if change.query_row(newer, params![name, fence], |_| Ok(())).optional()?.is_some() {
                return Ok(false);
            }
            if let Right::Fence(_) = right {
                let sql = "INSERT INTO document VALUES (?1, ?2, NULL) ON CONFLICT (name) DO UPDATE \
                           SET fence = ?2";
                change.execute(sql, params![name, fence])?;
            }
            change.execute("UPDATE document SET size = NULL WHERE name = ?1", [&name])?;
            change.execute("DELETE FROM part WHERE name = ?1", [&name])?;
            change.commit()?;
            Ok(true)
        })
        .await
    }

    /// Works on the file where blocking does no harm.
    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, Unkept> + Send + 'static,
    ) -> Result<T, Unkept> {
        let (this, mut file) = (self.clone(), Arc::clone(&self.file).lock_owned().await);
        let done = tokio::task::spawn_blocking(move || {
            let file = match &mut *file {
                Some(file) => file,
                empty => empty.insert(this.open()?),
            };
            work(file)
        });
        done.await.map_err(|_| Unkept::CutOff)?
    }

    fn open(&self) -> Result<Connection, Unkept> {
        make_folder(self.folder())?;
        // States have secrets in them: the file has its mode from its first byte on, and what
        // SQLite puts beside it has the same.
        private_file().open(&self.path)?;
        let mut file = Connection::open(&self.path)?;
        file.busy_timeout(BUSY_MAX)?;
        file.execute_batch(SCHEMA)?;
        split_old_states(&mut file)?;
        Ok(file)
    }

    fn folder(&self) -> &Path {
        match self.path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        }
    }
}

fn make_folder(folder: &Path) -> std::io::Result<()> {
    private_folder().create(folder)
}

/// Replaces the parts of a state by what `fill` brings.
fn write_parts(
    change: &Transaction<'_>,
    name: &str,
    mut fill: impl FnMut(&mut [u8]) -> std::io::Result<usize>,
) -> Result<(), Unkept> {
    change.execute("DELETE FROM part WHERE name = ?1", [name])?;
    let mut insert = change.prepare("INSERT INTO part VALUES (?1, ?2, ?3)")?;
    let mut buffer = vec![0; PART];
    for part in 0_i64.. {
        let filled = fill(&mut buffer)?;
        if filled == 0 {
            break;
        }
        insert.execute(params![name, part, &buffer[..filled]])?;
    }
    Ok(())
}

/// An earlier version kept each state as a whole.
fn split_old_states(file: &mut Connection) -> Result<(), Unkept> {
    let change = file.transaction()?;
    let sql = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'state'";
    if change.query_row(sql, [], |_| Ok(())).optional()?.is_none() {
        return Ok(());
    }
    let mut old = change.prepare("SELECT name, fence, body FROM state")?;
    let mut rows = old.query([])?;
    while let Some(row) = rows.next()? {
        let (name, fence): (String, i64) = (row.get(0)?, row.get(1)?);
        let mut body = row.get_ref(2)?.as_blob().map_err(rusqlite::Error::from)?;
        let document = "INSERT INTO document VALUES (?1, ?2, ?3)";
        change.execute(document, params![name, fence, number(body.len() as u64)])?;
        write_parts(&change, &name, |buffer| std::io::Read::read(&mut body, buffer))?;
    }
    drop(rows);
    drop(old);
    change.execute("DROP TABLE state", [])?;
    change.commit()?;
    Ok(())
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Makes folders that only this user can enter; those that are there stay as they are.
fn private_folder() -> std::fs::DirBuilder {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

/// Makes a file that only this user can read; one that is there stays as it is.
fn private_file() -> std::fs::OpenOptions {
    let mut options = std::fs::OpenOptions::new();
    options.append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn states_of_an_earlier_version_are_kept() {
        let name = format!("distlock-states-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("states.sqlite");
        let (body, old) = (vec![7_u8; 3 * PART + 5], Connection::open(&path).unwrap());
        old.execute_batch("CREATE TABLE state (name TEXT PRIMARY KEY, fence INTEGER, body BLOB)")
            .unwrap();
        old.execute("INSERT INTO state VALUES ('prod', 9, ?1)", [&body]).unwrap();
        drop(old);

        let states = States::new(path);
        for _ in 0..2 {
            let mut found = states.get("prod".into()).await.unwrap().unwrap();
            assert_eq!(found.rewind().unwrap(), body.len() as u64);
            let mut read = vec![0; body.len()];
            assert_eq!(found.fill(&mut read).unwrap(), body.len());
            assert!(read == body);
        }
        let stale = states.spool().await.unwrap();
        assert!(!states.put("prod".into(), 8, stale).await.unwrap(), "the fence was kept");
        assert!(!states.delete("prod".into(), Right::Fence(8)).await.unwrap());
        assert!(states.delete("prod".into(), Right::Fence(9)).await.unwrap());
        assert!(states.get("prod".into()).await.unwrap().is_none());
        let stale = states.spool().await.unwrap();
        assert!(!states.put("prod".into(), 8, stale).await.unwrap(), "a deletion kept it, too");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
