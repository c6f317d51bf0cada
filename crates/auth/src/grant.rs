//! The statements of a certificate: a name, a right, and until when it is valid.
//!
//! They stand in the certificate as one URI among its alternative names:
//!
//! ```text
//!   chiton:node1?right=server&until=1830000000     a server: serves clients, sends to other servers
//!   chiton:root?right=admin&until=1830000000       an administrator: a client that may also ask servers for reports
//!   chiton:alice?right=rw:/&until=1830000000       a client that may read and change the file system
//!   chiton:backup?right=r:/&until=1830000000       a client that may only read it
//!   chiton:bob?right=rw:/home/bob&until=1830000000 a client whose root is the directory /home/bob
//! ```
//!
//! `until` is for people. TLS checks the certificate's own dates. Bytes of a path that a URI cannot hold stand there as `%` and two
//! hexadecimal digits.

use std::fmt;
use std::str::FromStr;

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use crate::error::AuthError;
use crate::subtree::Subtree;

const SCHEME: &str = "chiton:";
/// Longest name of a certificate.
const NAME_BYTES_MAX: usize = 64;

/// Whether a client may change the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    ReadWrite,
}

/// The rights of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grant {
    Server,
    Admin,
    /// A client of the whole file system.
    Client(Access),
    /// A client whose root is a directory of the file system.
    Below(Access, Subtree),
}

impl Grant {
    /// Whether its owner may change the file system.
    pub fn may_write(&self) -> bool {
        match self {
            Grant::Server | Grant::Admin => true,
            Grant::Client(access) | Grant::Below(access, _) => *access == Access::ReadWrite,
        }
    }

    /// Whether its owner may ask for reports about all clients.
    pub fn may_administer(&self) -> bool {
        match self {
            Grant::Server | Grant::Admin => true,
            Grant::Client(_) | Grant::Below(..) => false,
        }
    }

    pub fn is_server(&self) -> bool {
        *self == Grant::Server
    }

    /// The directory to which its owner is limited.
    pub fn subtree(&self) -> Option<&Subtree> {
        match self {
            Grant::Server | Grant::Admin | Grant::Client(_) => None,
            Grant::Below(_, subtree) => Some(subtree),
        }
    }

    /// As it stands in a certificate.
    fn name(&self) -> String {
        match self {
            Grant::Server => "server".to_owned(),
            Grant::Admin => "admin".to_owned(),
            Grant::Client(access) => format!("{}:/", access.word()),
            Grant::Below(access, subtree) => format!("{}:{}", access.word(), subtree.escaped()),
        }
    }

    /// `None` for everything that is not exactly a right: an unknown one must not be taken for a smaller or a larger one.
    fn from_name(name: &str) -> Option<Grant> {
        let grant = match name.split_once(':') {
            None if name == "server" => Grant::Server,
            None if name == "admin" => Grant::Admin,
            Some(("rw", path)) => Grant::on(Access::ReadWrite, &Subtree::unescape(path)?).ok()?,
            Some(("r", path)) => Grant::on(Access::Read, &Subtree::unescape(path)?).ok()?,
            _ => return None,
        };
        (grant.name() == name).then_some(grant)
    }

    fn on(access: Access, path: &str) -> Result<Grant, AuthError> {
        match path {
            "/" => Ok(Grant::Client(access)),
            path => Ok(Grant::Below(access, Subtree::new(path)?)),
        }
    }
}

impl Access {
    fn word(self) -> &'static str {
        match self {
            Access::Read => "r",
            Access::ReadWrite => "rw",
        }
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Grant::Server | Grant::Admin | Grant::Client(_) => f.write_str(&self.name()),
            Grant::Below(access, subtree) => write!(f, "{}:{}", access.word(), subtree.path()),
        }
    }
}

/// Reads what `--allow` of `chiton auth create` says.
impl FromStr for Grant {
    type Err = AuthError;

    fn from_str(text: &str) -> Result<Grant, AuthError> {
        match text.split_once(':') {
            Some(("rw", path)) => Grant::on(Access::ReadWrite, path),
            Some(("r", path)) => Grant::on(Access::Read, path),
            _ => Err(AuthError::new(format!(
                "cannot read the right {text:?}: write rw:PATH (read and change) or r:PATH (only read); the path is that of a \
                 directory in the file system, or / for all of it"
            ))),
        }
    }
}

/// The serial number of a certificate, by which it is revoked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Serial(String);

