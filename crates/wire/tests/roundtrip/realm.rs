//! Any call and any answer about decoupled realms.

use chiton_model::merge::{Conflict, ConflictKind, OnConflict, Resolution, Settled};
use chiton_namespace::Need;
use chiton_types::{RealmId, ShardId};

use super::*;

fn claim() -> impl Strategy<Value = Claim> {
    any::<(u32, u32)>().prop_map(|(realm, generation)| Claim { realm: RealmId(realm), generation })
}

fn need() -> impl Strategy<Value = Need> {
    prop_oneof![
        ino().prop_map(Need::Inode),
        (ino(), name()).prop_map(|(dir, name)| Need::Entry(dir, name)),
        ino().prop_map(Need::Dir),
        (ino(), any::<(u64, u32)>()).prop_map(|(dir, (after, rows))| Need::Slice { dir, after, rows }),
        ino().prop_map(Need::Content),
        (ino(), any::<u32>()).prop_map(|(ino, n)| Need::Chunk(ino, n)),
        ino().prop_map(Need::Chunks),
        ino().prop_map(Need::Xattrs),
        block().prop_map(Need::Block),
    ]
}

pub(crate) fn call() -> impl Strategy<Value = RealmCall> {
    let text = "[a-zé /:]{0,20}";
    prop_oneof![
        (ino(), option::of(name()), any::<u64>(), text, bytes()).prop_map(
            |(root, branch, nonce, journal_at, policy)| RealmCall::Decouple {
                root,
                branch,
                nonce,
                journal_at,
                policy
            }
        ),
        (any::<(u32, u64)>(), text).prop_map(|((realm, nonce), journal_at)| RealmCall::Attach {
            realm: RealmId(realm),
            nonce,
            journal_at
        }),
        (claim(), any::<(u16, u64)>()).prop_map(|(claim, (shard, count))| RealmCall::Grant {
            claim,
            shard: ShardId(shard),
            count
        }),
        (claim(), vec(need(), 0..9)).prop_map(|(claim, needs)| RealmCall::Rows { claim, needs }),
        (claim(), vec(ino(), 0..9), vec((ino(), name()), 0..9))
            .prop_map(|(claim, inodes, names)| RealmCall::Check { claim, inodes, names }),
        (claim(), position(), position(), any::<(u64, bool, bool)>(), 0..=4096u32, bytes()).prop_map(
            |(claim, after, upto, (from, last, blind), count, events)| RealmCall::Merge {
                claim,
                window: MergeWindow { after, upto },
                from,
                count,
                events,
                last,
                blind
            }
        ),
        (claim(), select(&OnConflict::ALL[..]))
            .prop_map(|(claim, on_conflict)| RealmCall::Resolve { claim, on_conflict }),
        (claim(), any::<bool>()).prop_map(|(claim, begins)| RealmCall::Turn { claim, begins }),
        (claim(), vec((ino(), position(), select(&[Settled::Same, Settled::Merged][..])), 0..4))
            .prop_map(|(claim, files)| RealmCall::Settle { claim, files }),
        (claim(), any::<bool>()).prop_map(|(claim, force)| RealmCall::End { claim, force }),
        ino().prop_map(|ino| RealmCall::Of { ino }),
        (ino(), option::of(name())).prop_map(|(ino, name)| RealmCall::BlockedBy { ino, name }),
        Just(RealmCall::List),
        (any::<u32>(), option::of(name()))
            .prop_map(|(realm, name)| RealmCall::BecomeBranch { realm: RealmId(realm), name }),
        (claim(), "[a-z0-9/]{0,20}", object_call()).prop_map(|(claim, name, what)| RealmCall::Object {
            claim,
            name,
            what
        }),
    ]
}

fn object_call() -> impl Strategy<Value = ObjectCall> {
    prop_oneof![
        bytes().prop_map(|bytes| ObjectCall::PutIfAbsent { bytes }),
        any::<u64>().prop_map(|bytes_max| ObjectCall::Get { bytes_max }),
        Just(ObjectCall::Delete),
        "[a-z0-9/]{0,20}".prop_map(|after| ObjectCall::List { after }),
    ]
}

