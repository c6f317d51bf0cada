//! The clauses of `docs/directory-object.md`, each with its check.

mod links;
mod listings;
mod lookups;
mod makes;
mod many;
mod parts;
mod removals;
mod renames;
mod splits;

use std::fmt;

use crate::case::Case;
use crate::finding::Outcome;

/// The directories in which a clause is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum In {
    /// As they are made, and split ones too.
    Both,
    /// As they are made.
    Made,
}

/// A numbered clause of the page.
pub struct Clause {
    /// As on the page, `D1`.
    pub number: &'static str,
    pub title: &'static str,
    pub(crate) checked: In,
    pub(crate) check: fn(&Case<'_>) -> Outcome,
}

impl fmt::Debug for Clause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.number, self.title)
    }
}

macro_rules! clauses {
    ($($number:literal $checked:ident $title:literal $check:path;)+) => {
        /// All clauses, in the order of the page.
        pub const CLAUSES: &[Clause] = &[$(Clause {
            number: $number,
            title: $title,
            checked: In::$checked,
            check: $check,
        }),+];
    };
}

clauses! {
    "D1" Both "a lookup finds the inode under a name" lookups::finds;
    "D2" Both "an absent name is an answer" lookups::absent;
    "D3" Both "refusals of a lookup, in order" lookups::refusals;
    "D4" Both "a decision that needs groups asks for them" lookups::groups;
    "D5" Both "names are bytes" lookups::names_are_bytes;
    "D6" Made "a message with an impossible name ends the connection" lookups::impossible_names;
    "D10" Both "a file is made" makes::file;
    "D11" Both "a directory is made" makes::dir;
    "D12" Both "a symbolic link is made" makes::symlink;
    "D13" Both "nodes are made" makes::nodes;
    "D14" Both "the effect of a new name on its directory" makes::directory;
    "D15" Both "refusals of a Make, in order" makes::refusals;
    "D16" Both "refusals that depend on the new inode" makes::kinds;
    "D17" Both "owner, group and mode of new inodes" makes::owners;
    "D18" Both "an open that comes with a Make" makes::open;
    "D20" Both "a file gets a further name" links::further;
    "D21" Both "refusals of a Link, in order" links::refusals;
    "D25" Both "the last name of a file goes" removals::last_name;
    "D26" Both "one of several names goes" removals::one_of_several;
    "D27" Both "an open file outlives its names" removals::open_file;
    "D28" Both "refusals of an Unlink, in order" removals::unlink_refusals;
    "D29" Both "a directory is removed" removals::rmdir_done;
    "D30" Both "refusals of an Rmdir, in order" removals::rmdir_refusals;
    "D31" Both "a tree is removed" removals::tree;
    "D32" Made "a removed directory gets no names" removals::removed_directory;
    "D35" Both "a name moves to a free name" renames::free_name;
    "D36" Both "a file replaces a file" renames::replaces_file;
    "D37" Both "a directory replaces an empty directory" renames::replaces_dir;
    "D38" Both "a rename that does not replace" renames::no_replace;
    "D39" Both "two names are exchanged" renames::exchange;
    "D40" Both "a whiteout is left" renames::whiteout;
    "D41" Both "two names of one inode" renames::same_inode;
    "D42" Both "no directory gets below itself" renames::loops;
    "D43" Both "refusals of a Rename, in order" renames::refusals;
    "D45" Both "entries come in the order of hashes" listings::order;
    "D46" Both "pages show each name once" listings::pages;
    "D47" Both "names that stay are listed once while others change" listings::changes;
    "D48" Both "attributes in a listing" listings::attributes;
    "D49" Both "refusals of a listing" listings::refusals;
    "D50" Both "a batch has a result for each operation" many::batch;
    "D51" Both "a batch that stops" many::stops;
    "D52" Both "many names are looked up at once" many::lookups;
    "D53" Both "an operation that is sent again is carried out once" many::sent_again;
    "D54" Both "a change of names recalls leases first" many::recalls;
    "D60" Made "a list of parts" parts::list;
    "D61" Made "the effect of a split" parts::split;
    "D62" Made "a part has the names in its range" parts::ranges;
    "D63" Made "a part is listed by its range" parts::listed;
    "D64" Made "attributes of a directory are sums" parts::sums;
    "D65" Made "attributes hold in all parts" parts::attributes;
    "D66" Made "files are born in the part of their name" parts::births;
    "D67" Made "a rename between parts" parts::renames;
    "D70" Made "names are made and removed during a split" splits::changes;
    "D71" Made "a listing continues across a split and a fold" splits::listing;
    "D72" Made "a directory with parts is removed" splits::removed;
    "D73" Made "the effect of a fold" splits::fold;
    "D74" Made "refusals of Split and Fold" splits::refusals;
}
