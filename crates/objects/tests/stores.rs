//! Every store, bare and decorated, passes the suite.

use std::cell::RefCell;
use std::sync::Arc;

use chiton_objects::{LocalObjects, MemoryObjects, Metered, Objects, Retry, RetryOptions, conformance};
use chiton_runtime::SeededWorld;

#[test]
fn memory() {
    conformance::suite(&|| Arc::new(MemoryObjects::new()));
}

#[test]
fn local_directory() {
    let dirs = RefCell::new(Vec::new());
    conformance::suite(&|| {
        let dir = tempfile::tempdir().expect("a directory");
        let store = LocalObjects::open(dir.path()).expect("open");
        dirs.borrow_mut().push(dir);
        Arc::new(store)
    });
}

#[test]
fn decorated() {
    conformance::suite(&|| {
        let metered: Arc<dyn Objects> = Arc::new(Metered::new(Arc::new(MemoryObjects::new())));
        let world = Arc::new(SeededWorld::new(1));
        Arc::new(Retry::new(metered, world, Arc::new(|_| ()), RetryOptions::default()))
    });
}
