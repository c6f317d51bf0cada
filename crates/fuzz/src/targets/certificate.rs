//! Certificates and identity files: a peer shows the first, and users name the second.

use chiton_auth::{Access, Authority, Certified, Credentials, Grant, Subtree, Validity};

use super::{Target, as_it_is};

pub(super) const CERTIFICATE: Target =
    Target { name: "certificate", run, seeds, repair: as_it_is, short_run: 20_000 };

fn run(bytes: &[u8]) -> bool {
    let is_certificate = Certified::read(bytes).is_ok();
    std::str::from_utf8(bytes).is_ok_and(|text| Credentials::from_pem(text).is_ok()) || is_certificate
}

fn seeds() -> Vec<Vec<u8>> {
    let dir = tempfile::tempdir().expect("a directory");
    let now = 1_800_000_000;
    let authority = Authority::init(&dir.path().join("authority"), now, 1).expect("an authority");
    let below = Subtree::new("/home/a b").expect("a path");
    let grants = [
        Grant::Server,
        Grant::Admin,
        Grant::Client(Access::Read),
        Grant::Client(Access::ReadWrite),
        Grant::Below(Access::ReadWrite, below),
    ];
    let issue = |(serial, grant): (u128, Grant)| {
        let validity = Validity { now, days: 1 };
        let issued = authority.issue("seed", &grant, validity, serial << 64).expect("a certificate");
        [issued.der, issued.identity.into_bytes()]
    };
    (2..).zip(grants).flat_map(issue).collect()
}
