//! Finds in `/proc` a process that has a file open for writing; the kernel does not report this to a file system.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

/// A process that has one of the files of the file system with this device number open for writing, in words: number and
/// name.
pub(crate) fn writer_of(device: &str, inodes: &[u64]) -> Option<String> {
    let processes = fs::read_dir("/proc").ok()?;
    let numbers = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut writers = numbers.filter(|process| has_open(*process, device, inodes));
    let process = writers.next()?;
    let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    Some(format!("process {process} ({})", name.trim_end()))
}

/// Whether it has; not if it is another user's, whose files cannot be seen. Other file systems have inodes of these numbers,
/// too.
fn has_open(process: u32, device: &str, inodes: &[u64]) -> bool {
    let Ok(files) = fs::read_dir(format!("/proc/{process}/fdinfo")) else { return false };
    files.flatten().any(|file| {
        let info = fs::read_to_string(file.path());
        info.is_ok_and(|info| writes_to(&info, inodes))
            && device_behind(process, &file.file_name()).as_deref() == Some(device)
    })
}

/// Whether a descriptor, by its entry in `/proc`, writes to one of these inodes.
fn writes_to(info: &str, inodes: &[u64]) -> bool {
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let flags = field("flags:").and_then(|text| u32::from_str_radix(text, 8).ok());
    let inode = field("ino:").and_then(|text| text.parse().ok());
    let writes = flags.is_some_and(|flags| flags & libc::O_ACCMODE as u32 != libc::O_RDONLY as u32);
    writes && inode.is_some_and(|inode| inodes.contains(&inode))
}

/// The device number of the file system that a descriptor is in. The process's table of mounts may lack it, in a
/// chroot or another mount namespace. The kernel answers from memory; a request for attributes would come back to
/// this very process.
fn device_behind(process: u32, descriptor: &OsStr) -> Option<String> {
    let path = Path::new("/proc").join(process.to_string()).join("fd").join(descriptor);
    let stat = statx(CWD, &path, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE).ok()?;
    Some(format!("{}:{}", stat.stx_dev_major, stat.stx_dev_minor))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_descriptor_is_a_writer_s_by_its_flags_and_inode() {
        let info = |flags: &str| format!("pos:\t0\nflags:\t{flags}\nmnt_id:\t27\nino:\t7318349394477057\n");
        assert!(writes_to(&info("0100001"), &[3, 7318349394477057]));
        assert!(writes_to(&info("0100002"), &[7318349394477057]));
        assert!(!writes_to(&info("0100000"), &[7318349394477057]));
        assert!(!writes_to(&info("0100001"), &[7318349394477058]));
        assert!(!writes_to("", &[0]));
    }

    #[test]
    fn a_process_that_writes_is_found_and_one_that_writes_elsewhere_is_not() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let meta = file.as_file().metadata().expect("there");
        let device = format!("{}:{}", rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
        let found = writer_of(&device, &[meta.ino()]).expect("it is this one");
        assert!(found.starts_with(&format!("process {} (", std::process::id())), "{found}");
        assert_eq!(writer_of(&device, &[u64::MAX]), None);
        // The inode has this number on another file system.
        assert_eq!(writer_of("0:0", &[meta.ino()]), None);
    }
}
