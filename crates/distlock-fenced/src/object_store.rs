//! Objects that keep a fence in their metadata and are written with `If-Match`.
//!
//! A read under a larger fence than the object has writes the same content back with that fence,
//! if no other write came between (one more request, and the whole body). From then on the version
//! that an older holder has read is gone, and its write fails.
//!
//! - The store must support [`PutMode::Update`] and metadata, as S3, Google Cloud Storage, Azure
//!   Blob Storage and `InMemory` do. `LocalFileSystem` does not, and every call that would need it
//!   fails with `NotImplemented`.
//! - Where an ETag is a hash of the content alone (S3 without KMS), raising the fence does not
//!   change it. A paused holder can then still write as long as the content is what it has read.
//!   No update is lost: the newer holder's write fails with [`Refused::NotRaised`], and it reads
//!   again. A blind [`overwrite`](FencedObjects::overwrite) has no such second look: there, use
//!   `read` and `write`.
//! - An object that was deleted has no fence. Write an empty object instead.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use distlock::Locks;
//! use distlock_fenced::object_store::FencedObjects;
//! use object_store::{memory::InMemory, path::Path};
//!
//! let guard = Locks::memory().mutex("state/prod")?.lock().await?;
//! let objects = FencedObjects::new(InMemory::new());
//!
//! let mut object = objects.read(&Path::from("state.json"), guard.fence()).await?;
//! let serial = object.bytes().map_or(0, |bytes| bytes.len());
//! objects.write(&mut object, vec![b'x'; serial + 1]).await?;
//! # Ok(())
//! # }
//! ```

use bytes::Bytes;
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, GetOptions, ObjectStore, PutMode, PutOptions, PutPayload, PutResult,
    UpdateVersion,
};

#[cfg(doc)]
use crate::Refused;
use crate::{FenceRegister, FencedError};

/// Where the fence is kept. Azure allows neither `-` nor `_` at the start of such a name.
const FENCE: Attribute = Attribute::Metadata(std::borrow::Cow::Borrowed("distlockfence"));

/// How often a request is repeated because an older holder wrote in between. Each repetition means
/// that another holder's write succeeded.
const CONFLICTS_MAX: usize = 16;

/// A store whose objects refuse writes of holders that have lost their lock.
#[derive(Clone, Debug)]
pub struct FencedObjects<S> {
    store: S,
}

/// An object that was read under a fence, or the fact that there is none.
#[derive(Clone, Debug)]
pub struct FencedObject {
    location: Path,
    fence: u64,
    stored: Option<Stored>,
}

/// One version of an object.
#[derive(Clone, Debug)]
struct Stored {
    bytes: Bytes,
    version: UpdateVersion,
    attributes: Attributes,
}

impl FencedObject {
    /// The content, or `None` if there is no such object yet.
    pub fn bytes(&self) -> Option<&Bytes> {
        self.stored.as_ref().map(|stored| &stored.bytes)
    }
}

impl<S: ObjectStore> FencedObjects<S> {
    /// Wraps a store. Anything that writes to the store itself bypasses the check.
    pub fn new(store: S) -> Self {
        Self { store }
    }

    /// Raises the fence of an object, and returns what it contains.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock_fenced::FencedError<object_store::Error>> {
    /// # use distlock_fenced::object_store::FencedObjects;
    /// # let objects = FencedObjects::new(object_store::memory::InMemory::new());
    /// let object = objects.read(&"state.json".into(), 7).await?;
    /// assert_eq!(object.bytes(), None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the fence may have been raised. That is harmless: it is the
    /// caller's.
    ///
    /// # Errors
    ///
    /// [`Refused::Stale`] if a newer holder was here: the lock is lost.
    pub async fn read(
        &self,
        location: &Path,
        fence: u64,
    ) -> Result<FencedObject, FencedError<object_store::Error>> {
        for _ in 0..CONFLICTS_MAX {
            let (newest, stored) = self.fetch(location).await?;
            let mut register = FenceRegister::starting_at(newest);
            register.raise(fence)?;
            let mut object = FencedObject { location: location.clone(), fence, stored };
            // An object that is not there has no fence to raise: `write` creates it.
            let Some(bytes) = object.bytes().cloned().filter(|_| newest < fence) else {
                return Ok(object);
            };
            match self.replace(&mut object, bytes.into()).await {
                Err(error) if lost_race(&error) => (),
                replaced => return replaced.map(|()| object).map_err(FencedError::Store),
            }
        }
        Err(FencedError::Store(busy(location)))
    }

