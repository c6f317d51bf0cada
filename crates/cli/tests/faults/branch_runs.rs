//! `chiton run --branch`: a command works in a branch.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::rig::{as_another_user, chiton, until};
use crate::seen::{assert_same, look, plant};
use crate::two::{Two, done, refused, text, tree_at};

struct Runs {
    two: Two,
    tree: PathBuf,
    state: String,
}

impl Runs {
    fn new() -> Option<Runs> {
        let two = Two::new()?;
        let tree = two.near.path("tree");
        tree_at(&tree);
        plant(&tree);
        let state = text(&two.scratch.path("branch-state")).to_owned();
        Some(Runs { two, tree, state })
    }

    /// The command that runs a script, whose `$0` is a place outside.
    fn script(&self, script: &str, more: &[&str]) -> Command {
        let mut command = chiton();
        command.args(["run", "--branch", "try", "--state-dir", &self.state, "--path", text(&self.tree)]);
        command.args(more).args(["--", "sh", "-c", script, text(&self.two.scratch.path(""))]);
        command
    }

    fn run(&self, script: &str, more: &[&str]) -> Output {
        self.script(script, more).output().expect("chiton runs")
    }

    fn branches(&self) -> String {
        done(&["branch", "list", text(&self.two.near.dir)])
    }

    fn nothing_is_left(&self) {
        assert!(self.branches().contains("no branches"), "{}", self.branches());
        assert!(self.two.decouplings().is_empty());
        assert_eq!(fs::read_dir(&self.state).expect("a listing").count(), 0);
    }
}

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// S62: "With `--branch` the command works in a branch of the directory (S69) …"
#[test]
fn a_command_in_a_branch_is_merged_if_it_succeeds_and_nobody_sees_it_before() {
    let Some(runs) = Runs::new() else { return };
    let script = "echo made > made; rm dir/file1; mkdir new; echo more >> dir/file3; touch $0/begun; \
                  while [ ! -e $0/go ]; do sleep 0.01; done; cat $CHITON_BRANCH/made";
    let was = look(&runs.tree);
    let job = runs.script(script, &[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    until("the command works", || runs.two.scratch.path("begun").exists());
    // Others see the old tree, and continue.
    assert_same(&was, &look(&runs.tree));
    assert_same(&was, &look(&runs.two.far.path("tree")));
    assert!(runs.branches().contains("try"));
    assert!(done(&["branch", "diff", text(&runs.tree), "try"]).contains("made"));
    fs::write(runs.two.far.path("tree/theirs"), "theirs").expect("a write");
    fs::write(runs.two.scratch.path("go"), "").expect("a file");
    let out = job.wait_with_output().expect("it ends");
    assert_eq!((out.status.code(), &out.stdout[..]), (Some(0), &b"made\n"[..]), "{}", said(&out));
    for tree in [&runs.tree, &runs.two.far.path("tree")] {
        assert_eq!(fs::read(tree.join("made")).expect("merged"), b"made\n");
        assert_eq!(fs::read(tree.join("theirs")).expect("kept"), b"theirs");
        assert!(!tree.join("dir/file1").exists() && tree.join("new").is_dir());
    }
    runs.nothing_is_left();

    // By its own path the command finds the branch too, if it is root's.
    if rustix::process::geteuid().is_root() {
        let tree = text(&runs.tree);
        let script = format!("echo in > {tree}/absolute; test $CHITON_BRANCH = {tree} && test $PWD = {tree}");
        let failed = runs.run(&format!("{script} && exit 9"), &[]);
        assert_eq!(failed.status.code(), Some(9), "{}", said(&failed));
        assert!(!runs.tree.join("absolute").exists(), "the directory itself is not reached");
        let out = runs.run(&script, &[]);
        assert!(out.status.success(), "{}", said(&out));
        assert_eq!(fs::read(runs.tree.join("absolute")).expect("merged"), b"in\n");
        runs.nothing_is_left();
    }

    // A process in the directory is in the branch.
    let mut command = chiton();
    command.args(["run", "--branch", "try", "--state-dir", &runs.state, "--json", "--path", ".."]);
    command
        .args([
            "--",
            "sh",
            "-c",
            "echo in > relative; cd ..; echo up > up; test $PWD = $CHITON_BRANCH && ls dir/relative",
        ])
        .current_dir(runs.tree.join("dir"));
    let out = command.output().expect("chiton runs");
    assert!(out.status.success(), "{}", said(&out));
    let printed = String::from_utf8_lossy(&out.stdout).into_owned();
    let mut lines = printed.lines();
    assert_eq!(lines.next(), Some("dir/relative"));
    let report: serde_json::Value = serde_json::from_str(lines.next().expect("a report")).expect("JSON");
    assert_eq!(report["ended"], true, "{report}");
    assert_eq!(fs::read(runs.tree.join("dir/relative")).expect("merged"), b"in\n");
    assert_eq!(fs::read(runs.tree.join("up")).expect("merged"), b"up\n");
    runs.nothing_is_left();
}

/// S62: "… and else drops them (with `--keep`, or under a policy with `on_failure: keep`, it leaves them)."
#[test]
fn a_command_in_a_branch_that_fails_leaves_nothing_or_the_branch() {
    let Some(runs) = Runs::new() else { return };
    let was = look(&runs.tree);
    let failed = runs.run("echo made > made; rm -r dir; exit 7", &[]);
    assert_eq!(failed.status.code(), Some(7), "{}", said(&failed));
    let killed = runs.run("echo made > made; kill -9 $$", &[]);
    assert_eq!(killed.status.code(), Some(128 + 9), "{}", said(&killed));
    assert_same(&was, &look(&runs.tree));
    runs.nothing_is_left();

    let kept = runs.run("echo kept > kept; exit 3", &["--keep"]);
    assert_eq!(kept.status.code(), Some(3), "{}", said(&kept));
    assert!(said(&kept).contains("chiton branch diff"), "{}", said(&kept));
    assert_same(&was, &look(&runs.tree));
    assert!(done(&["branch", "diff", text(&runs.tree), "try"]).contains("kept"));
    let again = runs.run("true", &[]);
    assert!(again.status.code() == Some(3) && said(&again).contains("already"), "{}", said(&again));
    done(&["branch", "merge", text(&runs.tree), "try"]);
    assert_eq!(fs::read(runs.tree.join("kept")).expect("merged"), b"kept\n");
    runs.nothing_is_left();
}

/// S62: "It ends as the command ended, with 127 if there is no such command, and with 126 if it cannot be run."
#[test]
fn a_command_that_cannot_run_has_a_shells_exit_code() {
    let Some(runs) = Runs::new() else { return };
    let plain = runs.two.scratch.path("plain");
    fs::write(&plain, "no program").expect("a file");
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o644)).expect("a mode");
    let tree = text(&runs.tree);
    let in_branch = ["run", "--branch", "try", "--state-dir", &runs.state, "--keep", "--path", tree, "--"];
    let decoupled = ["run", "--policy", "batchfs", "--keep", "--path", tree, "--"];
    for words in [&in_branch[..], &decoupled[..]] {
        refused(&[words, &["/no/such/program"]].concat(), 127, "cannot run /no/such/program");
        refused(&[words, &[text(&plain)]].concat(), 126, "cannot run");
        runs.nothing_is_left();
    }
    refused(&["run", "--branch", "a/b", "--path", tree, "--", "true"], 1, "is not a valid branch name");
    refused(&["run", "--branch", "try", "--path", "/", "--", "true"], 4, "not in a mount of Chiton");
}

