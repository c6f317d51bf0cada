//! The same histories over the real server, in this process and at the other end of a socket.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chiton_runtime::{RealWorld, SharedWorld};
use chiton_server::{FormatOptions, Server, ServerOptions};
use chiton_transport::Address;
use chiton_types::{Attr, Ino, Mode};
use proptest::test_runner::{Config, TestRunner};

use super::histories::{History, steps};
use super::{FileCalls, Member, caller, contention, tiny};
use crate::data::Files;
use crate::tests::near::Near;
use crate::{Client, ClientOptions, OpenFlags};

static NEXT_NAME: AtomicU64 = AtomicU64::new(0);

impl FileCalls for Client {
    fn create(&self, _: &Files) -> (Ino, u64) {
        let name = format!("f{}", NEXT_NAME.fetch_add(1, Ordering::Relaxed));
        let made = caller(|c| {
            Client::create(self, c, Ino::ROOT, name.as_bytes(), Mode(0o666), OpenFlags::READ_WRITE)
        });
        let (entry, fh) = made.expect("create");
        (entry.attr.ino, fh)
    }

    fn open(&self, _: &Files, ino: Ino, flags: OpenFlags) -> u64 {
        caller(|c| Client::open(self, c, ino, flags)).expect("open")
    }

    fn stat(&self, ino: Ino) -> Attr {
        // An open asks writers elsewhere to write back; a stat alone shows what the server knows.
        let fh = caller(|c| Client::open(self, c, ino, OpenFlags::READ)).expect("open");
        let attr = self.getattr(ino, Some(fh)).expect("getattr").attr;
        Client::release(self, fh).expect("release");
        attr
    }
}

fn member(client: Client) -> Member {
    let client = Arc::new(client);
    Member { files: client.files.clone(), calls: client }
}

/// A server with a root directory that everybody may write in.
fn server(dir: &std::path::Path) -> Arc<Server> {
    let world: SharedWorld = Arc::new(RealWorld);
    Server::format(dir, &FormatOptions::default(), &world).expect("format");
    Server::start(dir, ServerOptions::default(), world).expect("start")
}

fn options() -> ClientOptions {
    ClientOptions { files: tiny(), ..ClientOptions::default() }
}

/// One server for all cases: its start takes longer than a case.
fn check(cases: u32, connect: impl Fn(&Arc<Server>) -> Client) {
    let dir = tempfile::tempdir().expect("a directory");
    let server = server(dir.path());
    let root = Near::client(&server, options());
    let change = chiton_model::AttrChange { mode: Some(Mode(0o777)), ..Default::default() };
    let superuser = Arc::from([]);
    let superuser = crate::Caller { uid: 0, gid: 0, groups: crate::Groups::Known(&superuser) };
    root.setattr(&superuser, Ino::ROOT, change, None).expect("chmod");
    let two = [member(connect(&server)), member(connect(&server))];
    contention::append_all(&two);
    contention::write_and_read(&two);
    contention::copy_and_truncate(&two);
    let members = std::cell::RefCell::new(Some(two));
    let third = member(connect(&server));
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let result = TestRunner::new(config).run(&steps(), |steps| {
        let two = members
            .borrow_mut()
            .take()
            .unwrap_or_else(|| [member(connect(&server)), member(connect(&server))]);
        let mut history = History::new(two);
        history.run_all(steps, &third);
        *members.borrow_mut() = Some(history.into_members());
        Ok(())
    });
    drop((members, third, root));
    server.shutdown().expect("shutdown");
    if let Err(error) = result {
        panic!("{error}");
    }
}

#[test]
fn histories_in_one_process() {
    check(60, |server| Near::client(server, options()));
}

#[test]
fn histories_over_a_socket() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("socket");
    let address: Address = format!("unix:{}", path.display()).parse().expect("an address");
    check(40, |server| {
        if !path.exists() {
            server.serve(std::slice::from_ref(&address)).expect("serve");
        }
        Client::connect(&address, options()).expect("connect")
    });
}

#[test]
fn what_a_server_in_this_process_has_in_memory_is_not_kept_a_second_time() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = server(dir.path());
    let client = Near::client(&server, options());
    let groups = Arc::from([]);
    let superuser = crate::Caller { uid: 0, gid: 0, groups: crate::Groups::Known(&groups) };
    let made = [("empty", 0), ("small", 10), ("large", 100)].map(|(name, bytes)| {
        let content = vec![7; bytes];
        let made = client.create(&superuser, Ino::ROOT, name.as_bytes(), Mode(0o600), OpenFlags::READ_WRITE);
        let (entry, fh) = made.expect("created");
        assert_eq!(client.write(&superuser, fh, 0, &content), Ok(bytes as u32));
        client.release(fh).expect("released");
        (entry.attr.ino, content)
    });
    assert_eq!(
        client.files.known(&crate::PlateInodes::all()),
        [made[2].0],
        "of the large one the map is kept"
    );
    for (ino, content) in made {
        let fh = client.open(&superuser, ino, OpenFlags::READ).expect("opened");
        assert_eq!(client.read(fh, 0, 1000), Ok(content));
        client.release(fh).expect("released");
    }
    drop(client);
    server.shutdown().expect("shutdown");
}
