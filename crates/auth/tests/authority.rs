//! Authorities, the certificates they issue, and the files of both.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use chiton_auth::{Access, Authority, Credentials, Grant, Subtree, Validity};

const NOW: i64 = 1_800_000_000;

fn validity() -> Validity {
    Validity { now: NOW, days: 30 }
}

#[test]
fn an_authority_issues_what_it_lists() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("authority");
    let authority = Authority::init(&dir, NOW, 1).unwrap();
    assert_eq!(fs::metadata(dir.join("ca.key")).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);

    let all = [
        ("alice", Grant::Client(Access::ReadWrite)),
        ("bob", Grant::Client(Access::Read)),
        ("node1", Grant::Server),
        ("root", Grant::Admin),
        ("zoe", Grant::Below(Access::ReadWrite, Subtree::new("/home/zoe").unwrap())),
    ];
    for (serial, (name, grant)) in (7u128..).zip(&all) {
        let issued = authority.issue(name, grant, validity(), serial << 64).unwrap();
        let credentials = Credentials::from_pem(&issued.identity).unwrap();
        assert_eq!(credentials.own(), &issued.certified);
        assert_eq!(credentials.check_server().is_ok(), grant.is_server());
        assert_eq!(issued.certified.expires, NOW + 30 * 86_400);
    }
    let listed = Authority::open(&dir).unwrap().list().unwrap();
    let listed: Vec<_> = listed.iter().map(|one| (one.name.as_str(), one.grant.clone())).collect();
    assert_eq!(listed, all);

    let bob = authority.find("bob").unwrap().remove(0);
    assert_eq!(authority.find(bob.serial.as_str()).unwrap(), [bob]);
    let unknown = authority.find("carol").unwrap_err().to_string();
    assert!(unknown.contains("no certificate with the name or number \"carol\""), "{unknown}");
    let bad = authority.issue("../x", &Grant::Admin, validity(), 3).unwrap_err().to_string();
    assert!(bad.contains("cannot name a certificate"), "{bad}");
}

#[test]
fn an_authority_is_never_replaced() {
    let root = tempfile::tempdir().unwrap();
    let absent = Authority::open(root.path()).unwrap_err().to_string();
    assert!(absent.contains("there is no authority"), "{absent}");
    Authority::init(root.path(), NOW, 1).unwrap();
    let before = fs::read(root.path().join("ca.key")).unwrap();
    let again = Authority::init(root.path(), NOW, 2).unwrap_err().to_string();
    assert!(again.contains("is not empty"), "{again}");
    assert_eq!(fs::read(root.path().join("ca.key")).unwrap(), before);
}

#[test]
fn identities_that_are_open_to_others_or_incomplete_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let authority = Authority::init(&root.path().join("authority"), NOW, 1).unwrap();
    let identity = authority.issue("alice", &Grant::Admin, validity(), 5).unwrap().identity;
    let path = root.path().join("alice.pem");
    let check = |text: &str, mode: u32, expect: &str| {
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        match Credentials::load(&path) {
            Ok(_) => assert_eq!(expect, ""),
            Err(e) => assert!(!expect.is_empty() && e.to_string().contains(expect), "{e}"),
        }
    };
    check(&identity, 0o600, "");
    check(&identity, 0o640, "chmod 600");
    check("", 0o600, "it has 0 certificates");
    check(&"x".repeat(1 << 17), 0o600, "cannot be an identity");
    let key = identity.find("-----BEGIN PRIVATE").unwrap();
    let authority = key + identity[key..].find("-----BEGIN CERT").unwrap();
    check(&identity[..authority], 0o600, "it has 1 certificates");
    check(&format!("{}{}", &identity[..key], &identity[authority..]), 0o600, "no identity");
    fs::remove_file(&path).unwrap();
    assert!(Credentials::load(&path).unwrap_err().to_string().contains("cannot read"));
}
