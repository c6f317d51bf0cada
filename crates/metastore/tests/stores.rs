//! Every store passes the suite.

use std::path::Path;
use std::sync::Arc;

use chiton_metastore::conformance::{Subject, suite};
use chiton_metastore::{
    Batch, FjallMetastore, FjallOptions, MemoryMetastore, Metastore, SlateMetastore, SlateOptions, StoreError,
};
use chiton_moto::Moto;
use chiton_s3::{S3Config, S3Location, S3Objects};
use object_store::ObjectStore;
use object_store::memory::InMemory;

#[test]
fn memory() {
    suite(&|| {
        let store = Arc::new(MemoryMetastore::new());
        let same = store.clone();
        let reopen = move |_| {
            same.crash();
            same.clone() as Arc<dyn Metastore>
        };
        Subject { store, reopen: Box::new(reopen) }
    });
}

fn open(path: &Path) -> Arc<dyn Metastore> {
    let options = FjallOptions { memtable_bytes: 1 << 20, ..FjallOptions::default() };
    Arc::new(FjallMetastore::open(path, options).expect("open"))
}

#[test]
fn fjall() {
    suite(&|| {
        let dir = tempfile::tempdir().expect("a directory");
        let store = open(dir.path());
        let reopen = move |store| {
            drop(store);
            open(dir.path())
        };
        Subject { store, reopen: Box::new(reopen) }
    });
}

/// Every commit past journal and memtable.
#[test]
fn fjall_by_ingestion() {
    let open = |path: &Path| -> Arc<dyn Metastore> {
        let options = FjallOptions { memtable_bytes: 1 << 20, ingest_rows_min: 1, ..FjallOptions::default() };
        Arc::new(FjallMetastore::open(path, options).expect("open"))
    };
    suite(&|| {
        let dir = tempfile::tempdir().expect("a directory");
        let store = open(dir.path());
        let reopen = move |store| {
            drop(store);
            open(dir.path())
        };
        Subject { store, reopen: Box::new(reopen) }
    });
}

fn open_slate(objects: &Arc<dyn ObjectStore>) -> Arc<dyn Metastore> {
    let options = SlateOptions { memtable_bytes: 1 << 20, ..SlateOptions::default() };
    let store = SlateMetastore::open(objects.clone(), "fs/meta", "the store", options);
    Arc::new(store.expect("open"))
}

/// Reopening does not close first, as after a crash: the one before is fenced.
fn slate_subject(objects: Arc<dyn ObjectStore>) -> Subject {
    let store = open_slate(&objects);
    Subject { store, reopen: Box::new(move |_before| open_slate(&objects)) }
}

#[test]
fn slate_in_memory() {
    suite(&|| slate_subject(Arc::new(InMemory::new())));
}

#[test]
fn slate_on_s3() {
    let moto = Moto::shared();
    suite(&|| slate_subject(client(moto, &moto.bucket())));
}

fn client(moto: &Moto, bucket: &str) -> Arc<dyn ObjectStore> {
    let (key, secret) = chiton_moto::CREDENTIALS;
    let config = S3Config {
        endpoint: Some(moto.endpoint()),
        region: "us-east-1".to_owned(),
        is_virtual: false,
        keys: Some((key.to_owned(), secret.to_owned(), None)),
        ca_bundle: None,
    };
    let location: S3Location = format!("s3://{bucket}").parse().expect("a location");
    S3Objects::open_with(&location, &config).expect("settings fit").library_client()
}

/// A hand-over relies on it: the next server opens the store while clients wait.
#[test]
fn shortened_log_leaves_the_rows_in_tables() {
    let objects: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let store = open_slate(&objects);
    let mut batch = Batch::new();
    for n in 0..1_000_u32 {
        batch.put(format!("key {n}"), [7; 100]);
    }
    store.commit(&batch).expect("commit");
    assert_eq!(store.stats().expect("stats").rows_approx, 0, "in the log only");
    store.shorten_log().expect("shortened");
    assert!(store.stats().expect("stats").rows_approx > 0);
    store.close().expect("closed");
    let next = open_slate(&objects);
    assert_eq!(next.get(b"key 999").expect("read").as_deref(), Some(&[7; 100][..]));
}

#[test]
fn a_fenced_store_reports_it_and_changes_nothing() {
    let objects: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let put = |store: &dyn Metastore, value: &str| {
        let mut batch = Batch::new();
        batch.put("k", value);
        store.commit(&batch)
    };
    let first = open_slate(&objects);
    put(&*first, "1").expect("commit");
    let second = open_slate(&objects);
    assert_eq!(second.get(b"k"), Ok(Some(b"1".to_vec())));
    let refused = put(&*first, "stale");
    assert!(matches!(refused, Err(StoreError::Fenced { .. })), "{refused:?}");
    put(&*second, "2").expect("commit");
    assert!(matches!(put(&*first, "stale"), Err(StoreError::Fenced { .. })));
    first.close().expect("the fenced one closes");
    assert_eq!(second.get(b"k"), Ok(Some(b"2".to_vec())));
    assert_eq!(open_slate(&objects).get(b"k"), Ok(Some(b"2".to_vec())));
}
