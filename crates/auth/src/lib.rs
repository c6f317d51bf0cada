//! Certificates: they name the process at the other end of a TCP connection, and say what it may do.
//!
//! ```text
//!   Authority (a directory of the administrator)
//!       │ issue(name, grant)
//!       ▼
//!   identity file: certificate, private key, the authority's certificate ── Credentials ──▶ TLS of each connection
//!                                                                              Grant of the other end ◀──┘
//! ```
//!
//! # Getting started
//!
//! ```
//! use chiton_auth::{Access, Authority, Credentials, Grant, Subtree, Validity};
//!
//! # let tmp = tempfile::tempdir()?;
//! # let dir = tmp.path().join("authority");
//! # let (now, serial) = (1_800_000_000, 7);
//! // The administrator's directory, and a certificate for a client whose root is /home/alice.
//! let authority = Authority::init(&dir, now, serial)?;
//! let grant = Grant::Below(Access::ReadWrite, Subtree::new("/home/alice")?);
//! let issued = authority.issue("alice", &grant, Validity { now, days: 365 }, serial + 1)?;
//!
//! // The client's process loads its identity file.
//! let credentials = Credentials::from_pem(&issued.identity)?;
//! assert_eq!(credentials.own().grant, grant);
//! assert!(grant.may_write() && !grant.may_administer());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariants:
//! - A certificate without a readable grant is refused: nothing is allowed by default.
//! - Only servers hold certificates with which a client accepts a server, so no client can pose as one.
//! - A private key is written with mode 0600, and never read from a file that others may read.

mod authority;
mod credentials;
mod error;
mod files;
mod grant;
mod subtree;

pub use authority::{Authority, Issued, Validity};
pub use credentials::Credentials;
pub use error::AuthError;
pub use grant::{Access, Certified, Grant, Serial, check_name};
pub use subtree::Subtree;
