//! One descriptor of `/dev/fuse`: requests are read from it, and replies to them written to it.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::io::Errno;

const PATH: &str = "/dev/fuse";
/// `FUSE_DEV_IOC_CLONE`.
const CLONE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(229, 0);

/// A descriptor of `/dev/fuse`.
#[derive(Debug)]
pub(crate) struct Device(OwnedFd);

/// The result of a read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Got {
    /// A request of this many bytes.
    Request(usize),
    /// No request this time.
    Nothing,
    /// The mount has ended.
    End,
}

impl Device {
    pub(crate) fn new(fd: OwnedFd) -> Device {
        Device(fd)
    }

    /// A second descriptor of the same mount, with a queue of its own in the kernel.
    pub(crate) fn clone_device(&self) -> io::Result<Device> {
        let fresh: OwnedFd = File::options().read(true).write(true).open(PATH)?.into();
        let number = u32::try_from(self.0.as_raw_fd()).expect("a live descriptor is not negative");
        // SAFETY: the kernel reads one `u32`, the number of a descriptor of this process, and keeps nothing.
        unsafe {
            rustix::ioctl::ioctl(&fresh, rustix::ioctl::Setter::<CLONE, u32>::new(number))?;
        }
        Ok(Device(fresh))
    }

    /// A descriptor for notifications.
    pub(crate) fn duplicate(&self) -> io::Result<Device> {
        self.0.try_clone().map(Device)
    }

    /// Waits for a request.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<Got> {
        match rustix::io::read(&self.0, buffer) {
            Ok(0) => Ok(Got::End),
            Ok(len) => Ok(Got::Request(len)),
            // The request was interrupted before a thread read it.
            Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => Ok(Got::Nothing),
            // Unmounted; or the connection was ended in /sys/fs/fuse/connections.
            Err(Errno::NODEV | Errno::CONNABORTED) => Ok(Got::End),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends one message.
    pub(crate) fn write(&self, parts: &[&[u8]]) -> io::Result<()> {
        let written = match parts {
            [whole] => rustix::io::write(&self.0, whole),
            [first, second] => rustix::io::writev(&self.0, &[IoSlice::new(first), IoSlice::new(second)]),
            _ => {
                let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
                rustix::io::writev(&self.0, &slices)
            }
        };
        written.map(drop).map_err(io::Error::from)
    }
}
