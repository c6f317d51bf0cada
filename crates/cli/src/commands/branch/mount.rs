//! Branches as file systems of their own: one, or several that one process serves.
//!
//! Each branch has a session, a journal and a mount. They share the process, which is most of the cost of an idle
//! branch. Their caches are small, since there may be many.

use std::path::{Path, PathBuf};
use std::time::Duration;

use chiton_decoupled::User;
use chiton_fuse::MountOptions;

use super::Mount;
use super::left::sweep;
use super::tree::{Tree, failure, name};
use crate::commands::mount;
use crate::commands::realm::MountedPath;
use crate::failure::{Failure, Outcome};
use crate::{log_file, target};

/// Threads that take requests of one branch from the kernel. Each has a buffer of more than a mebibyte.
const THREADS: usize = 3;

/// A branch, and where it goes.
type Pair = (String, PathBuf);

pub(super) fn mount(args: &Mount) -> Outcome {
    let mut pairs = vec![(args.name.clone(), found(args, &args.mountpoint)?)];
    for pair in args.more.chunks(2) {
        let [name, dir] = pair else {
            let message =
                format!("{} has no directory: give NAME DIR for each further branch", pair[0].display());
            return Err(Failure::failed(message));
        };
        pairs.push((name.display().to_string(), found(args, dir)?));
    }
    if !args.foreground && !args.announce {
        return in_background(args, &pairs[0].1);
    }
    // Each of many threads touches a little here and there; in huge pages that is more than twice the memory. A system that has
    // none cannot disable them.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    let mut mounts = Vec::new();
    for pair in &pairs {
        // Those that are mounted go again with this process.
        mounts.push(begin(args, pair)?);
    }
    for (mounted, (_, mountpoint)) in mounts.iter().zip(&pairs).rev() {
        mount::end_on_signals(mounted.0.unmounter())?;
        if *mountpoint != pairs[0].1 {
            mount::announce(mountpoint, &mounted.1, false)?;
        }
    }
    mount::announce(&pairs[0].1, &mounts[0].1, args.announce)?;
    // Waits for each mount separately, so that its end is reported when it ends.
    let waiting: Vec<_> =
        mounts.into_iter().map(|(mounted, _)| std::thread::spawn(move || mounted.wait())).collect();
    let mut first = Ok(());
    for waited in waiting {
        let ended = waited.join().expect("it does not panic");
        first = first.and(ended.map_err(Failure::from));
    }
    first
}

/// The mount point. A mount of a branch that was killed is not in the way.
fn found(args: &Mount, dir: &Path) -> Outcome<PathBuf> {
    let found = mount::found(dir, false);
    if found.is_ok() {
        return found;
    }
    let tree = Tree::find(&args.at, "chiton branch mount", args.timeout)?;
    sweep(&tree);
    tree.close()?;
    mount::found(dir, false)
}

fn begin(args: &Mount, (named, mountpoint): &Pair) -> Outcome<(chiton_fuse::Mount, String)> {
    MountedPath::keep_mounts(mountpoint)?;
    let name = name(named)?;
    let who = format!("branch {named} of {}, mount {}", args.at.path.display(), mountpoint.display());
    let mut tree = Tree::find_small(&args.at, &who, args.timeout)?;
    tree.branch(&args.at, &name)?;
    let branch = tree.realms.open_branch(tree.root, &name).map_err(failure)?;
    let source = target::source_of_branch(&tree.address, named);
    let is_for_others = args.allow_other.unwrap_or_else(|| rustix::process::geteuid().is_root());
    let control = target::control_socket(is_for_others)?;
    let options = MountOptions {
        read_only: args.read_only,
        allow_other: args.allow_other,
        threads: Some(THREADS),
        fs_name: source.clone(),
        unmount_timeout: Duration::from_secs(args.unmount_timeout),
        control: Some(control.clone()),
        ..MountOptions::default()
    };
    let Tree { client, realms, .. } = tree;
    let mounted = chiton_fuse::Mount::start_branch(client, realms, &branch, mountpoint, options)
        .map_err(Failure::from)?;
    let user = User { pid: std::process::id(), mountpoint: mountpoint.clone(), control };
    branch.note_user(&user).map_err(failure)?;
    Ok((mounted, source))
}

fn in_background(args: &Mount, mountpoint: &Path) -> Outcome {
    let log = log_file::path(args.at.state_dir.as_deref(), mountpoint)?;
    mount::detach(&["branch", "mount"], (&args.mountpoint, mountpoint), &log, args.at.json)
}
