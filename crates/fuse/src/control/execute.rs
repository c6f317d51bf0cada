//! Carries out control requests.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use chiton_client::LookUp;
use chiton_decoupled::{Choice, MergeProgress, MergeReport, RealmError};
use chiton_policy::OnConflict;
use chiton_types::{Capabilities, Ino, Refusal, counted};
use rustix::net::UCred;
use serde::Serialize;
use serde_json::{Value, json};

use super::message::{ControlReply, ControlRequest, GiveBack, Progress};
use crate::caller::RequestCredentials;
use crate::open_files;
use crate::router::{Router, Slot};

/// The kernel reports a closed file only after close(2) has returned. Wait this long for files that may all be
/// closed.
const WRITERS_PATIENCE: Duration = Duration::from_secs(2);
/// Exit code of a command that a conflict stopped.
const STOPPED: u8 = 5;

type Done = (Value, u8);
/// Text is sent in pieces of about this many bytes.
const PIECE_BYTES: usize = 64 << 10;

/// Bytes of a segment in one reply; a multiple of 3, so Base64 needs no padding.
const SEGMENT_PIECE_BYTES: usize = 48 << 10;

/// Sends a long report while it is written.
struct Pieces<'a> {
    say: &'a dyn Fn(ControlReply),
    text: Vec<u8>,
}

impl Write for Pieces<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(text);
        if self.text.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(text.len())
    }

    /// Sends the text so far; a character that is cut off waits for its rest.
    fn flush(&mut self) -> io::Result<()> {
        let whole = match std::str::from_utf8(&self.text) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
        let rest = self.text.split_off(whole);
        let piece = String::from_utf8(std::mem::replace(&mut self.text, rest)).map_err(io::Error::other)?;
        if !piece.is_empty() {
            (self.say)(ControlReply::Text(piece));
        }
        Ok(())
    }
}

/// Carries out one request of `peer`.
pub(super) fn carry_out(
    router: &Router,
    peer: &UCred,
    request: &ControlRequest,
    say: &dyn Fn(ControlReply),
) -> ControlReply {
    let report: &dyn Fn(Progress) = &|progress| say(ControlReply::Progress(progress));
    let done = match request {
        ControlRequest::Decouple { ino, policy } => decouple(router, peer, Ino(*ino), policy.as_deref()),
        ControlRequest::Sync { ino } => slot(router, peer, *ino).and_then(|slot| {
            let realm = slot.realm();
            let is_all = Ino(*ino) == realm.root() || (realm.branch().is_some() && Ino(*ino) == Ino::ROOT);
            if !is_all {
                return Err(RealmError::new(
                    Refusal::Invalid,
                    "it is only a part of a decoupled subtree, and a sync merges the whole subtree",
                    "name the directory that was decoupled (`chiton decoupled` lists it), or use fsync to make one file durable",
                ));
            }
            let report = slot.realm().sync(&|so_far: MergeProgress| report(so_far.into()))?;
            let report = slot.realm().as_named_here(report);
            done(&report, if report.stopped { STOPPED } else { 0 })
        }),
        ControlRequest::Diff { ino, on_conflict } => slot(router, peer, *ino).and_then(|slot| {
            let diff = slot.realm().diff_with(resolution(on_conflict.as_deref())?)?;
            let mut pieces = Pieces { say, text: Vec::new() };
            let written = serde_json::to_writer(&mut pieces, &diff).map_err(io::Error::from);
            written.and_then(|()| pieces.flush()).map_err(unreportable)?;
            Ok((Value::Null, 0))
        }),
        ControlRequest::Conflicts { ino } => slot(router, peer, *ino).and_then(|slot| {
            let all = slot.realm().conflicts()?;
            done(&all, 0)
        }),
        ControlRequest::Resolve { ino, rest, theirs } => slot(router, peer, *ino).and_then(|slot| {
            let choice = if *theirs { Choice::Theirs } else { Choice::Ours };
            let dir = slot.realm().path_within(Ino(*ino)).unwrap_or_default();
            let path = match (&dir[..], &rest[..]) {
                ([], rest) => rest.to_vec(),
                (dir, []) => dir.to_vec(),
                (dir, rest) => [dir, rest].join(&b'/'),
            };
            slot.realm().resolve_conflict(&path, choice)?;
            // The kernel may have cached content from before.
            router.forget(&slot);
            Ok((json!({ "resolved": true }), 0))
        }),
        ControlRequest::GiveBack { ino, how, force, on_conflict, accept_truncated } => {
            let end = resolution(on_conflict.as_deref()).map(|on_conflict| End {
                how: *how,
                force: *force,
                on_conflict,
            });
            end.and_then(|end| {
                let slot = slot(router, peer, *ino)?;
                if *accept_truncated {
                    slot.realm().accept_truncated();
                }
                give_back(router, &slot, &end, report)
            })
        }
        ControlRequest::KeepMounts => {
            router.keep_mounts();
            Ok((Value::Null, 0))
        }
        ControlRequest::Segments { ino } => {
            slot(router, peer, *ino).and_then(|slot| done(&slot.realm().segments()?, 0))
        }
        ControlRequest::Segment { ino, number, bytes_max } => slot(router, peer, *ino).and_then(|slot| {
            let bytes = slot.realm().segment(*number, *bytes_max)?;
            bytes.chunks(SEGMENT_PIECE_BYTES).for_each(|piece| say(ControlReply::Text(BASE64.encode(piece))));
            Ok((Value::Null, 0))
        }),
        ControlRequest::List => list(router),
        // It is kept for the end of the mount before it comes here.
        ControlRequest::AwaitEnd => Ok((Value::Null, 0)),
        ControlRequest::Probe => match router.global().probe() {
            Ok(()) => Ok((Value::Null, 0)),
            Err(why) => Err(RealmError::new(Refusal::NotConnected, why, "")),
        },
    };
    match done {
        Ok((report, exit_code)) => ControlReply::Done { report, exit_code },
        Err(error) => ControlReply::Failed { message: error.to_string(), exit_code: error.exit_code() },
    }
}

