//! D1 to D6: names and lookups.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use chiton_model::Op;
use chiton_transport::{Address, FrameKind, FrameReader, put_frame};
use chiton_types::{Cred, Epoch, Ino, Name, PlateId, Refusal, Seq, Take};
use chiton_wire::{Answer, Call, Channel, Failure, Hello, PROTOCOL_VERSION, Query, Request, Welcome};

use crate::case::{Case, alice, answered, bob, empty, is_refused, name};
use crate::client::Found;
use crate::finding::{Finding, Outcome, failed, holds, same};

pub(super) fn finds(case: &Case<'_>) -> Outcome {
    let dir = case.dir()?;
    let (file, sub) = (case.file(dir, "file")?, case.subdir(dir, "sub")?);
    for (text, attr) in [("file", &file), ("sub", &sub)] {
        let found = case.found(dir, text)?;
        same(&format!("look up {text}"), (attr.ino, attr.kind), (found.ino, found.kind))?;
        // As it is answered where the name is.
        let (parent, named) = (case.client.place(dir, &name(text)), name(text));
        let query = Query::Lookup { parent, name: named };
        let is_here = case.client.server.plate_of(parent)? == case.client.server.plate_of(attr.ino)?;
        match case.client.server.ask(parent, &Cred::ROOT, Call::Query(query))? {
            Ok(Answer::Attr { attr: seen, .. }) if is_here => same("look up", attr.ino, seen.ino)?,
            Ok(Answer::Elsewhere { ino, .. }) if !is_here => same("look up", attr.ino, ino)?,
            // It was split meanwhile.
            Err(Failure::Refused(Refusal::OtherPart)) => {}
            other => {
                let expected = if is_here { "Attr" } else { "Elsewhere, since another plate owns the inode" };
                return Err(failed(format!("look up {text}"), expected, format!("{other:?}")));
            }
        }
    }
    Ok(())
}

pub(super) fn absent(case: &Case<'_>) -> Outcome {
    let dir = case.dir()?;
    case.file(dir, "here")?;
    case.is_absent(dir, "there")?;
    case.is_absent(dir, "Here")
}

pub(super) fn refusals(case: &Case<'_>) -> Outcome {
    let dir = case.dir()?;
    let (file, sub) = (case.file(dir, "file")?, case.subdir(dir, "sub")?);
    case.done(&Cred::ROOT, &Op::Rmdir { parent: dir, name: name("sub") })?;
    let check = |step: &str, cred: &Cred, at: Ino, refusal| {
        is_refused(step, case.client.lookup(cred, at, &name("absent"))?, refusal)
    };
    check("look up a name in an inode that is gone", &alice(), sub.ino, Refusal::Stale)?;
    check("look up a name in a file", &alice(), file.ino, Refusal::NotDir)?;
    case.chmod(dir, 0o666)?;
    // The right to search comes before the question whether there is such a name.
    check("look up an absent name without the right to search", &alice(), dir, Refusal::Access)?;
    case.chmod(dir, 0o111)?;
    let found = case.client.lookup(&alice(), dir, &name("absent"))?;
    same("look up an absent name with the right to search alone", Ok(Found::Absent), found)
}

pub(super) fn groups(case: &Case<'_>) -> Outcome {
    let dir = case.dir()?;
    case.file(dir, "file")?;
    case.chmod(dir, 0o710)?;
    let change = chiton_model::AttrChange { gid: Some(alice().gid), ..Default::default() };
    case.done(&Cred::ROOT, &Op::SetAttr { ino: dir, change })?;
    let lookup = |cred: &Cred| case.client.lookup(cred, dir, &name("file"));
    let step = "look up a name that only a group may look up";
    same(&format!("{step}, without the groups"), Err(Failure::NeedGroups), lookup(&Cred::unseen(7, 7))?)?;
    is_refused(&format!("{step}, as no member"), lookup(&bob())?, Refusal::Access)?;
    let member = Cred::new(bob().uid, bob().gid, &[alice().gid]);
    match lookup(&member)? {
        Ok(Found::Inode(_)) => Ok(()),
        other => Err(failed(format!("{step}, as a member"), "an inode", format!("{other:?}"))),
    }
}

