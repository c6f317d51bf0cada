//! The authority that signs certificates: a directory that the administrator keeps.
//!
//! ```text
//!   DIR/ca.pem            its certificate, which every identity holds too
//!   DIR/ca.key            its private key (0600)
//!   DIR/issued/SERIAL.pem a copy of each certificate, for the list
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType, SerialNumber,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use time::{Duration, OffsetDateTime};

use crate::credentials::SERVER_NAME;
use crate::error::AuthError;
use crate::files;
use crate::grant::{Certified, Grant, check_name, to_uri};

const CA_DAYS: u32 = 3650;
/// Certificates begin so much earlier than they are made: the clocks of machines differ.
const SKEW: Duration = Duration::hours(1);
/// Most certificates that a list reads.
const ISSUED_MAX: usize = 100_000;

/// How long a certificate is valid.
#[derive(Clone, Copy, Debug)]
pub struct Validity {
    /// Seconds since 1970.
    pub now: i64,
    pub days: u32,
}

impl Validity {
    fn span(self) -> Result<(OffsetDateTime, OffsetDateTime), AuthError> {
        let begin = OffsetDateTime::from_unix_timestamp(self.now).ok();
        let end = begin.and_then(|begin| begin.checked_add(Duration::days(i64::from(self.days))));
        let begin = begin.and_then(|begin| begin.checked_sub(SKEW));
        begin
            .zip(end)
            .ok_or_else(|| AuthError::new(format!("{} days is too long for a certificate", self.days)))
    }
}

