//! Every message comes back from its bytes as it was; what is not a message's bytes is refused, without a panic and
//! without an allocation out of proportion.

mod realm;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use chiton_model::{
    AttrChange, Body, CHUNK_BYTES, Extent, Gone, Hold, Make, Op, Outcome, RenameHow, SetTime, XattrHow,
};
use chiton_types::{
    Attr, BlockId, Capabilities, Cred, Epoch, IdMaps, IdRange, Ino, Kind, Malformed, Mode, Name, Position,
    Privileges, Put, Refusal, Scope, Seq, SessionId, Take, Time,
};
use chiton_wire::*;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

/// Counts what this thread has allocated.
struct Counting;

thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: passes everything on to the system's allocator; the counter does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is ending has no counter any more, and nothing to count.
        let _ = ALLOCATED.try_with(|n| n.set(n.get() + layout.size()));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocated<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = ALLOCATED.get();
    let result = work();
    (result, ALLOCATED.get() - before)
}

fn ino() -> impl Strategy<Value = Ino> {
    any::<u64>().prop_map(Ino)
}

fn position() -> impl Strategy<Value = Position> {
    any::<u64>().prop_map(Position)
}

fn time() -> impl Strategy<Value = Time> {
    any::<i64>().prop_map(Time)
}

fn mode() -> impl Strategy<Value = Mode> {
    (0..=0o7777u16).prop_map(Mode)
}

fn name() -> impl Strategy<Value = Name> {
    let byte = any::<u8>().prop_filter("allowed in names", |b| !matches!(b, 0 | b'/'));
    vec(byte, 1..40).prop_filter_map("no dots", |bytes| Name::new(&bytes).ok())
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..200)
}

fn kind() -> impl Strategy<Value = Kind> {
    (1..=7u8).prop_map(|n| Kind::from_u8(n).unwrap())
}

fn lease() -> impl Strategy<Value = LeaseMode> {
    select(&[LeaseMode::None, LeaseMode::Shared, LeaseMode::Exclusive][..])
}

fn block() -> impl Strategy<Value = BlockId> {
    (1..u64::MAX, any::<u64>()).prop_map(|(writer, number)| BlockId { writer, number })
}

fn extents() -> impl Strategy<Value = Vec<Extent>> {
    let one = (option::of(block()), 1..1000u32, any::<u16>(), any::<bool>());
    vec(one, 0..6).prop_map(|pieces| {
        let piece = |(i, (block, len, at, shared)): (usize, (Option<BlockId>, u32, u16, bool))| Extent {
            offset: i as u64 * CHUNK_BYTES + 5,
            len,
            block: block.unwrap_or(BlockId::HOLE),
            block_offset: if block.is_some() { u32::from(at) } else { 0 },
            shared,
        };
        pieces.into_iter().enumerate().map(piece).collect()
    })
}

fn body() -> impl Strategy<Value = Body> {
    prop_oneof![bytes().prop_map(Body::Inline), extents().prop_map(Body::Extents)]
}

fn set_time() -> impl Strategy<Value = SetTime> {
    prop_oneof![Just(SetTime::Now), time().prop_map(SetTime::At)]
}

fn change() -> impl Strategy<Value = AttrChange> {
    let ids = (option::of(any::<u32>()), option::of(any::<u32>()));
    let times = (option::of(set_time()), option::of(set_time()));
    (option::of(mode()), ids, option::of(any::<u64>()), any::<(bool, bool)>(), times).prop_map(
        |(mode, (uid, gid), size, (size_by_handle, kill_setid), (atime, mtime))| AttrChange {
            mode,
            uid,
            gid,
            size,
            size_by_handle,
            atime,
            mtime,
            kill_setid,
        },
    )
}

