//! Decodes the arguments of a request. `None`: the request is too short.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// The rest of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Fields<'a> {
        Fields(bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_ne_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_ne_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_ne_bytes)
    }

    /// Skips padding, or fields that are not used. `None` past the end.
    pub(crate) fn skip(&mut self, bytes: usize) -> Option<()> {
        self.0 = self.0.get(bytes..)?;
        Some(())
    }

    /// A name that ends with a NUL.
    pub(crate) fn name(&mut self) -> Option<&'a OsStr> {
        let end = self.0.iter().position(|&byte| byte == 0)?;
        let name = OsStr::from_bytes(&self.0[..end]);
        self.0 = &self.0[end + 1..];
        Some(name)
    }

    /// The next `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (first, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_requests_are_seen() {
        let mut fields = Fields::new(&[1, 0, 0, 0, b'a', b'b', 0, 9]);
        assert_eq!(fields.u32(), Some(u32::from_ne_bytes([1, 0, 0, 0])));
        assert_eq!(fields.name(), Some(OsStr::new("ab")));
        assert_eq!(fields.u32(), None);
        assert_eq!(fields.name(), None, "no NUL");
        assert_eq!(fields.bytes(2), None);
        assert_eq!(fields.bytes(1), Some(&[9][..]));
        assert_eq!(fields.skip(1), None);
    }
}