    /// Writes content that was computed from `object`, which then stands for the new version.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock_fenced::FencedError<object_store::Error>> {
    /// # use distlock_fenced::object_store::FencedObjects;
    /// # let objects = FencedObjects::new(object_store::memory::InMemory::new());
    /// let mut object = objects.read(&"state.json".into(), 7).await?;
    /// objects.write(&mut object, "{}").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the object may have been written: read it again.
    ///
    /// # Errors
    ///
    /// [`Refused::Stale`] if a newer holder was here, [`Refused::NotRaised`] if an older one wrote
    /// an object that was not there, or on a store whose ETags do not cover metadata: read again.
    /// A precondition that failed for another reason, such as a lost reply, comes back as the store
    /// reported it: read again.
    pub async fn write(
        &self,
        object: &mut FencedObject,
        payload: impl Into<PutPayload>,
    ) -> Result<(), FencedError<object_store::Error>> {
        let error = match self.replace(object, payload.into()).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        if lost_race(&error) {
            let (newest, _) = self.fetch(&object.location).await?;
            FenceRegister::starting_at(newest).check(object.fence)?;
        }
        Err(FencedError::Store(error))
    }

    /// Writes content that does not depend on what was there. Needs no [`read`](Self::read).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), distlock_fenced::FencedError<object_store::Error>> {
    /// # use distlock_fenced::object_store::FencedObjects;
    /// # let objects = FencedObjects::new(object_store::memory::InMemory::new());
    /// objects.overwrite(&"leader".into(), 7, "host-a").await?;
    /// assert!(objects.overwrite(&"leader".into(), 6, "host-b").await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the object may have been written. Asking again is harmless.
    ///
    /// # Errors
    ///
    /// [`Refused::Stale`] if a newer holder was here: the lock is lost.
    pub async fn overwrite(
        &self,
        location: &Path,
        fence: u64,
        payload: impl Into<PutPayload>,
    ) -> Result<(), FencedError<object_store::Error>> {
        let payload = payload.into();
        for _ in 0..CONFLICTS_MAX {
            let (newest, stored) = self.fetch(location).await?;
            FenceRegister::starting_at(newest).raise(fence)?;
            let mut object = FencedObject { location: location.clone(), fence, stored };
            match self.replace(&mut object, payload.clone()).await {
                Err(error) if lost_race(&error) => (),
                replaced => return replaced.map_err(FencedError::Store),
            }
        }
        Err(FencedError::Store(busy(location)))
    }

    /// The fence and the content of an object; 0 and nothing if it is not there.
    async fn fetch(
        &self,
        location: &Path,
    ) -> Result<(u64, Option<Stored>), FencedError<object_store::Error>> {
        let found = match self.store.get_opts(location, GetOptions::default()).await {
            Err(object_store::Error::NotFound { .. }) => return Ok((0, None)),
            found => found.map_err(FencedError::Store)?,
        };
        let attributes = found.attributes.clone();
        let newest = match attributes.get(&FENCE) {
            None => 0,
            Some(text) => {
                text.parse().map_err(|_| FencedError::Store(unreadable(location, text)))?
            }
        };
        let (e_tag, version) = (found.meta.e_tag.clone(), found.meta.version.clone());
        let version = UpdateVersion { e_tag, version };
        let bytes = found.bytes().await.map_err(FencedError::Store)?;
        Ok((newest, Some(Stored { bytes, version, attributes })))
    }

    /// Writes the next version of an object if the one at hand is still there.
    async fn replace(
        &self,
        object: &mut FencedObject,
        payload: PutPayload,
    ) -> Result<(), object_store::Error> {
        let mut attributes = Attributes::default();
        let mut mode = PutMode::Create;
        if let Some(stored) = &object.stored {
            attributes = stored.attributes.clone();
            mode = PutMode::Update(stored.version.clone());
        }
        attributes.insert(FENCE, object.fence.to_string().into());
        let options = PutOptions { mode, attributes: attributes.clone(), ..PutOptions::default() };
        let written = self.store.put_opts(&object.location, payload.clone(), options).await?;
        let PutResult { e_tag, version, .. } = written;
        let version = UpdateVersion { e_tag, version };
        object.stored = Some(Stored { bytes: payload.into(), version, attributes });
        Ok(())
    }
}

/// Whether a conditional write failed because the object has changed.
fn lost_race(error: &object_store::Error) -> bool {
    use object_store::Error::{AlreadyExists, Precondition};
    matches!(error, Precondition { .. } | AlreadyExists { .. })
}

fn busy(location: &Path) -> object_store::Error {
    let source = format!("{CONFLICTS_MAX} other writes came between read and write").into();
    object_store::Error::Precondition { path: location.to_string(), source }
}

fn unreadable(location: &Path, fence: &str) -> object_store::Error {
    let source = format!("the fence of {location} is {fence:?}, which is no number").into();
    object_store::Error::Generic { store: "distlock-fenced", source }
}
