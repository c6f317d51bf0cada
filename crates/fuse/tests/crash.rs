//! Kills a process that serves a mount; the next mount has everything that was promised.
//!
//! This program starts itself as that process, so it has its own `main`.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use chiton_client::{Client, ClientOptions};
use chiton_fuse::{Mount, MountError, MountOptions};
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{FormatOptions, Server, ServerOptions};

const SERVE: &str = "__serve";

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, first, data, dir] = &arguments[..]
        && first == SERVE
    {
        return serve(Path::new(data), Path::new(dir));
    }
    if arguments.iter().any(|argument| argument == "--list") {
        return;
    }
    synced_data_survive_a_kill();
    a_renamed_file_is_whole();
    println!("test result: ok. 2 passed");
}

/// Mounts, prints a line, and stays.
fn serve(data: &Path, dir: &Path) {
    let server = Server::start(data, ServerOptions::default(), Arc::new(RealWorld)).expect("a server");
    let client = chiton_embedded::client(&server, ClientOptions::default()).expect("a client");
    let mount = Mount::start(Arc::new(client), dir, MountOptions::default()).expect("a mount");
    println!("mounted");
    mount.wait().expect("a clean end");
    server.shutdown().expect("a clean end");
}

struct Serving {
    child: Child,
    dir: std::path::PathBuf,
}

impl Serving {
    fn start(scratch: &Path) -> Serving {
        let (data, dir) = (scratch.join("data"), scratch.join("mnt"));
        let child = Command::new("/proc/self/exe")
            .args([SERVE.as_ref(), data.as_os_str(), dir.as_os_str()])
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let mut serving = Serving { child, dir };
        let mut line = String::new();
        let stdout = serving.child.stdout.take().expect("piped");
        BufReader::new(stdout).read_line(&mut line).expect("its word");
        assert_eq!(line, "mounted\n");
        serving
    }

    /// As a crash of the process.
    fn kill(mut self, scratch: &Path) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
        // The dead mount is recognised, and the error says how to detach it.
        let error =
            Mount::start(client_of_nothing(scratch), &self.dir, MountOptions::default()).expect_err("dead");
        assert!(matches!(error, MountError::Dead(_)), "{error}");
        assert!(error.to_string().contains("umount"), "{error}");
        unmount(&self.dir);
    }

    fn end(mut self) {
        unmount(&self.dir);
        assert!(self.child.wait().expect("it ends").success());
    }
}

fn unmount(dir: &Path) {
    let status = Command::new("umount").arg("-l").arg(dir).status().expect("umount");
    assert!(status.success());
}

fn client_of_nothing(scratch: &Path) -> Arc<Client> {
    let data = scratch.join("other");
    let world: SharedWorld = Arc::new(RealWorld);
    if !data.exists() {
        Server::format(&data, &FormatOptions::default(), &world).expect("formatted");
    }
    let server = Server::start(&data, ServerOptions::default(), world).expect("a server");
    Arc::new(chiton_embedded::client(&server, ClientOptions::default()).expect("a client"))
}

fn scratch() -> tempfile::TempDir {
    let scratch = tempfile::TempDir::new_in("/tmp").expect("a scratch directory");
    std::fs::create_dir(scratch.path().join("mnt")).expect("a mount point");
    let world: SharedWorld = Arc::new(RealWorld);
    Server::format(&scratch.path().join("data"), &FormatOptions::default(), &world).expect("formatted");
    scratch
}

/// S18: data of a returned fsync survive, and every operation that was acknowledged before it, on any file.
fn synced_data_survive_a_kill() {
    let scratch = scratch();
    for round in 0..3u8 {
        let serving = Serving::start(scratch.path());
        let dir = serving.dir.join(format!("d{round}"));
        std::fs::create_dir(&dir).expect("mkdir");
        for i in 0..50 {
            std::fs::write(dir.join(format!("small{i}")), [round; 100]).expect("write");
        }
        std::fs::rename(dir.join("small0"), dir.join("renamed")).expect("rename");
        std::fs::remove_file(dir.join("small1")).expect("remove");
        let mut large = File::create(dir.join("large")).expect("create");
        large.write_all(&vec![round; 6 << 20]).expect("write");
        large.sync_all().expect("fsync");
        // Written and not synced: there, or not; but never in the way.
        std::fs::write(dir.join("later"), "x").expect("write");
        serving.kill(scratch.path());

        let serving = Serving::start(scratch.path());
        for earlier in 0..=round {
            let dir = serving.dir.join(format!("d{earlier}"));
            let large = std::fs::read(dir.join("large")).expect("what was synced");
            assert!(large == vec![earlier; 6 << 20], "round {earlier}");
            for i in 2..50 {
                let small = std::fs::read(dir.join(format!("small{i}"))).expect("what came before");
                assert_eq!(small, [earlier; 100]);
            }
            assert!(
                dir.join("renamed").exists() && !dir.join("small0").exists() && !dir.join("small1").exists()
            );
        }
        serving.end();
    }
}

/// S25: write, close, rename: the new name has the old content or the new, and is never empty.
fn a_renamed_file_is_whole() {
    let scratch = scratch();
    let serving = Serving::start(scratch.path());
    std::fs::write(serving.dir.join("config"), [0; 5000]).expect("write");
    File::open(&serving.dir).expect("open").sync_all().expect("fsync of a directory");
    for version in 1..=200u8 {
        std::fs::write(serving.dir.join("config.new"), [version; 5000]).expect("write");
        std::fs::rename(serving.dir.join("config.new"), serving.dir.join("config")).expect("rename");
    }
    serving.kill(scratch.path());
    let serving = Serving::start(scratch.path());
    let mut content = [0; 5000];
    let file = File::open(serving.dir.join("config")).expect("it is there");
    file.read_exact_at(&mut content, 0).expect("whole");
    assert_eq!(content, [content[0]; 5000]);
    drop(file);
    serving.end();
}
