//! Decoupled subtrees: the feature `decoupled`.

use std::path::PathBuf;
use std::sync::Arc;

use chiton_client::{Client, ClientOptions};
use chiton_decoupled::{RealmError, Realms, RealmsOptions, Subtree, SubtreeError, default_state_dir};
use chiton_policy::preset;
use chiton_types::Refusal;

use crate::last::Failure;

/// A subtree in which a job works.
pub(crate) struct Job(Subtree);

/// The subtrees that a file system's handle has decoupled.
pub(crate) struct Decouplings(Arc<Realms>);

impl Decouplings {
    /// `state_dir`: where journals lie that a later process needs if this one dies.
    pub(crate) fn new(client: &Arc<Client>, state_dir: Option<&str>) -> Result<Decouplings, Failure> {
        let none =
            "there is no place for the journals of decoupled subtrees: give a state directory, or set HOME";
        let state_dir = state_dir.map(PathBuf::from).or_else(default_state_dir);
        let state_dir = state_dir.ok_or_else(|| Failure::new(Refusal::NotFound, none))?;
        let options = RealmsOptions { state_dir, client: ClientOptions::default(), accept_truncated: false };
        Ok(Decouplings(Realms::new(client.clone(), options)))
    }

    /// Decouples a directory. `policy`: the name of one that ships, or the text of one.
    pub(crate) fn begin(&self, path: &[u8], policy: Option<&str>) -> Result<Job, Failure> {
        let policy = policy.map(|policy| preset(policy).map_or(policy, |preset| preset.text));
        Ok(Job(Subtree::begin(&self.0, path, policy.map(str::as_bytes))?))
    }

    /// Closes all decoupled subtrees: merges them, or leaves their journals.
    pub(crate) fn close(&self) -> Result<(), Failure> {
        self.0.close().into_iter().next().map_or(Ok(()), |error| Err(error.into()))
    }
}

impl Job {
    /// Calls the client whose paths begin at the subtree's root.
    pub(crate) fn call<R>(&self, call: impl FnOnce(&Client) -> R) -> R {
        call(&self.0.client())
    }

    pub(crate) fn sync(&self) -> Result<(), Failure> {
        Ok(self.0.sync().map(drop)?)
    }

    pub(crate) fn sync_mode(&self, on: bool) -> Result<(), Failure> {
        Ok(self.0.sync_mode(on).map(drop)?)
    }

    pub(crate) fn is_synchronous(&self) -> bool {
        self.0.is_synchronous()
    }

    pub(crate) fn discard(&self) -> Result<(), Failure> {
        Ok(self.0.discard()?)
    }

    pub(crate) fn close(&self) -> Result<(), Failure> {
        Ok(self.0.close()?)
    }
}

impl From<RealmError> for Failure {
    fn from(error: RealmError) -> Failure {
        Failure::new(error.refusal(), error.to_string())
    }
}

impl From<SubtreeError> for Failure {
    fn from(error: SubtreeError) -> Failure {
        Failure::new(error.refusal(), error.to_string())
    }
}