pub(super) fn names_are_bytes(case: &Case<'_>) -> Outcome {
    let dir = case.dir()?;
    let long = [b'n'; 255];
    let names: [&[u8]; 6] = [b"a", b"A", b"...", b"\xff\xfe\x01", "\u{e4}".as_bytes(), &long];
    for bytes in names {
        let name = Name::new(bytes).expect("checks use valid names");
        let op = Op::Make { parent: dir, name, make: empty(), mode: chiton_types::Mode(0o644) };
        case.done(&Cred::ROOT, &op)?;
    }
    let entries = answered("list", case.client.entries(&Cred::ROOT, dir, 100, false))?;
    let mut seen: Vec<&[u8]> = entries.iter().map(|entry| entry.name.as_bytes()).collect();
    let mut expected = names.to_vec();
    seen.sort_unstable();
    expected.sort_unstable();
    same("list names of any bytes", expected, seen)
}

/// A socket that speaks bytes, not messages.
trait Bytes: Read + Write {}
impl<T: Read + Write> Bytes for T {}

/// Longest wait for a server that should end a connection.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn impossible_names(case: &Case<'_>) -> Outcome {
    if case.target.credentials.is_some() {
        return Err(Finding::NotApplicable("the check needs a connection without TLS".to_owned()));
    }
    let dir = case.dir()?;
    for bytes in [&b"a/b"[..], b"a\0b", b".", b"..", b""] {
        let step = format!("look up the name {:?}", String::from_utf8_lossy(bytes));
        let io = |e: std::io::Error| failed(&step, "the end of the connection", e.to_string());
        let mut socket = open(&case.target.address).map_err(io)?;
        let mut out = Vec::new();
        let hello = Hello {
            version: PROTOCOL_VERSION,
            channel: Channel::Main,
            resume: None,
            identity: "conformance suite, impossible names".to_owned(),
            resend_count: 0,
            decouples: false,
            plate: PlateId(0),
            client: 0,
            filesystem: 0,
        };
        put_frame(&mut out, FrameKind::Hello, |out| hello.encode(out)).expect("a hello fits a frame");
        let valid = Name::new(&[b'x'; 3]).expect("a name");
        let call = Call::Query(Query::Lookup { parent: dir, name: valid });
        let cred = Cred::ROOT;
        let request =
            Request { id: 1, seq: Seq(0), settled: Seq(0), epoch: Epoch(0), again: None, cred, call };
        put_frame(&mut out, FrameKind::Request, |out| {
            request.encode(out);
            // The name is the last field: its length, and three bytes.
            out.truncate(out.len() - 4);
            out.push(bytes.len() as u8);
            out.extend_from_slice(bytes);
        })
        .expect("a request fits a frame");
        socket.write_all(&out).map_err(io)?;
        let mut received = Vec::new();
        match socket.read_to_end(&mut received) {
            Ok(_) => {}
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => {}
            Err(e) => return Err(io(e)),
        }
        ended_after_welcome(&step, &received)?;
    }
    // Others are not concerned.
    case.file(dir, "after").map(drop)
}

/// The server greeted, and then it answered nothing more.
fn ended_after_welcome(step: &str, received: &[u8]) -> Outcome {
    let mut frames = FrameReader::new();
    frames.push(received);
    let expected = "a welcome, and then the end of the connection";
    let mut kinds = Vec::new();
    while let Ok(Some((kind, body))) = frames.next_frame() {
        if kind == FrameKind::Welcome {
            match Welcome::decode(&mut Take::new(body)) {
                Ok(Welcome::Accepted { .. }) => {}
                other => {
                    let why = format!("plate 0 is not at this address: {other:?}");
                    return Err(Finding::NotApplicable(why));
                }
            }
        }
        kinds.push(kind);
    }
    holds(step, kinds == [FrameKind::Welcome], expected, &kinds)
}

fn open(address: &Address) -> std::io::Result<Box<dyn Bytes>> {
    match address {
        Address::Unix(path) => {
            let socket = UnixStream::connect(path)?;
            socket.set_read_timeout(Some(PATIENCE))?;
            Ok(Box::new(socket))
        }
        Address::Tcp(at) => {
            let socket = TcpStream::connect(at)?;
            socket.set_read_timeout(Some(PATIENCE))?;
            Ok(Box::new(socket))
        }
    }
}