fn done(report: &impl Serialize, exit_code: u8) -> Result<Done, RealmError> {
    Ok((serde_json::to_value(report).map_err(unreportable)?, exit_code))
}

fn unreportable(error: impl std::fmt::Display) -> RealmError {
    RealmError::new(Refusal::Io, format!("the report: {error}"), "")
}

fn decouple(router: &Router, peer: &UCred, root: Ino, policy: Option<&str>) -> Result<Done, RealmError> {
    let asking = credentials_of(peer);
    let slot = router.decouple_at(&asking.caller(), root, policy.map(str::as_bytes))?;
    let status = slot.realm().status();
    let (mut report, exit_code) = done(&status, 0)?;
    report["stages"] = json!(slot.realm().stages());
    report["on_failure"] = json!(slot.realm().policy().on_failure.word());
    Ok((report, exit_code))
}

fn credentials_of(peer: &UCred) -> RequestCredentials {
    RequestCredentials::new(peer.pid.as_raw_pid() as u32, peer.uid.as_raw(), peer.gid.as_raw())
}

/// The decoupled subtree around an inode, if the peer may decide about it.
fn slot(router: &Router, peer: &UCred, ino: u64) -> Result<Arc<Slot>, RealmError> {
    let slot = router.slot_of(Ino(ino)).ok_or_else(|| {
        RealmError::new(
            Refusal::NotFound,
            "the path is in no subtree that this mount has decoupled",
            "`chiton decoupled` lists all subtrees",
        )
    })?;
    let uid = peer.uid.as_raw();
    let administers = || credentials_of(peer).standing().privileges.everywhere(Capabilities::SYS_ADMIN);
    if peer.uid == rustix::process::geteuid() || (uid == 0 && administers()) {
        return Ok(slot);
    }
    let root = slot.realm().client().getattr(slot.realm().root(), None).map(|root| root.attr);
    // A lost realm does not answer. Its owner is the one at the time of decoupling.
    let root = if slot.realm().is_lost() { Ok(slot.realm().root_attr().clone()) } else { root };
    let owner = root.as_ref().map_or_else(|_| "?".to_owned(), |root| format!("user {}", root.uid));
    match root {
        Ok(root) if root.uid == uid => Ok(slot),
        _ => Err(RealmError::new(
            Refusal::NotPermitted,
            format!("only root, the user of the mount and the owner of the subtree ({owner}) may do this"),
            "ask one of them",
        )),
    }
}

