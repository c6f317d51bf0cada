//! Which process has a file open for writing, as far as `/proc` shows: what the kernel does not tell a file system.

use std::fs;

/// A process that has one of the files open for writing, in words: number and name.
pub(crate) fn writer_of(inodes: &[u64]) -> Option<String> {
    let processes = fs::read_dir("/proc").ok()?;
    let numbers = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut writers = numbers.filter(|process| has_open(*process, inodes));
    let process = writers.next()?;
    let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    Some(format!("process {process} ({})", name.trim_end()))
}

/// Whether it has; not if it is another user's, whose files cannot be seen.
fn has_open(process: u32, inodes: &[u64]) -> bool {
    let Ok(files) = fs::read_dir(format!("/proc/{process}/fdinfo")) else { return false };
    files.flatten().any(|file| fs::read_to_string(file.path()).is_ok_and(|info| is_writer(&info, inodes)))
}

/// Reads what the system says of a descriptor. Numbers of inodes are not used twice, so they are enough.
fn is_writer(info: &str, inodes: &[u64]) -> bool {
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let flags = field("flags:").and_then(|flags| u32::from_str_radix(flags, 8).ok());
    let inode = field("ino:").and_then(|inode| inode.parse().ok());
    flags.is_some_and(|flags| flags & libc::O_ACCMODE as u32 != libc::O_RDONLY as u32)
        && inode.is_some_and(|inode| inodes.contains(&inode))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_descriptor_is_a_writer_s_by_its_flags_and_inode() {
        let info = |flags: &str| format!("pos:\t0\nflags:\t{flags}\nmnt_id:\t27\nino:\t7318349394477057\n");
        assert!(is_writer(&info("0100001"), &[3, 7318349394477057]));
        assert!(is_writer(&info("0100002"), &[7318349394477057]));
        assert!(!is_writer(&info("0100000"), &[7318349394477057]));
        assert!(!is_writer(&info("0100001"), &[7318349394477058]));
        assert!(!is_writer("", &[0]));
    }

    #[test]
    fn a_process_that_writes_is_found() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let inode = file.as_file().metadata().expect("there").ino();
        let found = writer_of(&[inode]).expect("it is this one");
        assert!(found.starts_with(&format!("process {} (", std::process::id())), "{found}");
        assert_eq!(writer_of(&[u64::MAX]), None);
    }
}
