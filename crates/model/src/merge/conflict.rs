//! Which changes contradict which, and which side prevails: one table.
//!
//! Principles: the decoupled side has priority (Cudele III-C); a directory of others is never destroyed, it is moved
//! aside or stays; a file that neither side removed is there; the content of a file is that of one side, whole; under
//! `keep_both` nothing of others is lost at all. A change of others with which ours agreed ([`super::Settled`]) is no conflict.

use std::fmt;

use chiton_types::{Ino, Name};

/// How conflicts are treated (the policy's key `on_conflict`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum OnConflict {
    /// The decoupled side prevails.
    Overwrite = 0,
    /// The merge stops, and merges nothing.
    Abort = 1,
    /// The decoupled side gets the name; the version of the others is kept beside it.
    KeepBoth = 2,
    /// Texts of which both sides changed different lines become one; all else is as under `KeepBoth`.
    Merge = 3,
}

impl OnConflict {
    pub const ALL: [OnConflict; 4] =
        [OnConflict::Overwrite, OnConflict::Abort, OnConflict::KeepBoth, OnConflict::Merge];

    /// Inverse of `on_conflict as u8`.
    pub fn from_u8(n: u8) -> Option<OnConflict> {
        OnConflict::ALL.into_iter().find(|o| *o as u8 == n)
    }
}

/// The state of the name or inode at the base, or the change of one side to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// There was no such name.
    Absent,
    /// The name or the inode existed.
    Present,
    /// Created, or put under this name; not a directory, or either.
    NewFile,
    /// Created, or put under this name; a directory.
    NewDir,
    /// Content or attributes changed.
    Edited,
    /// Attributes changed, and not the content.
    AttributesSet,
    /// The name was removed.
    Deleted,
    /// The directory got new entries.
    Filled,
    /// Moved to another name.
    Renamed,
    /// Moved below what the other side moved below it.
    MovedBelow,
}

/// How ours and theirs contradict each other. Ours is named first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConflictKind {
    /// Both put something that is no directory under one name.
    FileFile,
    /// Ours is a directory, theirs is not.
    DirFile,
    /// Theirs is a directory, ours is not.
    FileDir,
    /// Both are directories and ours cannot become theirs (it was renamed to this place).
    DirDir,
    /// Both changed the same file, ours its content.
    EditEdit,
    /// Ours changed the attributes (mode, owner, times, extended) of a file that theirs changed.
    AttrEdit,
    /// Both changed attributes of the same directory.
    AttrAttr,
    /// Ours changed a file that theirs removed, or put something into such a directory.
    EditDelete,
    /// Ours changed a file, or put something into a directory, under whose name theirs put another file (as by saving to a
    /// temporary file and renaming it).
    EditFile,
    /// The same, where theirs put another directory there.
    EditDir,
    /// Ours set attributes, and no content, of a file under whose name theirs put another file.
    AttrFile,
    /// The same, where theirs put something of another type there that is no directory.
    AttrOther,
    /// Ours removed what theirs changed.
    DeleteEdit,
    /// Ours removed a name under which theirs put another file.
    DeleteFile,
    /// Ours removed a name under which theirs put another directory.
    DeleteDir,
    /// Ours removed a directory that theirs put entries into.
    DeleteFilled,
    /// Ours removed a name that theirs moved.
    DeleteRename,
    /// Both moved the same file.
    RenameRename,
    /// Both moved the same directory.
    RenameRenameDir,
    /// Ours moved what theirs removed.
    RenameDelete,
    /// Together, the moves of both would put a directory below itself.
    Loop,
    /// Ours put something under a name to which theirs moved a file that ours has under another.
    FileMoved,
}

/// The outcome of a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resolution {
    /// Ours is in its place, whole; the changes of theirs to it are gone.
    Ours,
    /// Ours is in its place; theirs is beside it, under a name that ends in `.theirs`.
    TheirsAside,
    /// Ours is in its place, whole; a copy of theirs, with its attributes, is beside it, under a name that ends in `.theirs`.
    TheirsCopied,
    /// Both are one text: the lines that ours changed, and those that theirs changed.
    Merged,
    /// Ours is applied to the state that theirs left.
    Together,
    /// The inode that theirs removed is there again, with ours.
    Restored,
    /// Theirs stays as it is.
    Theirs,
    /// It bears both names.
    BothNames,
    /// The policy forbids conflicts, so the merge stops.
    Aborted,
}

impl Resolution {
    pub const ALL: [Resolution; 9] = [
        Resolution::Ours,
        Resolution::TheirsAside,
        Resolution::TheirsCopied,
        Resolution::Merged,
        Resolution::Together,
        Resolution::Restored,
        Resolution::Theirs,
        Resolution::BothNames,
        Resolution::Aborted,
    ];
}