/// How a decoupling is to end.
struct End {
    how: GiveBack,
    force: bool,
    on_conflict: Option<OnConflict>,
}

fn resolution(word: Option<&str>) -> Result<Option<OnConflict>, RealmError> {
    let unknown = |word: &str| {
        let what = format!("{word:?} is not a value of on_conflict");
        RealmError::new(Refusal::Invalid, what, "use overwrite, abort, keep_both or merge")
    };
    word.map(|word| OnConflict::by_word(word).ok_or_else(|| unknown(word))).transpose()
}

fn give_back(router: &Router, slot: &Slot, end: &End, report: &dyn Fn(Progress)) -> Result<Done, RealmError> {
    let &End { how, force, on_conflict } = end;
    let policy = slot.realm().policy();
    let is_merge = match how {
        GiveBack::Merge => true,
        GiveBack::Discard => false,
        GiveBack::AsThePolicySays if policy.merges_by_itself() => true,
        GiveBack::AsThePolicySays => {
            let what = match policy.is_merged_offline() {
                true => "by its policy (nonvolatile_apply) it is merged offline, by chiton recover --offline",
                false => {
                    "the policy is invisible, so the command must choose whether to merge or to drop the changes"
                }
            };
            let next = "`chiton recouple --merge` or `--discard`; `chiton diff` shows what a merge would do";
            return Err(RealmError::new(Refusal::Invalid, what, next));
        }
    };
    let mut whose = None;
    let writers = slot.writers_after(if force { Duration::ZERO } else { WRITERS_PATIENCE }, |inos| {
        let numbers: Vec<u64> = inos.iter().map(|ino| ino.0).collect();
        whose = router.device().and_then(|device| open_files::writer_of(device, &numbers));
        whose.is_some()
    });
    if writers > 0 && !force {
        let open = counted(writers as u64, "file");
        return Err(RealmError::new(
            Refusal::Busy,
            match whose {
                Some(whose) => format!("open for writing there: {open}, one by {whose}"),
                None => format!("open for writing there: {open}"),
            },
            "close them (fuser -vm names the processes), or use --force: their descriptors answer EIO from then on",
        ));
    }
    if slot.realm().is_lost() && is_merge {
        // The error says what to do.
        slot.realm().diff()?;
    }
    if !is_merge {
        slot.give_back(|| slot.realm().discard())?;
        router.forget(slot);
        return Ok((json!({ "discarded": true, "ended": true }), 0));
    }
    let report = slot.realm().as_named_here(merge(slot, on_conflict, report)?);
    if report.ended {
        router.forget(slot);
    }
    done(&report, if report.stopped { STOPPED } else { 0 })
}

/// Merges; the realm waits only for the last of it.
fn merge(
    slot: &Slot,
    on_conflict: Option<OnConflict>,
    report: &dyn Fn(Progress),
) -> Result<MergeReport, RealmError> {
    let progress = |so_far: MergeProgress| report(so_far.into());
    if on_conflict.unwrap_or(slot.realm().policy().on_conflict) == OnConflict::Merge {
        // Texts are merged while no operation runs in the realm.
        return slot.give_back(|| slot.realm().merge_with(on_conflict, &progress));
    }
    let first = slot.realm().sync_with(on_conflict, &progress)?;
    if first.stopped {
        return Ok(first);
    }
    slot.give_back(|| slot.realm().merge_with(on_conflict, &progress)).map(|rest| rest.after(first))
}

fn list(router: &Router) -> Result<Done, RealmError> {
    let realms = router.realms().map(|realms| realms.list()).unwrap_or_default();
    let all: Vec<_> = realms.iter().map(|realm| realm.status()).collect();
    done(&all, 0)
}
