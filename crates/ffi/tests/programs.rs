//! Programs in C and Python against the library as they find it: the header, the shared library, the static one.

use std::mem::{offset_of, size_of};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use chiton_client::ClientOptions;
use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{FormatOptions, Server, ServerOptions};
use chiton_transport::Address;
use chiton_tree_jobs::Jobs;

/// The output of the examples, each in its language's words.
const SAID: &str = "before the merge: Device or resource busy\nafter the merge: 100 files\n";
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where cargo has put the libraries: beside this test.
fn libraries() -> PathBuf {
    let this = std::env::current_exe().expect("this program has a place");
    let dir = this.parent().expect("in a directory").to_owned();
    assert!(dir.join("libchiton.so").is_file(), "no libchiton.so in {}", dir.display());
    dir
}

/// Runs it, and returns what it printed.
fn said(command: &mut Command) -> String {
    // The path that cargo sets leads to an older library first, if one was built.
    command.env("LD_LIBRARY_PATH", libraries());
    let out = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let (said, complaint) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{command:?}: {}\n{said}{complaint}", out.status);
    said.into_owned()
}

/// The libraries that a program has to link beside the static library, according to the page.
fn libraries_of_the_page() -> Vec<String> {
    let page = std::fs::read_to_string(root().join("docs/library.md")).expect("the page");
    let line = page.lines().find(|line| line.contains("/libchiton.a ")).expect("the command of the page");
    let all: Vec<String> =
        line.split_whitespace().filter(|word| word.starts_with("-l")).map(str::to_owned).collect();
    assert!(!all.is_empty(), "{line}");
    all
}

/// Compiles a program of this name, with every warning an error.
fn compiled(source: &Path, into: &Path, is_static: bool) -> PathBuf {
    let dir = libraries();
    let mut cc = Command::new("cc");
    cc.args([
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        "-D_POSIX_C_SOURCE=200809L",
        "-pthread",
    ]);
    cc.arg("-I").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("include")).arg(source).arg("-o").arg(into);
    match is_static {
        true => cc.arg(dir.join("libchiton.a")).args(libraries_of_the_page()),
        false => cc.arg("-L").arg(&dir).arg("-lchiton").arg(format!("-Wl,-rpath,{}", dir.display())),
    };
    said(&mut cc);
    into.to_owned()
}

/// A served file system.
struct Site {
    dir: tempfile::TempDir,
    server: Arc<Server>,
    address: Address,
}

impl Site {
    fn new() -> Site {
        let dir = tempfile::tempdir().expect("a directory");
        let world: SharedWorld = Arc::new(RealWorld);
        let owner = FormatOptions { uid: rustix::process::geteuid().as_raw(), ..FormatOptions::default() };
        let data = dir.path().join("data");
        Server::format(&data, &owner, &world).expect("formatted");
        let jobs = Arc::new(Jobs::new(world.clone()));
        let options = ServerOptions { tree_jobs: Some(jobs.clone()), ..ServerOptions::default() };
        let server = Server::start(&data, options, world).expect("started");
        let address: Address =
            format!("unix:{}", dir.path().join("socket").display()).parse().expect("an address");
        server.serve(std::slice::from_ref(&address)).expect("listening");
        jobs.serve(address.clone(), None);
        Site { dir, server, address }
    }

    /// Runs a program with the address and a place for journals as arguments.
    fn run(&self, command: &mut Command) {
        let state = self.dir.path().join("state");
        assert_eq!(said(command.arg(self.address.to_string()).arg(&state)), SAID);
        let client = chiton_embedded::client(&self.server, ClientOptions::default()).expect("a session");
        for n in 0..100 {
            let found = client.read_file(format!("/results/part-{n}"));
            assert_eq!(found, Ok(format!("result {n}\n").into_bytes()));
        }
        assert_eq!(std::fs::read_dir(&state).expect("made").count(), 0, "a journal is left");
    }
}

#[test]
fn the_example_in_c_does_what_it_says_with_either_library() {
    for is_static in [false, true] {
        let site = Site::new();
        let source = root().join("examples/library/job.c");
        let program = compiled(&source, &site.dir.path().join("job"), is_static);
        site.run(&mut Command::new(program));
        let usage = Command::new(site.dir.path().join("job")).output().expect("it runs");
        assert_eq!(usage.status.code(), Some(2));
    }
}

#[test]
fn the_example_in_python_does_what_it_says() {
    let site = Site::new();
    let mut python = Command::new("python3");
    python.arg(root().join("examples/library/job.py"));
    site.run(python.env("CHITON_LIBRARY", libraries().join("libchiton.so")));
}

#[test]
fn batches_in_python_have_a_result_for_each() {
    let site = Site::new();
    let mut python = Command::new("python3");
    python.arg(root().join("examples/library/batch.py")).arg(site.address.to_string());
    assert_eq!(
        said(python.env("CHITON_LIBRARY", libraries().join("libchiton.so"))),
        "made: 1000 files\ntheir content: 6000 bytes\none of them: 3 bytes\nthe server found: 1001 names, /batch first\n\
         removed: 1000, not there: True\nstopped: ENOENT ECANCELED\n"
    );
}

#[test]
fn batches_and_jobs_in_c_have_a_result_for_each() {
    let site = Site::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/batches.c");
    let program = compiled(&source, &site.dir.path().join("batches"), false);
    assert_eq!(said(Command::new(program).arg(site.address.to_string())), "batches hold\n");
}

#[test]
fn the_border_holds() {
    let dir = tempfile::tempdir().expect("a directory");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/border.c");
    let program = compiled(&source, &dir.path().join("border"), false);
    let layout = [
        size_of::<chiton::Attr>(),
        offset_of!(chiton::Attr, size),
        offset_of!(chiton::Attr, mtime_ns),
        offset_of!(chiton::Attr, mode),
        offset_of!(chiton::Attr, nlink),
        offset_of!(chiton::Attr, uid),
        offset_of!(chiton::Attr, gid),
    ];
    let mut command = Command::new(program);
    command.arg(dir.path().join("data")).arg(dir.path().join("state"));
    command.args(layout.map(|number| number.to_string()));
    assert_eq!(said(&mut command), "the border holds\n");
}

/// The page shows the examples that these tests have run.
#[test]
fn the_page_shows_the_examples_as_they_are() {
    let page = std::fs::read_to_string(root().join("docs/library.md")).expect("the page");
    for name in ["job.rs", "job.c", "job.py", "batch.py"] {
        let text = std::fs::read_to_string(root().join("examples/library").join(name)).expect("an example");
        assert!(page.contains(text.trim_end()), "docs/library.md does not show {name} as it is");
    }
}
