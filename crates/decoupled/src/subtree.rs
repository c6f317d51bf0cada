//! A subtree whose program itself chooses when it works alone and when all clients see its changes, as in BatchFS.
//!
//! ```text
//!                  sync_mode(true): durable, merged, given back
//!   asynchronous ───────────────────────────────────────────────▶ synchronous
//!   decoupled: alone, no message ◀─────────────────────────────── the server carries out
//!                  sync_mode(false): decoupled again
//! ```
//!
//! Invariants:
//! - A call is carried out in one mode: a switch waits for those under way, and those that come meanwhile wait for it.
//! - Paths begin at the subtree's root in both modes. A merged inode keeps its number.
//! - A switch that fails leaves the mode as it was, except when only the removal of the local folder failed.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::Arc;

use chiton_client::{Caller, Client, Groups, OpenFlags};
use chiton_runtime::sync::{Mutex, RwLock, RwLockReadGuard};
use chiton_types::{Ino, Refusal};

use crate::error::{RealmError, SubtreeError};
use crate::realm::Realm;
use crate::realms::{Realms, part_with};
use crate::report::MergeReport;

/// A subtree with two modes. All methods may be called from many threads. A thread that holds the result of
/// [`Subtree::client`] must not switch the mode: it would wait for itself.
///
/// ```text
///   let job = Subtree::begin(&realms, "/job", Some(b"consistency: weak\ndurability: local\n"))?;
///   job.client().create_file("/part-1", b"...")?;      alone: no message, invisible to others
///   job.sync_mode(true)?;                              now visible to all, and durable
///   job.client().create_file("/part-2", b"...")?;      visible to all when this returns
///   job.sync_mode(false)?;                             alone again
/// ```
///
/// The client below the realms must not [decouple](chiton_client::ClientOptions::decouples) directories
/// automatically: it does the work in synchronous mode. Its write-behind does not change what other clients see
/// (S1, S4). With [`chiton_client::ClientOptions::write_behind_after`] `None`, each change is a call.
pub struct Subtree {
    realms: Arc<Realms>,
    root: Ino,
    /// As which it is decoupled; none: as the policy that holds there.
    policy: Option<Vec<u8>>,
    /// The client in synchronous mode.
    strong: Client,
    mode: RwLock<Mode>,
    /// Held during a switch.
    switching: Mutex<()>,
}

struct Mode {
    /// The realm, in asynchronous mode.
    alone: Option<Arc<Realm>>,
    /// Number of switches so far.
    switches: u64,
}

thread_local! {
    /// Number of [`Working`] values that this thread holds. A thread that holds one and takes another, for example
    /// in the arguments of a call, must not wait for a switch that waits for the first.
    static HELD: Cell<u32> = const { Cell::new(0) };
}

/// The client of the mode that holds: the mode does not change before this is dropped.
pub struct Working<'a> {
    mode: RwLockReadGuard<'a, Mode>,
    strong: &'a Client,
}

impl<'a> Working<'a> {
    fn begin(subtree: &'a Subtree) -> Working<'a> {
        let mode = match HELD.get() {
            0 => subtree.mode.read(),
            _ => subtree.mode.read_recursive(),
        };
        HELD.set(HELD.get() + 1);
        Working { mode, strong: &subtree.strong }
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        HELD.set(HELD.get() - 1);
    }
}

impl Deref for Working<'_> {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.mode.alone.as_ref().map_or(self.strong, |realm| realm.client())
    }
}

impl Subtree {
    /// Takes the directory `path` (of the client that `realms` stand on), and is asynchronous. `policy` is YAML; without one
    /// the policy holds that is set there.
    ///
    /// # Errors
    /// There is no such directory; as [`Realms::decouple`].
    pub fn begin(
        realms: &Arc<Realms>,
        path: impl AsRef<[u8]>,
        policy: Option<&[u8]>,
    ) -> Result<Subtree, RealmError> {
        let path = path.as_ref();
        let root = realms.global.stat(path).map_err(|refusal| {
            let what = format!("{}: {refusal}", String::from_utf8_lossy(path));
            RealmError::new(refusal, what, "name a directory of the file system")
        })?;
        let realm = realms.decouple(&realms.global.caller(), root.ino, policy, None)?;
        Ok(Subtree::new(realms, realm, policy.map(<[u8]>::to_vec)))
    }

