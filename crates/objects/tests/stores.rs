//! Every store, bare and decorated, passes the suite.

use std::cell::RefCell;
use std::sync::Arc;

use chiton_moto::Moto;
use chiton_objects::{
    LocalObjects, MemoryObjects, Metered, Objects, Retry, RetryOptions, S3Config, S3Location, S3Objects,
    conformance,
};
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

/// Against a real service.
#[test]
fn s3() {
    let moto = Moto::shared();
    let (key, secret) = chiton_moto::CREDENTIALS;
    let config = S3Config {
        endpoint: Some(moto.endpoint()),
        region: "us-east-1".to_owned(),
        is_virtual: false,
        keys: Some((key.to_owned(), secret.to_owned(), None)),
        ca_bundle: None,
    };
    let open = |bucket: &str, prefix: &str| {
        let location: S3Location = format!("s3://{bucket}/{prefix}").parse().expect("a location");
        S3Objects::open_with(&location, &config).expect("settings fit")
    };
    conformance::suite(&|| Arc::new(open(&moto.bucket(), "")));
    let bucket = moto.bucket();
    let (one, other) = (open(&bucket, "one/a"), open(&bucket, "one"));
    one.put("x", b"1").expect("put");
    assert_eq!(one.list("", None, 9).expect("list").len(), 1);
    assert_eq!(other.get("a/x", None).expect("get below a shorter prefix"), b"1");
    assert_eq!(one.list("", Some("x"), 9).expect("list"), vec![]);
    let large = vec![7; 40 << 20];
    one.put("parts", &large).expect("put in parts");
    assert_eq!(one.size("parts"), Ok(40 << 20));
    assert_eq!(one.get("parts", Some((20 << 20)..(20 << 20) + 3)), Ok(vec![7; 3]));
    one.probe(1).expect("it can be used");
    let missing = open("no-such-bucket", "").probe(1).expect_err("no bucket");
    assert!(missing.contains("there is no bucket \"no-such-bucket\""), "{missing}");
}
