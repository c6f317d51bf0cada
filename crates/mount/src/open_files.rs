//! Which process has a file open for writing, as far as `/proc` shows: what the kernel does not tell a file system.

use std::fs;

use crate::mount_table;

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
    let told = files.flatten().filter_map(|file| fs::read_to_string(file.path()).ok());
    let mut mounts = told.filter_map(|info| mount_of_writer(&info, inodes));
    // The mounts that this process sees: they have other numbers in other namespaces.
    mounts.any(|mount| {
        fs::read(format!("/proc/{process}/mountinfo"))
            .is_ok_and(|table| mount_table::device_of(&table, mount) == Some(device.as_bytes()))
    })
}

/// Reads what the system says of a descriptor: through which mount it writes to one of these inodes.
fn mount_of_writer(info: &str, inodes: &[u64]) -> Option<u64> {
    let field = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let flags = u32::from_str_radix(field("flags:")?, 8).ok()?;
    let inode = field("ino:")?.parse().ok()?;
    let writes = flags & libc::O_ACCMODE as u32 != libc::O_RDONLY as u32;
    if writes && inodes.contains(&inode) { field("mnt_id:")?.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_descriptor_is_a_writer_s_by_its_flags_and_inode() {
        let info = |flags: &str| format!("pos:\t0\nflags:\t{flags}\nmnt_id:\t27\nino:\t7318349394477057\n");
        assert_eq!(mount_of_writer(&info("0100001"), &[3, 7318349394477057]), Some(27));
        assert_eq!(mount_of_writer(&info("0100002"), &[7318349394477057]), Some(27));
        assert_eq!(mount_of_writer(&info("0100000"), &[7318349394477057]), None);
        assert_eq!(mount_of_writer(&info("0100001"), &[7318349394477058]), None);
        assert_eq!(mount_of_writer("", &[0]), None);
    }

    #[test]
    fn a_process_that_writes_is_found_and_one_that_writes_elsewhere_is_not() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let inode = file.as_file().metadata().expect("there").ino();
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_file().as_raw_fd()));
        let mount = mount_of_writer(&info.expect("told"), &[inode]).expect("it writes");
        let table = fs::read(mount_table::PATH).expect("a table");
        let device =
            std::str::from_utf8(mount_table::device_of(&table, mount).expect("there")).expect("text");
        let found = writer_of(device, &[inode]).expect("it is this one");
        assert!(found.starts_with(&format!("process {} (", std::process::id())), "{found}");
        assert_eq!(writer_of(device, &[u64::MAX]), None);
        // Whoever has an inode of that number open, on another file system.
        assert_eq!(writer_of("0:0", &[inode]), None);
    }
}
