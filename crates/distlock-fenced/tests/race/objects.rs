//! Objects: in memory, with ETags of two kinds, and in a folder.

use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;

use distlock_fenced::object_store::{FencedObject, FencedObjects};
use distlock_fenced::{FencedError, Refused};
use distlock_testkit::servers::TempFolder;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt as _, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tokio::sync::Mutex;

use crate::play::{Balance, play};

/// A balance in an object.
struct ObjectBalance<S>(FencedObjects<Arc<S>>);

impl<S: ObjectStore> Balance for ObjectBalance<S> {
    type Seen = FencedObject;

    async fn read(&self, fence: u64) -> Option<(i64, FencedObject)> {
        let object = self.0.read(&Path::from("balance"), fence).await.ok()?;
        let balance =
            object.bytes().map_or(0, |text| std::str::from_utf8(text).unwrap().parse().unwrap());
        Some((balance, object))
    }

    async fn write(&self, _fence: u64, mut seen: FencedObject, balance: i64) -> bool {
        match self.0.write(&mut seen, balance.to_string()).await {
            Ok(()) => true,
            Err(FencedError::Refused(_)) => false,
            Err(error) => panic!("{error}"),
        }
    }
}

fn two<S: ObjectStore>(store: S) -> [ObjectBalance<S>; 2] {
    let store = Arc::new(store);
    [(); 2].map(|()| ObjectBalance(FencedObjects::new(Arc::clone(&store))))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_loses_no_update() {
    let store = InMemory::new();
    // The first write creates the object, which has no version to compare.
    store.put(&Path::from("balance"), "0".into()).await.unwrap();
    let [paused, next] = two(store);
    play(&paused, &next).await.assert_nothing_lost();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_whose_etag_is_a_hash_of_its_content_loses_no_update() {
    let [paused, next] = two(HashTags::default());
    let outcome = play(&paused, &next).await;
    println!("{outcome:?}");
    assert_eq!(outcome.lost, 0, "{outcome:?}");
    assert!(outcome.refused > 0 && outcome.again > 0, "the newest reads again: {outcome:?}");
}

#[tokio::test]
async fn an_object_that_an_older_holder_creates_after_the_newer_one_looked_has_to_be_read_again() {
    let [older, newer] = two(InMemory::new());
    let (_, mut seen_by_older) = older.read(7).await.unwrap();
    let (_, mut seen_by_newer) = newer.read(8).await.unwrap();
    older.0.write(&mut seen_by_older, "10").await.unwrap();
    let refused = newer.0.write(&mut seen_by_newer, "5").await.unwrap_err().refused();
    assert_eq!(refused, Some(Refused::NotRaised { fence: 8, newest: 7 }));
    let (balance, mut seen) = newer.read(8).await.unwrap();
    assert_eq!(balance, 10);
    newer.0.write(&mut seen, "15").await.unwrap();
    newer.0.write(&mut seen, "20").await.unwrap();
    let refused = older.0.write(&mut seen_by_older, "11").await.unwrap_err().refused();
    assert_eq!(refused, Some(Refused::Stale { fence: 7, newest: 8 }));
}

#[tokio::test]
async fn a_folder_is_refused_because_it_has_no_if_match() {
    let folder = TempFolder::new();
    let store = object_store::local::LocalFileSystem::new_with_prefix(folder.path()).unwrap();
    let path = Path::from("balance");
    store.put(&path, "100".into()).await.unwrap();
    let objects = FencedObjects::new(store);
    let failures = [
        objects.read(&path, 7).await.map(drop),
        objects.overwrite(&path, 7, "1").await,
        objects.overwrite(&Path::from("new"), 7, "1").await,
    ];
    for failure in failures {
        let error = failure.unwrap_err();
        let known = matches!(error, FencedError::Store(object_store::Error::NotImplemented { .. }));
        assert!(known, "{error}");
    }
}

/// A store whose ETags are a hash of the content and nothing else, as those of S3.
#[derive(Debug, Default)]
struct HashTags {
    inner: InMemory,
    writing: Mutex<()>,
}

fn tag(content: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish().to_string()
}

impl fmt::Display for HashTags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashTags")
    }
}

#[async_trait::async_trait]
impl ObjectStore for HashTags {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        mut options: PutOptions,
    ) -> Result<PutResult> {
        let _one_at_a_time = self.writing.lock().await;
        if let PutMode::Update(wanted) = &options.mode {
            let found = self.inner.get(location).await?.bytes().await?;
            if wanted.e_tag.as_ref() != Some(&tag(&found)) {
                let source = "the ETag differs".into();
                return Err(object_store::Error::Precondition {
                    path: location.to_string(),
                    source,
                });
            }
            options.mode = PutMode::Overwrite;
        }
        let e_tag = Some(tag(&bytes::Bytes::from(payload.clone())));
        let written = self.inner.put_opts(location, payload, options).await?;
        Ok(PutResult { e_tag, version: None, ..written })
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let _one_at_a_time = self.writing.lock().await;
        let content = self.inner.get(location).await?.bytes().await?;
        let mut found = self.inner.get_opts(location, options).await?;
        found.meta.e_tag = Some(tag(&content));
        Ok(found)
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
