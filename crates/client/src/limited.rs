//! Clients whose certificate is limited to a subtree.

use chiton_types::{Cred, Ino, Refusal};
use chiton_wire::{Answer, Call, Query};

use crate::client::Client;
use crate::{CallError, ConnectError};

impl Client {
    /// The same client with the root that the server gives to its certificate.
    pub(crate) fn limited(&self, name: &str, path: &str) -> Result<Client, ConnectError> {
        let whole =
            Query::Resolve { from: Ino::ROOT, path: b"/".to_vec(), follow: true, sessions: Vec::new() };
        let why = match self.service.call(&Cred::ROOT, Call::Query(whole)) {
            Ok(Answer::Resolved(resolved)) => match resolved.end() {
                Some((attr, _)) => {
                    let root = *self.core.limit.get_or_init(|| attr.ino);
                    return Ok(self.rooted(root));
                }
                None => "the server answered something else".to_owned(),
            },
            Ok(_) => "the server answered something else".to_owned(),
            Err(CallError::Refused(Refusal::NotFound)) => format!(
                "there is no such directory, or a symbolic link is on the way; make it with another identity, or ask the administrator for \
                 a certificate for another one (chiton auth create {name} --allow rw:PATH)"
            ),
            Err(CallError::Refused(refusal)) => refusal.to_string(),
            Err(CallError::NeedGroups) => "the server asked for groups".to_owned(),
        };
        Err(ConnectError(format!(
            "the certificate of {name} is limited to {path}, which cannot be used: {why}"
        )))
    }
}
