//! Notifications to the kernel.

use std::io;
use std::sync::Arc;

use crate::abi::notify;
use crate::body::Body;
use crate::device::Device;
use crate::numbers::INodeNo;

#[derive(Clone, Debug)]
pub struct Notifier(Arc<Device>);

impl Notifier {
    pub(crate) fn new(device: Device) -> Notifier {
        Notifier(Arc::new(device))
    }

    /// Attributes of an inode no longer hold, nor its pages from `offset` on (`len` bytes; 0: all). The kernel waits for pages that
    /// are being read or written.
    ///
    /// # Errors
    /// ENODEV, ENOTCONN when the mount is gone. An inode that the kernel does not know is no error.
    pub fn inval_inode(&self, ino: INodeNo, offset: i64, len: i64) -> io::Result<()> {
        let mut body = Body::new();
        body.put_u64(ino.0);
        body.put_u64(offset as u64);
        body.put_u64(len as u64);
        unless_unknown(self.0.write(&[body.finish(notify::INVAL_INODE, 0, 0)]))
    }

    /// Makes the kernel look up a name again. File systems mounted on it, or below it, stay. (Linux before 6.2
    /// drops the name and detaches them.) Waits for the lock of the directory.
    ///
    /// # Errors
    /// As [`Notifier::inval_inode`].
    pub fn expire_entry(&self, parent: INodeNo, name: &[u8]) -> io::Result<()> {
        let mut body = Body::new();
        body.put_u64(parent.0);
        body.put_u32(u32::try_from(name.len()).expect("a name is short"));
        body.put_u32(notify::EXPIRE_ONLY);
        let fixed = body.finish(notify::INVAL_ENTRY, 0, name.len() + 1);
        unless_unknown(self.0.write(&[fixed, name, &[0]]))
    }

    /// Every name is looked up again before it is believed. Takes no lock (Linux 6.16).
    ///
    /// # Errors
    /// EINVAL where the kernel cannot; as [`Notifier::inval_inode`].
    pub fn increment_epoch(&self) -> io::Result<()> {
        self.0.write(&[Body::new().finish(notify::INC_EPOCH, 0, 0)])
    }

    /// Puts bytes into the page cache of an inode, which grows if they end past its size.
    ///
    /// # Errors
    /// As [`Notifier::inval_inode`].
    pub fn store(&self, ino: INodeNo, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut body = Body::new();
        body.put_u64(ino.0);
        body.put_u64(offset);
        body.put_u32(u32::try_from(bytes.len()).map_err(io::Error::other)?);
        body.put_u32(0);
        let fixed = body.finish(notify::STORE, 0, bytes.len());
        unless_unknown(self.0.write(&[fixed, bytes]))
    }
}

fn unless_unknown(sent: io::Result<()>) -> io::Result<()> {
    match sent {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        sent => sent,
    }
}
