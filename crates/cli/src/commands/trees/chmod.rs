//! `chiton chmod` and `chiton chown`.

mod mode;

use chiton_model::AttrChange;
use chiton_trees::{Place, change};
use chiton_types::{Attr, Kind, Mode};
use clap::Args;
use serde_json::json;

use self::mode::ModeChange;
use super::report::{AGAIN, Report};
use super::users::Users;
use super::{Paths, place};
use crate::failure::{Failure, Outcome};

#[derive(Debug, Args)]
#[command(
    after_help = "MODE is octal (644) or symbolic (u+rwX,go-w), as chmod(1) has it. Symbolic links are neither followed nor changed. What has the mode already is left as it is. What is refused is named, and the exit code is then 1. It is not atomic.\n\nExamples:\n  chiton chmod -R u+rwX,go-w /mnt/chiton/share\n  chiton chmod 750 /mnt/chiton/home/alice\n  chiton chmod -R a+r --server tcp:server:7117 /public --json"
)]
pub(crate) struct Chmod {
    /// Change everything in directories, too.
    #[arg(long, short = 'R')]
    pub(crate) recursive: bool,
    /// The mode.
    #[arg(allow_hyphen_values = true, value_parser = mode::parse)]
    pub(crate) mode: ModeChange,
    #[command(flatten)]
    pub(crate) paths: Paths,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Names of users and groups are those of this machine. Symbolic links are changed themselves, never what they lead to. What has the owner already is left as it is. What is refused is named, and the exit code is then 1. It is not atomic.\n\nExamples:\n  chiton chown -R alice:staff /mnt/chiton/home/alice\n  chiton chown :staff /mnt/chiton/share\n  chiton chown -R 1000:1000 --server tcp:server:7117 /home/alice --json"
)]
pub(crate) struct Chown {
    /// Change everything in directories, too.
    #[arg(long, short = 'R')]
    pub(crate) recursive: bool,
    /// OWNER, OWNER:GROUP or :GROUP, by name or number.
    pub(crate) owner: String,
    #[command(flatten)]
    pub(crate) paths: Paths,
}

pub(crate) fn chmod(args: &Chmod) -> Outcome {
    let umask = mode::umask();
    let wanted = |attr: &Attr| {
        let mode = Mode(args.mode.of(attr.mode.0, attr.kind == Kind::Dir, umask));
        let changes = attr.kind != Kind::Symlink && mode != attr.mode;
        changes.then(|| AttrChange { mode: Some(mode), ..AttrChange::default() })
    };
    run(&args.paths, "chmod", args.recursive, &wanted)
}

pub(crate) fn chown(args: &Chown) -> Outcome {
    let (uid, gid) = Users::read().parse(&args.owner).map_err(Failure::failed)?;
    let wanted = |attr: &Attr| {
        let uid = uid.filter(|uid| *uid != attr.uid);
        let gid = gid.filter(|gid| *gid != attr.gid);
        (uid.is_some() || gid.is_some()).then(|| AttrChange { uid, gid, ..AttrChange::default() })
    };
    run(&args.paths, "chown", args.recursive, &wanted)
}

fn run(
    paths: &Paths,
    command: &'static str,
    recursive: bool,
    wanted: &dyn Fn(&Attr) -> Option<AttrChange>,
) -> Outcome {
    let Paths { paths, at } = paths;
    let (client, said) = place::open(at, paths, command)?;
    let mut report = Report::begin("changed", at.json)?;
    let mut places: Vec<Place> = Vec::new();
    for said in &said {
        match said.place(&client) {
            Ok(place) => places.push(place),
            Err(failure) => report.failed(failure),
        }
    }
    let done = change(&client, &places, recursive, command, wanted, &mut report);
    report.make_durable(&client);
    let totals = json!({ "names": done.names, "changed": done.changed });
    report.end(totals, &format!("{} of {} are changed", done.changed, done.names), AGAIN)
}