impl Serial {
    pub(crate) fn new(bytes: &[u8]) -> Serial {
        let bytes = &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..];
        Serial(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The statements of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certified {
    pub name: String,
    pub grant: Grant,
    pub serial: Serial,
    /// Until when it is valid, in seconds since 1970.
    pub expires: i64,
}

impl Certified {
    /// Reads a certificate (DER). Its signature is not checked here.
    ///
    /// # Errors
    /// If it cannot be read, or does not have exactly one URI, with statements that this release knows.
    pub fn read(der: &[u8]) -> Result<Certified, AuthError> {
        let fail = |why: &str| AuthError::new(format!("the certificate was not made by chiton auth: {why}"));
        let der = CertificateDer::from(der);
        let certificate = EndEntityCert::try_from(&der).map_err(|e| fail(&e.to_string()))?;
        let mut uris = certificate.valid_uri_names();
        let (Some(uri), None) = (uris.next(), uris.next()) else {
            return Err(fail("it does not have one URI"));
        };
        let (name, grant, expires) =
            from_uri(uri).ok_or_else(|| fail("it names no right that this release knows"))?;
        let serial = Serial::new(certificate.serial());
        Ok(Certified { name: name.to_owned(), grant, serial, expires })
    }
}

pub(crate) fn to_uri(name: &str, grant: &Grant, expires: i64) -> String {
    format!("{SCHEME}{name}?right={}&until={expires}", grant.name())
}

/// Exactly what [`to_uri`] writes.
fn from_uri(uri: &str) -> Option<(&str, Grant, i64)> {
    let (name, rest) = uri.strip_prefix(SCHEME)?.split_once("?right=")?;
    let (grant, expires) = rest.split_once("&until=")?;
    let (grant, expires) = (Grant::from_name(grant)?, expires.parse().ok()?);
    (check_name(name).is_ok() && to_uri(name, &grant, expires) == uri).then_some((name, grant, expires))
}

/// Refuses names that cannot stand in a certificate, a log line and a file name.
///
/// # Errors
/// The rule, in words.
pub fn check_name(name: &str) -> Result<(), AuthError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-@".contains(c);
    let is_short = (1..=NAME_BYTES_MAX).contains(&name.len());
    match is_short && name.chars().all(is_plain) && name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        true => Ok(()),
        false => Err(AuthError::new(format!(
            "{name:?} cannot name a certificate: use 1 to {NAME_BYTES_MAX} letters, digits and . _ - @, a letter or digit first"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn below(access: Access, path: &str) -> Grant {
        Grant::Below(access, Subtree::new(path).expect("a path"))
    }

    #[test]
    fn rights_are_read_exactly() {
        let check = |text: &str, expect: Result<Grant, &str>| match (text.parse::<Grant>(), expect) {
            (Ok(found), Ok(expect)) => assert_eq!(found, expect),
            (Err(found), Err(expect)) => assert!(found.0.contains(expect), "{found}"),
            (found, expect) => panic!("{text}: {found:?}, not {expect:?}"),
        };
        check("rw:/", Ok(Grant::Client(Access::ReadWrite)));
        check("r:/", Ok(Grant::Client(Access::Read)));
        check("rw:/home/a b", Ok(below(Access::ReadWrite, "/home/a b")));
        check("r:/home", Ok(below(Access::Read, "/home")));
        check("r:home", Err("begin with a slash"));
        check("rw:/home/../etc", Err("no \"..\""));
        check("w:/", Err("write rw:PATH"));
        check("rw", Err("write rw:PATH"));
        assert_eq!(below(Access::ReadWrite, "/home/ü").to_string(), "rw:/home/ü");
    }

    #[test]
    fn statements_are_read_exactly() {
        let bad = [
            "",
            "chiton:",
            "chiton:a?right=server",
            "chiton:a?right=root&until=1",
            "chiton:a?right=rw:/x/&until=1",
            "chiton:a?right=rw:x&until=1",
            "chiton:a?right=rw:/x/../y&until=1",
            "chiton:a?right=rw:/x y&until=1",
            "chiton:a?right=rw:/%78&until=1",
            "chiton:a?right=rw:/%2&until=1",
            "chiton:a?right=rw:/%ff&until=1",
            "chiton:a?right=rw:%2f&until=1",
            "chiton:a?right=w:/x&until=1",
            "chiton:a?right=rw:/x&y&until=1",
            "chiton:a?right=server&until=01",
            "chiton:a?right=server&until=1 ",
            "chiton:a?right=server&until=1&until=2",
            "chiton:a b?right=server&until=1",
            "chiton:?right=server&until=1",
            "x:a?right=server&until=1",
        ];
        for uri in bad {
            assert_eq!(from_uri(uri), None, "{uri}");
        }
        let all = [
            Grant::Server,
            Grant::Admin,
            Grant::Client(Access::Read),
            Grant::Client(Access::ReadWrite),
            below(Access::Read, "/home"),
            below(Access::ReadWrite, "/home/a&until=2 ?#%/ü/\u{1}"),
        ];
        for grant in all {
            assert_eq!(from_uri(&to_uri("a", &grant, -1)), Some(("a", grant, -1)));
        }
    }

    #[test]
    fn names_are_plain() {
        for name in ["a", "node-1.example", "alice@host", &"x".repeat(64)] {
            assert_eq!(check_name(name), Ok(()));
        }
        for name in ["", "-a", ".", "../x", "a/b", "a b", "ä", "a\n", &"x".repeat(65)] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn hostile_bytes_are_no_certificate(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300)) {
            proptest::prop_assert!(Certified::read(&bytes).is_err());
        }
    }
}
