//! S58: "While the server is away, work in the decoupled subtree continues, also by absolute paths."
//!
//! While the server is away, a test begins no program (it would wait in the mount), and opens nothing outside of the
//! subtree.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::Signal;

use crate::rig::{Mounted, Process, Scratch, is_root, serve, until};
use crate::two::{done, text};

struct Away {
    near: Mounted,
    server: Process,
    scratch: Scratch,
}

impl Away {
    /// A mount that has decoupled `a/b/job`.
    fn new(server_options: &[&str], mount_options: &[&str]) -> Option<Away> {
        if !is_root() {
            return None;
        }
        let scratch = Scratch::new();
        scratch.format();
        let server = serve(&scratch, server_options);
        let state = text(&scratch.path("state")).to_owned();
        let near = Mounted::beside(&scratch, "near", &[&["--state-dir", &state], mount_options].concat());
        let job = near.path("a/b/job");
        fs::create_dir_all(&job).expect("directories");
        done(&["policy", "set", text(&job), "batchfs"]);
        fs::write(job.join("first"), "1").expect("a write");
        Some(Away { near, server, scratch })
    }

    fn far(&self) -> Mounted {
        let state = text(&self.scratch.path("far-state")).to_owned();
        Mounted::beside(&self.scratch, "far", &["--state-dir", &state])
    }

    /// A job by absolute paths, one round each tenth of a second.
    fn works(&self, rounds: usize) -> JoinHandle<io::Result<()>> {
        let (top, job) = (self.near.dir.clone(), self.near.path("a/b/job"));
        std::thread::spawn(move || {
            for round in 0..rounds {
                work(&job, round)?;
                look_up_the_way(&top, &job)?;
                std::thread::sleep(Duration::from_millis(100));
            }
            Ok(())
        })
    }

    fn serves_again(&mut self) {
        self.server.kill();
        self.server = serve(&self.scratch, &[]);
    }

    /// Merges the job's changes, which are complete.
    fn merges(self, rounds: usize) {
        done(&["merge", text(&self.near.path("a/b/job"))]);
        let far = self.far();
        assert_eq!(fs::read_dir(far.path("a/b/job")).expect("merged").count(), rounds + 1);
        far.unmount();
        self.near.unmount();
    }
}

fn work(job: &Path, round: usize) -> io::Result<()> {
    let at = job.join(format!("dir{round}"));
    fs::create_dir(&at)?;
    fs::write(at.join("file"), round.to_string())?;
    fs::rename(at.join("file"), at.join("renamed"))?;
    assert_eq!(fs::read_to_string(at.join("renamed"))?, round.to_string());
    assert_eq!(names(job)?.len(), round + 2);
    fs::metadata(job).map(drop)
}

fn names(dir: &Path) -> io::Result<Vec<OsString>> {
    let names = fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name()));
    let mut names: Vec<_> = names.collect::<io::Result<_>>()?;
    names.sort();
    Ok(names)
}

/// As programs do that resolve a path themselves, and chdir(2) of a shell.
fn look_up_the_way(top: &Path, job: &Path) -> io::Result<()> {
    let mut way: Vec<PathBuf> = job.ancestors().take_while(|dir| *dir != top).map(Path::to_owned).collect();
    way.push(top.to_owned());
    for dir in &way {
        assert!(fs::symlink_metadata(dir)?.is_dir());
        rustix::fs::access(dir, rustix::fs::Access::EXEC_OK)?;
    }
    assert_eq!(fs::metadata(job.join(".."))?.ino(), fs::metadata(&way[1])?.ino());
    Ok(())
}

fn ends(worker: JoinHandle<io::Result<()>>) {
    until("the job does not wait for the server", || worker.is_finished());
    worker.join().expect("it does not panic").expect("nothing fails");
}

#[test]
fn a_decoupled_job_continues_while_the_server_is_away() {
    let Some(mut away) = Away::new(&[], &[]) else { return };
    away.server.kill();
    // The kernel believes names for a while: until after that.
    ends(away.works(15));
    away.serves_again();
    away.merges(15);
}

#[test]
fn a_lookup_that_was_sent_when_the_server_died_does_not_wait_for_the_next() {
    let Some(mut away) = Away::new(&[], &[]) else { return };
    let far = away.far();
    // Nothing is cached of the directories that lead to the job.
    for name in ["", "a", "a/b"] {
        let dir = far.path(name);
        let mode = fs::metadata(&dir).expect("it is there").mode() ^ 0o020;
        fs::set_permissions(&dir, Permissions::from_mode(mode)).expect("chmod");
    }
    away.server.signal(Signal::STOP);
    let worker = away.works(5);
    std::thread::sleep(Duration::from_millis(500));
    assert!(!worker.is_finished(), "it asks the server, which stands still");
    away.server.kill();
    ends(worker);
    away.serves_again();
    far.unmount();
    away.merges(5);
}

#[test]
fn a_decoupled_job_continues_when_a_silent_server_counts_as_away() {
    // The mount believes its cache for two seconds. A server counts as away after a longer silence.
    let Some(mut away) = Away::new(&["--session-time", "2"], &[]) else { return };
    away.server.signal(Signal::STOP);
    ends(away.works(60));
    away.serves_again();
    away.merges(60);
}

/// S58a, too: the way to the inner subtree leads through the outer one.
#[test]
fn a_job_in_a_subtree_inside_another_continues_while_the_server_is_away() {
    // The kernel keeps no name, so it asks for each again.
    let Some(mut away) = Away::new(&[], &["--keep-mounts"]) else { return };
    let job = away.near.path("a/b/job");
    let (inner, theirs) = (job.join("sub/inner"), job.join("theirs"));
    done(&["merge", text(&job)]);
    for (dir, policy) in [(&inner, "batchfs"), (&theirs, "posix")] {
        fs::create_dir_all(dir).expect("directories");
        done(&["merge", text(&job)]);
        done(&["policy", "set", text(dir), policy]);
    }
    for dir in [&inner, &job] {
        fs::write(dir.join("first"), "1").expect("a write");
    }
    let sub = job.join("sub");
    fs::set_permissions(&sub, Permissions::from_mode(0o711)).expect("chmod");
    // Files of the outer subtree that the mount never read cannot be read without the server.
    assert_eq!(names(&job).expect("a listing"), ["first", "sub", "theirs"]);
    away.server.kill();
    let (top, at) = (away.near.dir.clone(), inner.clone());
    ends(std::thread::spawn(move || {
        for round in 0..15 {
            work(&at, round)?;
            look_up_the_way(&top, &at)?;
            // Not as it was when the inner one was decoupled.
            assert_eq!(fs::metadata(&sub)?.mode() & 0o777, 0o711);
            // One of them is not decoupled, and is listed.
            assert_eq!(names(&job)?, ["first", "sub", "theirs"]);
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }));
    away.serves_again();
    done(&["merge", text(&inner)]);
    done(&["merge", text(&away.near.path("a/b/job"))]);
    let far = away.far();
    assert_eq!(fs::read_dir(far.path("a/b/job/sub/inner")).expect("merged").count(), 16);
    assert_eq!(fs::metadata(far.path("a/b/job/sub")).expect("merged").mode() & 0o777, 0o711);
    far.unmount();
    away.near.unmount();
}