impl ConflictKind {
    pub const ALL: [ConflictKind; 22] = [
        ConflictKind::FileFile,
        ConflictKind::DirFile,
        ConflictKind::FileDir,
        ConflictKind::DirDir,
        ConflictKind::EditEdit,
        ConflictKind::AttrEdit,
        ConflictKind::AttrAttr,
        ConflictKind::EditDelete,
        ConflictKind::EditFile,
        ConflictKind::EditDir,
        ConflictKind::AttrFile,
        ConflictKind::AttrOther,
        ConflictKind::DeleteEdit,
        ConflictKind::DeleteFile,
        ConflictKind::DeleteDir,
        ConflictKind::DeleteFilled,
        ConflictKind::DeleteRename,
        ConflictKind::RenameRename,
        ConflictKind::RenameRenameDir,
        ConflictKind::RenameDelete,
        ConflictKind::Loop,
        ConflictKind::FileMoved,
    ];

    /// The table of resolutions.
    pub fn resolution(self, on_conflict: OnConflict) -> Resolution {
        use ConflictKind as K;
        use Resolution as R;
        let (overwrite, keep_both) = match self {
            K::FileFile | K::DirFile | K::EditFile => (R::Ours, R::TheirsAside),
            K::FileDir | K::DirDir | K::FileMoved | K::EditDir | K::AttrOther => {
                (R::TheirsAside, R::TheirsAside)
            }
            K::AttrFile => (R::Together, R::TheirsAside),
            K::EditEdit => (R::Ours, R::TheirsCopied),
            K::AttrEdit => (R::Together, R::TheirsCopied),
            K::AttrAttr => (R::Together, R::Together),
            K::EditDelete | K::RenameDelete => (R::Restored, R::Restored),
            K::DeleteEdit | K::DeleteFile | K::DeleteRename => (R::Ours, R::Theirs),
            K::DeleteDir | K::DeleteFilled | K::Loop => (R::Theirs, R::Theirs),
            K::RenameRename => (R::Ours, R::BothNames),
            K::RenameRenameDir => (R::Ours, R::Ours),
        };
        match on_conflict {
            OnConflict::Overwrite => overwrite,
            OnConflict::KeepBoth | OnConflict::Merge => keep_both,
            OnConflict::Abort => R::Aborted,
        }
    }

    /// Whether two texts can become one, if both are: then that is the outcome under `merge`.
    pub fn is_of_texts(self) -> bool {
        use ConflictKind as K;
        matches!(self, K::EditEdit | K::FileFile | K::EditFile | K::AttrFile)
    }

    /// A description for people.
    pub fn meaning(self) -> &'static str {
        match self {
            ConflictKind::FileFile => {
                "both put a file under one new name, or ours saved by a rename a file that theirs changed"
            }
            ConflictKind::DirFile => "ours put a directory, theirs a file under one name",
            ConflictKind::FileDir => "ours put a file, theirs a directory under one name",
            ConflictKind::DirDir => "ours moved a directory to a name under which theirs made one",
            ConflictKind::EditEdit => "both changed one file, ours its content",
            ConflictKind::AttrEdit => "ours changed attributes of a file that theirs changed",
            ConflictKind::AttrAttr => {
                "both changed attributes of one directory, symbolic link or special file"
            }
            ConflictKind::EditDelete => "ours changed a file, or filled a directory, that theirs removed",
            ConflictKind::EditFile => "ours changed a file that theirs replaced (saved by a rename)",
            ConflictKind::EditDir => {
                "ours changed a file, or filled a directory, that theirs replaced by a directory"
            }
            ConflictKind::AttrFile => {
                "ours changed attributes of a file that theirs replaced (saved by a rename)"
            }
            ConflictKind::AttrOther => {
                "ours changed attributes of a file that theirs replaced by another type of file"
            }
            ConflictKind::DeleteEdit => "ours removed a file that theirs changed",
            ConflictKind::DeleteFile => "ours removed a name under which theirs put another file",
            ConflictKind::DeleteDir => "ours removed a name under which theirs put a directory",
            ConflictKind::DeleteFilled => "ours removed a directory into which theirs put something",
            ConflictKind::DeleteRename => "ours removed a file or directory that theirs moved",
            ConflictKind::RenameRename => "both moved one file",
            ConflictKind::RenameRenameDir => "both moved one directory",
            ConflictKind::RenameDelete => "ours moved a file or directory that theirs removed",
            ConflictKind::Loop => "together, two moves would put a directory below itself",
            ConflictKind::FileMoved => {
                "ours put something under a name to which theirs moved a file that ours has elsewhere"
            }
        }
    }

    /// The state at the base, the change of ours, the change of theirs.
    pub fn versions(self) -> [Version; 3] {
        use ConflictKind as K;
        use Version as V;
        match self {
            K::FileFile => [V::Absent, V::NewFile, V::NewFile],
            K::DirFile => [V::Absent, V::NewDir, V::NewFile],
            K::FileDir => [V::Absent, V::NewFile, V::NewDir],
            K::DirDir => [V::Absent, V::NewDir, V::NewDir],
            K::EditEdit | K::AttrAttr => [V::Present, V::Edited, V::Edited],
            K::AttrEdit => [V::Present, V::AttributesSet, V::Edited],
            K::EditFile => [V::Present, V::Edited, V::NewFile],
            K::EditDir => [V::Present, V::Edited, V::NewDir],
            K::AttrFile | K::AttrOther => [V::Present, V::AttributesSet, V::NewFile],
            K::EditDelete => [V::Present, V::Edited, V::Deleted],
            K::DeleteEdit => [V::Present, V::Deleted, V::Edited],
            K::DeleteFile => [V::Present, V::Deleted, V::NewFile],
            K::DeleteDir => [V::Present, V::Deleted, V::NewDir],
            K::DeleteFilled => [V::Present, V::Deleted, V::Filled],
            K::DeleteRename => [V::Present, V::Deleted, V::Renamed],
            K::RenameRename | K::RenameRenameDir => [V::Present, V::Renamed, V::Renamed],
            K::RenameDelete => [V::Present, V::Renamed, V::Deleted],
            K::Loop => [V::Present, V::Renamed, V::MovedBelow],
            K::FileMoved => [V::Absent, V::NewFile, V::Renamed],
        }
    }
}

