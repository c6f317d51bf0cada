//! The client: handle calls, as a mount asks them.
//!
//! Files of this folder: [`names`](crate::names) for changes of the tree, [`listing`](crate::listing) for directories,
//! [`open`](crate::open) for open files, [`path`](crate::path) for callers who think in paths.

use std::sync::Arc;
use std::time::Duration;

use chiton_namespace::{ContentIn, Fault, InodeFacts, permission};
use chiton_objects::{LocalObjects, Objects};
use chiton_transport::Address;
use chiton_types::{Attr, Cred, Ino, Kind, Name, Position, Refusal, access};
use chiton_wire::{Answer, Call, LeaseMode, Query, StatFs};

use crate::cache::Since;
use crate::cache_invalidation::Invalidating;
use crate::core::{Core, Invalidator};
use crate::data::{BlockIo, Files, NearBlocks, ServerBlocks};
use crate::dial::SocketDialer;
use crate::exclusion_cache::ExclusionCache;
use crate::handler::Handler;
use crate::reached::Reached;
use crate::recall_handler::RecallHandler;
use crate::service::{Caller, Service, ask};
use crate::write_behind::{WriteBehind, WriteBehinds};
use crate::{ClientOptions, ConnectError, Dialer, RecallInbox};

/// How long a new client without a limit of its own waits for plates that do not run yet.
const READY_PATIENCE: Duration = Duration::from_secs(30);

/// A client of one file system. Share it with [`Arc`]; all calls may come from many threads.
pub struct Client {
    pub(crate) service: Arc<dyn Service>,
    pub(crate) files: Arc<Files>,
    pub(crate) core: Arc<Core>,
    /// Takes recalls for as long as the client, or one made from it, lives.
    pub(crate) handler: Arc<RecallHandler>,
    pub(crate) user: (u32, u32, Arc<[u32]>),
    pub(crate) root: Ino,
    filesystem: u64,
}

/// An inode and how long the kernel may keep it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Attributes, with writes that are buffered here.
    pub attr: Attr,
    /// How long the name may be kept.
    pub ttl: Duration,
    /// How long the attributes may be kept.
    pub attr_ttl: Duration,
}

/// The result of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The name exists, and its attributes are known.
    Found {
        /// Attributes, with writes that are buffered here.
        attr: Attr,
        /// How long the name may be kept.
        ttl: Duration,
        /// How long the attributes may be kept.
        attr_ttl: Duration,
    },
    /// There is no such name.
    Absent {
        /// How long that may be kept.
        ttl: Duration,
    },
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The name in the directory: one component without `/`.
    pub name: Name,
    /// The inode that the name stands for.
    pub ino: Ino,
    /// Its type, which never changes.
    pub kind: Kind,
    /// Go on after this entry with this cookie.
    pub cookie: u64,
    /// With `plus`: as a lookup would answer.
    pub entry: Option<Entry>,
}

impl Client {
    /// Connects to a server. A server that is not there is an error within 2 seconds.
    ///
    /// # Errors
    /// In words: no server, another version, refused.
    pub fn connect(address: &Address, options: ClientOptions) -> Result<Client, ConnectError> {
        // Behind a Unix socket the server is on this machine, and its store may be open to us; of a server elsewhere
        // that path is not here, or is something else.
        let is_near = matches!(address, Address::Unix(_));
        let address = address.clone();
        Client::connect_to_any(Box::new(move || vec![address.clone()]), is_near, options)
    }

