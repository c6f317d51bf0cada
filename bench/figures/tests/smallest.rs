//! The smallest version of each measurement goes through, and measures all that its plot needs.

use std::path::Path;

use chiton_figures::Setting;
use chiton_figures::figures::figure;

/// Runs a figure, and checks that each of these series has values at all of these places.
fn measures(name: &str, expect: &[(&str, &[&str])]) {
    let dir = tempfile::tempdir().expect("a folder");
    let setting = Setting::for_test(dir.path(), Path::new(env!("CARGO_BIN_EXE_chiton-figures")));
    let figure = figure(name).expect("it is there");
    (figure.run)(&setting).unwrap_or_else(|e| panic!("{name}: {e}"));
    let csv = std::fs::read_to_string(dir.path().join(format!("data/{name}.csv"))).expect("data");
    for (series, places) in expect {
        for x in *places {
            let line = csv.lines().find(|line| line.starts_with(&format!("{series},{x},0,")));
            let line = line.unwrap_or_else(|| panic!("no {series} at {x} in\n{csv}"));
            let value: f64 = line.split(',').nth(3).expect("a value").parse().expect("a number");
            assert!(value >= 0.0, "{line}");
        }
    }
}

#[test]
fn fig6a() {
    measures(
        "fig6a",
        &[
            ("rpcs", BOTH),
            ("decoupled: create", BOTH),
            ("decoupled: create + merge", BOTH),
            ("rpcs with a lookup before each", &["2"]),
        ],
    );
}

#[test]
fn fig5() {
    measures(
        "fig5",
        &[
            (
                "time",
                &[
                    "ramdisk",
                    "posix",
                    "append",
                    "append + local_persist",
                    "\"append + local_persist, before the merge\"",
                    "merge",
                    "append + global_persist",
                    "merge of what is in the object store",
                    "nonvolatile_apply",
                ],
            ),
            ("journal", &["bytes of a create"]),
        ],
    );
}

#[test]
fn fig6c() {
    measures(
        "fig6c",
        &[("paced", &["0", "1"]), ("flat out", &["0", "1"]), ("updates", &["paced", "flat out"])],
    );
}

const BOTH: &[&str] = &["1", "2"];

#[test]
fn fig3a() {
    measures(
        "fig3a",
        &[
            ("no journal", BOTH),
            ("dispatch 1", BOTH),
            ("dispatch 10", BOTH),
            ("dispatch 40", BOTH),
            ("segment", &["64", "4096"]),
            ("\"dispatch 1, answered when durable\"", BOTH),
            ("\"dispatch 40, answered when durable\"", BOTH),
        ],
    );
}

#[test]
fn fig3b() {
    measures("fig3b", &[("none", BOTH), ("allow", BOTH), ("files", &["each client"])]);
}

#[test]
fn fig6b() {
    measures(
        "fig6b",
        &[
            ("\"strong, none\"", BOTH),
            ("\"strong, allow\"", BOTH),
            ("\"decoupled, none\"", BOTH),
            ("\"decoupled, allow\"", BOTH),
            ("\"decoupled, block\"", BOTH),
            ("refused", BOTH),
        ],
    );
}

#[test]
fn fig3c() {
    measures("fig3c", &[("interference", &["begins"])]);
}

#[test]
fn coexist() {
    let jobs = &["posix", "batchfs", "deltafs", "ramdisk"];
    measures(
        "coexist",
        &[
            ("\"alone, own policy\"", jobs),
            ("\"together, own policies\"", jobs),
            ("\"together, all posix\"", &["all four"]),
        ],
    );
}

#[test]
fn fig2() {
    // A mount needs root, and the command that `cargo test --workspace` builds beside this program.
    let chiton = Path::new(env!("CARGO_BIN_EXE_chiton-figures")).with_file_name("chiton");
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() || !chiton.exists() {
        eprintln!("SKIPPED: this test needs root, /dev/fuse and {}", chiton.display());
        return;
    }
    measures(
        "fig2",
        &[
            ("posix: end", &["unpack", "compile", "remove"]),
            ("batchfs: end", &["unpack", "compile", "merge", "remove"]),
        ],
    );
}
