//! The suite of stores against a real service.

use std::sync::Arc;

use chiton_moto::Moto;
use chiton_objects::{Objects, conformance};
use chiton_s3::{S3Config, S3Location, S3Objects};

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
