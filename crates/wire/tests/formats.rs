//! `docs/formats.md` says what the declarations of the messages say. `CHITON_WRITE=1` in the environment writes it there.

use std::fs;
use std::path::Path;

use chiton_model::Layout;
use chiton_model::field::Listed;
use chiton_wire::*;

/// The table of an enum with fields: its variants by their tags.
fn variants<T: Listed>() -> (String, Vec<String>) {
    let mut layouts = T::layouts();
    layouts.sort_by_key(|layout| layout.tag);
    let row = |Layout { tag, name, fields }: &Layout| {
        let tag = tag.expect("a variant has a tag");
        format!("| {tag} | {name} | {fields} |").replace("  |", " |")
    };
    (format!("| tag | {} | fields |", T::TITLE), layouts.iter().map(row).collect())
}

/// Rows of a table of types: structs with their fields, and enums without fields with their numbers.
fn row<T: Listed>() -> String {
    let layouts = T::layouts();
    let [Layout { tag: None, fields, .. }] = &layouts[..] else { panic!("{} has variants", T::TITLE) };
    format!("| {} | {fields} |", T::TITLE)
}

/// Each table with its first line.
fn tables() -> Vec<(String, Vec<String>)> {
    let messages = vec![row::<Hello>(), row::<Recall>(), row::<RecallDone>()];
    let parts = vec![
        row::<Channel>(),
        row::<RefuseReason>(),
        row::<Again>(),
        row::<Acknowledged>(),
        row::<LeaseMode>(),
        row::<Lock>(),
        row::<LockKind>(),
        row::<Grown>(),
        row::<Resolved>(),
        row::<Walk>(),
        row::<chiton_types::Cred>(),
        row::<DirEntry>(),
        row::<StatFs>(),
        row::<Claim>(),
        row::<MergeBatch>(),
        row::<Granted>(),
        row::<FoundRows>(),
        row::<Foreign>(),
        row::<Merged>(),
        row::<chiton_model::merge::Conflict>(),
        row::<RealmInfo>(),
        row::<Blocked>(),
        row::<OpKey>(),
        row::<PeerFrame>(),
        row::<GuardedRow>(),
    ];
    vec![
        ("| message | fields |".to_owned(), messages),
        variants::<Welcome>(),
        variants::<Call>(),
        variants::<Query>(),
        variants::<StatTarget>(),
        variants::<RealmCall>(),
        variants::<NeedCode>(),
        variants::<ObjectCall>(),
        variants::<Answer>(),
        variants::<Stat>(),
        variants::<Failure>(),
        variants::<Content>(),
        variants::<RealmAnswer>(),
        variants::<PeerMessage>(),
        variants::<ObjectAnswer>(),
        ("| part | fields, or numbers of one byte |".to_owned(), parts),
    ]
}

#[test]
fn the_formats_are_those_of_the_declarations() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats.md");
    let text = fs::read_to_string(&path).expect("the project's documents");
    let mut expected = text.clone();
    for (head, rows) in tables() {
        let start = expected.find(&head).unwrap_or_else(|| panic!("no table begins with {head}"));
        let end = start + expected[start..].find("\n\n").expect("text follows the table") + 1;
        let columns = head.matches('|').count() - 1;
        let table = format!("{head}\n|{}\n{}\n", "---|".repeat(columns), rows.join("\n"));
        expected.replace_range(start..end, &table);
    }
    if std::env::var_os("CHITON_WRITE").is_some() {
        fs::write(&path, &expected).expect("the document can be written");
    }
    assert!(
        text == expected,
        "CHITON_WRITE=1 cargo test -p chiton-wire --test formats writes the tables anew"
    );
}

#[test]
fn each_tag_is_one_thing_only() {
    let check = |what: &str, layouts: Vec<Layout>| {
        let mut tags: Vec<_> = layouts.iter().map(|layout| layout.tag).collect();
        let count = tags.len();
        tags.sort_unstable();
        tags.dedup();
        assert_eq!(tags.len(), count, "{what}: {layouts:?}");
    };
    // These share one byte of a header.
    check("requests", [Call::layouts(), Query::layouts()].concat());
    check("replies", [Answer::layouts(), Failure::layouts()].concat());
    check("calls about realms", RealmCall::layouts());
    check("answers about realms", RealmAnswer::layouts());
}
