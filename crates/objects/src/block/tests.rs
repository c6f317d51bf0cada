use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use proptest::prelude::*;

use super::*;
use crate::{MemoryObjects, Metered};

fn payload(bytes: u64) -> Vec<u8> {
    (0..bytes).map(|n| (n * 31 % 253) as u8).collect()
}

#[test]
fn layout_is_as_documented() {
    let bytes = encode_block(&[b"ab", b"c"]);
    assert_eq!(&bytes[..3], b"abc");
    assert_eq!(bytes[3..7], crc32c::crc32c(b"abc").to_le_bytes());
    assert_eq!(bytes[7..15], 3u64.to_le_bytes());
    assert_eq!(&bytes[15..19], b"CBLK");
    assert_eq!(bytes[19..], 1u32.to_le_bytes());
}

#[test]
fn sizes_around_the_chunk_round_trip() {
    let store = MemoryObjects::new();
    let chunk = CHUNK_BYTES;
    for bytes in [1, 2, chunk - 1, chunk, chunk + 1, 2 * chunk, 3 * chunk + 7, BLOCK_BYTES_MAX] {
        let payload = payload(bytes);
        let object = encode_block(&[&payload]);
        assert_eq!(object.len() as u64, encoded_bytes(bytes));
        store.put("b", &object).unwrap();
        assert!(read_block(&store, "b", None).unwrap() == payload);
        assert_eq!(BlockIndex::fetch(&store, "b").unwrap().payload_bytes(), bytes);
        assert_eq!(read_block(&store, "b", Some(bytes - 1..bytes)).unwrap(), payload[bytes as usize - 1..]);
        let past = read_block(&store, "b", Some(0..bytes + 1));
        assert!(matches!(past, Err(ObjectError::Corrupt { .. })), "{past:?}");
    }
}

#[test]
fn a_part_costs_one_request_of_its_chunks() {
    let memory = Arc::new(MemoryObjects::new());
    memory.put("b", &encode_block(&[&payload(5 * CHUNK_BYTES)])).unwrap();
    let store = Metered::new(memory);
    let (_, index) = read_whole_block(&store, "b").unwrap();
    let read = store.counters().read_bytes.load(Relaxed);
    index.read_into(&store, "b", CHUNK_BYTES + 5, &mut vec![0; CHUNK_BYTES as usize]).unwrap();
    index.read_into(&store, "b", CHUNK_BYTES, &mut vec![0; CHUNK_BYTES as usize]).unwrap();
    assert_eq!(store.counters().gets.load(Relaxed), 3);
    assert_eq!(store.counters().read_bytes.load(Relaxed) - read, 3 * CHUNK_BYTES);
}

#[test]
fn every_flipped_byte_is_seen_and_named() {
    let store = MemoryObjects::new();
    let object = encode_block(&[&payload(CHUNK_BYTES + 40)]);
    let last = object.len();
    for at in [0, 1000, CHUNK_BYTES as usize, CHUNK_BYTES as usize + 39].into_iter().chain(last - 24..last) {
        store.put("dir/b", &object).unwrap();
        store.corrupt("dir/b", |bytes| bytes[at] ^= 0x10);
        let error = read_block(&store, "dir/b", None).unwrap_err();
        assert!(matches!(&error, ObjectError::Corrupt { key, .. } if key == "dir/b"), "byte {at}: {error}");
        if at <= CHUNK_BYTES as usize {
            let chunk = at / CHUNK_BYTES as usize;
            assert!(error.to_string().contains(&format!("chunk {chunk} of 2")), "{error}");
        }
    }
    for cut in [0, 1, 15, 16, 20, 21, last - 1] {
        store.put("b", &object[..cut]).unwrap();
        assert!(matches!(read_block(&store, "b", None), Err(ObjectError::Corrupt { .. })), "cut to {cut}");
        assert!(
            matches!(read_block(&store, "b", Some(0..1)), Err(ObjectError::Corrupt { .. })),
            "cut to {cut}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_range_is_the_payloads(bytes in 1..4 * CHUNK_BYTES, a in 0.0..=1.0f64, b in 0.0..=1.0f64) {
        let store = MemoryObjects::new();
        let payload = payload(bytes);
        let (head, tail) = payload.split_at(payload.len() / 3);
        store.put("b", &encode_block(&[head, tail])).unwrap();
        let at = |f: f64| (bytes as f64 * f) as u64;
        let range = at(a.min(b))..at(a.max(b));
        let wanted = &payload[range.start as usize..range.end as usize];
        prop_assert!(read_block(&store, "b", Some(range.clone())).unwrap() == wanted);
        let mut into = vec![0; wanted.len()];
        BlockIndex::fetch(&store, "b").unwrap().read_into(&store, "b", range.start, &mut into).unwrap();
        prop_assert!(into == wanted);
    }

    #[test]
    fn hostile_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let store = MemoryObjects::new();
        store.put("b", &bytes).unwrap();
        let refused = matches!(read_block(&store, "b", None), Err(ObjectError::Corrupt { .. }));
        prop_assert!(refused);
    }
}