    /// Resumes an existing decoupling ([`Realms::recover`], [`Realms::adopt`]), in asynchronous mode.
    ///
    /// # Errors
    /// It is a branch, or over.
    pub fn of(realms: &Arc<Realms>, realm: Arc<Realm>) -> Result<Subtree, RealmError> {
        if realm.branch().is_some() || realm.is_ended() {
            let what = "only an open decoupling that is no branch can switch its mode";
            return Err(RealmError::new(Refusal::Invalid, what, "a branch is merged or deleted as a whole"));
        }
        let policy = realm.policy().text().into_bytes();
        Ok(Subtree::new(realms, realm, Some(policy)))
    }

    fn new(realms: &Arc<Realms>, realm: Arc<Realm>, policy: Option<Vec<u8>>) -> Subtree {
        let root = realm.root();
        Subtree {
            strong: realms.global.rooted(root),
            realms: realms.clone(),
            root,
            policy,
            mode: RwLock::new(Mode { alone: Some(realm), switches: 0 }),
            switching: Mutex::new(()),
        }
    }

    /// The client for work in the subtree; its path calls begin at the subtree's root. Take it anew for each call,
    /// or for calls that belong together: the mode does not change while the returned value lives. Its handles end
    /// with the mode; a [`SubtreeFile`] does not.
    pub fn client(&self) -> Working<'_> {
        Working::begin(self)
    }

    /// The subtree's root directory.
    pub fn root(&self) -> Ino {
        self.root
    }

    /// Whether other clients see each change when it is acknowledged.
    pub fn is_synchronous(&self) -> bool {
        self.client().mode.alone.is_none()
    }

    /// The decoupling, in asynchronous mode: for its status, its differences.
    pub fn realm(&self) -> Option<Arc<Realm>> {
        self.client().mode.alone.clone()
    }

    /// Switches the mode. `true`: when this returns, all acknowledged changes are merged, visible to all clients,
    /// and as durable as the directory's own policy makes them. The decoupling is over, and the server carries out
    /// all further operations. Other threads work during most of the merge, and wait only for its rest. `false`:
    /// the directory is decoupled again, with the same policy. If the mode is set already, `true` makes
    /// acknowledged changes durable, and `false` does nothing.
    ///
    /// # Errors
    /// [`SubtreeError::Conflicts`]: the policy says `on_conflict: abort`, and changes of other clients conflict.
    /// The comparison merges none of the conflicting changes. After an error the mode stays asynchronous, and
    /// changes that were merged before stay merged.
    pub fn sync_mode(&self, on: bool) -> Result<MergeReport, SubtreeError> {
        let _one = self.switching.lock();
        if !on {
            self.work_alone()?;
            return Ok(MergeReport::default());
        }
        let Some(realm) = self.realm() else {
            self.commit()?;
            return Ok(MergeReport::default());
        };
        let first = merged(realm.sync(&|_| {})?)?;
        let mut mode = self.mode.write();
        let rest = realm.merge(&|_| {});
        // Also if it ended and could not be tidied away.
        if realm.is_ended() {
            *mode = Mode { alone: None, switches: mode.switches + 1 };
        }
        merged(rest?.after(first))
    }

    fn work_alone(&self) -> Result<(), RealmError> {
        let mut mode = self.mode.write();
        if mode.alone.is_none() {
            let policy = self.policy.as_deref();
            let realm = self.realms.decouple(&self.strong.caller(), self.root, policy, None)?;
            *mode = Mode { alone: Some(realm), switches: mode.switches + 1 };
        }
        Ok(())
    }

    /// Merges the changes so far without a change of mode. In synchronous mode, makes them durable.
    ///
    /// # Errors
    /// As [`Subtree::sync_mode`].
    pub fn sync(&self) -> Result<MergeReport, SubtreeError> {
        match self.realm() {
            Some(realm) => merged(realm.sync(&|_| {})?),
            None => {
                self.commit()?;
                Ok(MergeReport::default())
            }
        }
    }

    fn commit(&self) -> Result<(), RealmError> {
        let failed = |refusal| RealmError::refused("changes there cannot be made durable", refusal);
        self.strong.sync().map_err(failed)
    }

    /// Drops unmerged changes, and switches to synchronous mode. In synchronous mode it does nothing.
    ///
    /// # Errors
    /// Why not; then it is as before.
    pub fn discard(&self) -> Result<(), RealmError> {
        let _one = self.switching.lock();
        let mut mode = self.mode.write();
        let Some(realm) = mode.alone.clone() else { return Ok(()) };
        let dropped = realm.discard();
        if realm.is_ended() {
            *mode = Mode { alone: None, switches: mode.switches + 1 };
        }
        dropped
    }

    /// Ends the work as the policy says, like [`Realms::close`]. In synchronous mode it does nothing. Later calls
    /// of the decoupled client are refused ([`Refusal::NotConnected`]).
    ///
    /// # Errors
    /// Why something waits in the journal that was to be merged.
    pub fn close(&self) -> Result<(), RealmError> {
        let _one = self.switching.lock();
        let mode = self.mode.write();
        mode.alone.as_ref().filter(|realm| !realm.is_ended()).map_or(Ok(()), |realm| part_with(realm))
    }

    /// Opens a file, for use in both modes.
    ///
    /// # Errors
    /// As open(2).
    pub fn open(
        self: &Arc<Subtree>,
        path: impl AsRef<[u8]>,
        flags: OpenFlags,
    ) -> Result<SubtreeFile, Refusal> {
        let client = self.client();
        let ino = client.stat(path.as_ref())?.ino;
        let fh = client.open_path(path, flags)?;
        let opened = Opened { fh, switches: client.mode.switches, alone: client.mode.alone.clone() };
        drop(client);
        // Creation and truncation happen only at the first open.
        let flags = OpenFlags { truncate: false, exclusive: false, ..flags };
        Ok(SubtreeFile { subtree: self.clone(), ino, flags, opened: Mutex::new(opened) })
    }
}

