//! A branch as a file system of its own.

use std::path::Path;
use std::time::Duration;

use chiton_mount::MountOptions;
use chiton_realm::User;

use super::Mount;
use super::tree::{Tree, failure, name};
use crate::commands::mount;
use crate::commands::realm::Place;
use crate::failure::{Failure, Outcome};
use crate::target;

pub(super) fn mount(args: &Mount) -> Outcome {
    let mountpoint = mount::found(&args.mountpoint, false)?;
    if !args.foreground && !args.announce {
        return in_background(args, &mountpoint);
    }
    Place::keep_mounts(&mountpoint)?;
    let name = name(&args.name)?;
    let who = format!("branch {} of {}, mount {}", args.name, args.at.path.display(), mountpoint.display());
    let mut tree = Tree::find(&args.at, &who, args.timeout)?;
    tree.branch(&args.at, &name)?;
    let branch = tree.realms.open_branch(tree.root, &name).map_err(failure)?;
    let source = target::source_of_branch(&tree.address, &args.name);
    let is_for_others = args.allow_other.unwrap_or_else(|| rustix::process::geteuid().is_root());
    let control = target::control_socket(is_for_others)?;
    let options = MountOptions {
        read_only: args.read_only,
        allow_other: args.allow_other,
        fs_name: source.clone(),
        unmount_timeout: Duration::from_secs(args.unmount_timeout),
        control: Some(control.clone()),
        ..MountOptions::default()
    };
    let Tree { client, realms, .. } = tree;
    let mounted = chiton_mount::Mount::start_branch(client, realms, &branch, &mountpoint, options)
        .map_err(Failure::from)?;
    let user = User { pid: std::process::id(), mountpoint: mountpoint.clone(), control };
    branch.note_user(&user).map_err(failure)?;
    drop(branch);
    mount::end_on_signals(mounted.unmounter())?;
    mount::tell(&mountpoint, &source, args.announce)?;
    mounted.wait().map_err(Failure::from)
}

fn in_background(args: &Mount, mountpoint: &Path) -> Outcome {
    let log = mount::log_path(None, mountpoint);
    mount::detach(&["branch", "mount"], (&args.mountpoint, mountpoint), &log, args.at.json)
}
