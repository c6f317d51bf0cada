//! Sets of flags, with the kernel's numbers.

macro_rules! flags {
    ($(#[$doc:meta])* $name:ident: $repr:ty { $($(#[$flag_doc:meta])* $flag:ident = $value:expr;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name(pub $repr);

        #[allow(non_upper_case_globals)]
        impl $name {
            $($(#[$flag_doc])* pub const $flag: $name = $name($value);)*

            pub const fn empty() -> $name {
                $name(0)
            }

            pub const fn bits(self) -> $repr {
                self.0
            }

            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// Whether all of `other` are in it.
            pub const fn contains(self, other: $name) -> bool {
                self.0 & other.0 == other.0
            }
        }

        impl std::ops::BitOr for $name {
            type Output = $name;

            fn bitor(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }
        }

        impl std::ops::BitOrAssign for $name {
            fn bitor_assign(&mut self, other: $name) {
                self.0 |= other.0;
            }
        }
    };
}

flags! {
    /// Capabilities that kernel and file system agree on at the beginning (`FUSE_*` of `linux/fuse.h`).
    InitFlags: u64 {
        /// Reads of one file may run side by side.
        FUSE_ASYNC_READ = 1;
        /// The kernel sends requests for fcntl(2) locks.
        FUSE_POSIX_LOCKS = 1 << 1;
        /// open(2) passes O_TRUNC on.
        FUSE_ATOMIC_O_TRUNC = 1 << 3;
        /// LOOKUP of `.` and `..` is answered, also for inodes that the kernel has forgotten.
        FUSE_EXPORT_SUPPORT = 1 << 4;
        /// Writes of more than a page.
        FUSE_BIG_WRITES = 1 << 5;
        /// The kernel leaves the umask to the file system.
        FUSE_DONT_MASK = 1 << 6;
        /// The kernel sends requests for flock(2) locks.
        FUSE_FLOCK_LOCKS = 1 << 10;
        /// Cached pages go when size or mtime are seen to change.
        FUSE_AUTO_INVAL_DATA = 1 << 12;
        /// Listings with attributes.
        FUSE_DO_READDIRPLUS = 1 << 13;
        /// The kernel decides which listing it asks for.
        FUSE_READDIRPLUS_AUTO = 1 << 14;
        /// Direct I/O may be asynchronous.
        FUSE_ASYNC_DIO = 1 << 15;
        /// The kernel keeps written pages back.
        FUSE_WRITEBACK_CACHE = 1 << 16;
        /// Lookups and listings of one directory may run side by side.
        FUSE_PARALLEL_DIROPS = 1 << 18;
        /// Requests of more than 32 pages.
        FUSE_MAX_PAGES = 1 << 22;
        /// Targets of symbolic links are cached.
        FUSE_CACHE_SYMLINKS = 1 << 23;
        /// The kernel drops cached pages only when the file system invalidates them.
        FUSE_EXPLICIT_INVAL_DATA = 1 << 25;
        /// The file system clears set-id bits where a request says so.
        FUSE_HANDLE_KILLPRIV_V2 = 1 << 28;
        /// There are flags above bit 31.
        FUSE_INIT_EXT = 1 << 30;
        /// Shared mappings of files that are open for direct I/O.
        FUSE_DIRECT_IO_ALLOW_MMAP = 1 << 36;
    }
}

flags! {
    /// How the kernel is to treat an open file.
    FopenFlags: u32 {
        /// Without the page cache.
        FOPEN_DIRECT_IO = 1;
        /// The pages in the cache are still true.
        FOPEN_KEEP_CACHE = 1 << 1;
    }
}

flags! {
    /// Flags of a write.
    WriteFlags: u32 {
        /// A page of the cache is written back, for no particular caller.
        FUSE_WRITE_CACHE = 1;
        /// Clear the set-id bits.
        FUSE_WRITE_KILL_SUIDGID = 1 << 2;
    }
}

flags! {
    /// The rights that access(2) checks.
    AccessFlags: i32 {
        /// To execute or search.
        X_OK = libc::X_OK;
        W_OK = libc::W_OK;
        R_OK = libc::R_OK;
    }
}

flags! {
    /// renameat2(2).
    RenameFlags: u32 {}
}

flags! {
    /// copy_file_range(2).
    CopyFileRangeFlags: u64 {}
}

flags! {
    /// open(2).
    OpenFlags: i32 {}
}
