//! Every message comes back from its bytes as it was; any other bytes are
//! refused, without a panic and without an allocation out of proportion.
//!
//! Messages are drawn by their declarations: a variant or a field that is added there is drawn here.

mod allocated;

use std::fmt::Debug;
use std::sync::Arc;

use chiton_model::Op;
use chiton_model::field::{Code, Samples, Variants};
use chiton_types::{
    Capabilities, Cred, Epoch, ID_RANGES_MAX, IdMaps, IdRange, Ino, PlateId, Privileges, Put, Scope, Seq,
    Take,
};
use chiton_wire::*;
use proptest::collection::vec;
use proptest::prelude::*;

use allocated::allocated;

/// Bytes of which samples are drawn.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..1500)
}

fn message() -> impl Strategy<Value = (usize, Message)> {
    let kind = prop_oneof![1 => 0..Message::KINDS.len(), 2 => Just(REQUEST), 2 => Just(REPLY)];
    (kind, bytes()).prop_map(|(kind, bytes)| (kind, Message::sample(kind, &mut Samples::new(&bytes))))
}

const REQUEST: usize = 2;
const REPLY: usize = 3;

fn encoded(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    message.encode(&mut out);
    out
}

/// Decodes bytes that must be those of one message.
fn decoded(kind: usize, bytes: &[u8]) -> Option<Message> {
    let mut from = Take::new(bytes);
    let message = Message::decode(kind, &mut from).ok()?;
    from.finish().ok()?;
    Some(message)
}