/// One conflict and its resolution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The two changes that contradict each other.
    pub kind: ConflictKind,
    /// How it was resolved.
    pub resolution: Resolution,
    /// Where, from the decoupled subtree's root, without a `/` before it. Empty: the root itself.
    pub path: Vec<u8>,
    /// The inode that theirs is, or is about.
    pub ino: Ino,
    /// The name under which theirs is now, beside ours.
    pub aside: Option<Name>,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Version::Absent => "absent",
            Version::Present => "present",
            Version::NewFile => "new file",
            Version::NewDir => "new directory",
            Version::Edited => "changed",
            Version::AttributesSet => "attributes changed",
            Version::Deleted => "removed",
            Version::Filled => "got new entries",
            Version::Renamed => "moved",
            Version::MovedBelow => "moved below each other",
        })
    }
}

impl fmt::Display for Resolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Resolution::Ours => "ours prevails",
            Resolution::TheirsAside => "ours has the name, theirs is beside it",
            Resolution::TheirsCopied => "ours prevails, a copy of theirs is beside it",
            Resolution::Merged => "merged line by line",
            Resolution::Together => "ours is applied to theirs",
            Resolution::Restored => "brought back, with ours",
            Resolution::Theirs => "theirs stays",
            Resolution::BothNames => "it bears both names",
            Resolution::Aborted => "not merged",
        })
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [base, ours, theirs] = self.kind.versions();
        let path = String::from_utf8_lossy(&self.path);
        write!(f, "{path}: base {base}, ours {ours}, theirs {theirs}: {}", self.resolution)?;
        match &self.aside {
            Some(aside) => write!(f, " ({aside})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_table_is_total_and_keeps_its_principles() {
        let mut seen = BTreeSet::new();
        for kind in ConflictKind::ALL {
            assert!(seen.insert(format!("{kind:?}")), "{kind:?} stands twice");
            assert_eq!(kind.resolution(OnConflict::Abort), Resolution::Aborted);
            assert_eq!(kind.resolution(OnConflict::Merge), kind.resolution(OnConflict::KeepBoth));
            let [_, ours, theirs] = kind.versions();
            let both = kind.resolution(OnConflict::KeepBoth);
            // Nothing that others made or changed is lost under keep_both ...
            if matches!(theirs, Version::NewFile | Version::NewDir | Version::Edited | Version::Filled) {
                assert_ne!(both, Resolution::Ours, "{kind:?}");
            }
            // ... content of two sides is never mixed ...
            let edits =
                ours == Version::Edited && theirs == Version::Edited && kind != ConflictKind::AttrAttr;
            for on_conflict in OnConflict::ALL {
                assert!(!edits || kind.resolution(on_conflict) != Resolution::Together, "{kind:?}");
            }
            // ... and no directory of others, nor its content, under overwrite.
            let over = kind.resolution(OnConflict::Overwrite);
            if matches!(theirs, Version::NewDir | Version::Filled) {
                assert!(matches!(over, Resolution::TheirsAside | Resolution::Theirs), "{kind:?}");
            }
            // The decoupled side has priority, unless that would destroy a directory or make a loop.
            if over == Resolution::Theirs {
                let deletes_a_directory =
                    ours == Version::Deleted && matches!(theirs, Version::NewDir | Version::Filled);
                assert!(deletes_a_directory || theirs == Version::MovedBelow, "{kind:?}");
            }
        }
        for on_conflict in OnConflict::ALL {
            assert_eq!(OnConflict::from_u8(on_conflict as u8), Some(on_conflict));
        }
        assert_eq!(OnConflict::from_u8(4), None);
    }

    #[test]
    fn a_conflict_reads_as_a_sentence() {
        let conflict = Conflict {
            kind: ConflictKind::FileFile,
            resolution: Resolution::TheirsAside,
            path: b"a/b".to_vec(),
            ino: Ino(9),
            aside: Name::new(b"b.theirs").ok(),
        };
        assert_eq!(
            conflict.to_string(),
            "a/b: base absent, ours new file, theirs new file: ours has the name, theirs is beside it (b.theirs)"
        );
    }
}
