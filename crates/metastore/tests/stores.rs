//! Every store passes the suite.

use std::path::Path;
use std::sync::Arc;

use chiton_metastore::conformance::{Subject, suite};
use chiton_metastore::{FjallMetastore, FjallOptions, MemoryMetastore, Metastore};

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
