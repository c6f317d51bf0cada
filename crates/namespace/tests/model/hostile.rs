//! Numbers that come from callers and fit nothing: an answer, never a panic.

use chiton_model::{Body, CHUNK_BYTES, Extent, FILE_BYTES_MAX, Make, Op};
use chiton_namespace::Mapped;
use chiton_types::{BlockId, Cred, Ino, Mode, Name, Refusal, Time};

use crate::state::Ask;
use crate::subject::Subject;

fn made(subject: &mut Subject, n: u64, content: &[u8]) -> Ino {
    let name = Name::new(format!("f{n}").as_bytes()).expect("a name");
    let make = Make::File { content: content.to_vec() };
    run(subject, n, &Op::Make { parent: Ino::ROOT, name, make, mode: Mode(0o644) }).expect("a free name");
    Ino(n)
}

fn run(subject: &mut Subject, offered: u64, op: &Op) -> Result<(), Refusal> {
    let ask = Ask { cred: &Cred::ROOT, now: Time(1), offered: Ino(offered) };
    subject.run(op, &ask, &|_| false).map(|_| ())
}

#[test]
fn cookies_past_every_name_list_nothing() {
    let mut subject = Subject::new(Time(0), 0, 0);
    for n in 10..100 {
        made(&mut subject, n, b"");
    }
    for after in [(1 << 63) - 1, 1 << 63, u64::MAX - 1, u64::MAX] {
        let page = subject.ask(&Cred::ROOT, |ns, _| ns.readdir(Ino::ROOT, after, 10)).expect("a directory");
        assert!(page.entries.is_empty() && page.end, "after {after}: {page:?}");
    }
}

#[test]
fn ranges_past_every_file_map_nothing() {
    let mut subject = Subject::new(Time(0), 0, 0);
    let inline = made(&mut subject, 10, b"abc");
    let mapped = made(&mut subject, 11, b"");
    let e =
        Extent { offset: 3, len: 4, block: BlockId { writer: 1, number: 1 }, block_offset: 0, shared: false };
    let write = Op::Write {
        ino: mapped,
        body: Body::Extents(vec![e]),
        size: 7,
        mtime: Time(1),
        kill_setid: false,
        hold: Default::default(),
    };
    run(&mut subject, 0, &write).expect("a write");
    for offset in [CHUNK_BYTES, FILE_BYTES_MAX, 1 << 62, u64::MAX - 1, u64::MAX] {
        for len in [0, 1, CHUNK_BYTES, u64::MAX] {
            let found = subject.ask(&Cred::ROOT, |ns, _| ns.map(inline, offset, len));
            assert_eq!(found, Ok(Mapped::Inline(b"abc".to_vec())));
            match subject.ask(&Cred::ROOT, |ns, _| ns.map(mapped, offset, len)) {
                Ok(Mapped::Extents(from, to, extents)) => {
                    assert!(extents.is_empty() && from <= offset && offset < to, "{from}..{to} for {offset}");
                }
                found => assert_eq!(found, Err(Refusal::TooBig), "{offset} {len}"),
            }
        }
    }
    for (from_offset, to_offset, len) in
        [(u64::MAX, 0, 2), (0, u64::MAX, 2), (0, FILE_BYTES_MAX, 7), (0, 0, u64::MAX)]
    {
        let clone = Op::Clone { from: mapped, from_offset, to: inline, to_offset, len };
        assert_eq!(run(&mut subject, 0, &clone), Err(Refusal::Invalid), "{clone:?}");
    }
}
