//! Random work in a directory, by path: the same steps do the same wherever they are done.

use chiton_client::{Client, OpenFlags};
use chiton_model::{AttrChange, RenameHow, XattrHow};
use chiton_types::{Kind, Mode};

/// Steps from a seed (SplitMix64).
pub(crate) struct Work {
    state: u64,
}

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

impl Work {
    pub(crate) fn new(seed: u64) -> Work {
        Work { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn path(&mut self) -> String {
        let depth = 1 + self.below(3);
        (0..depth).map(|_| format!("/{}", NAMES[self.below(6) as usize])).collect()
    }

    /// One step below `at`. Whether it can be done does not matter: it can be elsewhere too, or not.
    pub(crate) fn step(&mut self, client: &Client, at: &str) -> bool {
        let caller = client.caller();
        let (path, other) = (format!("{at}{}", self.path()), format!("{at}{}", self.path()));
        let kind = self.below(16);
        let value = self.next();
        let many: Vec<String> =
            (0..1 + value % 12).map(|n| format!("n{}", value.rotate_left(n as u32) % 60)).collect();
        let bytes = vec![value as u8; (value >> 8) as usize % 9_000];
        if path == other {
            // A rename onto itself is acknowledged without an event, so a server that crashed does not recognise
            // the repeat. This does not test that.
            return false;
        }
        let stat = |path: &str| client.lstat(path);
        let parent = |path: &str| {
            let (dir, name) = path.rsplit_once('/').expect("a path below");
            let dir = if dir.is_empty() { client.root() } else { client.stat(dir).ok()?.ino };
            Some((dir, name.as_bytes().to_vec()))
        };
        let done = match kind {
            0..=2 => client.create_file(&path, &bytes).map(drop),
            3 | 4 => client.mkdir_all(&path).map(drop),
            5 => client.write_file(&path, &bytes),
            6 => client.remove(&path),
            7 => client.rename_path(&path, &other),
            8 => (|| {
                let ino = stat(&path)?.ino;
                let (dir, name) = parent(&other).ok_or(chiton_types::Refusal::NotFound)?;
                client.link(&caller, ino, dir, &name).map(drop)
            })(),
            9 => (|| {
                let attr = stat(&path)?;
                let mode = Mode(if attr.kind == Kind::Dir { 0o700 } else { (value % 0o1000) as u16 | 0o600 });
                client
                    .set_attr_path(&path, AttrChange { mode: Some(mode), ..AttrChange::default() })
                    .map(drop)
            })(),
            10 => (|| {
                let ino = stat(&path)?.ino;
                client.setxattr(&caller, ino, b"user.x", &bytes[..bytes.len().min(50)], XattrHow::Set)
            })(),
            11 => (|| {
                let (from, from_name) = parent(&path).ok_or(chiton_types::Refusal::NotFound)?;
                let (to, to_name) = parent(&other).ok_or(chiton_types::Refusal::NotFound)?;
                client.rename(&caller, from, &from_name, to, &to_name, RenameHow::Exchange)
            })(),
            12 => (|| {
                if stat(&path)?.kind != Kind::File {
                    return Err(chiton_types::Refusal::IsDir);
                }
                let fh = client.open_path(&path, OpenFlags::READ_WRITE)?;
                let written = client.write(&caller, fh, value % 200_000, &bytes).map(drop);
                client.release(fh).and(written)
            })(),
            // Many in one call: some twice, some that exist already. Parity shows which were created.
            13 => (|| {
                let (dir, _) = parent(&path).ok_or(chiton_types::Refusal::NotFound)?;
                let made = client.create_in(&caller, dir, &many, Mode(0o640));
                odd(made.iter().filter(|one| one.is_ok()).count())
            })(),
            // One after the other, without looking between.
            14 => (|| {
                let (dir, _) = parent(&path).ok_or(chiton_types::Refusal::NotFound)?;
                let made = many.iter().filter(|name| {
                    client.start_create(&caller, dir, name.as_bytes(), Mode(0o600)).wait().is_ok()
                });
                odd(made.count())
            })(),
            _ => (|| {
                if stat(&path)?.kind != Kind::File {
                    return Err(chiton_types::Refusal::IsDir);
                }
                let change = AttrChange { size: Some(value % 20_000), ..AttrChange::default() };
                client.set_attr_path(&path, change).map(drop)
            })(),
        };
        done.is_ok()
    }
}

fn odd(count: usize) -> Result<(), chiton_types::Refusal> {
    if count % 2 == 1 { Ok(()) } else { Err(chiton_types::Refusal::Exists) }
}
