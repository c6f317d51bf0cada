//! The identity of this process on connections over TCP: `--identity FILE`, or CHITON_IDENTITY.

use std::path::PathBuf;
use std::sync::OnceLock;

use chiton_auth::{AuthError, Credentials};
use chiton_client::ClientOptions;

use crate::failure::{Failure, Outcome};

/// The environment variable that names the file.
pub(crate) const VARIABLE: &str = "CHITON_IDENTITY";

/// One process speaks for one identity.
static LOADED: OnceLock<Loaded> = OnceLock::new();

#[derive(Default)]
struct Loaded {
    file: Option<PathBuf>,
    credentials: Option<Result<Credentials, AuthError>>,
}

/// Reads the file, if one is named. An error is reported by the command that needs it.
pub(crate) fn load(file: Option<PathBuf>) {
    let file = file.map(|file| std::path::absolute(&file).unwrap_or(file));
    let credentials = file.as_deref().map(Credentials::load);
    let _ = LOADED.set(Loaded { file, credentials });
}

/// The file, for a process that this one starts.
pub(crate) fn file() -> Option<PathBuf> {
    LOADED.get().and_then(|loaded| loaded.file.clone())
}

/// `None`: connections over TCP have no TLS.
pub(crate) fn credentials() -> Outcome<Option<Credentials>> {
    match LOADED.get().and_then(|loaded| loaded.credentials.clone()) {
        None => Ok(None),
        Some(Ok(credentials)) => Ok(Some(credentials)),
        Some(Err(e)) => Err(Failure::failed(e)),
    }
}

/// The options of a client with this identity.
pub(crate) fn with(options: ClientOptions) -> Outcome<ClientOptions> {
    Ok(ClientOptions { credentials: credentials()?, ..options })
}

/// The directory to which this process's certificate is limited.
pub(crate) fn subtree() -> Outcome<Option<String>> {
    let own = credentials()?.map(|credentials| credentials.own().grant.clone());
    Ok(own.and_then(|grant| Some(grant.subtree()?.path().to_owned())))
}

/// Whether this process's certificate allows it to change a file system that another process serves.
pub(crate) fn may_write() -> Outcome<bool> {
    Ok(credentials()?.is_none_or(|credentials| credentials.own().grant.may_write()))
}
