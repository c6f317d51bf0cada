//! The smallest version of each measurement goes through, and measures all that its plot needs.

use std::path::Path;

use chiton_figures::Setting;
use chiton_figures::figures::figure;

/// Runs a figure; returns its data.
fn measured(name: &str) -> String {
    let dir = tempfile::tempdir().expect("a folder");
    let setting = Setting::for_test(dir.path(), Path::new(env!("CARGO_BIN_EXE_chiton-figures")));
    let figure = figure(name).expect("it is there");
    (figure.run)(&setting).unwrap_or_else(|e| panic!("{name}: {e}"));
    std::fs::read_to_string(dir.path().join(format!("data/{name}.csv"))).expect("data")
}

/// Checks that each of these series has values at all of these places.
fn has(csv: &str, expect: &[(&str, &[&str])]) {
    for (series, places) in expect {
        for x in *places {
            let line = csv.lines().find(|line| line.starts_with(&format!("{series},{x},0,")));
            let line = line.unwrap_or_else(|| panic!("no {series} at {x} in\n{csv}"));
            let value: f64 = line.split(',').rev().nth(1).expect("a value").parse().expect("a number");
            assert!(value >= 0.0, "{line}");
        }
    }
}

/// Runs a figure, and checks the same.
fn measures(name: &str, expect: &[(&str, &[&str])]) {
    has(&measured(name), expect);
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
                    "\"posix, journal in memory\"",
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
            ("p50", EVENTS),
            ("p99", EVENTS),
        ],
    );
}

const EVENTS: &[&str] = &[
    "append_client_journal",
    "local_persist",
    "global_persist",
    "volatile_apply",
    "nonvolatile_apply",
    "rpcs",
    "rpcs + stream",
    "\"rpcs + stream, answered when durable\"",
    "\"rpcs + stream in memory, answered when durable\"",
];

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
    let csv = measured("fig3a");
    has(
        &csv,
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
    for kib in [64, 4096, 16_384] {
        let series = format!("\"creates over time, {kib} KiB\",");
        let samples: Vec<&str> = csv.lines().filter(|line| line.starts_with(&series)).collect();
        assert_eq!(samples.len(), 40, "{series}");
        assert!(
            samples.iter().any(|line| !line.ends_with(",0,creates/s")),
            "nothing was created: {samples:?}"
        );
    }
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
            ("\"single creates, none\"", &["p50", "p99", "p99.9"]),
            ("\"single creates, block\"", &["p50", "p99", "p99.9"]),
            ("refused at full speed", &["1"]),
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
fn fig8() {
    let besides: &[&str] = &[
        "stat by the same client",
        "stat by another client",
        "touch by the same client",
        "touch by another client",
    ];
    let csv = measured("fig8");
    has(&csv, &[("job", &["alone"]), ("job", besides), ("command", besides), ("files", &["job"])]);
    // Alone a command meets all files; beside a job those that exist by then: a thirteenth at least.
    for command in ["stat", "touch"] {
        let files = |what: &str| -> f64 {
            let line = csv.lines().find(|line| line.starts_with(&format!("files of the command,{what},0,")));
            let line = line.unwrap_or_else(|| panic!("no {what} in\n{csv}"));
            line.split(',').rev().nth(1).expect("a value").parse().expect("a number")
        };
        assert_eq!(files(&format!("\"{command}, alone\"")), 60.0);
        for who in ["the same client", "another client"] {
            assert!((4.0..=60.0).contains(&files(&format!("{command} by {who}"))), "{csv}");
        }
    }
}

#[test]
fn fig9() {
    let csv = measured("fig9");
    let seven: &[&str] = &["7"];
    has(&csv, &[("none", &["1"]), ("create", &["1"]), ("files", &["each client"])]);
    for kind in ["none", "create", "stat", "touch", "ls"] {
        has(&csv, &[(kind, seven)]);
        let clients = csv.lines().filter(|line| line.starts_with(&format!("{kind},7,"))).count();
        assert_eq!(clients, 7, "each client has a time of its own: {csv}");
    }
}

#[test]
fn fig13() {
    let sizes: &[&str] = &["20", "50"];
    measures(
        "fig13",
        &[
            ("create", sizes),
            ("create + save", sizes),
            ("create + persist", sizes),
            ("create + v_apply", sizes),
            ("create + persist + apply", sizes),
            ("rpcs", sizes),
            ("rate of create", &["10", "20", "50"]),
            ("\"rate of create, processor time\"", &["10", "20", "50"]),
            ("rate of rpcs", &["10", "20", "50"]),
        ],
    );
}

#[test]
fn updatedb() {
    let chiton = Path::new(env!("CARGO_BIN_EXE_chiton-figures")).with_file_name("chiton");
    let has_plocate = std::process::Command::new("plocate").arg("--version").output().is_ok();
    if !rustix::process::geteuid().is_root()
        || !Path::new("/dev/fuse").exists()
        || !chiton.exists()
        || !has_plocate
    {
        eprintln!("SKIPPED: this test needs root, /dev/fuse, plocate and {}", chiton.display());
        return;
    }
    measures(
        "updatedb",
        &[
            (
                "updatedb",
                &[
                    "local disk",
                    "\"mount, alone\"",
                    "\"mount, beside a posix creator\"",
                    "\"mount, beside a batchfs creator\"",
                ],
            ),
            ("creates beside updatedb", &["posix", "batchfs"]),
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
