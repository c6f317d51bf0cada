//! `chiton journal` and `chiton status` as administrators use them: on a directory in use, and on one without a
//! server.

mod program;

use std::fs;
use std::path::Path;

use serde_json::Value;

use program::{chiton, done, json, refused};

fn text(path: &Path) -> String {
    path.to_str().expect("a plain path").to_owned()
}

/// Ends a mount in the background as a crash would.
fn kill(pid: u64, mountpoint: &str) {
    let process = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw).expect("a process");
    rustix::process::kill_process(process, rustix::process::Signal::KILL).expect("it runs");
    while Path::new("/proc").join(pid.to_string()).join("exe").exists() {
        std::thread::yield_now();
    }
    done(&["umount", "--lazy", mountpoint]);
}

#[test]
fn a_journal_in_use_is_read_and_one_that_crashed_is_taken_out_and_put_back() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = |name: &str| text(&dir.path().join(name));
    let (data, mnt) = (path("data"), path("mnt"));
    fs::create_dir(&mnt).expect("a mount point");
    let pid = json(&["mount", "--format", "--json", "--data", &data, &mnt])["pid"].as_u64().expect("a pid");
    fs::create_dir(dir.path().join("mnt/dir")).expect("a folder");
    for n in 0..20 {
        fs::write(dir.path().join(format!("mnt/dir/f{n}")), format!("content {n}")).expect("a write");
    }
    done(&["flush", &mnt]);

    // In use: reading is allowed, writing is not.
    assert_eq!(json(&["journal", "inspect", &data, "--json"])["integrity"], "OK");
    assert!(done(&["journal", "inspect", &data]).ends_with("Overall journal integrity: OK\n"));
    let list = done(&["journal", "event", "get", &data, "list", "--type", "make", "--name", "f7"]);
    assert_eq!(list.lines().count(), 1, "{list}");
    assert!(list.contains("make file \"f7\""), "{list}");
    // The filter accepts every type that the output shows.
    for name in json(&["journal", "event", "get", &data, "summary", "--json"])["types"]
        .as_object()
        .expect("types")
        .keys()
    {
        done(&["journal", "event", "get", &data, "--type", name]);
    }
    done(&[
        "journal",
        "event",
        "get",
        &data,
        "--type",
        "policy",
        "--type",
        "merged",
        "--type",
        "decoupling-ended",
    ]);
    let summary = json(&["journal", "event", "get", &data, "summary", "--json", "--path", "/dir"]);
    assert_eq!(summary["types"]["make"], 21, "{summary}");
    let pointers = json(&["journal", "header", "get", &data, "--json"]);
    assert!(pointers["expire_pos"].is_u64(), "the server tells it: {pointers}");
    let status = json(&["status", &mnt, "--json"]);
    assert_eq!(status["journals"][0]["not_durable"]["events"], 0, "{status}");
    assert_eq!(status["journals"][0]["replay"]["target_ms"], 5000);
    assert!(done(&["status", &mnt, "--verbose"]).contains("JOURNAL server"));
    let writes: [&[&str]; 5] = [
        &["journal", "reset", &data],
        &["journal", "header", "set", &data, "write_pos", "3"],
        &["journal", "event", "splice", &data, "--range", "3"],
        &["journal", "event", "apply", &data],
        &["journal", "event", "recover", &data],
    ];
    for write in writes {
        refused(write, 1, "--journal server");
        refused(&[write, &["--journal", "other"]].concat(), 4, "no journal \"other\"");
        refused(&[write, &["--journal", "server", "--yes"]].concat(), 3, "the journal is live");
    }
    kill(pid, &mnt);

    // No server has it now.
    let status = json(&["status", &data, "--json"]);
    assert_eq!((&status["served"], &status["journals"][0]["integrity"]), (&Value::Bool(false), &"OK".into()));
    refused(&["journal", "reset", &data, "--journal", "server"], 1, "nothing was changed");
    let file = path("journal.bin");
    done(&["journal", "export", &data, &file]);
    refused(&["journal", "export", &data, &file], 1, "choose another name");
    refused(&["journal", "import", &data, &file, "--journal", "server", "--yes"], 1, "not empty");
    done(&["journal", "reset", &data, "--journal", "server", "--yes"]);
    done(&["journal", "import", &data, &file, "--journal", "server", "--yes"]);
    assert_eq!(json(&["journal", "inspect", &data, "--json"])["integrity"], "OK");
    done(&["journal", "header", "get", &data, "--rows"]);
    let recovered = json(&["journal", "event", "recover", &data, "--journal", "server", "--yes", "--json"]);
    assert_eq!(recovered["misfits"], 0, "{recovered}");
    let again = json(&["journal", "event", "recover", &data, "--journal", "server", "--yes", "--json"]);
    assert_eq!(again["applied"], 0, "only what is newer than the store: {again}");

    let pid = json(&["mount", "--json", "--data", &data, &mnt])["pid"].as_u64().expect("a pid");
    for n in 0..20 {
        let content = fs::read_to_string(dir.path().join(format!("mnt/dir/f{n}"))).expect("it is there");
        assert_eq!(content, format!("content {n}"));
    }
    kill(pid, &mnt);

    // A damaged journal is distinguished from a whole one, and its whole part is exported.
    let segment = fs::read_dir(dir.path().join("data/journal"))
        .expect("a journal")
        .map(|entry| entry.expect("an entry").path())
        .max_by_key(|path| path.metadata().map_or(0, |m| m.len()))
        .expect("a segment");
    let mut bytes = fs::read(&segment).expect("its bytes");
    bytes[100] ^= 1;
    fs::write(&segment, bytes).expect("damaged");
    refused(&["journal", "inspect", &data], 1, "the journal is damaged");
    assert!(String::from_utf8_lossy(&chiton(&["journal", "inspect", &data]).stdout).contains("DAMAGED"));
    for form in ["list", "json", "summary"] {
        refused(&["journal", "event", "get", &data, form], 1, "in 1 places");
    }
    refused(&["journal", "export", &data, &path("rest.bin")], 1, "the export contains the rest");
    assert!(fs::metadata(path("rest.bin")).expect("a file").len() > 44);
    refused(
        &["journal", "event", "splice", &data, "--range", "1..", "--journal", "server", "--yes"],
        1,
        "chiton journal export",
    );
}

#[test]
fn a_file_that_is_no_journal_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let empty = text(dir.path());
    refused(&["journal", "inspect", &empty], 4, "holds no file system");
    refused(&["journal", "event", "get", &empty, "--range", "9..5"], 2, "the smaller comes first");
    refused(&["journal", "event", "get", &empty, "--type", "nonsense"], 2, "session-opened");
    refused(&["journal", "header", "set", &empty, "head", "1"], 2, "trimmed_pos, expire_pos, write_pos");
}
