//! A server with its own directory, a client of it, and the client's decoupled subtrees.

use std::sync::Arc;

use chiton_client::{Client, ClientOptions};
use chiton_decoupled::{Realm, RealmError, Realms, RealmsOptions};
use chiton_model::XattrHow;
use chiton_runtime::sync::Mutex;
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{FormatOptions, Server, ServerOptions};
use chiton_transport::Address;
use chiton_types::{Attr, Ino, RealmId};
use chiton_wire::{Answer, Call, Claim, RealmAnswer, RealmCall};
use tempfile::TempDir;

pub(crate) struct Site {
    dir: TempDir,
    server: Mutex<Option<Arc<Server>>>,
}

pub(crate) struct Party {
    pub(crate) client: Arc<Client>,
    pub(crate) realms: Arc<Realms>,
}

/// Plates of a new file system.
pub(crate) fn plates() -> u16 {
    if env!("CARGO_CRATE_NAME") == "over_plates" { 4 } else { 1 }
}

fn world() -> SharedWorld {
    Arc::new(RealWorld)
}

impl Site {
    /// Formats and starts a server. All users may do everything at the root.
    pub(crate) fn new() -> Site {
        let dir = tempfile::tempdir().expect("a directory");
        let user = rustix::process::geteuid().as_raw();
        let options = FormatOptions { uid: user, plates: plates(), ..FormatOptions::default() };
        Server::format(&dir.path().join("data"), &options, &world()).expect("formatted");
        let site = Site { dir, server: Mutex::default() };
        site.start();
        site
    }

    pub(crate) fn start(&self) {
        let options = ServerOptions { log: Arc::new(|_| {}), ..ServerOptions::default() };
        let server = Server::start(&self.dir.path().join("data"), options, world()).expect("started");
        server.serve(&[self.address()]).expect("listening");
        *self.server.lock() = Some(server);
    }

    /// Ends the server as a crash would.
    pub(crate) fn kill(&self) {
        self.server().abandon();
        self.server.lock().take();
    }

    /// How many objects decoupled clients have in the store.
    pub(crate) fn objects_of_realms(&self) -> impl Fn() -> usize {
        let dir = self.dir.path().join("data/objects/decoupled");
        move || count_files(&dir)
    }

    /// Ends a decoupling as an administrator does.
    pub(crate) fn end_by_force(&self, realm: RealmId) {
        let client = chiton_embedded::client(&self.server(), ClientOptions::default()).expect("a session");
        let claim = Claim { realm, generation: 0 };
        let call = Call::Realm(Box::new(RealmCall::End { claim, force: true }));
        let ended = chiton_client::ask(&**client.service(), &client.caller(), call).expect("ended");
        assert_eq!(ended, Answer::Realm(RealmAnswer::Ended));
    }

    /// Ends the server in order, and starts it again.
    pub(crate) fn restart(&self) {
        self.server().shutdown().expect("ended");
        self.server.lock().take();
        self.start();
    }

    pub(crate) fn address(&self) -> Address {
        format!("unix:{}", self.dir.path().join("socket").display()).parse().expect("an address")
    }

    /// A new, empty state directory.
    pub(crate) fn state_dir(&self) -> String {
        self.dir.path().join("state of an example").display().to_string()
    }

    pub(crate) fn server(&self) -> Arc<Server> {
        self.server.lock().clone().expect("running")
    }

    fn party(&self, client: Client) -> Party {
        self.party_with(client, "state")
    }

    fn party_with(&self, client: Client, state: &str) -> Party {
        let client = Arc::new(client);
        let state_dir = self.dir.path().join(state);
        let options = RealmsOptions { state_dir, client: ClientOptions::default(), accept_truncated: false };
        Party { realms: Realms::new(client.clone(), options), client }
    }

    /// A client in the server's process.
    pub(crate) fn embedded(&self) -> Party {
        self.party(chiton_embedded::client(&self.server(), ClientOptions::default()).expect("a session"))
    }

    /// A client on another machine.
    pub(crate) fn elsewhere(&self) -> Party {
        let client = Client::connect(&self.address(), ClientOptions::default()).expect("connected");
        self.party_with(client, "state elsewhere")
    }

    /// A client at the other end of a socket.
    pub(crate) fn connected(&self) -> Party {
        self.party(Client::connect(&self.address(), ClientOptions::default()).expect("connected"))
    }
}

fn count_files(dir: &std::path::Path) -> usize {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|e| if e.path().is_dir() { count_files(&e.path()) } else { 1 }).sum()
}

/// Makes directories that can be decoupled: with several plates, those below one of the first level lie on one plate.
pub(crate) fn mkdir_near(client: &Client, path: &str) -> Attr {
    if plates() > 1 {
        let top = path.trim_start_matches('/').split('/').next().unwrap_or_default();
        if client.stat(top).is_err() {
            let ino = client.mkdir_all(top).expect("made").ino;
            let (name, policy) = (b"chiton.policy", b"placement: near");
            client.setxattr(&client.caller(), ino, name, policy, XattrHow::Set).expect("set");
        }
    }
    client.mkdir_all(path).expect("made")
}

impl Party {
    /// Makes a directory and takes it.
    pub(crate) fn take(&self, path: &str, policy: &str) -> Arc<Realm> {
        let root = self.mkdir(path).ino;
        self.decouple(root, policy).expect("decoupled")
    }

    pub(crate) fn mkdir(&self, path: &str) -> Attr {
        mkdir_near(&self.client, path)
    }

    pub(crate) fn decouple(&self, root: Ino, policy: &str) -> Result<Arc<Realm>, RealmError> {
        self.realms.decouple(&self.client.caller(), root, Some(policy.as_bytes()), None)
    }

    /// Resumes the decoupling that an earlier client left.
    pub(crate) fn recover(&self) -> Arc<Realm> {
        let mut all = self.realms.recover();
        assert_eq!(all.len(), 1);
        all.remove(0).expect("recovered")
    }
}

/// Merges without looking at the progress.
pub(crate) fn merge(realm: &Realm) -> chiton_decoupled::MergeReport {
    let report = realm.merge(&|_| {}).expect("merged");
    assert!(report.ended && !report.stopped, "{report:?}");
    assert_eq!(report.lost, [""; 0], "{report:?}");
    report
}

/// A policy with the journal in memory, which excludes others.
pub(crate) const IN_MEMORY: &str = "consistency: weak\ndurability: none\ninterfere_policy: block\n";
/// A policy with the journal on the local disk, which excludes others.
pub(crate) const ON_DISK: &str = "consistency: weak\ndurability: local\ninterfere_policy: block\n";
/// A policy with the journal in the object store, which excludes others.
pub(crate) const IN_STORE: &str = "consistency: weak\ndurability: global\ninterfere_policy: block\n";
