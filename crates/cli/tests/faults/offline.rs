//! `nonvolatile_apply`: a job's journal in the object store is merged while no server runs, with the same outcome.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::rig::{Mounted, Process, Scratch, is_root, serve};
use crate::seen::{assert_same, look, plant};
use crate::two::{done, refused, text};

const POLICY: &str = "composition: append_client_journal + global_persist + nonvolatile_apply\n";

/// A dump without its first line, which contains the time.
fn dump(data: &Path) -> String {
    let dump = done(&["dump", text(data)]);
    dump.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
}

/// Ends a server in order, so that the next start waits for no client.
fn stop(mut server: Process) {
    server.signal(Signal::TERM);
    assert!(server.ended().success(), "{}", server.said());
}

#[test]
fn the_same_journal_merged_offline_and_by_a_server_gives_the_same_tree() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    scratch.format();
    let policy = scratch.path("policy.yml");
    fs::write(&policy, POLICY).expect("a write");
    let state = text(&scratch.path("state")).to_owned();
    let data = text(&scratch.data()).to_owned();
    let server = serve(&scratch, &[]);
    let near = Mounted::beside(&scratch, "near", &["--state-dir", &state]);
    let job = near.path("job");
    fs::create_dir(&job).expect("a directory");
    fs::write(job.join("before"), "before").expect("a write");
    done(&["policy", "set", text(&job), text(&policy)]);
    plant(&job);
    fs::remove_file(job.join("before")).expect("a removal");
    fs::rename(job.join("dir/deep/small1"), job.join("dir/moved")).expect("a rename");
    let expected = look(&job);
    refused(&["recouple", text(&job)], 1, "merged offline");
    near.unmount();
    // It is not merged by the end of its mount, nor beside a server.
    let far = Mounted::beside(&scratch, "far", &["--state-dir", &state, "--no-decouple"]);
    let names: Vec<_> =
        fs::read_dir(far.path("job")).expect("a listing").map(|e| e.expect("an entry").file_name()).collect();
    assert_eq!(names, ["before"]);
    let all: Value = serde_json::from_str(&done(&["decoupled", "--json", &data])).expect("JSON");
    let id = all[0]["realm"].as_u64().expect("a number").to_string();
    refused(&["recover", "--data", &data, "--offline", "--state-dir", &state], 3, "without --offline");
    far.unmount();
    stop(server);

    // The same file system twice.
    let twin = Scratch::new();
    let copied = Command::new("cp").arg("-a").arg(scratch.data()).arg(twin.data()).status();
    assert!(copied.expect("cp runs").success());
    let other = text(&twin.path("state")).to_owned();
    let merged: Value = serde_json::from_str(&done(&[
        "recover",
        "--data",
        &data,
        "--offline",
        "--state-dir",
        &state,
        "--json",
    ]))
    .expect("JSON");
    assert_eq!((&merged[0]["ended"], &merged[0]["lost_count"]), (&true.into(), &0.into()), "{merged}");
    assert!(
        done(&["recover", "--data", &data, "--offline", "--state-dir", &state]).contains("no journal waits")
    );
    {
        let server = serve(&twin, &[]);
        let socket = format!("unix:{}", twin.data().join("socket").display());
        done(&["recover", "--server", &socket, "--state-dir", &other, "--id", &id, "--merge"]);
        stop(server);
    }
    let tree = dump(&scratch.data());
    assert!(tree.contains("moved") && tree.contains("small299"), "{tree}");
    assert_eq!(tree, dump(&twin.data()));
    done(&["fsck", &data]);

    // The tree equals the job's view.
    let _server = serve(&scratch, &[]);
    let again = Mounted::beside(&scratch, "near", &["--state-dir", &state]);
    assert_same(&expected, &look(&again.path("job")));
}
