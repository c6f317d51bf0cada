//! A server that is gone, or stuck: commands report that instead of waiting, while programs on the mount wait (S5).

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::rig::{Mounted, Process, Scratch, chiton, is_root, serve, until};
use crate::two::{done, mount_near, text};

const NOBODY: i32 = 4;

struct Silent {
    mount: Mounted,
    server: Process,
    scratch: Scratch,
}

/// A mount with a decoupled directory, one that is not, and a branch.
fn set_up() -> Option<Silent> {
    if !is_root() {
        return None;
    }
    let scratch = Scratch::new();
    scratch.format();
    let server = serve(&scratch, &[]);
    let mount = mount_near(&scratch, "near");
    for name in ["job", "tree"] {
        fs::create_dir(mount.path(name)).expect("a directory");
    }
    done(&["policy", "set", text(&mount.path("job")), "batchfs"]);
    fs::write(mount.path("job/file"), "content").expect("a write");
    let state = text(&scratch.path("branches")).to_owned();
    done(&["branch", "create", text(&mount.path("tree")), "one", "--state-dir", &state]);
    Some(Silent { mount, server, scratch })
}

impl Silent {
    fn socket(&self) -> String {
        format!("unix:{}", self.scratch.data().join("socket").display())
    }

    /// Each kind of command ends without a signal, and reports that the server does not answer.
    fn refuse_all(&self) {
        let (at, job) = (text(&self.mount.dir), text(&self.mount.path("job")).to_owned());
        let (inside, tree) = (format!("{job}/file"), text(&self.mount.path("tree")).to_owned());
        // A link from elsewhere leads to the same.
        let link = self.scratch.path("link");
        std::os::unix::fs::symlink(self.mount.path("job"), &link).expect("a link");
        let socket = self.socket();
        let point = text(&self.scratch.mnt()).to_owned();
        let all: &[&[&str]] = &[
            &["status", at],
            &["status", &inside],
            &["status", &socket],
            &["df", at],
            &["top", "--count", "1", at],
            &["flush", at],
            &["flush", &job],
            &["policy", "set", &job, "posix"],
            &["policy", "get", &job],
            &["policy", "rm", &job],
            &["policy", "explain", &inside],
            &["policy", "list", at],
            &["decouple", &tree, "--policy", "batchfs"],
            &["decoupled", at],
            &["sync", &job],
            &["diff", &inside],
            &["diff", text(&link)],
            &["merge", &job],
            &["merge", "--dry-run", &job],
            &["discard", &job],
            &["recouple", &job],
            &["recouple", "--force", &job],
            &["recover", "--server", &socket],
            &["run", "--path", &job, "--", "true"],
            &["branch", "create", &tree, "two"],
            &["branch", "list", at],
            &["branch", "mount", &tree, "one", &point],
            &["branch", "diff", &tree, "one"],
            &["branch", "merge", &tree, "one"],
            &["branch", "delete", &tree, "one"],
            &["branch", "list", "--server", &socket, "/tree"],
            &["mount", "--server", &socket, &point],
            &["dump", at],
            &["dump", &socket],
        ];
        // At once: each waits for its own time.
        let begun: Vec<_> = all.iter().map(|words| begin(chiton().args(*words))).collect();
        for (words, child) in all.iter().zip(begun) {
            eprintln!("chiton {words:?}");
            let (code, said) = end(child);
            assert_eq!(code, Some(NOBODY), "chiton {words:?}: {said}");
            assert!(said.contains("connect") || said.contains("does not answer"), "chiton {words:?}: {said}");
        }
        fs::remove_file(link).expect("a removal");
    }

    /// All earlier files exist, and no refused operation happened.
    fn is_as_before(&self) {
        assert_eq!(fs::read(self.mount.path("job/file")).expect("a read"), b"content");
        assert!(done(&["diff", text(&self.mount.path("job"))]).contains("file"));
        assert!(done(&["branch", "list", text(&self.mount.dir)]).contains("one"));
        done(&["merge", text(&self.mount.path("job"))]);
    }
}

/// The exit code and output of a command that must end without a signal.
fn ended(command: &mut Command) -> (Option<i32>, String) {
    end(begin(command))
}

fn begin(command: &mut Command) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts")
}

fn end(mut child: Child) -> (Option<i32>, String) {
    let status = end_of(&mut child);
    let mut said = String::new();
    let mut stderr = child.stderr.take().expect("piped");
    std::io::Read::read_to_string(&mut stderr, &mut said).expect("text");
    (status.code(), said)
}

fn end_of(child: &mut Child) -> std::process::ExitStatus {
    let mut status = None;
    until("the command ends", || {
        status = child.try_wait().expect("it is ours");
        status.is_some()
    });
    status.expect("just seen")
}

/// S5: "Commands (`chiton diff` and all others) do not wait like this …"
#[test]
fn commands_refuse_when_the_server_was_killed_and_files_wait_for_it() {
    let Some(mut silent) = set_up() else { return };
    silent.server.kill();
    let mut waits = Command::new("mkdir").arg(silent.mount.path("late")).spawn().expect("runs");
    silent.refuse_all();
    assert!(waits.try_wait().expect("it is ours").is_none(), "who uses the mount waits");
    silent.server = serve(&silent.scratch, &[]);
    assert!(end_of(&mut waits).success());
    silent.is_as_before();
}

