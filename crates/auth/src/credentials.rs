//! The credentials of this process: they prove to the other end of a connection which process this is, and check the other end.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use rustls::client::{ClientConnection, Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{NoServerSessionStorage, ServerConnection, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::error::AuthError;
use crate::files;
use crate::grant::{Certified, Grant};

/// The name that the certificates of all servers have. Clients check that a server is one of the cluster, not which machine it is:
/// addresses change, and any server may take a plate over.
pub(crate) const SERVER_NAME: &str = "server.chiton";

/// A certificate, its private key, and the authority that must have signed the certificate of a peer. Clones share them.
#[derive(Clone)]
pub struct Credentials(Arc<Inner>);

struct Inner {
    own: Certified,
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl Credentials {
    /// Reads an identity file (`chiton auth create`).
    ///
    /// # Errors
    /// If it cannot be read, is open to others, or is no identity.
    pub fn load(path: &Path) -> Result<Credentials, AuthError> {
        let text = files::read(path, true)?;
        Credentials::from_pem(&text)
            .map_err(|e| AuthError::new(format!("cannot use {}: {e}", path.display())))
    }

    /// The same from the content of such a file.
    ///
    /// # Errors
    /// If it is no identity.
    pub fn from_pem(text: &str) -> Result<Credentials, AuthError> {
        let fail = |why: &dyn fmt::Display| {
            AuthError::new(format!("it is no identity that chiton auth create wrote: {why}"))
        };
        let certificates: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(text.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(|e| fail(&e))?;
        let [own, authority] = <[_; 2]>::try_from(certificates)
            .map_err(|found| fail(&format_args!("it has {} certificates, not 2", found.len())))?;
        let key = PrivateKeyDer::from_pem_slice(text.as_bytes()).map_err(|e| fail(&e))?;
        let certified = Certified::read(&own)?;
        let mut roots = RootCertStore::empty();
        roots.add(authority).map_err(|e| fail(&e))?;
        let roots = Arc::new(roots);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let client = client_config(&provider, &roots, own.clone(), key.clone_key()).map_err(|e| fail(&e))?;
        let server = server_config(&provider, &roots, own, key).map_err(|e| fail(&e))?;
        Ok(Credentials(Arc::new(Inner {
            own: certified,
            client: Arc::new(client),
            server: Arc::new(server),
        })))
    }

    /// The statements of its own certificate.
    pub fn own(&self) -> &Certified {
        &self.0.own
    }

    /// Whether a server may listen with them.
    ///
    /// # Errors
    /// With the certificate of a client, which no client would accept.
    pub fn check_server(&self) -> Result<(), AuthError> {
        match &self.0.own.grant {
            Grant::Server => Ok(()),
            Grant::Admin | Grant::Client(_) | Grant::Below(..) => Err(AuthError::new(format!(
                "the identity {:?} is that of a client, and a server needs its own: chiton auth create NAME --server",
                self.0.own.name
            ))),
        }
    }

    /// The client's end of a connection.
    ///
    /// # Errors
    /// Those of rustls.
    pub fn client_end(&self) -> Result<ClientConnection, rustls::Error> {
        let name = ServerName::try_from(SERVER_NAME).expect("a fixed name is one");
        ClientConnection::new(self.0.client.clone(), name)
    }

    /// The server's end of a connection.
    ///
    /// # Errors
    /// Those of rustls.
    pub fn server_end(&self) -> Result<ServerConnection, rustls::Error> {
        ServerConnection::new(self.0.server.clone())
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the key.
        f.debug_tuple("Credentials").field(&self.0.own.name).finish()
    }
}

type Failure = Box<dyn std::error::Error>;

/// No session is resumed: each connection shows its certificate, so that a revoked one does not come back by a ticket.
fn client_config(
    provider: &Arc<CryptoProvider>,
    roots: &Arc<RootCertStore>,
    own: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
) -> Result<ClientConfig, Failure> {
    let verifier = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone()).build()?;
    let mut config = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])?
        .with_webpki_verifier(verifier)
        .with_client_auth_cert(vec![own], key)?;
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Ok(config)
}

fn server_config(
    provider: &Arc<CryptoProvider>,
    roots: &Arc<RootCertStore>,
    own: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, Failure> {
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone()).build()?;
    let mut config = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![own], key)?;
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(config)
}
