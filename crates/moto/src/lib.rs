//! An S3 service for tests: moto, in a process of its own that ends with the test.
//!
//! ```text
//!   Moto::shared() ─▶ python environment below target/ (made once) ─▶ serve.py ─▶ http://127.0.0.1:PORT
//! ```
//!
//! Invariants:
//! - One process for each test program, on a port that the system chose; it ends when its standard input does, also
//!   if the test program is killed.
//! - The environment is made by the first user, under a lock, from the versions named here; `python3` with `venv`
//!   is all that the machine has to have.

mod environment;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Access key and secret that every client of it may use; moto takes any.
pub const CREDENTIALS: (&str, &str) = ("chiton-test", "chiton-test-secret");

/// A running moto. Dropping the value kills it.
#[derive(Debug)]
pub struct Moto {
    child: Child,
    /// Its end ends the process.
    _stdin: ChildStdin,
    port: u16,
}

impl Moto {
    /// The one of this test program.
    ///
    /// # Panics
    /// If it cannot be installed or started: the message says what is missing.
    pub fn shared() -> &'static Moto {
        static SHARED: OnceLock<Moto> = OnceLock::new();
        SHARED.get_or_init(|| Moto::start(&[]))
    }

    /// One that takes every put, whatever its conditions, as some old services do.
    ///
    /// # Panics
    /// As [`Moto::shared`].
    pub fn start_ignoring_conditions() -> Moto {
        Moto::start(&["--ignore-conditions"])
    }

    /// One for a single test, which may empty it.
    ///
    /// # Panics
    /// As [`Moto::shared`].
    pub fn alone() -> Moto {
        Moto::start(&[])
    }

    /// Removes all buckets at once, with their objects.
    ///
    /// # Panics
    /// If the service does not do it.
    pub fn remove_all_buckets(&self) {
        self.request("POST", "/moto-api/reset");
    }

    fn start(args: &[&str]) -> Moto {
        let python = environment::python();
        let mut child = Command::new(&python)
            .args(["-c", include_str!("serve.py")])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|e| panic!("cannot run {}: {e}", python.display()));
        let stdin = child.stdin.take().expect("piped");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped"))
            .read_line(&mut line)
            .expect("moto tells its port");
        let port = line.trim().parse().unwrap_or_else(|_| panic!("moto did not start, see above: {line:?}"));
        Moto { child, _stdin: stdin, port }
    }

    /// `http://127.0.0.1:PORT`.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Process id of the service.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A new bucket; its name.
    ///
    /// # Panics
    /// If the service does not make it.
    pub fn bucket(&self) -> String {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("bucket-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        self.request("PUT", &format!("/{name}"));
        name
    }

    fn request(&self, method: &str, path: &str) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("moto listens");
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            self.port
        );
        stream.write_all(request.as_bytes()).expect("moto reads");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("moto answers");
        assert!(reply.starts_with("HTTP/1.1 200"), "{method} {path}: {reply}");
    }

    /// The environment variables of a process that uses it.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let (key, secret) = CREDENTIALS;
        vec![
            ("AWS_ENDPOINT_URL", self.endpoint()),
            ("AWS_ACCESS_KEY_ID", key.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", secret.to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
        ]
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
