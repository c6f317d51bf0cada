//! chattr and lsattr.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use super::fixture::MountedHere;

const GET_FLAGS: libc::Ioctl = 0x8008_6601;
const SET_FLAGS: libc::Ioctl = 0x4008_6602;
const GET_XATTR: libc::Ioctl = 0x801c_581f;
const IMMUTABLE: libc::c_long = 0x10;
const APPEND: libc::c_long = 0x20;

fn flags(path: &Path) -> libc::c_long {
    let (file, mut flags) = (File::open(path).expect("it opens"), 0 as libc::c_long);
    // SAFETY: the command writes an int.
    assert_eq!(unsafe { libc::ioctl(file.as_raw_fd(), GET_FLAGS, &mut flags) }, 0);
    flags
}

fn set(path: &Path, flags: libc::c_long) -> Result<(), i32> {
    let file = File::open(path).expect("it opens");
    // SAFETY: the command reads an int.
    match unsafe { libc::ioctl(file.as_raw_fd(), SET_FLAGS, &flags) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().raw_os_error().expect("an error of the system")),
    }
}

fn refused<T>(result: std::io::Result<T>) {
    assert_eq!(result.err().and_then(|error| error.raw_os_error()), Some(libc::EPERM));
}

/// S116: the flags hold for names, content and attributes, also through descriptors that are open.
#[test]
fn immutable_and_append_only_files_are_kept() {
    let mounted = MountedHere::new();
    let path = mounted.fs.dir.join("f");
    fs::write(&path, "one").expect("written");
    let open = OpenOptions::new().read(true).write(true).open(&path).expect("open");
    assert_eq!(flags(&path), 0);
    set(&path, IMMUTABLE).expect("root may");
    assert_eq!(flags(&path), IMMUTABLE);
    refused(open.write_at(b"x", 0));
    refused(open.set_len(1));
    refused(OpenOptions::new().write(true).open(&path));
    refused(fs::remove_file(&path));
    refused(fs::rename(&path, mounted.fs.dir.join("g")));
    refused(fs::hard_link(&path, mounted.fs.dir.join("g")));
    assert_eq!(fs::read(&path).expect("it is read"), b"one");
    set(&path, APPEND).expect("root may");
    refused(open.write_at(b"x", 0));
    refused(OpenOptions::new().write(true).open(&path));
    let mut append = OpenOptions::new().append(true).open(&path).expect("appending is allowed");
    append.write_all(b" two").expect("appended");
    append.sync_all().expect("durable");
    assert_eq!(fs::read(&path).expect("it is read"), b"one two");
    assert_eq!(set(&path, 0x40), Err(libc::EOPNOTSUPP), "nodump is not kept");
    let (file, mut xattr) = (File::open(&path).expect("it opens"), [0u32; 7]);
    // SAFETY: the command writes a struct of 28 bytes.
    assert_eq!(unsafe { libc::ioctl(file.as_raw_fd(), GET_XATTR, &mut xattr) }, 0);
    assert_eq!(xattr, [0x10, 0, 0, 0, 0, 0, 0]);
    set(&path, 0).expect("root may");
    fs::remove_file(&path).expect("nothing forbids it any more");
}

/// S116: the same by the tools themselves, of a directory.
#[test]
fn the_tools_set_and_list_flags() {
    let mounted = MountedHere::new();
    let dir = mounted.fs.dir.join("d");
    fs::create_dir(&dir).expect("made");
    let run = |tool: &str, args: &[&str]| {
        let output = Command::new(tool).args(args).arg(&dir).output();
        let output = output.unwrap_or_else(|e| panic!("{tool} (package e2fsprogs): {e}"));
        assert!(output.status.success(), "{tool}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    run("chattr", &["+i"]);
    assert!(run("lsattr", &["-d"]).starts_with("----i"));
    refused(fs::write(dir.join("f"), "x"));
    run("chattr", &["-i", "+a"]);
    assert!(run("lsattr", &["-d"]).starts_with("-----a"));
    fs::write(dir.join("f"), "x").expect("names are added");
    refused(fs::remove_file(dir.join("f")));
    run("chattr", &["-a"]);
    fs::remove_file(dir.join("f")).expect("nothing forbids it any more");
}
