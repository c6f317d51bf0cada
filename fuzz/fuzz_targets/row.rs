//! Rows of the metadata store. The first byte is the length of the key.
#![no_main]

use chiton_namespace::StoredRow;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&len, rest)) = bytes.split_first() else { return };
    let (key, value) = rest.split_at(usize::from(len).min(rest.len()));
    let Ok(Some(row)) = StoredRow::decode(key, value) else { return };
    let again = StoredRow::decode(&row.key(), &row.value());
    assert!(matches!(again, Ok(Some(again)) if again == row), "{row:?}");
});