fn object_answer() -> impl Strategy<Value = ObjectAnswer> {
    prop_oneof![
        any::<bool>().prop_map(ObjectAnswer::Put),
        option::of(bytes()).prop_map(ObjectAnswer::Bytes),
        Just(ObjectAnswer::Deleted),
        vec(("[a-z0-9/]{0,20}", any::<u64>()), 0..9).prop_map(ObjectAnswer::Names),
    ]
}

fn ranges() -> impl Strategy<Value = Vec<(Ino, Ino)>> {
    vec((ino(), ino()), 0..9)
}

fn state() -> impl Strategy<Value = MergeState> {
    (position(), option::of((position(), any::<u64>())))
        .prop_map(|(merged, window)| MergeState { merged, window })
}

fn conflict() -> impl Strategy<Value = Conflict> {
    (select(&ConflictKind::ALL[..]), select(&Resolution::ALL[..]), bytes(), ino(), option::of(name()))
        .prop_map(|(kind, resolution, path, ino, aside)| Conflict { kind, resolution, path, ino, aside })
}

fn info() -> impl Strategy<Value = RealmInfo> {
    let text = "[a-zé /:]{0,20}";
    let place = (claim(), ino(), bytes(), option::of(name()));
    let who = (text, any::<(bool, bool, bool)>(), text, bytes());
    let how_far = (time(), position(), state(), any::<(u64, u64)>());
    (place, who, how_far).prop_map(
        |(
            (claim, root, path, branch),
            (owner, (is_attached, is_own, is_merging), journal_at, policy),
            (since, base, state, (reserved, used)),
        )| RealmInfo {
            claim,
            root,
            path,
            branch,
            owner,
            is_attached,
            is_own,
            journal_at,
            policy,
            since,
            base,
            state,
            reserved,
            used,
            is_merging,
        },
    )
}

pub(crate) fn answer() -> impl Strategy<Value = RealmAnswer> {
    let foreign = || vec(select(&[Foreign::Same, Foreign::Changed, Foreign::Removed][..]), 0..9);
    let rows = (vec((bytes(), bytes()), 0..5), any::<bool>())
        .prop_map(|(rows, exhausted)| FoundRows { rows, exhausted });
    let ranges_and_borders = (ranges(), vec(ino(), 0..5));
    let granted =
        (claim(), attr(), position(), any::<(u64, u16, u64)>(), ranges_and_borders, bytes(), state());
    prop_oneof![
        granted.prop_map(
            |(claim, root, base, (writer, shards, filesystem), (ranges, borders), policy, state)| {
                RealmAnswer::Granted(Box::new(Granted {
                    claim,
                    root,
                    base,
                    writer,
                    ranges,
                    borders,
                    shards,
                    policy,
                    state,
                    filesystem,
                }))
            }
        ),
        ranges().prop_map(RealmAnswer::Ranges),
        vec(rows, 0..5).prop_map(RealmAnswer::Rows),
        (foreign(), foreign()).prop_map(|(inodes, names)| RealmAnswer::Foreign { inodes, names }),
        (
            state(),
            position(),
            any::<(u64, bool)>(),
            vec((any::<u64>(), "[a-z ]{0,9}"), 0..5),
            vec(conflict(), 0..5)
        )
            .prop_map(|(state, position, (skipped, stopped), lost, conflicts)| {
                RealmAnswer::Merged(Merged { state, position, skipped, lost, conflicts, stopped })
            }),
        Just(RealmAnswer::Ended),
        (ino(), option::of(info()))
            .prop_map(|(root, decoupled)| RealmAnswer::Of { root, decoupled: decoupled.map(Box::new) }),
        vec(info(), 0..4).prop_map(RealmAnswer::Realms),
        option::of((ino(), any::<(bool, bool, bool)>())).prop_map(|blocked| {
            let one = |(root, (only_writes, is_name, leased))| Blocked { root, only_writes, is_name, leased };
            RealmAnswer::BlockedBy(blocked.map(one))
        }),
        object_answer().prop_map(RealmAnswer::Object),
    ]
}