/// The same for a stopped server.
#[test]
fn commands_refuse_when_the_server_is_stopped() {
    let Some(silent) = set_up() else { return };
    silent.server.signal(Signal::STOP);
    silent.refuse_all();
    silent.server.signal(Signal::CONT);
    silent.is_as_before();
}

/// A user without access to the server's socket asks the mount.
#[test]
fn a_mount_answers_for_a_server_that_its_user_cannot_reach() {
    let Some(mut silent) = set_up() else { return };
    let way = silent.scratch.path("");
    let permit = std::os::unix::fs::PermissionsExt::from_mode;
    fs::set_permissions(&way, permit(0o755)).expect("a way to the mount");
    fs::set_permissions(silent.scratch.data(), permit(0o700)).expect("no way to the socket");
    let explain = |silent: &Silent| {
        let mut command = silent.scratch.chiton_of_another_user();
        ended(command.args(["policy", "explain"]).arg(silent.mount.path("tree")))
    };
    let (code, said) = explain(&silent);
    assert_eq!(code, Some(0), "{said}");
    silent.server.signal(Signal::STOP);
    let (code, said) = explain(&silent);
    assert!(code == Some(NOBODY) && said.contains("no server answers"), "{code:?} {said}");
    silent.server.signal(Signal::CONT);
    assert_eq!(explain(&silent).0, Some(0));
    silent.server.kill();
    let (code, said) = explain(&silent);
    assert!(code == Some(NOBODY) && said.contains("no server answers"), "{code:?} {said}");
    silent.server = serve(&silent.scratch, &[]);
}

/// A stopped mount delays its callers; a signal ends the wait.
#[test]
fn a_diff_that_waits_ends_on_sigterm() {
    let Some(silent) = set_up() else { return };
    silent.mount.process.signal(Signal::STOP);
    let mut diff = chiton().arg("diff").arg(silent.mount.path("job")).spawn().expect("it starts");
    until("it waits for the mount", || is_in_system_call(diff.id()));
    kill_process(Pid::from_child(&diff), Signal::TERM).expect("it is there");
    assert!(!end_of(&mut diff).success());
    silent.mount.process.signal(Signal::CONT);
    silent.is_as_before();
}

/// Whether a process waits in a request of a FUSE file system.
fn is_in_system_call(pid: u32) -> bool {
    let stack =
        fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("wchan")).unwrap_or_default();
    stack.contains("fuse") || stack.contains("request_wait")
}

/// A mount whose process is dead is distinguished.
#[test]
fn a_dead_mount_differs_from_a_server_that_is_away() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    scratch.format();
    let mut mount = Mounted::embedded(&scratch, &["--state-dir", text(&scratch.path("state"))]);
    File::create(mount.path("file")).expect("a file");
    mount.process.kill();
    for words in [["diff"], ["status"], ["flush"]] {
        let (code, said) = ended(chiton().args(words).arg(&mount.dir));
        assert!(code == Some(NOBODY) && said.contains("chiton umount"), "{words:?} {code:?} {said}");
    }
}

/// S62: "If the server is away when the command ends, `chiton run` says so and waits for it, until a signal comes …"
#[test]
fn run_waits_for_an_absent_server_or_leaves_the_changes() {
    let Some(mut silent) = set_up() else { return };
    done(&["merge", text(&silent.mount.path("job"))]);
    let job = text(&silent.mount.path("job")).to_owned();
    let outside = text(&silent.scratch.path("")).to_owned();
    let (begun, go) = (silent.scratch.path("begun"), silent.scratch.path("go"));
    for comes_back in [true, false] {
        let script = "echo made > $0/made; touch $1/begun; while [ ! -e $1/go ]; do sleep 0.01; done";
        let (log, words) = (silent.scratch.path("run.log"), ["--", "sh", "-c", script, &job, &outside]);
        let mut command = chiton();
        command.args(["run", "--path", &job]).args(words);
        command.stderr(File::create(&log).expect("a log"));
        let mut run = command.spawn().expect("it starts");
        until("the command works", || begun.exists());
        silent.server.kill();
        fs::write(&go, "").expect("a file");
        let said = || fs::read_to_string(&log).unwrap_or_default();
        until("it says that it waits", || said().contains("when the server is back"));
        if comes_back {
            silent.server = serve(&silent.scratch, &[]);
        } else {
            kill_process(Pid::from_child(&run), Signal::TERM).expect("it is there");
        }
        let code = end_of(&mut run).code();
        if comes_back {
            assert_eq!(code, Some(0), "{}", said());
        } else {
            assert_eq!(code, Some(NOBODY), "{}", said());
            assert!(said().contains("still decoupled"), "{}", said());
            silent.server = serve(&silent.scratch, &[]);
            assert!(done(&["diff", &job]).contains("made"));
            done(&["discard", &job]);
        }
        assert_eq!(fs::read(silent.mount.path("job/made")).expect("a read"), b"made\n");
        fs::remove_file(&begun).and_then(|()| fs::remove_file(&go)).expect("removals");
    }
}
