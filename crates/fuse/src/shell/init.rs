//! The beginning and the end of a mount.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use chiton_fuse_session::{InitFlags, KernelConfig};
use chiton_types::Refusal;
use parking_lot::Mutex;

use super::Shell;
use super::content::REQUEST_BYTES_MAX;
use crate::MountOptions;
use crate::end_notice::EndNotice;
use crate::kernel::Kernel;
use crate::lock_waits::LockWaits;
use crate::panic_guard;
use crate::router::Router;
use crate::shown_inodes::ShownInodes;
use crate::unnamed::Unnamed;

/// Requests that the kernel lets run in the background (read-ahead, asynchronous I/O).
const BACKGROUND_MAX: u16 = 64;

/// Message of a mount that could not make everything durable at its end.
pub const NOT_DURABLE: &str = "unmount: not everything could be made durable";
/// Message of a mount that could not merge or keep a decoupled subtree at its end.
const NOT_GIVEN_BACK: &str = "unmount: a decoupled subtree could not be merged or kept as its policy says";

impl Shell {
    pub(crate) fn new(
        router: Arc<Router>,
        kernel: Arc<Kernel>,
        control: Option<Vec<u8>>,
        end_notice: EndNotice,
        options: &MountOptions,
    ) -> Shell {
        let client = router.global();
        client.set_interrupted(Box::new(panic_guard::caller_is_signalled));
        Shell {
            locks: LockWaits::new(router.clone()),
            router,
            kernel,
            shared: options.shared,
            unmount_timeout: options.unmount_timeout,
            control,
            end_notice,
            shown: ShownInodes::new(options.ino32),
            unnamed: Unnamed::default(),
            totals: Mutex::default(),
            root: Mutex::default(),
            directory_handles: AtomicU64::new(1),
        }
    }

    pub(super) fn greet(&self, config: &mut KernelConfig) {
        for wanted in self.capabilities() {
            // One by one, since a set is refused as a whole if one is missing. Without a capability, operations are
            // slower or differ (docs/semantics.md).
            let _ = config.add_capabilities(wanted);
        }
        config.set_max_write(REQUEST_BYTES_MAX);
        config.set_max_readahead(REQUEST_BYTES_MAX);
        config.set_max_background(BACKGROUND_MAX);
    }

    fn capabilities(&self) -> impl Iterator<Item = InitFlags> {
        // A mount that shares files trusts cached pages as long as the attributes under a lease. A mount that is alone, or begins
        // alone, trusts them until the server invalidates them.
        let invalidation = if self.is_shared() {
            InitFlags::FUSE_AUTO_INVAL_DATA
        } else {
            InitFlags::FUSE_EXPLICIT_INVAL_DATA
        };
        // Not FUSE_ATOMIC_O_TRUNC: the kernel would have the open empty a file before it sees that it is being
        // executed, and refuses the open. Not FUSE_POSIX_ACL: the kernel would check permissions itself, with a getattr for each
        // create and unlink. Not FUSE_READDIRPLUS_AUTO: with it the kernel asks for attributes only while names are looked up
        // between the pages of a listing, and `find` and `rm -r` read many pages first: then each name takes a LOOKUP.
        [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
            InitFlags::FUSE_POSIX_LOCKS,
            InitFlags::FUSE_FLOCK_LOCKS,
            InitFlags::FUSE_DONT_MASK,
            InitFlags::FUSE_EXPORT_SUPPORT,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
            InitFlags::FUSE_CACHE_SYMLINKS,
            invalidation,
        ]
        .into_iter()
    }

    pub(super) fn end(&self) {
        self.locks.close();
        self.kernel.close();
        let client = self.router.global();
        client.leave(self.unmount_timeout);
        for error in self.router.realms().map(|realms| realms.close()).unwrap_or_default() {
            self.end_notice.note(format!("{NOT_GIVEN_BACK}: {error}"));
        }
        // Of a branch there is nothing outside of it.
        let Some(Err(refusal)) = self.router.branch().is_none().then(|| client.sync_before_end()) else {
            return;
        };
        let (bytes, operations) = client.at_stake();
        let what = match refusal {
            Refusal::NotConnected => format!(
                ": the server has not answered for {} s, and the mount waits for it no longer: {bytes} bytes that were \
                 written and not handed over are lost; {operations} operations are there if the server had them on its \
                 disk, else they are lost",
                self.unmount_timeout.as_secs()
            ),
            _ => String::new(),
        };
        self.end_notice.note(format!("{NOT_DURABLE}: {refusal}{what}"));
    }
}
