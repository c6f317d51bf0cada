//! The fixed part of a reply or notification, built in place.

/// Longest fixed part in bytes: a header, an entry (128) and an open answer (16).
const BYTES_MAX: usize = 168;

/// Bytes on their way to the kernel.
#[derive(Debug)]
pub(crate) struct Body {
    bytes: [u8; BYTES_MAX],
    len: usize,
}

impl Body {
    /// Bytes of a `fuse_out_header`.
    pub(crate) const HEADER: usize = 16;

    /// Begins with room for the header, which [`Body::finish`] fills in.
    pub(crate) fn new() -> Body {
        Body { bytes: [0; BYTES_MAX], len: Body::HEADER }
    }

    pub(crate) fn put_u32(&mut self, number: u32) {
        self.put(&number.to_ne_bytes());
    }

    pub(crate) fn put_u64(&mut self, number: u64) {
        self.put(&number.to_ne_bytes());
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    /// The content without the header.
    pub(crate) fn payload(&self) -> &[u8] {
        &self.bytes[Body::HEADER..self.len]
    }

    /// The whole, followed by `more` bytes that are not in here. `code`: 0, minus an errno, or the number of a notification.
    pub(crate) fn finish(&mut self, code: i32, unique: u64, more: usize) -> &[u8] {
        let len = u32::try_from(self.len + more).expect("a message is shorter than 4 GiB");
        self.bytes[..4].copy_from_slice(&len.to_ne_bytes());
        self.bytes[4..8].copy_from_slice(&code.to_ne_bytes());
        self.bytes[8..16].copy_from_slice(&unique.to_ne_bytes());
        &self.bytes[..self.len]
    }
}