    /// Connects to the servers of a cluster. `addresses` says where some of them are; it is asked at first, and again whenever none
    /// of those that are known answers. `is_near`: their object store is on this machine, too. Plates that are on their way from one
    /// server to another are waited for: as long as [`ClientOptions::timeout`] says, or 30 seconds.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_to_any(
        addresses: Box<dyn Fn() -> Vec<Address> + Send + Sync>,
        is_near: bool,
        options: ClientOptions,
    ) -> Result<Client, ConnectError> {
        let patience = options.timeout.unwrap_or(READY_PATIENCE);
        let dialer = Box::new(SocketDialer::new(addresses, options.credentials.clone(), patience));
        let store = |objects: &str| -> Option<Arc<dyn Objects>> {
            let path = objects.strip_prefix("local:").filter(|_| is_near)?;
            Some(Arc::new(LocalObjects::open(std::path::Path::new(path)).ok()?))
        };
        Client::connect_by(dialer, store, options)
    }

    /// Connects by any network (simulation). `store` is asked for the object store that the server names, if there is
    /// a nearer way to it than through the server.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_by(
        dialer: Box<dyn Dialer>,
        store: impl FnOnce(&str) -> Option<Arc<dyn Objects>>,
        options: ClientOptions,
    ) -> Result<Client, ConnectError> {
        let reached = Reached::connect(dialer, &options)?;
        let service = reached.service;
        let blocks = store(&reached.objects)
            .map(|store| Arc::new(NearBlocks::new(store, service.clone())) as Arc<dyn BlockIo>);
        let own = options.credentials.as_ref().map(|credentials| credentials.own().clone());
        let client =
            Client::build(service, &reached.inbox, reached.write_behind, blocks, reached.filesystem, options);
        match own.as_ref().and_then(|own| Some((own, own.grant.subtree()?.path()))) {
            Some((own, path)) => client.limited(&own.name, path),
            None => Ok(client),
        }
    }

    /// A client over any service, such as a server in this process (`chiton-embedded`). From now on recalls that the
    /// service delivers to `inbox` are carried out. `blocks`: where file data are; `None`: with the server. `filesystem`
    /// is the identity of the file system.
    ///
    /// # Panics
    /// If another client takes the recalls of the inbox.
    pub fn over(
        service: Arc<dyn Service>,
        inbox: &RecallInbox,
        blocks: Option<Arc<dyn BlockIo>>,
        filesystem: u64,
        options: ClientOptions,
    ) -> Client {
        let write_behind = WriteBehinds::one(Arc::new(WriteBehind::off()));
        Client::build(service, inbox, write_behind, blocks, filesystem, options)
    }

    /// As [`Client::over`], with write-behind over the links of the service.
    pub(crate) fn build(
        service: Arc<dyn Service>,
        inbox: &RecallInbox,
        write_behind: WriteBehinds,
        blocks: Option<Arc<dyn BlockIo>>,
        filesystem: u64,
        options: ClientOptions,
    ) -> Client {
        let entries_max = options.cache_entries_max;
        let core = Core::new(options.world.clone(), &*service, entries_max, write_behind);
        let core = Arc::new(core);
        // In this process asking is as good as knowing.
        let service = match service.is_embedded() {
            true => service,
            false => Arc::new(ExclusionCache::new(service, options.world.clone())),
        };
        let service: Arc<dyn Service> = Arc::new(Invalidating { inner: service, core: core.clone() });
        let blocks = blocks.unwrap_or_else(|| Arc::new(ServerBlocks::new(service.clone())));
        let files = Files::new(service.clone(), blocks, options.world, options.files);
        let user = options.user.map(|(uid, gid, groups)| (uid, gid, groups.into()));
        let user = user.unwrap_or_else(process_user);
        let handler = Arc::new(RecallHandler { core: core.clone(), files: files.clone() });
        let receiver: Arc<dyn Handler> = handler.clone();
        inbox.set_handler(Arc::downgrade(&receiver));
        Client { service, files, core, handler, user, root: options.root, filesystem }
    }

    /// The same client (session, caches, open files) for callers whose path calls begin at the directory `root`.
    pub fn rooted(&self, root: Ino) -> Client {
        Client {
            service: self.service.clone(),
            files: self.files.clone(),
            core: self.core.clone(),
            handler: self.handler.clone(),
            user: self.user.clone(),
            root,
            filesystem: self.filesystem,
        }
    }

    /// The same client (session, caches, open files) for path calls of another user, with this group and these supplementary
    /// groups.
    pub fn acting_as(&self, uid: u32, gid: u32, groups: &[u32]) -> Client {
        Client { user: (uid, gid, groups.into()), ..self.rooted(self.root) }
    }

    /// Ends as a crash would: nothing more reaches the server. For tests and simulation.
    pub fn abandon(&self) {
        self.service.abandon();
    }

    /// The service that answers this client's calls.
    pub fn service(&self) -> &Arc<dyn Service> {
        &self.service
    }

    /// How many questions, operations and commits it has sent to servers so far. Messages that keep its sessions alive are not counted, and a
    /// request that is sent again counts once.
    pub fn messages(&self) -> u64 {
        self.service.messages()
    }

    /// The store of this client's blocks: reached directly, or through the server.
    pub fn blocks(&self) -> &Arc<dyn BlockIo> {
        &self.files.io
    }

    /// The inode at which paths begin.
    pub fn root(&self) -> Ino {
        self.root
    }

    /// Identity of the file system.
    pub fn filesystem(&self) -> u64 {
        self.filesystem
    }

    /// From now on `invalidator` makes the kernel forget. To be called once, before the kernel is given anything.
    pub fn set_invalidator(&self, invalidator: Arc<dyn Invalidator>) {
        assert!(self.core.invalidator.set(invalidator).is_ok(), "the invalidator of a client is set once");
    }

    pub(crate) fn since(&self) -> Since {
        self.core.cache.since(self.service.recalls())
    }

    pub(crate) fn ask(&self, caller: &Caller<'_>, call: Call) -> Result<Answer, Refusal> {
        ask(&*self.service, caller, call)
    }

    /// Whether what is cached of an inode may be believed.
    pub(crate) fn is_fresh(&self, ino: Ino) -> bool {
        !self.core.embedded && self.service.valid_until(ino) > self.core.world.monotonic()
    }

    /// Attributes with the effect of writes that are buffered here, and how long the kernel may keep them.
    pub(crate) fn entry(
        &self,
        since: Since,
        parent: Option<(Ino, &Name)>,
        mut attr: Attr,
        lease: LeaseMode,
    ) -> Entry {
        let attr_ttl = self.core.attr_ttl(&*self.service, since, &attr, lease);
        let ttl = parent
            .map_or(Duration::ZERO, |(parent, name)| self.core.name_ttl(&*self.service, since, parent, name));
        self.files.overlay(&mut attr);
        Entry { attr, ttl, attr_ttl }
    }

    // ---- looking ------------------------------------------------------------------------------------

    /// Looks a name up. `.` and `..` are understood.
    ///
    /// # Errors
    /// As lookup(2) has them, but that a missing name is [`Lookup::Absent`].
    pub fn lookup(&self, caller: &Caller<'_>, parent: Ino, name: &[u8]) -> Result<Lookup, Refusal> {
        if name == b"." || name == b".." {
            let here = self.getattr(parent, None)?;
            let ino = if name == b"." { parent } else { here.attr.parent };
            let there = self.getattr(ino, None)?;
            return Ok(Lookup::Found { attr: there.attr, ttl: Duration::ZERO, attr_ttl: there.attr_ttl });
        }
        let name = Name::new(name)?;
        let since = self.since();
        if let Some(hit) = self.look_in_cache(caller, since, parent, &name) {
            return Ok(hit);
        }
        let recalls = self.service.recalls();
        let cache = &self.core.cache;
        match self.ask(caller, Call::Query(Query::Lookup { parent, name: name.clone() }))? {
            Answer::Attr { attr, lease, parent_leased, parent_open } => {
                cache.learn_parent(recalls, since, (parent, &name), parent_leased, parent_open);
                cache.learn_name(recalls, since, parent, &name, Some(attr.ino));
                cache.learn_attr(recalls, since, &attr, lease);
                let Entry { attr, ttl, attr_ttl } = self.entry(since, Some((parent, &name)), attr, lease);
                Ok(Lookup::Found { attr, ttl: if parent_leased { ttl } else { Duration::ZERO }, attr_ttl })
            }
            Answer::Absent { parent_leased, parent_open } => {
                cache.learn_parent(recalls, since, (parent, &name), parent_leased, parent_open);
                cache.learn_name(recalls, since, parent, &name, None);
                let ttl = self.core.name_ttl(&*self.service, since, parent, &name);
                Ok(Lookup::Absent { ttl: if parent_leased { ttl } else { Duration::ZERO } })
            }
            _ => Err(Refusal::Io),
        }
    }

    pub(crate) fn look_in_cache(
        &self,
        caller: &Caller<'_>,
        since: Since,
        parent: Ino,
        name: &Name,
    ) -> Option<Lookup> {
        let cache = &self.core.cache;
        if !self.is_fresh(cache.place(parent, name)) {
            return None;
        }
        let (ino, open) = cache.name(parent, name)?;
        if !open && !self.may_search_cached(caller, parent)? {
            // The server says why not.
            return None;
        }
        let Some(ino) = ino else {
            return Some(Lookup::Absent { ttl: self.core.name_ttl(&*self.service, since, parent, name) });
        };
        let attr = cache.attr(ino).filter(|_| self.is_fresh(ino))?;
        let Entry { attr, ttl, attr_ttl } = self.entry(since, Some((parent, name)), attr, LeaseMode::Shared);
        Some(Lookup::Found { attr, ttl, attr_ttl })
    }

    /// Whether the caller may search a directory, as far as that is cached.
    pub(crate) fn may_search_cached(&self, caller: &Caller<'_>, dir: Ino) -> Option<bool> {
        let cache = &self.core.cache;
        match self.core.write_behind.of(dir).may_search(cache, dir, &caller.cred()) {
            Some(may) => Some(may),
            None => self.decide(caller, &cache.attr(dir)?, access::EXEC),
        }
    }

    /// Whether these attributes let the caller do this (bits of [`chiton_types::access`]).
    pub fn may(&self, caller: &Caller<'_>, attr: &Attr, want: u8) -> bool {
        self.decide(caller, attr, want) == Some(true)
    }

    /// The same; `None` if an access list decides, which attributes do not show.
    fn decide(&self, caller: &Caller<'_>, attr: &Attr, want: u8) -> Option<bool> {
        let facts = InodeFacts::new(attr, ContentIn::Nothing);
        let check = |cred: &Cred| permission::may(attr, cred, &facts, want);
        let decided = match check(&caller.cred()) {
            Err(Fault::NeedGroups) => check(&caller.full_cred()),
            decided => decided,
        };
        match decided {
            Ok(()) => Some(true),
            Err(Fault::Missing(_)) => None,
            Err(_) => Some(false),
        }
    }

    /// Attributes. `fh` may name an open file (an inode without names has no other handle).
    ///
    /// # Errors
    /// [`Refusal::Stale`] if it is gone.
    pub fn getattr(&self, ino: Ino, _fh: Option<u64>) -> Result<Entry, Refusal> {
        let since = self.since();
        if self.is_fresh(ino)
            && let Some(attr) = self.core.cache.attr(ino)
        {
            return Ok(self.entry(since, None, attr, LeaseMode::Shared));
        }
        match self.ask(&self.caller(), Call::Query(Query::GetAttr { ino }))? {
            Answer::Attr { attr, lease, .. } => {
                self.core.cache.learn_attr(self.service.recalls(), since, &attr, lease);
                Ok(self.entry(since, None, attr, lease))
            }
            _ => Err(Refusal::Io),
        }
    }

    /// Target of a symbolic link.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] if it is none.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>, Refusal> {
        self.bytes(&self.caller(), Query::ReadLink { ino })
    }

    pub(crate) fn bytes(&self, caller: &Caller<'_>, query: Query) -> Result<Vec<u8>, Refusal> {
        match self.ask(caller, Call::Query(query))? {
            Answer::Bytes(bytes) => Ok(bytes),
            _ => Err(Refusal::Io),
        }
    }

    /// access(2): whether the caller may do `want` (bits of [`chiton_types::access`]; 0: whether it is there).
    ///
    /// # Errors
    /// [`Refusal::Access`] if not.
    pub fn access(&self, caller: &Caller<'_>, ino: Ino, want: u8) -> Result<(), Refusal> {
        if self.is_fresh(ino)
            && let Some(attr) = self.core.cache.attr(ino)
            && let Some(may) = self.decide(caller, &attr, want)
        {
            return if may { Ok(()) } else { Err(Refusal::Access) };
        }
        self.ask(caller, Call::Query(Query::Access { ino, want })).map(drop)
    }

    /// Totals of the file system.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn statfs(&self) -> Result<StatFs, Refusal> {
        match self.ask(&self.caller(), Call::Query(Query::StatFs))? {
            Answer::StatFs(totals) => Ok(totals),
            _ => Err(Refusal::Io),
        }
    }

    // ---- everything ---------------------------------------------------------------------------------

    /// Pushes all that is dirty here and waits until all that was answered is durable.
    ///
    /// # Errors
    /// [`Refusal::Io`] if something of it was lost.
    pub fn sync(&self) -> Result<(), Refusal> {
        let pushed = self.files.sync();
        self.service.commit(Position(0))?;
        pushed
    }

    /// As [`Client::sync`], for a client that ends: it asks the server only if something of this client may not be durable, so a
    /// server that is away is waited for only then (S86).
    ///
    /// # Errors
    /// As [`Client::sync`].
    pub fn sync_before_end(&self) -> Result<(), Refusal> {
        let pushed = self.files.sync();
        let service = &self.service;
        if service.needs_commit() || service.unsettled() > 0 {
            service.commit(Position(0))?;
        } else if service.take_lost() {
            return Err(Refusal::Io);
        }
        pushed
    }

    /// Pushes what is dirty here and waits until all that was answered is durable: fsync(2) of a directory (S18). Data that a
    /// file cannot push are reported to its handles (S23).
    ///
    /// # Errors
    /// [`Refusal::Io`] if something of it was lost.
    pub fn fsyncdir(&self) -> Result<(), Refusal> {
        // A failure is kept for those who have that file open.
        let _ = self.files.push_all();
        self.service.commit(Position(0))
    }

    /// This client ends: it stops waiting for a server that is silent for `limit`, and its callers get
    /// [`Refusal::NotConnected`]. Follow with [`Client::sync`].
    pub fn leave(&self, limit: std::time::Duration) {
        self.service.leave(limit);
    }

    /// Asked by calls that wait for a server that is away, on their own thread: `true` ends the wait with
    /// [`Refusal::Interrupted`]. Can be set once.
    pub fn set_interrupted(&self, interrupted: crate::Interrupted) {
        self.service.set_interrupted(interrupted);
    }

    /// Whether there is no connection to the server now.
    pub fn is_away(&self) -> bool {
        self.service.is_away()
    }

    /// Whether the server answers now; within a few seconds, whatever this client waits for.
    ///
    /// # Errors
    /// Why not, in words.
    pub fn probe(&self) -> Result<(), String> {
        self.service.probe()
    }

    /// The loss if client and server died now: bytes written and not handed over, and operations that are not
    /// known to be durable.
    pub fn at_stake(&self) -> (usize, usize) {
        (self.files.dirty_bytes(), self.service.unsettled())
    }

    /// Files with bytes that are written here and not handed over.
    pub fn files_at_stake(&self) -> Vec<Ino> {
        self.files.dirty_files()
    }

    /// Hands over the data written here, durable or not.
    ///
    /// # Errors
    /// The last failure; the handles of that file report it.
    pub fn push(&self) -> Result<(), Refusal> {
        self.files.push_all()
    }

    /// The user of the path calls.
    pub fn caller(&self) -> Caller<'_> {
        let (uid, gid, groups) = &self.user;
        Caller { uid: *uid, gid: *gid, groups: crate::Groups::Known(groups) }
    }
}

fn process_user() -> (u32, u32, Arc<[u32]>) {
    let groups = rustix::process::getgroups().unwrap_or_default();
    let groups: Arc<[u32]> = groups.into_iter().map(|gid| gid.as_raw()).collect();
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw(), groups)
}