/// S62: "A Ctrl-C goes to the command alone."
#[test]
fn a_signal_reaches_the_command_and_drops_its_changes() {
    let Some(runs) = Runs::new() else { return };
    let was = look(&runs.tree);
    let script = "echo made > made; touch $0/begun; exec sleep 1000";
    let mut job = runs.script(script, &[]).stderr(Stdio::null()).spawn().expect("runs");
    until("the command works", || runs.two.scratch.path("begun").exists());
    kill_process(Pid::from_child(&job), Signal::INT).expect("it is there");
    assert_eq!(job.wait().expect("it ends").code(), Some(128 + 2));
    assert_same(&was, &look(&runs.tree));
    runs.nothing_is_left();
}

/// Remaining processes of the command do not delay its end, and lose the branch.
#[test]
fn remaining_processes_do_not_delay_the_end() {
    let Some(runs) = Runs::new() else { return };
    let script = "echo made > made; cd dir; sleep 1000 >/dev/null 2>&1 </dev/null & echo $! > $0/pid";
    let out = runs.run(script, &[]);
    let pid = fs::read_to_string(runs.two.scratch.path("pid")).expect("a number");
    assert_eq!(out.status.code(), Some(0), "{}", said(&out));
    assert_eq!(fs::read(runs.tree.join("made")).expect("merged"), b"made\n");
    let pid = Pid::from_raw(pid.trim().parse().expect("a number")).expect("a process");
    kill_process(pid, Signal::KILL).expect("it is there");
    runs.nothing_is_left();
}

/// A user with a file system of their own: mounts by fusermount3.
#[test]
fn a_user_who_is_not_root_runs_a_command_in_a_branch() {
    let Some(runs) = Runs::new() else { return };
    let permit = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
    };
    permit(&runs.two.scratch.path(""), 0o755);
    let (home, at) = (runs.two.scratch.path("home"), runs.two.scratch.path("home/mnt"));
    for dir in [&home, &at] {
        fs::create_dir(dir).expect("a directory");
        std::os::unix::fs::chown(dir, Some(65534), Some(65534)).expect("an owner");
    }
    let run_as_user = |mut command: Command, words: &[&str]| {
        command.env("XDG_RUNTIME_DIR", &home).env("HOME", &home).env_remove("XDG_STATE_HOME");
        command.args(words).stdin(Stdio::null()).output().expect("runs")
    };
    let as_user = |program: &str, words: &[&str]| {
        let mut command = as_another_user();
        command.arg(program);
        run_as_user(command, words)
    };
    let user = |words: &[&str]| run_as_user(runs.two.scratch.chiton_of_another_user(), words);
    if !as_user("test", &["-w", "/dev/fuse"]).status.success() {
        return eprintln!("SKIPPED: only root may mount here (/dev/fuse)");
    }
    let tree = at.join("tree");
    let run = |code| {
        user(&[
            "run",
            "--branch",
            "try",
            "--path",
            text(&tree),
            "--",
            "sh",
            "-c",
            "id -u; echo made > made; exit $0",
            code,
        ])
    };
    let out = user(&["mount", "--format", "--data", text(&home.join("data")), text(&at)]);
    assert!(out.status.success(), "{}", said(&out));
    assert!(as_user("mkdir", &[text(&tree)]).status.success());
    let out = run("0");
    assert!(out.status.success(), "{}", said(&out));
    assert_eq!(out.stdout, b"65534\n");
    assert_eq!(as_user("cat", &[text(&tree.join("made"))]).stdout, b"made\n");
    assert!(as_user("rm", &[text(&tree.join("made"))]).status.success());
    assert_eq!(run("5").status.code(), Some(5));
    assert_eq!(as_user("ls", &[text(&tree)]).stdout, b"");
    assert!(String::from_utf8_lossy(&user(&["branch", "list", text(&at)]).stdout).contains("no branches"));
    let out = user(&["umount", text(&at)]);
    assert!(out.status.success(), "{}", said(&out));
}
