//! Extended attributes. Attributes say which of them an inode has none of: kernels ask for some of every file of a listing, and before
//! each write.

use chiton_model::{Op, XattrHow};
use chiton_namespace::permission::{ACL_ACCESS, ACL_DEFAULT};
use chiton_types::{Attr, Ino, Kind, Refusal};
use chiton_wire::{Call, Query};

use crate::client::Client;
use crate::service::Caller;

impl Client {
    /// Value of an extended attribute.
    ///
    /// # Errors
    /// [`Refusal::NoXattr`].
    pub fn getxattr(&self, caller: &Caller<'_>, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Refusal> {
        if self.is_fresh(ino) {
            let is_absent = match self.core.cache.attr(ino) {
                Some(attr) => lacks(&attr, name),
                None => is_for_all(name) && self.core.write_behind.of(ino).has_no_xattrs(ino),
            };
            if is_absent {
                return Err(Refusal::NoXattr);
            }
        }
        self.bytes(caller, Query::GetXattr { ino, name: name.to_vec() })
    }

    /// Names of the extended attributes, each ended by NUL.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn listxattr(&self, caller: &Caller<'_>, ino: Ino) -> Result<Vec<u8>, Refusal> {
        if self.is_fresh(ino)
            && let Some(attr) = self.core.cache.attr(ino)
            && attr.flags & Attr::XATTRS == 0
        {
            return Ok(Vec::new());
        }
        self.bytes(caller, Query::ListXattr { ino })
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// As setxattr(2).
    pub fn setxattr(
        &self,
        caller: &Caller<'_>,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        how: XattrHow,
    ) -> Result<(), Refusal> {
        let op = Op::SetXattr { ino, name: name.to_vec(), value: value.to_vec(), how };
        self.ask(caller, Call::Op { op, open: false }).map(drop)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// [`Refusal::NoXattr`].
    pub fn removexattr(&self, caller: &Caller<'_>, ino: Ino, name: &[u8]) -> Result<(), Refusal> {
        self.ask(caller, Call::Op { op: Op::RemoveXattr { ino, name: name.to_vec() }, open: false }).map(drop)
    }
}

/// Whether everybody may ask for extended attributes with this name, and hears the same.
fn is_for_all(name: &[u8]) -> bool {
    name.starts_with(b"security.")
}

/// Whether an inode has no extended attribute with this name, and every caller may learn that.
fn lacks(attr: &Attr, name: &[u8]) -> bool {
    // Of a symbolic link nobody may ask for lists.
    let is_link = attr.kind == Kind::Symlink;
    match name {
        ACL_ACCESS => attr.flags & Attr::ACCESS_LIST == 0 && !is_link,
        ACL_DEFAULT => attr.flags & Attr::DEFAULT_LIST == 0 && !is_link,
        _ => attr.flags & Attr::XATTRS == 0 && is_for_all(name),
    }
}
