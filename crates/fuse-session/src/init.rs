//! FUSE_INIT: the kernel's capabilities, and the ones that the file system uses.

use std::io;

use crate::abi::{MAJOR, MINOR, MINOR_MIN};
use crate::body::Body;
use crate::fields::Fields;
use crate::flags::InitFlags;

/// The page that requests are counted in.
const PAGE_BYTES: u32 = 4096;
/// Maximum bytes of a write by default.
const WRITE_BYTES_DEFAULT: u32 = 128 << 10;
/// Fewest bytes that the kernel insists on.
const WRITE_BYTES_MIN: u32 = PAGE_BYTES;
const BACKGROUND_DEFAULT: u16 = 12;

/// The kernel's capabilities, and the chosen ones.
#[derive(Clone, Debug)]
pub struct KernelConfig {
    minor: u32,
    offered: InitFlags,
    wanted: InitFlags,
    readahead_offered: u32,
    readahead: u32,
    max_write: u32,
    max_background: u16,
}

impl KernelConfig {
    /// From the arguments of an INIT.
    ///
    /// # Errors
    /// Why the kernel cannot be spoken with.
    pub(crate) fn from_init(mut fields: Fields<'_>) -> io::Result<KernelConfig> {
        let short = || io::Error::other("the first message of the kernel is too short");
        let (major, minor) = (fields.u32().ok_or_else(short)?, fields.u32().ok_or_else(short)?);
        if major != MAJOR || minor < MINOR_MIN {
            return Err(io::Error::other(format!(
                "the kernel speaks FUSE {major}.{minor}; {MAJOR}.{MINOR_MIN} (Linux 4.20) or newer is needed"
            )));
        }
        let (readahead, low) = (fields.u32().ok_or_else(short)?, fields.u32().ok_or_else(short)?);
        let low = InitFlags(u64::from(low));
        let offered = if low.contains(InitFlags::FUSE_INIT_EXT) {
            let high = fields.u32().ok_or_else(short)?;
            InitFlags(low.0 | u64::from(high) << 32)
        } else {
            low
        };
        let wanted = InitFlags::FUSE_ASYNC_READ
            | InitFlags::FUSE_BIG_WRITES
            | InitFlags::FUSE_MAX_PAGES
            | InitFlags::FUSE_INIT_EXT;
        Ok(KernelConfig {
            minor,
            offered,
            wanted: InitFlags(wanted.0 & offered.0),
            readahead_offered: readahead,
            readahead,
            max_write: WRITE_BYTES_DEFAULT,
            max_background: BACKGROUND_DEFAULT,
        })
    }

    /// All that the kernel can do.
    pub fn capabilities(&self) -> InitFlags {
        self.offered
    }

    /// Requests capabilities.
    ///
    /// # Errors
    /// The missing capabilities, if the kernel lacks some; then none is requested.
    pub fn add_capabilities(&mut self, wanted: InitFlags) -> Result<(), InitFlags> {
        let missing = wanted.0 & !self.offered.0;
        if missing != 0 {
            return Err(InitFlags(missing));
        }
        self.wanted |= wanted;
        Ok(())
    }

    /// Maximum bytes of one write. A write from a buffer that does not begin at a page boundary touches one page
    /// more than its bytes fill. So this requests one more page; the kernel grants at most
    /// `fs.fuse.max_pages_limit`.
    pub fn set_max_write(&mut self, bytes: u32) {
        self.max_write = bytes.max(WRITE_BYTES_MIN);
    }

    /// The kernel's read-ahead in bytes, at most what it offers.
    pub fn set_max_readahead(&mut self, bytes: u32) {
        self.readahead = bytes.min(self.readahead_offered);
    }

    /// Most requests that run in the background.
    pub fn set_max_background(&mut self, requests: u16) {
        self.max_background = requests;
    }

    /// Bytes that the largest request takes.
    pub(crate) fn request_bytes_max(&self) -> usize {
        // Headers and fixed arguments before the content; and the kernel demands room for 8 KiB.
        (self.max_write + 2 * PAGE_BYTES) as usize
    }

    /// Appends a `fuse_init_out`.
    pub(crate) fn put(&self, out: &mut Body) {
        let pages = self.max_write.div_ceil(PAGE_BYTES) + 1;
        let congestion = self.max_background / 4 * 3;
        out.put_u32(MAJOR);
        out.put_u32(self.minor.min(MINOR));
        out.put_u32(self.readahead);
        out.put_u32(self.wanted.0 as u32);
        out.put(&self.max_background.to_ne_bytes());
        out.put(&congestion.to_ne_bytes());
        out.put_u32(self.max_write);
        // Times are as fine as nanoseconds.
        out.put_u32(1);
        out.put(&u16::try_from(pages).unwrap_or(u16::MAX).to_ne_bytes());
        out.put(&0u16.to_ne_bytes());
        out.put_u32((self.wanted.0 >> 32) as u32);
        // Depth of stacking, time-out of requests, unused.
        out.put_u32(0);
        out.put(&[0; 24]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn init(minor: u32, low: u32, high: u32) -> Vec<u8> {
        [7, minor, 4096, low, high].iter().flat_map(|number: &u32| number.to_ne_bytes()).collect()
    }

    #[test]
    fn only_offered_capabilities_are_used() {
        let bytes = init(40, (1 << 30) | 1 | 1 << 6, 1 << 4);
        let mut config = KernelConfig::from_init(Fields::new(&bytes)).expect("a kernel to speak with");
        assert_eq!(config.capabilities().0, 1 << 36 | 1 << 30 | 1 << 6 | 1);
        config.add_capabilities(InitFlags::FUSE_DONT_MASK).expect("offered");
        config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP).expect("offered");
        let both = InitFlags::FUSE_EXPORT_SUPPORT | InitFlags::FUSE_DONT_MASK;
        assert_eq!(config.add_capabilities(both), Err(InitFlags::FUSE_EXPORT_SUPPORT));
        config.set_max_readahead(1 << 20);
        config.set_max_write(1 << 20);
        let mut body = Body::new();
        config.put(&mut body);
        let word = |at: usize| u32::from_ne_bytes(body.payload()[4 * at..4 * at + 4].try_into().expect("4"));
        assert_eq!(body.payload().len(), 64);
        assert_eq!([word(0), word(1), word(2)], [7, 40, 4096]);
        assert_eq!(word(3), 1 << 30 | 1 << 6 | 1);
        assert_eq!(word(5), 1 << 20);
        assert_eq!(word(7) & 0xffff, 257, "a page more than the bytes fill");
        assert_eq!(word(8), 1 << 4);
    }

    #[test]
    fn kernels_that_are_too_old_are_refused() {
        assert!(KernelConfig::from_init(Fields::new(&init(27, 0, 0))).is_err());
        assert!(KernelConfig::from_init(Fields::new(&[7, 0, 0, 0])).is_err());
        let old = KernelConfig::from_init(Fields::new(&init(31, 1, 0)[..16])).expect("no more flags");
        assert_eq!(old.capabilities(), InitFlags::FUSE_ASYNC_READ);
    }
}
