//! The byte codec of all formats: little-endian integers, LEB128 varints, and
//! byte strings with their length before them.
//!
//! Reading never panics and never allocates by a length it has not checked
//! against the bytes that are there.

use std::fmt;

/// Bytes that are not what the format says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The expected form, in words.
    pub expected: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed bytes: expected {}", self.expected)
    }
}

impl std::error::Error for Malformed {}

/// Appending to a buffer.
pub trait Put {
    fn put_u8(&mut self, v: u8);
    /// Two bytes, little-endian.
    fn put_u16(&mut self, v: u16);
    /// Four bytes, little-endian.
    fn put_u32(&mut self, v: u32);
    /// Eight bytes, little-endian.
    fn put_u64(&mut self, v: u64);
    /// Eight bytes, little-endian, two's complement.
    fn put_i64(&mut self, v: i64);
    /// LEB128: 7 bits a byte, 1 to 10 bytes.
    fn put_varint(&mut self, v: u64);
    /// A varint length, then the bytes.
    fn put_bytes(&mut self, v: &[u8]);
}

impl Put for Vec<u8> {
    #[inline]
    fn put_u8(&mut self, v: u8) {
        self.push(v);
    }
    #[inline]
    fn put_u16(&mut self, v: u16) {
        self.extend_from_slice(&v.to_le_bytes());
    }
    #[inline]
    fn put_u32(&mut self, v: u32) {
        self.extend_from_slice(&v.to_le_bytes());
    }
    #[inline]
    fn put_u64(&mut self, v: u64) {
        self.extend_from_slice(&v.to_le_bytes());
    }
    #[inline]
    fn put_i64(&mut self, v: i64) {
        self.extend_from_slice(&v.to_le_bytes());
    }
    #[inline]
    fn put_varint(&mut self, mut v: u64) {
        while v >= 0x80 {
            self.push(v as u8 | 0x80);
            v >>= 7;
        }
        self.push(v as u8);
    }
    #[inline]
    fn put_bytes(&mut self, v: &[u8]) {
        self.put_varint(v.len() as u64);
        self.extend_from_slice(v);
    }
}

/// Reading from a slice, from its front.
#[derive(Clone, Debug)]
pub struct Take<'a>(&'a [u8]);

impl<'a> Take<'a> {
    /// Starts at the front of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Take<'a> {
        Take(bytes)
    }

    /// The bytes that are left.
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// True when nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Errors unless everything was read.
    pub fn finish(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed { expected: "the end" }) }
    }

    /// The next `n` bytes.
    #[inline]
    pub fn take(&mut self, n: usize, expected: &'static str) -> Result<&'a [u8], Malformed> {
        match self.0.split_at_checked(n) {
            Some((head, tail)) => {
                self.0 = tail;
                Ok(head)
            }
            None => Err(Malformed { expected }),
        }
    }

    #[inline]
    fn array<const N: usize>(&mut self, expected: &'static str) -> Result<[u8; N], Malformed> {
        match self.0.split_first_chunk::<N>() {
            Some((head, tail)) => {
                self.0 = tail;
                Ok(*head)
            }
            None => Err(Malformed { expected }),
        }
    }

    #[inline]
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>("a byte")?[0])
    }
    /// A number of two bytes, little endian.
    #[inline]
    pub fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array("2 bytes")?))
    }
    /// A number of four bytes, little endian.
    #[inline]
    pub fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array("4 bytes")?))
    }
    /// A number of eight bytes, little endian.
    #[inline]
    pub fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array("8 bytes")?))
    }
    /// A signed number of eight bytes, little endian.
    #[inline]
    pub fn i64(&mut self) -> Result<i64, Malformed> {
        Ok(i64::from_le_bytes(self.array("8 bytes")?))
    }
    #[inline]
    pub fn varint(&mut self) -> Result<u64, Malformed> {
        let mut v = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.u8()?;
            if shift == 63 && byte > 1 {
                break;
            }
            v |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(v);
            }
        }
        Err(Malformed { expected: "a varint of at most 64 bits" })
    }
    /// A byte string, its length before it.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.varint()?;
        let len = usize::try_from(len).map_err(|_| Malformed { expected: "a length" })?;
        self.take(len, "a byte string of its stated length")
    }
    /// A count of items of at least `item_bytes_min` bytes each, checked against what is left.
    pub fn count(&mut self, item_bytes_min: usize) -> Result<usize, Malformed> {
        let n = self.varint()?;
        let most = self.0.len() / item_bytes_min.max(1);
        if n > most as u64 {
            return Err(Malformed { expected: "a count that its bytes can hold" });
        }
        Ok(n as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_round_trip() {
        let mut b = Vec::new();
        b.put_u8(7);
        b.put_u16(0xabcd);
        b.put_u32(1 << 30);
        b.put_i64(-5);
        for v in [0, 127, 128, 1 << 35, u64::MAX] {
            b.put_varint(v);
        }
        b.put_bytes(b"name");
        let mut t = Take::new(&b);
        assert_eq!(t.u8(), Ok(7));
        assert_eq!(t.u16(), Ok(0xabcd));
        assert_eq!(t.u32(), Ok(1 << 30));
        assert_eq!(t.i64(), Ok(-5));
        for v in [0, 127, 128, 1 << 35, u64::MAX] {
            assert_eq!(t.varint(), Ok(v));
        }
        assert_eq!(t.bytes(), Ok(&b"name"[..]));
        assert_eq!(t.finish(), Ok(()));
    }

    #[test]
    fn hostile_lengths_are_refused() {
        assert!(Take::new(&[0xff; 11]).varint().is_err());
        assert!(Take::new(&[0xff, 0xff, 0xff, 0xff, 0x0f, 1]).bytes().is_err());
        assert!(Take::new(&[200, 1, 0, 0]).count(1).is_err());
        assert!(Take::new(&[1, 2]).u32().is_err());
    }
}