/// A merge that a conflict stopped is an error here.
fn merged(report: MergeReport) -> Result<MergeReport, SubtreeError> {
    if report.stopped { Err(SubtreeError::Conflicts(Box::new(report))) } else { Ok(report) }
}

/// An open file of a [`Subtree`] that survives changes of mode: the same inode is opened again where operations are
/// then carried out. Writes before a switch are merged like all changes. A file that has no name when the mode
/// changes is lost: its next call is refused with [`Refusal::Stale`].
pub struct SubtreeFile {
    subtree: Arc<Subtree>,
    ino: Ino,
    flags: OpenFlags,
    opened: Mutex<Opened>,
}

/// The handle in the mode in which it was opened.
struct Opened {
    fh: u64,
    switches: u64,
    alone: Option<Arc<Realm>>,
}

impl SubtreeFile {
    /// The file's inode.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// At most `len` bytes from `offset`; fewer only at the end of the file.
    ///
    /// # Errors
    /// As read(2).
    pub fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, Refusal> {
        self.on(|client, fh| client.read(fh, offset, len))
    }

    /// Writes all of `bytes`; with O_APPEND at the end of file, whatever `offset` is.
    ///
    /// # Errors
    /// As write(2).
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<u32, Refusal> {
        self.on(|client, fh| client.write(&client.caller(), fh, offset, bytes))
    }

    /// fsync(2): durable as the mode has it, in the journal of the decoupling or at the server.
    ///
    /// # Errors
    /// As [`Subtree::sync`].
    pub fn fsync(&self) -> Result<(), Refusal> {
        self.on(|client, fh| client.fsync(fh, false))
    }

    /// Closes the file, and returns the errors of earlier writes. Dropping the file also closes it, without a
    /// report.
    ///
    /// # Errors
    /// Why something that was written is lost.
    pub fn close(self) -> Result<(), Refusal> {
        self.on(|client, fh| client.flush(fh))
    }

    fn on<R>(&self, call: impl FnOnce(&Client, u64) -> Result<R, Refusal>) -> Result<R, Refusal> {
        let client = self.subtree.client();
        let fh = {
            let mut opened = self.opened.lock();
            if opened.switches != client.mode.switches {
                // It was permitted when it was opened.
                let groups: Arc<[u32]> = Arc::new([]);
                let root = Caller { uid: 0, gid: 0, groups: Groups::Known(&groups) };
                let fh = client.open(&root, self.ino, self.flags).map_err(|refusal| match refusal {
                    Refusal::NotFound => Refusal::Stale,
                    refusal => refusal,
                })?;
                let has_name = client.getattr(self.ino, None).map(|entry| entry.attr.nlink > 0);
                if has_name != Ok(true) {
                    let _ = client.release(fh);
                    return Err(has_name.err().unwrap_or(Refusal::Stale));
                }
                // The switch has pushed all dirty content.
                self.release(&opened);
                *opened = Opened { fh, switches: client.mode.switches, alone: client.mode.alone.clone() };
            }
            opened.fh
        };
        call(&client, fh)
    }

    fn release(&self, opened: &Opened) {
        // Of a decoupling that is over nothing is open.
        let _ = match &opened.alone {
            Some(realm) => realm.client().release(opened.fh),
            None => self.subtree.strong.release(opened.fh),
        };
    }
}

impl Drop for SubtreeFile {
    fn drop(&mut self) {
        self.release(&self.opened.lock());
    }
}