fn make() -> impl Strategy<Value = Make> {
    let special = select(&[Kind::Fifo, Kind::Socket, Kind::Char, Kind::Block][..]);
    prop_oneof![
        bytes().prop_map(|content| Make::File { content }),
        Just(Make::Dir),
        bytes().prop_map(|target| Make::Symlink { target }),
        (special, any::<u32>()).prop_map(|(kind, rdev)| Make::Node { kind, rdev }),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let how = (0..5u8).prop_map(|how| RenameHow::from_u8(how).expect("a kind"));
    let xattr = select(&[XattrHow::Set, XattrHow::Create, XattrHow::Replace][..]);
    prop_oneof![
        (ino(), name(), make(), mode()).prop_map(|(parent, name, make, mode)| Op::Make {
            parent,
            name,
            make,
            mode
        }),
        (ino(), ino(), name()).prop_map(|(ino, parent, name)| Op::Link { ino, parent, name }),
        (ino(), name()).prop_map(|(parent, name)| Op::Unlink { parent, name }),
        (ino(), name()).prop_map(|(parent, name)| Op::Rmdir { parent, name }),
        (ino(), name(), ino(), name(), how).prop_map(|(from, from_name, to, to_name, how)| Op::Rename {
            from,
            from_name,
            to,
            to_name,
            how
        }),
        (ino(), change()).prop_map(|(ino, change)| Op::SetAttr { ino, change }),
        (ino(), body(), any::<u64>(), time(), (any::<bool>(), hold())).prop_map(
            |(ino, body, size, mtime, (kill_setid, hold))| Op::Write {
                ino,
                body,
                size,
                mtime,
                kill_setid,
                hold
            }
        ),
        (ino(), any::<u64>(), ino(), any::<(u64, u64)>()).prop_map(
            |(from, from_offset, to, (to_offset, len))| Op::Clone { from, from_offset, to, to_offset, len }
        ),
        (ino(), position(), extents()).prop_map(|(ino, expected, extents)| Op::Remap {
            ino,
            expected,
            extents
        }),
        (ino(), bytes(), bytes(), xattr).prop_map(|(ino, name, value, how)| Op::SetXattr {
            ino,
            name,
            value,
            how
        }),
        (ino(), bytes()).prop_map(|(ino, name)| Op::RemoveXattr { ino, name }),
        ino().prop_map(|ino| Op::Reclaim { ino }),
        (ino(), mode()).prop_map(|(parent, mode)| Op::MakeUnnamed { parent, mode }),
        (ino(), ino(), name()).prop_map(|(ino, parent, name)| Op::LinkUnnamed { ino, parent, name }),
    ]
}

fn query() -> impl Strategy<Value = Query> {
    let want = || 0..8u8;
    prop_oneof![
        (ino(), name()).prop_map(|(parent, name)| Query::Lookup { parent, name }),
        ino().prop_map(|ino| Query::GetAttr { ino }),
        (ino(), want()).prop_map(|(ino, want)| Query::Open { ino, want }),
        (ino(), want()).prop_map(|(ino, want)| Query::Access { ino, want }),
        (ino(), any::<(u64, u32, bool)>()).prop_map(|(dir, (cookie, entries_max, plus))| Query::ReadDir {
            dir,
            cookie,
            entries_max,
            plus
        }),
        ino().prop_map(|ino| Query::ReadLink { ino }),
        (ino(), bytes()).prop_map(|(ino, name)| Query::GetXattr { ino, name }),
        ino().prop_map(|ino| Query::ListXattr { ino }),
        (ino(), any::<(u64, u64)>()).prop_map(|(ino, (offset, len))| Query::Map { ino, offset, len }),
        (ino(), bytes(), any::<bool>()).prop_map(|(from, path, follow)| Query::Resolve {
            from,
            path,
            follow
        }),
        Just(Query::StatFs),
    ]
}

fn lock() -> impl Strategy<Value = Lock> {
    let kind = select(&[LockKind::Unlock, LockKind::Read, LockKind::Write][..]);
    (ino(), any::<(bool, u64, u64, u64, u32)>(), kind).prop_map(
        |(ino, (flock, owner, start, end, pid), kind)| Lock { ino, flock, owner, start, end, kind, pid },
    )
}

fn hold() -> impl Strategy<Value = Hold> {
    prop_oneof![
        Just(Hold::None),
        Just(Hold::Exclusive),
        Just(Hold::Shared),
        any::<u64>().prop_map(Hold::Appended)
    ]
}

fn call() -> impl Strategy<Value = Call> {
    let text = "[a-zé ]{0,20}";
    prop_oneof![
        (op(), any::<bool>()).prop_map(|(op, open)| Call::Op { op, open }),
        (vec(op(), 0..20), any::<bool>())
            .prop_map(|(ops, stop_on_failure)| Call::Batch { ops, stop_on_failure }),
        vec((op(), (ino(), time(), any::<bool>())), 0..20).prop_map(|each| {
            let (ops, acknowledged): (Vec<_>, Vec<_>) = each.into_iter().unzip();
            let acknowledged =
                acknowledged.into_iter().map(|(ino, time, open)| Acknowledged { ino, time, open }).collect();
            Call::WriteBehind { ops, acknowledged }
        }),
        (ino(), any::<u32>()).prop_map(|(dir, numbers)| Call::LeaseNames { dir, numbers }),
        any::<(u64, u64)>().prop_map(|(id, secret)| Call::Ended { session: SessionId(id), secret }),
        query().prop_map(Call::Query),
        position().prop_map(|upto| Call::Commit { upto }),
        (ino(), lease()).prop_map(|(ino, mode)| Call::Lease { ino, mode }),
        vec(ino(), 0..20).prop_map(|inos| Call::Closed { inos }),
        (vec((ino(), any::<u32>()), 0..9), vec(lock(), 0..9), vec(ino(), 0..9), vec(ino(), 0..9))
            .prop_map(|(opens, locks, dirty, names)| Call::Reopen { opens, locks, dirty, names }),
        (lock(), any::<bool>()).prop_map(|(lock, wait)| Call::SetLock { lock, wait }),
        any::<u64>().prop_map(|id| Call::CancelLock { id }),
        lock().prop_map(|lock| Call::GetLock { lock }),
        (ino(), any::<u64>(), any::<u8>()).prop_map(|(ino, size, last)| Call::Grown { ino, size, last }),
        (block(), bytes()).prop_map(|(block, bytes)| Call::PutBlock { block, bytes }),
        (block(), any::<(u32, u32)>()).prop_map(|(block, (offset, len))| Call::GetBlock {
            block,
            offset,
            len
        }),
        text.prop_map(|what| Call::Admin { what }),
        realm::call().prop_map(|call| Call::Realm(Box::new(call))),
        Just(Call::Ping),
        Just(Call::Bye),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    let again = (any::<u64>(), position(), ino(), time()).prop_map(|(boot, position, ino, time)| Again {
        boot,
        position,
        ino,
        time,
    });
    let range = any::<(u32, u32)>().prop_map(|(first, count)| IdRange { first, count });
    let maps = (vec(range.clone(), 0..4), vec(range, 0..4))
        .prop_map(|(users, groups)| Scope::Mapped(Arc::new(IdMaps { users, groups })));
    let scope = prop_oneof![Just(Scope::Everywhere), maps];
    let capabilities = prop_oneof![Just(0), Just(u64::MAX), any::<u64>()].prop_map(Capabilities);
    let privileges =
        (capabilities, scope).prop_map(|(capabilities, scope)| Privileges { capabilities, scope });
    let groups = option::of(vec(any::<u32>(), 0..40));
    let cred = (any::<(u32, u32)>(), groups, option::of(privileges), any::<bool>(), 0..0o1000u16).prop_map(
        |((uid, gid), groups, privileges, protected_hardlinks, umask)| {
            let groups = groups.map(Into::into);
            Cred { uid, gid, groups, privileges, protected_hardlinks, umask }
        },
    );
    (any::<(u64, u64, u64, u64)>(), option::of(again), cred, call()).prop_map(
        |((id, seq, settled, epoch), again, cred, call)| Request {
            id,
            seq: Seq(seq),
            settled: Seq(settled),
            epoch: Epoch(epoch),
            again,
            cred,
            call,
        },
    )
}

fn attr() -> impl Strategy<Value = Attr> {
    let numbers = any::<(u32, u32, u32, u32, u64, u64)>();
    let times = (time(), time(), time(), time());
    (ino(), kind(), mode(), numbers, times, ino(), (position(), 0..4u8)).prop_map(
        |(ino, kind, mode, (nlink, uid, gid, rdev, size, allocated), times, parent, (position, lists))| {
            let (atime, mtime, ctime, btime) = times;
            Attr {
                ino,
                kind,
                mode,
                nlink,
                uid,
                gid,
                rdev,
                size,
                allocated,
                atime,
                mtime,
                ctime,
                btime,
                parent,
                flags: lists,
                position,
            }
        },
    )
}

fn outcome() -> impl Strategy<Value = Outcome> {
    let gone = (ino(), any::<bool>()).prop_map(|(ino, orphan)| Gone { ino, orphan });
    (option::of(attr()), option::of(gone), option::of(ino()), time()).prop_map(|(attr, gone, other, time)| {
        let time = if attr.is_some() { Time(0) } else { time };
        Outcome { attr, gone, other, time }
    })
}

fn failure() -> impl Strategy<Value = Failure> {
    prop_oneof![
        select(Refusal::ALL).prop_map(Failure::Refused),
        Just(Failure::NeedGroups),
        Just(Failure::SessionGone),
        "[a-zé]{0,20}".prop_map(Failure::Malformed),
    ]
}

fn entry() -> impl Strategy<Value = DirEntry> {
    (name(), ino(), kind(), any::<u64>(), option::of((attr(), lease())))
        .prop_map(|(name, ino, kind, cookie, attr)| DirEntry { name, ino, kind, cookie, attr })
}

fn answer() -> impl Strategy<Value = Answer> {
    let result = prop_oneof![(position(), outcome()).prop_map(Ok), failure().prop_map(Err)];
    let content = prop_oneof![
        bytes().prop_map(Content::Inline),
        (any::<(u64, u64)>(), extents()).prop_map(|((start, end), extents)| Content::Extents {
            start,
            end,
            extents
        }),
    ];
    prop_oneof![
        Just(Answer::Done),
        (position(), outcome(), lease(), any::<bool>()).prop_map(
            |(position, outcome, lease, parent_leased)| Answer::Op {
                position,
                outcome,
                lease,
                parent_leased
            }
        ),
        vec(result, 0..20).prop_map(Answer::Batch),
        vec(prop_oneof![(position(), lease()).prop_map(Ok), failure().prop_map(Err)], 0..20)
            .prop_map(Answer::WriteBehind),
        (any::<bool>(), attr(), ino(), ino(), time()).prop_map(|(leased, attr, first, end, now)| {
            Answer::Names { leased, attr, numbers: (first, end), now }
        }),
        (attr(), lease(), any::<(bool, bool)>()).prop_map(|(attr, lease, (parent_leased, parent_open))| {
            Answer::Attr { attr, lease, parent_leased, parent_open }
        }),
        any::<(bool, bool)>()
            .prop_map(|(parent_leased, parent_open)| Answer::Absent { parent_leased, parent_open }),
        (vec(entry(), 0..10), any::<(bool, bool, bool)>()).prop_map(
            |(entries, (end, parent_leased, parent_open))| Answer::Entries {
                entries,
                end,
                parent_leased,
                parent_open
            }
        ),
        bytes().prop_map(Answer::Bytes),
        (attr(), lease(), content).prop_map(|(attr, lease, content)| Answer::Map { attr, lease, content }),
        any::<(u64, u64, u64)>().prop_map(|(bytes_total, bytes_free, inodes_used)| Answer::StatFs(StatFs {
            bytes_total,
            bytes_free,
            inodes_used
        })),
        (lease(), attr(), any::<bool>()).prop_map(|(mode, attr, is_watched)| Answer::Lease {
            mode,
            attr,
            is_watched
        }),
        option::of(lock()).prop_map(Answer::Lock),
        realm::answer().prop_map(Answer::Realm),
    ]
}

fn reply() -> impl Strategy<Value = Reply> {
    let result = prop_oneof![3 => answer().prop_map(Ok), 1 => failure().prop_map(Err)];
    (any::<(u64, u64)>(), position(), result).prop_map(|((id, epoch), durable, result)| Reply {
        id,
        epoch: Epoch(epoch),
        durable,
        result,
    })
}

fn hello() -> impl Strategy<Value = Hello> {
    let resume = option::of(any::<(u64, u64)>().prop_map(|(id, secret)| (SessionId(id), secret)));
    (any::<(u32, u32, bool)>(), select(&[Channel::Main, Channel::Recall][..]), resume, "[a-zé/]{0,100}")
        .prop_map(|((version, resend_count, decouples), channel, resume, identity)| Hello {
            version,
            channel,
            resume,
            identity,
            resend_count,
            decouples,
        })
}

fn welcome() -> impl Strategy<Value = Welcome> {
    let reason = select(
        &[RefuseReason::Version, RefuseReason::SessionGone, RefuseReason::Full, RefuseReason::NotReady][..],
    );
    prop_oneof![
        (any::<(u64, u64, u64, u64, u64, u32, u64)>(), "[a-z:/]{0,20}").prop_map(
            |((session, secret, epoch, filesystem, boot, session_ms, durable), objects)| Welcome::Accepted {
                session: SessionId(session),
                secret,
                epoch: Epoch(epoch),
                filesystem,
                boot,
                session_ms,
                durable: Position(durable),
                objects,
            }
        ),
        (reason, "[a-zé ]{0,20}").prop_map(|(reason, message)| Welcome::Refused { reason, message }),
    ]
}

/// Any message, as its bytes, with the check that they come back as the same message.
#[derive(Clone, Debug)]
enum Message {
    Hello(Hello),
    Welcome(Welcome),
    Request(Request),
    Reply(Reply),
    Recall(Recall),
    RecallDone(RecallDone),
}

fn message() -> impl Strategy<Value = Message> {
    let grown = (any::<u64>(), any::<u8>()).prop_map(|(size, last)| Grown { size, last });
    let recall = (any::<u64>(), ino(), lease(), option::of(grown))
        .prop_map(|(id, ino, keep, grown)| Recall { id, ino, keep, grown });
    prop_oneof![
        1 => hello().prop_map(Message::Hello),
        1 => welcome().prop_map(Message::Welcome),
        6 => request().prop_map(Message::Request),
        6 => reply().prop_map(Message::Reply),
        1 => recall.prop_map(Message::Recall),
        1 => any::<u64>().prop_map(|id| Message::RecallDone(RecallDone { id })),
    ]
}

fn encode(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    match message {
        Message::Hello(m) => m.encode(&mut out),
        Message::Welcome(m) => m.encode(&mut out),
        Message::Request(m) => m.encode(&mut out),
        Message::Reply(m) => m.encode(&mut out),
        Message::Recall(m) => m.encode(&mut out),
        Message::RecallDone(m) => m.encode(&mut out),
    }
    out
}

/// Decodes `bytes` as the same type as `like`.
fn decode(like: &Message, bytes: &[u8]) -> Result<Message, Malformed> {
    let mut from = Take::new(bytes);
    let message = match like {
        Message::Hello(_) => Message::Hello(Hello::decode(&mut from)?),
        Message::Welcome(_) => Message::Welcome(Welcome::decode(&mut from)?),
        Message::Request(_) => Message::Request(Request::decode(&mut from)?),
        Message::Reply(_) => Message::Reply(Reply::decode(&mut from)?),
        Message::Recall(_) => Message::Recall(Recall::decode(&mut from)?),
        Message::RecallDone(_) => Message::RecallDone(RecallDone::decode(&mut from)?),
    };
    from.finish()?;
    Ok(message)
}

/// All that decoding `n` bytes may allocate, growth of vectors included: extents and operations take up to 14
/// times their bytes in memory, growing twice that; the memory reserved for 1,024 items is flat.
fn allocation_bytes_max(n: usize) -> usize {
    64 * n + (512 << 10)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn messages_round_trip_and_no_proper_prefix_is_a_message(message in message()) {
        let bytes = encode(&message);
        let back = decode(&message, &bytes).map(|m| encode(&m));
        prop_assert_eq!(back.as_ref(), Ok(&bytes));
        let same = match (&message, decode(&message, &bytes).unwrap()) {
            (Message::Hello(a), Message::Hello(b)) => *a == b,
            (Message::Welcome(a), Message::Welcome(b)) => *a == b,
            (Message::Request(a), Message::Request(b)) => *a == b,
            (Message::Reply(a), Message::Reply(b)) => *a == b,
            (Message::Recall(a), Message::Recall(b)) => *a == b,
            (Message::RecallDone(a), Message::RecallDone(b)) => *a == b,
            _ => false,
        };
        prop_assert!(same, "{:?}", message);
        for len in (0..bytes.len()).step_by(1 + bytes.len() / 50) {
            prop_assert!(decode(&message, &bytes[..len]).is_err(), "{:?} cut to {}", message, len);
        }
    }

    #[test]
    fn mutated_bytes_neither_panic_nor_allocate_much(
        message in message(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = encode(&message);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let (decoded, n) = allocated(|| decode(&message, &bytes));
        prop_assert!(n <= allocation_bytes_max(bytes.len()), "{} bytes for {:?}", n, decoded);
    }

    #[test]
    fn random_bytes_neither_panic_nor_allocate_much(like in message(), bytes in vec(any::<u8>(), 0..600)) {
        let (decoded, n) = allocated(|| decode(&like, &bytes));
        prop_assert!(n <= allocation_bytes_max(bytes.len()), "{} bytes for {:?}", n, decoded);
    }
}

fn ping() -> Request {
    Request {
        id: 1,
        seq: Seq(0),
        settled: Seq(0),
        epoch: Epoch(0),
        again: None,
        cred: Cred::new(1, 2, &[]),
        call: Call::Ping,
    }
}

#[test]
fn counts_that_lie_are_refused_before_memory_is_taken_for_them() {
    assert!(allocated(|| vec![1u8; 5000]).1 >= 5000, "the counter counts");
    let check = |what: &str, request: bool, tag: u8| {
        let mut bytes = vec![0; if request { 41 } else { 24 }];
        bytes.push(tag);
        if !request && tag == 5 {
            bytes.put_u8(0);
        }
        bytes.put_varint(1 << 31);
        bytes.extend_from_slice(&[0; 64]);
        let (refused, n) = allocated(|| {
            let mut from = Take::new(&bytes);
            if request { Request::decode(&mut from).is_err() } else { Reply::decode(&mut from).is_err() }
        });
        assert!(refused && n < 1024, "{what}: {n} bytes");
    };
    check("batch", true, 2);
    check("write-behind", true, 18);
    check("results of write-behind", false, 12);
    check("closed", true, 6);
    check("reopen", true, 7);
    check("results", false, 2);
    check("entries", false, 5);
    check("bytes", false, 6);
}

#[test]
fn limits_are_checked_at_both_ends() {
    let mut too_many = ping();
    too_many.call =
        Call::Batch { ops: vec![Op::Reclaim { ino: Ino(1) }; BATCH_OPS_MAX + 1], stop_on_failure: false };
    assert!(too_many.check_limits().unwrap_err().contains("split it"));
    let mut pending = ping();
    pending.call = Call::WriteBehind {
        ops: vec![Op::Reclaim { ino: Ino(1) }; BATCH_OPS_MAX + 1],
        acknowledged: vec![Acknowledged::default(); BATCH_OPS_MAX + 1],
    };
    assert!(pending.check_limits().is_err());
    let mut groups = ping();
    groups.cred.groups = Some(vec![7; GROUPS_MAX + 1].into());
    assert!(groups.check_limits().is_err());
    for request in [too_many, pending, groups] {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        assert!(Request::decode(&mut Take::new(&bytes)).is_err());
    }
    assert_eq!(ping().check_limits(), Ok(()));

    // An identity is cut at a character's border: it is only for people to read.
    let hello = Hello {
        version: PROTOCOL_VERSION,
        channel: Channel::Main,
        resume: None,
        identity: "é".repeat(200),
        resend_count: 0,
        decouples: false,
    };
    let mut bytes = Vec::new();
    hello.encode(&mut bytes);
    let back = Hello::decode(&mut Take::new(&bytes)).unwrap();
    assert_eq!(back.identity, "é".repeat(IDENTITY_BYTES_MAX / 2));
    bytes.clear();
    Hello { identity: String::new(), ..hello }.encode(&mut bytes);
    bytes.pop();
    bytes.put_bytes(&[b'x'; IDENTITY_BYTES_MAX + 1]);
    assert!(Hello::decode(&mut Take::new(&bytes)).is_err());
}
