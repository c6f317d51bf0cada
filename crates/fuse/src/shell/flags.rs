//! The ioctls of lsattr(1) and chattr(1): the flags immutable and append-only of an inode.
//!
//! The number of a command says how many bytes it hands over. The two older commands (FS_IOC_GETFLAGS, FS_IOC_SETFLAGS) carry a
//! word of flags; the two newer ones (FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR) a structure that begins with such a word, in which the
//! flags have other values.

use chiton_fuse_session::{Errno, Request};
use chiton_types::{Attr, Ino, Refusal};

use super::Shell;
use crate::attr::errno;
use crate::caller::as_caller;

/// FS_IOC_GETFLAGS.
const GET_FLAGS: u32 = 0x8008_6601;
/// FS_IOC_SETFLAGS.
const SET_FLAGS: u32 = 0x4008_6602;
/// FS_IOC_FSGETXATTR.
const GET_XATTR: u32 = 0x801c_581f;
/// FS_IOC_FSSETXATTR.
const SET_XATTR: u32 = 0x401c_5820;

impl Shell {
    /// The flags of an inode as the command names them, also after it has set them. `argument`: the bytes that the program handed
    /// over.
    ///
    /// # Errors
    /// ENOTTY for other commands, EINVAL for an argument that is too short, EOPNOTSUPP for flags that are not kept; and as setattr.
    pub(super) fn flags(&self, req: &Request, ino: Ino, command: u32, argument: &[u8]) -> Result<u32, Errno> {
        let names = match command {
            // FS_IMMUTABLE_FL, FS_APPEND_FL; FS_XFLAG_IMMUTABLE, FS_XFLAG_APPEND.
            GET_FLAGS | SET_FLAGS => [(Attr::IMMUTABLE, 0x10), (Attr::APPEND_ONLY, 0x20)],
            GET_XATTR | SET_XATTR => [(Attr::IMMUTABLE, 0x08), (Attr::APPEND_ONLY, 0x10)],
            _ => return Err(Errno::from_i32(libc::ENOTTY)),
        };
        let named =
            |flags: u8| names.iter().filter(|(flag, _)| flags & flag != 0).map(|(_, name)| name).sum();
        if matches!(command, GET_FLAGS | GET_XATTR) {
            return Ok(named(self.attributes(req, ino).map_err(errno)?.attr.flags));
        }
        let (wanted, rest) = argument.split_first_chunk().ok_or(Errno::from_i32(libc::EINVAL))?;
        let wanted = u32::from_ne_bytes(*wanted);
        let flags = names.iter().filter(|(_, name)| wanted & name != 0).fold(0, |all, (flag, _)| all | flag);
        // Extent sizes and projects are not kept.
        if named(flags) != wanted || rest.iter().any(|byte| *byte != 0) {
            return Err(errno(Refusal::Unsupported));
        }
        as_caller(req, |caller| self.router.on(caller, [ino], |route| route.set_flags(caller, ino, flags)))
            .map_err(errno)?;
        Ok(named(flags))
    }
}