/// All that decoding `n` bytes may allocate, growth of vectors included: extents and operations take up to 14
/// times their bytes in memory, growing twice that; the memory reserved for 1,024 items is flat.
fn allocation_bytes_max(n: usize) -> usize {
    64 * n + (512 << 10)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn messages_round_trip_and_no_proper_prefix_is_a_message((kind, message) in message()) {
        let bytes = encoded(&message);
        let back = decoded(kind, &bytes);
        prop_assert_eq!(back.as_ref(), Some(&message));
        for len in (0..bytes.len()).step_by(1 + bytes.len() / 50) {
            prop_assert!(decoded(kind, &bytes[..len]).is_none(), "{:?} cut to {}", message, len);
        }
    }

    #[test]
    fn mutated_bytes_neither_panic_nor_allocate_much(
        (kind, message) in message(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = encoded(&message);
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let (decoded, n) = allocated(|| decoded(kind, &bytes));
        prop_assert!(n <= allocation_bytes_max(bytes.len()), "{} bytes for {:?}", n, decoded);
    }

    #[test]
    fn random_bytes_neither_panic_nor_allocate_much(
        kind in 0..Message::KINDS.len(),
        bytes in vec(any::<u8>(), 0..600),
    ) {
        let (decoded, n) = allocated(|| decoded(kind, &bytes));
        prop_assert!(n <= allocation_bytes_max(bytes.len()), "{} bytes for {:?}", n, decoded);
    }
}

/// Each variant, drawn of many bytes, comes back, is within its limits, and is not the same each time unless it has no fields.
fn each_variant_round_trips<T: Code<T> + Variants<T> + Debug + PartialEq>(drawn: &[Vec<u8>]) {
    for (at, name) in T::VARIANTS.iter().enumerate() {
        let mut encodings = std::collections::BTreeSet::new();
        for bytes in drawn {
            let value = T::sample_variant(at, &mut Samples::new(bytes));
            assert!(format!("{value:?}").starts_with(name), "{name} is drawn as {value:?}");
            let mut bytes = Vec::new();
            T::put(&value, &mut bytes);
            let mut from = Take::new(&bytes);
            assert_eq!(T::take(&mut from).as_ref(), Ok(&value), "{name}");
            assert!(from.is_empty() && T::check(&value).is_ok(), "{name}: {value:?}");
            encodings.insert(bytes);
        }
        let has_fields = encodings.iter().any(|bytes| bytes.len() > 1);
        assert!(encodings.len() > 1 || !has_fields, "{name}: {} different values", encodings.len());
    }
}

#[test]
fn every_variant_round_trips() {
    // Bytes of a linear congruential generator: the same in each run.
    let mut state = 1u64;
    let mut next = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    let drawn: Vec<Vec<u8>> = (0..60).map(|n| (0..n * 20).map(|_| next()).collect()).collect();
    each_variant_round_trips::<Op>(&drawn);
    each_variant_round_trips::<Welcome>(&drawn);
    each_variant_round_trips::<Call>(&drawn);
    each_variant_round_trips::<Query>(&drawn);
    each_variant_round_trips::<RealmCall>(&drawn);
    each_variant_round_trips::<ObjectCall>(&drawn);
    each_variant_round_trips::<StatTarget>(&drawn);
    each_variant_round_trips::<Answer>(&drawn);
    each_variant_round_trips::<Stat>(&drawn);
    each_variant_round_trips::<Failure>(&drawn);
    each_variant_round_trips::<Content>(&drawn);
    each_variant_round_trips::<RealmAnswer>(&drawn);
    each_variant_round_trips::<PeerMessage>(&drawn);
    each_variant_round_trips::<ObjectAnswer>(&drawn);
    // Those of an operation have JSON and a line for people, each its own.
    for (at, name) in Op::VARIANTS.iter().enumerate() {
        for bytes in &drawn {
            let op = Op::sample_variant(at, &mut Samples::new(bytes));
            let (json, line) = (op.json(), op.describe());
            assert!(json.as_object().is_some_and(|fields| fields.len() > 1), "{name}: {json}");
            assert!(!line.is_empty() && !line.contains('\n'), "{name}: {line}");
        }
    }
}

#[test]
fn a_question_is_told_from_a_call_by_the_tag_in_the_header() {
    for (at, name) in Query::VARIANTS.iter().enumerate() {
        let query = Query::sample_variant(at, &mut Samples::new(&[7; 40]));
        let (mut alone, mut asked) = (Vec::new(), Vec::new());
        Query::put(&query, &mut alone);
        let request = Request { call: Call::Query(query), cred: Cred::unseen(1, 2), ..ping() };
        request.encode(&mut asked);
        let head = 41;
        assert_eq!(asked[head], alone[0], "{name}");
        assert_eq!(Request::decode(&mut Take::new(&asked)), Ok(request));
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
fn limits_of_items_are_checked_at_both_ends() {
    let over = |field, count, max| Err(OverLimit { field, count, max });
    let text = "x".repeat(TEXT_BYTES_MAX + 1);
    let object = |answer| Answer::Realm(RealmAnswer::Object(answer));
    let short = ("x".repeat(TEXT_BYTES_MAX), 1);
    let names = object(ObjectAnswer::Names(vec![short.clone(), (text.clone(), 2)]));
    assert_eq!(Answer::check(&names), over("names", TEXT_BYTES_MAX + 1, TEXT_BYTES_MAX));
    assert_eq!(Answer::check(&object(ObjectAnswer::Names(vec![short]))), Ok(()));
    let at = RealmAnswer::VARIANTS.iter().position(|name| *name == "Realms").expect("a variant");
    let drawn = |bytes: Vec<u8>| RealmAnswer::sample_variant(at, &mut Samples::new(&bytes));
    let mut realms = (1..=9)
        .map(|byte| drawn(vec![byte; 400]))
        .find(|realms| matches!(realms, RealmAnswer::Realms(all) if all.len() > 1))
        .expect("several decouplings are drawn");
    assert_eq!(RealmAnswer::check(&realms), Ok(()));
    let RealmAnswer::Realms(all) = &mut realms else { unreachable!("found above") };
    all.last_mut().expect("several").journal_at = text;
    let realms = Answer::Realm(realms);
    assert_eq!(Answer::check(&realms), over("journal_at", TEXT_BYTES_MAX + 1, TEXT_BYTES_MAX));
    for answer in [names, realms] {
        let mut bytes = Vec::new();
        Answer::put(&answer, &mut bytes);
        assert!(Answer::take(&mut Take::new(&bytes)).is_err());
    }
    let mut mapped = ping();
    let users = vec![IdRange { first: 0, count: 1 }; ID_RANGES_MAX + 1];
    let scope = Scope::Mapped(Arc::new(IdMaps { users, groups: Vec::new() }));
    mapped.cred.privileges = Some(Privileges { capabilities: Capabilities(1), scope });
    assert_eq!(mapped.check_limits(), over("users", ID_RANGES_MAX + 1, ID_RANGES_MAX));
    let mut bytes = Vec::new();
    mapped.encode(&mut bytes);
    assert!(Request::decode(&mut Take::new(&bytes)).is_err());
}

#[test]
fn limits_are_checked_at_both_ends() {
    let mut too_many = ping();
    too_many.call =
        Call::Batch { ops: vec![Op::Reclaim { ino: Ino(1) }; BATCH_OPS_MAX + 1], stop_on_failure: false };
    assert!(
        too_many.check_limits().unwrap_err().to_string().starts_with("`ops` of the message has 16385 items")
    );
    let mut pending = ping();
    pending.call = Call::WriteBehind {
        ops: vec![Op::Reclaim { ino: Ino(1) }; BATCH_OPS_MAX + 1],
        acknowledged: vec![Acknowledged::default(); BATCH_OPS_MAX + 1],
    };
    assert!(pending.check_limits().is_err());
    let mut targets = ping();
    targets.call = Call::Query(Query::StatEach {
        stop_on_failure: false,
        leases: false,
        targets: vec![StatTarget::Inode(Ino(1)); BATCH_OPS_MAX + 1],
    });
    assert!(
        targets.check_limits().unwrap_err().to_string().starts_with("`targets` of the message has 16385")
    );
    let stats = Answer::Stats(vec![Ok(Stat::Absent); BATCH_OPS_MAX + 1]);
    assert!(Answer::check(&stats).is_err());
    let mut groups = ping();
    groups.cred.groups = Some(vec![7; GROUPS_MAX + 1].into());
    assert!(groups.check_limits().is_err());
    for request in [too_many, pending, targets, groups] {
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
        plate: PlateId(0),
        client: 7,
        filesystem: 0,
    };
    let mut bytes = Vec::new();
    hello.encode(&mut bytes);
    let back = Hello::decode(&mut Take::new(&bytes)).unwrap();
    assert_eq!(back.identity, "é".repeat(IDENTITY_BYTES_MAX / 2));
    bytes.clear();
    Hello { identity: String::new(), ..hello }.encode(&mut bytes);
    // Behind the identity: number of resends, flag, plate, number of the client, file system.
    let rest = bytes.split_off(bytes.len() - 23);
    assert_eq!(bytes.pop(), Some(0), "the length of the identity");
    for (len, fits) in [(IDENTITY_BYTES_MAX, true), (IDENTITY_BYTES_MAX + 1, false)] {
        let mut bytes = bytes.clone();
        bytes.put_bytes(&vec![b'x'; len]);
        bytes.extend_from_slice(&rest);
        assert_eq!(Hello::decode(&mut Take::new(&bytes)).is_ok(), fits, "{len} bytes");
    }
}
