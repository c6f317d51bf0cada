//! The table of conflicts in `docs/policies.md` is the code's.

use chiton_model::merge::{ConflictKind, OnConflict, Resolution};

fn table() -> String {
    let mut lines = vec![
        "| conflict | `overwrite` | `keep_both` | `merge` | `abort` |".to_owned(),
        "|---|---|---|---|---|".to_owned(),
    ];
    for kind in ConflictKind::ALL {
        let of = |on_conflict| kind.resolution(on_conflict).to_string();
        let merge = match kind.is_of_texts() {
            true => format!("texts: {}; else as `keep_both`", Resolution::Merged),
            false => "as `keep_both`".to_owned(),
        };
        let (over, both) = (of(OnConflict::Overwrite), of(OnConflict::KeepBoth));
        lines.push(format!("| {} | {over} | {both} | {merge} | {} |", kind.meaning(), of(OnConflict::Abort)));
    }
    lines.join("\n")
}

#[test]
fn the_table_in_the_documents_is_the_code_s() {
    let page = include_str!("../../../../docs/policies.md");
    let table = table();
    assert!(page.contains(&table), "docs/policies.md lacks this table:\n{table}");
}
