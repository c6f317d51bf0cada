//! Structural consistency: none of the named inconsistencies that `chiton fsck` knows (dangling entry, wrong link count,
//! orphan, leaked or missing block, directory loop, size without blocks, wrong parent …).

use chiton_admin::RowsOfPlates;
use chiton_admin::fsck::{CheckError, Finding, Options, Summary, check as fsck, check_plates as fsck_plates};
use chiton_metastore::Metastore;
use chiton_objects::Objects;

use crate::checkers::violation;
use crate::history::Violation;

/// Maximum number of findings in the message; the others are counted.
const REPORTED_MAX: usize = 5;

/// Checks rows, maps and blocks of a file system whose rows hold everything: after a checkpoint, while nothing happens.
/// Reads all content.
///
/// # Errors
/// The findings of `fsck`, or the reason why it cannot check.
pub fn check(store: &dyn Metastore, objects: &dyn Objects) -> Result<(), Violation> {
    judge(&mut |options, found| fsck(store, objects, options, found, &mut |_| {}))
}

/// [`check`] of several plates.
///
/// # Errors
/// As [`check`].
pub fn check_plates(rows: &RowsOfPlates, objects: &dyn Objects) -> Result<(), Violation> {
    judge(&mut |options, found| fsck_plates(rows, objects, options, found, &mut |_| {}))
}

type Check<'a> = &'a mut dyn FnMut(&Options, &mut dyn FnMut(Finding)) -> Result<Summary, CheckError>;

fn judge(check: Check<'_>) -> Result<(), Violation> {
    let mut findings = Vec::new();
    let options = Options { content: true, ..Options::default() };
    let looked = check(&options, &mut |finding| findings.push(finding));
    if let Err(error) = looked {
        return Err(violation("structure", format!("cannot be checked: {error:?}")));
    }
    if findings.is_empty() {
        return Ok(());
    }
    let reported: Vec<String> =
        findings.iter().take(REPORTED_MAX).map(|finding| format!("\n  {finding}")).collect();
    Err(violation("structure", format!("{} inconsistencies:{}", findings.len(), reported.concat())))
}

#[cfg(test)]
mod tests {
    use chiton_metastore::{Batch, MemoryMetastore};
    use chiton_objects::MemoryObjects;
    use chiton_runtime::SeededWorld;
    use chiton_server::{FormatOptions, Server, Stores};
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_new_file_system_is_consistent_and_one_with_a_row_less_is_not() {
        let (store, objects) = (Arc::new(MemoryMetastore::new()), Arc::new(MemoryObjects::new()));
        let opened: Arc<dyn Metastore> = store.clone();
        let stores = Stores {
            objects: objects.clone(),
            open_meta: Box::new(move || Ok(opened.clone())),
            place: Arc::new(chiton_journal::MemoryPlace::new(chiton_journal::Shape::Grows)),
            objects_address: String::new(),
        };
        let world: chiton_runtime::SharedWorld = Arc::new(SeededWorld::new(1));
        Server::format_with(&[stores], &FormatOptions { shards: 2, ..FormatOptions::default() }, &world)
            .unwrap();
        // Formatting closes the store.
        store.crash();
        assert_eq!(check(&*store, &*objects), Ok(()));
        let rows = store.scan(std::ops::Bound::Unbounded, None, 100).unwrap();
        let (root, _) = rows
            .iter()
            .find(|(key, _)| chiton_namespace::tag_of(key) == Some(chiton_namespace::tag::INODE))
            .expect("an inode's row");
        let mut batch = Batch::new();
        batch.delete(root);
        store.commit(&batch).unwrap();
        let said = check(&*store, &*objects).unwrap_err();
        assert!(said.what.contains("missing-root") || said.what.contains("root"), "{}", said.what);
    }
}
