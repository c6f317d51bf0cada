//! A server in a separate process, and its clients in this one.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use chiton_client::{Client, ClientOptions};
use chiton_decoupled::{Realm, Realms, RealmsOptions};
use chiton_model::XattrHow;
use chiton_transport::Address;
use chiton_types::{Ino, Refusal};
use tempfile::TempDir;

use crate::{Result, Setting};

/// How a server differs from the usual one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shape {
    /// Clients come over TCP, so that the kernel counts bytes.
    pub(crate) tcp: bool,
    /// The journal is made of objects: bytes of one, and how many are put at a time.
    pub(crate) objects: Option<(usize, usize)>,
    /// Those objects are in the server's memory, not on its disk.
    pub(crate) in_memory: bool,
    /// Plates of the file system; one if it is not given.
    pub(crate) plates: Option<u16>,
}

/// A server with a fresh file system. Both are gone when it is dropped.
pub(crate) struct Site {
    server: Child,
    address: Address,
    dir: TempDir,
}

/// A client, and the subtrees that it has for itself.
pub(crate) struct Party {
    pub(crate) client: Arc<Client>,
    pub(crate) realms: Arc<Realms>,
}

impl Site {
    pub(crate) fn start(setting: &Setting, shape: Shape) -> Result<Site> {
        let dir = setting.scratch()?;
        let listen = if shape.tcp {
            "tcp:127.0.0.1:0".to_owned()
        } else {
            format!("unix:{}", dir.path().join("socket").display())
        };
        let mut command = Command::new(&setting.program);
        command.arg("serve").arg("--data").arg(dir.path().join("data")).args(["--listen", &listen]);
        if let Some((segment_bytes, dispatch)) = shape.objects {
            command.arg("--objects").args(["--segment-bytes", &segment_bytes.to_string()]);
            command.args(["--dispatch", &dispatch.to_string()]);
            if shape.in_memory {
                command.arg("--in-memory");
            }
        }
        if let Some(plates) = shape.plates {
            command.args(["--plates", &plates.to_string()]);
        }
        let mut server = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut said = String::new();
        let out = server.stdout.take().ok_or("a server without output")?;
        BufReader::new(out).read_line(&mut said)?;
        let address = said.trim().parse().map_err(|e| format!("the server did not start: {said:?}: {e}"));
        let address = address.inspect_err(|_| {
            let _ = server.kill();
            let _ = server.wait();
        })?;
        Ok(Site { server, address, dir })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.server.id()
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// A folder of this site's, beside the server's.
    pub(crate) fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    /// The server ends in order; its file system stays until this is dropped.
    pub(crate) fn end_server(&mut self) -> Result<()> {
        drop(self.server.stdin.take());
        let status = self.server.wait()?;
        if status.success() { Ok(()) } else { Err(format!("the server ended with {status}").into()) }
    }

    /// A client, and a place for its journals.
    pub(crate) fn party(&self, name: &str) -> Result<Party> {
        let client = Arc::new(self.client()?);
        let options = RealmsOptions {
            state_dir: self.path(name),
            client: ClientOptions::default(),
            accept_truncated: false,
        };
        Ok(Party { realms: Realms::new(client.clone(), options), client })
    }

    /// A client that sends its operations one by one: ratios refer to remote procedure calls without leases.
    pub(crate) fn client(&self) -> Result<Client> {
        let options = ClientOptions { write_behind_after: None, ..ClientOptions::default() };
        Ok(Client::connect(&self.address, options).map_err(|e| e.to_string())?)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Party {
    pub(crate) fn mkdir(&self, path: &str) -> Result<Ino> {
        Ok(self.client.mkdir_all(path).map_err(refused)?.ino)
    }

    /// Makes a directory and takes it.
    pub(crate) fn take(&self, path: &str, policy: &str) -> Result<Arc<Realm>> {
        let root = self.mkdir(path)?;
        let caller = self.client.caller();
        Ok(self.realms.decouple(&caller, root, Some(policy.as_bytes()), None).map_err(|e| e.to_string())?)
    }
}

/// Makes a policy hold from a directory down.
pub(crate) fn set_policy(client: &Client, dir: Ino, policy: &str) -> Result<()> {
    let set = client.setxattr(&client.caller(), dir, b"chiton.policy", policy.as_bytes(), XattrHow::Set);
    set.map_err(refused)
}

pub(crate) fn refused(refusal: Refusal) -> crate::Failure {
    refusal.to_string().into()
}