/// The open directory, with the private key that signs certificates.
#[derive(Debug)]
pub struct Authority {
    dir: PathBuf,
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

/// A certificate that was just signed.
#[derive(Debug)]
pub struct Issued {
    pub certified: Certified,
    /// The certificate alone, as it is shown to a peer.
    pub der: Vec<u8>,
    /// The content of an identity file: certificate, private key, the authority's certificate.
    pub identity: String,
}

impl Authority {
    /// Makes an authority in `dir`, which must not exist or be empty. `serial` is a random number.
    ///
    /// # Errors
    /// If there is something in the directory, or it cannot be written.
    pub fn init(dir: &Path, now: i64, serial: u128) -> Result<Authority, AuthError> {
        let fail = |e: io::Error| AuthError::new(format!("cannot make the directory {}: {e}", dir.display()));
        match files::make_private_dir(dir) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                if fs::read_dir(dir).map_err(fail)?.next().is_some() {
                    return Err(AuthError::new(format!(
                        "{} is not empty, and an authority is never replaced: choose another directory",
                        dir.display()
                    )));
                }
            }
            made => made.map_err(fail)?,
        }
        files::make_private_dir(&dir.join("issued")).map_err(fail)?;
        let key = KeyPair::generate().map_err(|e| no_key(&e))?;
        let mut params = authority();
        params.serial_number = Some(serial_number(serial));
        (params.not_before, params.not_after) = Validity { now, days: CA_DAYS }.span()?;
        let certificate = params.self_signed(&key).map_err(|e| no_certificate(&e))?;
        files::write_new(&dir.join("ca.key"), &key.serialize_pem(), true)?;
        files::write_new(&dir.join("ca.pem"), &certificate.pem(), false)?;
        Authority::open(dir)
    }

    /// The authority that [`Authority::init`] made in `dir`.
    ///
    /// # Errors
    /// If there is none, or its key is open to others.
    pub fn open(dir: &Path) -> Result<Authority, AuthError> {
        if !dir.join("ca.pem").exists() {
            return Err(AuthError::new(format!(
                "there is no authority in {}: make one (chiton auth init --dir DIR), or name its directory",
                dir.display()
            )));
        }
        let certificate = files::read(&dir.join("ca.pem"), false)?;
        let key = files::read(&dir.join("ca.key"), true)?;
        let damaged =
            |e: rcgen::Error| AuthError::new(format!("the authority in {} is damaged: {e}", dir.display()));
        let key = KeyPair::from_pem(&key).map_err(damaged)?;
        Ok(Authority { dir: dir.to_owned(), issuer: Issuer::new(authority(), key), certificate })
    }

    /// Makes a certificate and its key, and notes it for the list. `serial` is a random number.
    ///
    /// # Errors
    /// If the name cannot be one, or the certificate cannot be noted.
    pub fn issue(
        &self,
        name: &str,
        grant: &Grant,
        validity: Validity,
        serial: u128,
    ) -> Result<Issued, AuthError> {
        check_name(name)?;
        let key = KeyPair::generate().map_err(|e| no_key(&e))?;
        let mut params = CertificateParams::default();
        params.distinguished_name = named(name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        (params.not_before, params.not_after) = validity.span()?;
        let uri = to_uri(name, grant, params.not_after.unix_timestamp());
        let uri = uri.try_into().map_err(|e| no_certificate(&e))?;
        params.subject_alt_names = vec![SanType::URI(uri)];
        if grant.is_server() {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
            let server = SERVER_NAME.try_into().map_err(|e| no_certificate(&e))?;
            params.subject_alt_names.push(SanType::DnsName(server));
        }
        params.serial_number = Some(serial_number(serial));
        params.use_authority_key_identifier_extension = true;
        let certificate = params.signed_by(&key, &self.issuer).map_err(|e| no_certificate(&e))?;
        let certified = Certified::read(certificate.der())?;
        let own = certificate.pem();
        files::write_new(&self.issued().join(format!("{}.pem", certified.serial)), &own, false)?;
        let der = certificate.der().to_vec();
        Ok(Issued { certified, der, identity: format!("{own}{}{}", key.serialize_pem(), self.certificate) })
    }

    fn issued(&self) -> PathBuf {
        self.dir.join("issued")
    }

    /// The certificates that were issued, by name.
    ///
    /// # Errors
    /// If one of them cannot be read.
    pub fn list(&self) -> Result<Vec<Certified>, AuthError> {
        let dir = self.issued();
        let fail = |e: io::Error| AuthError::new(format!("cannot read {}: {e}", dir.display()));
        let mut all = Vec::new();
        for entry in fs::read_dir(&dir).map_err(fail)?.take(ISSUED_MAX) {
            let path = entry.map_err(fail)?.path();
            let text = files::read(&path, false)?;
            let der = CertificateDer::from_pem_slice(text.as_bytes())
                .map_err(|e| AuthError::new(format!("{} is damaged: {e}", path.display())))?;
            all.push(Certified::read(&der)?);
        }
        all.sort_by(|a, b| (&a.name, a.expires, &a.serial).cmp(&(&b.name, b.expires, &b.serial)));
        Ok(all)
    }

    /// The certificates with this name, or the one with this serial number.
    ///
    /// # Errors
    /// If there is none.
    pub fn find(&self, name_or_serial: &str) -> Result<Vec<Certified>, AuthError> {
        let is_meant = |one: &Certified| one.name == name_or_serial || one.serial.as_str() == name_or_serial;
        let found: Vec<Certified> = self.list()?.into_iter().filter(is_meant).collect();
        match found.is_empty() {
            false => Ok(found),
            true => Err(AuthError::new(format!(
                "the authority in {} has issued no certificate with the name or number {name_or_serial:?}: chiton auth list shows all",
                self.dir.display()
            ))),
        }
    }
}

/// The parameters that all authorities share.
fn authority() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = named("chiton authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn named(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

/// Serial numbers are positive: the first bit is 0, and some other bit is not.
fn serial_number(random: u128) -> SerialNumber {
    SerialNumber::from_slice(&((random >> 1) | (1 << 126)).to_be_bytes())
}

fn no_key(e: &rcgen::Error) -> AuthError {
    AuthError::new(format!("cannot make a key: {e}"))
}

fn no_certificate(e: &rcgen::Error) -> AuthError {
    AuthError::new(format!("cannot make a certificate: {e}"))
}
