//! The requests of callers: operations, which change something, and the outcomes of `plan`.
//!
//! The table below is the only place that knows all operations. From it come the type, the bytes (`docs/formats.md`,
//! "Operation", which a test compares with it), JSON and the line for people, samples for tests, the counter, the
//! [`Footprint`], whether it takes room, and how it may be carried out: late, over plates, in a batch. An entry:
//!
//! ```text
//!   3 ["unlink"] Unlink { fields in the order of their bytes: name: Type as codec => "key in JSON" }
//!   │   │         └ variant
//!   │   └ names of its counters
//!   └ tag, the first byte
//! ```

use chiton_types::codec::{Malformed, Put, Take};
use chiton_types::{Ino, Kind, Mode, Name, Position, Time};
use serde_json::{Value, json};

use crate::change::{AttrChange, Body, Hold, Make, RenameHow, XattrHow};
use crate::extent::Extent;
use crate::field::{Code, Sample, Samples, Shown, Text, Variants, add_json, listed};
use crate::footprint::{Footprint, NameTouch, NameUse, Role, Rows};
use crate::op_rules::{AcrossPlates, Batched};
use crate::table::or_name;
use crate::text::{flag_letters, kind_name, octal, quoted};

/// Largest content that lives inside its inode. Larger content is in blocks.
pub const INLINE_BYTES_MAX: usize = 8 << 10;
/// Longest target of a symbolic link.
pub const SYMLINK_BYTES_MAX: usize = 4095;
/// Longest name of an extended attribute.
pub const XATTR_NAME_BYTES_MAX: usize = 255;
/// Largest value of an extended attribute.
pub const XATTR_VALUE_BYTES_MAX: usize = 64 << 10;
/// All extended attributes of one inode together, names and values.
pub const XATTR_TOTAL_BYTES_MAX: usize = 128 << 10;
/// Largest file: 64 PiB less one byte.
pub const FILE_BYTES_MAX: u64 = (1 << 56) - 1;
/// Most names of one file.
pub const LINKS_MAX: u32 = 65_000;

macro_rules! operations {
    ($(
        $(#[$doc:meta])*
        $tag:literal [$($counter:literal),+] $variant:ident {
            $($(#[$field_doc:meta])* $field:ident: $type:ty $(as $codec:ty)? $(=> $key:literal)?),+ $(,)?
        }
        text { $text:expr }
        footprint { $footprint:expr }
        grows { $grows:expr } makes { $makes:expr } late { $late:expr } server_only { $server_only:expr }
        across_plates { $across_plates:ident } batched { $batched:expr }
        $(counter { $which:expr })?
    )+) => {
        /// An operation that changes the namespace.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Op {
            $($(#[$doc])* $variant { $($(#[$field_doc])* $field: $type),+ }),+
        }

        enum Ordinal {
            $($variant),+
        }

        #[allow(unused_variables, reason = "each column of the table uses some of the fields")]
        impl Op {
            /// The names under which operations are counted.
            pub const COUNTERS: &[&str] = &[$($($counter),+),+];
            /// Of each operation the first of its names.
            const FIRST_COUNTERS: &[usize] = &before(&[$([$($counter),+].len()),+]);

            /// Fewest bytes that an operation takes: its tag and an inode.
            pub const BYTES_MIN: usize = 1 + <Ino as Code<Ino>>::BYTES_MIN;

            /// Index of its name in [`Op::COUNTERS`].
            #[inline]
            pub fn counter(&self) -> usize {
                match self {
                    $(Op::$variant { $($field),+ } => {
                        Op::FIRST_COUNTERS[Ordinal::$variant as usize] $(+ $which)?
                    })+
                }
            }

            /// Appends the encoding: the tag and the inode that it is about (the directory, where there is a name), then the
            /// rest.
            pub fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $(Op::$variant { $($field),+ } => {
                        out.put_u8($tag);
                        $(<$crate::codec!($type $(, $codec)?) as Code<$type>>::put($field, out);)+
                    })+
                }
            }

            /// Reads one operation.
            ///
            /// # Errors
            /// If the bytes are not an operation.
            pub fn decode(from: &mut Take<'_>) -> Result<Op, Malformed> {
                Ok(match from.u8()? {
                    $($tag => {
                        $(let $field = <$crate::codec!($type $(, $codec)?) as Code<$type>>::take(from)?;)+
                        Op::$variant { $($field),+ }
                    })+
                    _ => return Err(Malformed { expected: "a type of operation" }),
                })
            }

            /// A line for people.
            pub fn describe(&self) -> String {
                match self {
                    $(Op::$variant { $($field),+ } => $text),+
                }
            }

            /// The fields under their names, and its counter's name under `type`. Of content, the number of bytes.
            pub fn json(&self) -> Value {
                let mut object = serde_json::Map::new();
                match self {
                    $(Op::$variant { $($field),+ } => {
                        $(add_json(
                            &mut object,
                            or_name!($field $(, $key)?),
                            <$crate::codec!($type $(, $codec)?) as Shown<$type>>::json($field),
                        );)+
                    })+
                }
                object.insert("type".to_owned(), json!(Op::COUNTERS[self.counter()]));
                Value::Object(object)
            }

            /// Which inodes and names it is about, as far as it says itself.
            pub fn footprint(&self) -> Footprint<NameTouch<'_>> {
                match self {
                    $(Op::$variant { $($field),+ } => $footprint),+
                }
            }

            /// Whether it adds to the stored bytes: refused first when room is short.
            pub fn grows(&self) -> bool {
                match self {
                    $(Op::$variant { $($field),+ } => $grows),+
                }
            }

            /// Whether it makes an inode, which is the subject of its outcome.
            pub fn makes_inode(&self) -> bool {
                match self {
                    $(Op::$variant { $($field),+ } => $makes),+
                }
            }

            /// Whether it can be a late operation: the rows that it changes show whether another client has contradicted it, and the
            /// client can still send all that belongs to it (blocks belong to the session that is over). Of a policy it cannot.
            pub fn can_be_late(&self) -> bool {
                match self {
                    $(Op::$variant { $($field),+ } => $late),+
                }
            }

            /// Whether only the server may ask for it.
            pub fn is_server_only(&self) -> bool {
                match self {
                    $(Op::$variant { $($field),+ } => $server_only),+
                }
            }

            /// How it is carried out if it needs rows of other plates.
            pub fn across_plates(&self) -> AcrossPlates {
                match self {
                    $(Op::$variant { $($field),+ } => AcrossPlates::$across_plates),+
                }
            }

            /// Whether a caller may put it into a batch.
            pub fn batched(&self) -> Batched {
                match self {
                    $(Op::$variant { $($field),+ } => $batched),+
                }
            }

            /// The table of `docs/formats.md`: tag, operation and fields.
            pub fn layouts() -> Vec<(u8, &'static str, String)> {
                vec![$((
                    $tag,
                    stringify!($variant),
                    [$(listed(stringify!($field), &<$crate::codec!($type $(, $codec)?) as Code<$type>>::form())),+].join(", "),
                )),+]
            }
        }

        impl Variants<Op> for Op {
            const VARIANTS: &'static [&'static str] = &[$(stringify!($variant)),+];

            fn sample_variant(at: usize, from: &mut Samples<'_>) -> Op {
                $(if at == Ordinal::$variant as usize {
                    return Op::$variant {
                        $($field: <$crate::codec!($type $(, $codec)?) as Sample<$type>>::sample(from)),+
                    };
                })+
                panic!("variant {at} of Op")
            }
        }
    };
}

impl Code<Op> for Op {
    const BYTES_MIN: usize = Op::BYTES_MIN;
    fn form() -> String {
        "operation".to_owned()
    }
    #[inline]
    fn put(op: &Op, out: &mut Vec<u8>) {
        op.encode(out);
    }
    #[inline]
    fn take(from: &mut Take<'_>) -> Result<Op, Malformed> {
        Op::decode(from)
    }
}

impl Sample<Op> for Op {
    fn sample(from: &mut Samples<'_>) -> Op {
        let at = from.below(Op::VARIANTS.len());
        Op::sample_variant(at, from)
    }
}

/// Of each number the sum of those before it.
const fn before<const N: usize>(numbers: &[usize; N]) -> [usize; N] {
    let (mut sums, mut sum, mut at) = ([0; N], 0, 0);
    while at < N {
        sums[at] = sum;
        sum += numbers[at];
        at += 1;
    }
    sums
}

operations! {
    /// A new inode under a new name (open O_CREAT|O_EXCL, mkdir, symlink, mknod).
    1 ["make_file", "make_dir", "make_symlink", "make_node"] Make {
        parent: Ino,
        /// Permissions that the caller asks for, to which the umask of the credentials is applied where the directory has
        /// no default list.
        mode: Mode,
        name: Name,
        make: Make => "",
    }
    text { {
        let (what, size) = match make {
            Make::File { content } => (Kind::File, content.len()),
            Make::Dir => (Kind::Dir, 0),
            Make::Symlink { target } => (Kind::Symlink, target.len()),
            Make::Node { kind, .. } => (*kind, 0),
        };
        let bytes = if size > 0 { format!(", {size} bytes") } else { String::new() };
        format!("make {} {} in {parent}, mode {}{bytes}", kind_name(what), quoted(name), octal(mode.0))
    } }
    footprint { Footprint::at(*parent).dir(*parent).uses(*parent, name, NameUse::Given) }
    grows { true } makes { true } late { true } server_only { false }
    across_plates { Never } batched { Batched::AtOnce }
    counter {
        match make {
            Make::File { .. } => 0,
            Make::Dir => 1,
            Make::Symlink { .. } => 2,
            Make::Node { .. } => 3,
        }
    }

    /// A further name of a file.
    2 ["link"] Link {
        /// Directory of the new name.
        parent: Ino,
        /// The file (not a directory).
        ino: Ino => "inode",
        name: Name,
    }
    text { format!("link {ino} as {} in {parent}", quoted(name)) }
    footprint {
        Footprint::at(*parent).dir(*parent).subject(*ino, Rows::ATTRS).uses(*parent, name, NameUse::Given)
    }
    grows { true } makes { false } late { true } server_only { false }
    across_plates { Guarded } batched { Batched::AtOnce }

    /// Removes a name that is not a directory's.
    3 ["unlink"] Unlink {
        parent: Ino,
        name: Name,
    }
    text { format!("unlink {} in {parent}", quoted(name)) }
    footprint { Footprint::at(*parent).dir(*parent).uses(*parent, name, NameUse::Removed) }
    grows { false } makes { false } late { true } server_only { false }
    across_plates { Guarded } batched { Batched::AtOnce }

    /// Removes an empty directory.
    4 ["rmdir"] Rmdir {
        /// Directory that holds it.
        parent: Ino,
        name: Name,
    }
    text { format!("rmdir {} in {parent}", quoted(name)) }
    footprint { Footprint::at(*parent).dir(*parent).uses(*parent, name, NameUse::RemovedDir) }
    grows { false } makes { false } late { true } server_only { false }
    across_plates { Guarded } batched { Batched::AtOnce }

    /// Moves a name. It does not grow: `rm -r` may move what it removes.
    5 ["rename"] Rename {
        /// Directory of the old name.
        from: Ino,
        /// Directory of the new name.
        to: Ino,
        /// How the inode at the new name is treated.
        how: RenameHow,
        from_name: Name,
        to_name: Name,
    }
    text { {
        let how = match how {
            RenameHow::Replace => "",
            RenameHow::NoReplace => ", unless the new name is there",
            RenameHow::Exchange => ", exchanging them",
            RenameHow::Whiteout => ", leaving a whiteout",
            RenameHow::NoReplaceWhiteout => ", leaving a whiteout, unless the new name is there",
        };
        format!("rename {} in {from} to {} in {to}{how}", quoted(from_name), quoted(to_name))
    } }
    footprint {
        Footprint::at(*to)
            .dir(*from)
            .dir(*to)
            .uses(*from, from_name, NameUse::Left)
            .uses(*to, to_name, NameUse::Taken)
    }
    grows { false } makes { false } late { true } server_only { false }
    across_plates { Guarded } batched { Batched::AtOnce }

    /// chmod, chown, truncate, utimens. It does not grow: `rm -r` may need a chmod first.
    6 ["setattr"] SetAttr {
        ino: Ino => "inode",
        change: AttrChange => "",
    }
    text { {
        let AttrChange { mode, uid, gid, size, size_by_handle: _, atime, mtime, kill_setid } = change;
        let set = [
            mode.map(|mode| format!("mode {}", octal(mode.0))),
            uid.map(|uid| format!("owner {uid}")),
            gid.map(|gid| format!("group {gid}")),
            size.map(|size| format!("size {size}")),
            atime.map(|_| "atime".to_owned()),
            mtime.map(|_| "mtime".to_owned()),
            kill_setid.then(|| "no set-id bits".to_owned()),
        ];
        format!("set attributes of {ino}: {}", set.into_iter().flatten().collect::<Vec<_>>().join(", "))
    } }
    footprint { Footprint::at(*ino).subject(*ino, Rows::ATTRS.and_if(change.size.is_some(), Rows::CONTENT)) }
    grows { false } makes { false } late { true } server_only { false }
    across_plates { OfParts } batched { if change.size.is_some() { Batched::Never } else { Batched::Pushed } }

    /// New content of a file. Right to write was checked at open.
    7 ["write"] Write {
        /// A regular file.
        ino: Ino => "inode",
        /// Size after it. For extents: at least the end of the last one that is not a hole.
        size: u64,
        /// Time of the (last) write.
        mtime: Time => "mtime_ns",
        /// Clear set-id bits as a write by one who is not root does.
        kill_setid: bool,
        /// How much the writer knows of the file.
        hold: Hold,
        body: Body,
    }
    text { match body {
        Body::Inline(bytes) => format!("write {} bytes as the content of {ino}, size {size}", bytes.len()),
        Body::Extents(extents) => format!("write {} extents of {ino}, size {size}", extents.len()),
    } }
    footprint { Footprint::at(*ino).subject(*ino, Rows::ATTRS.and(Rows::CONTENT)) }
    grows { true } makes { false } late { matches!(body, Body::Inline(_)) } server_only { false }
    across_plates { Never } batched { Batched::Never }

    /// Shares a range of one file's content with another file (copy_file_range, reflink): no byte is copied.
    /// Both files are in blocks, ranges within the source's size; the same file only without overlap.
    8 ["clone"] Clone {
        /// The file whose content is shared.
        from: Ino,
        /// First byte in the source.
        from_offset: u64,
        /// The file that gets it.
        to: Ino,
        /// First byte in the destination.
        to_offset: u64,
        /// Bytes to copy.
        len: u64,
    }
    text { format!("clone {len} bytes of {from} at {from_offset} to {to} at {to_offset}") }
    footprint {
        Footprint::at(*to)
            .inode(Role::Source, *from, Rows::NONE)
            .subject(*to, Rows::ATTRS.and(Rows::CONTENT))
    }
    grows { true } makes { false } late { false } server_only { false }
    across_plates { Refused } batched { Batched::Pushed }

    /// Replaces the mapping of one range by blocks with the same bytes (compaction); refused with `WouldBlock`
    /// if the file changed since `expected`.
    9 ["remap"] Remap {
        /// A regular file.
        ino: Ino => "inode",
        /// Position of the inode's last change when its content was read.
        expected: Position,
        /// Extents that replace those of the file.
        extents: Vec<Extent>,
    }
    text { format!("remap {} extents of {ino}, unchanged since {expected}", extents.len()) }
    footprint { Footprint::at(*ino).subject(*ino, Rows::BLOCKS) }
    grows { false } makes { false } late { false } server_only { true }
    across_plates { Never } batched { Batched::Never }

    /// Sets an extended attribute.
    10 ["set_xattr"] SetXattr {
        ino: Ino => "inode",
        /// Must (not) exist before.
        how: XattrHow,
        /// Full name (`user.x`).
        name: Vec<u8> as Text,
        value: Vec<u8> => "value_bytes",
    }
    text { format!("set attribute {:?} of {ino}, {} bytes", String::from_utf8_lossy(name), value.len()) }
    footprint { Footprint::at(*ino).subject(*ino, Rows::ATTRS.and(Rows::XATTRS)) }
    grows { true } makes { false } late { true } server_only { false }
    across_plates { OfParts } batched { Batched::AtOnce }

    /// Removes an extended attribute.
    11 ["remove_xattr"] RemoveXattr {
        ino: Ino => "inode",
        /// Full name (`user.x`).
        name: Vec<u8> as Text,
    }
    text { format!("remove attribute {:?} of {ino}", String::from_utf8_lossy(name)) }
    footprint { Footprint::at(*ino).subject(*ino, Rows::ATTRS.and(Rows::XATTRS)) }
    grows { false } makes { false } late { true } server_only { false }
    across_plates { OfParts } batched { Batched::AtOnce }

    /// Frees an orphan that nobody holds open any more, a limited number of chunks of its map at a time;
    /// asked by the server only, again and again until the outcome's `gone` says that it is no orphan any more.
    12 ["reclaim"] Reclaim {
        /// An inode without names.
        ino: Ino => "inode",
    }
    text { format!("reclaim {ino}") }
    footprint { Footprint::at(*ino).inode(Role::Orphan, *ino, Rows::ATTRS.and(Rows::CONTENT)) }
    grows { false } makes { false } late { false } server_only { true }
    across_plates { Never } batched { Batched::Never }

    /// A new file without a name (open O_TMPFILE), which lives as long as it is open.
    13 ["make_unnamed"] MakeUnnamed {
        /// Directory: the file belongs to its realm, and is made as if in it.
        parent: Ino,
        /// Permissions, the umask already applied.
        mode: Mode,
    }
    text { format!("make a file without a name in {parent}, mode {}", octal(mode.0)) }
    footprint { Footprint::at(*parent).dir(*parent) }
    grows { true } makes { true } late { false } server_only { false }
    across_plates { Never } batched { Batched::Never }

    /// A first name of a file that has none, and is open.
    14 ["link_unnamed"] LinkUnnamed {
        /// Directory of the name.
        parent: Ino,
        ino: Ino => "inode",
        name: Name,
    }
    text { format!("link {ino}, which has no name, as {} in {parent}", quoted(name)) }
    footprint {
        Footprint::at(*parent).dir(*parent).subject(*ino, Rows::ATTRS).uses(*parent, name, NameUse::Given)
    }
    grows { true } makes { false } late { false } server_only { false }
    across_plates { Refused } batched { Batched::Never }

    /// Makes a file or directory immutable or append-only, or no longer (chattr).
    15 ["set_flags"] SetFlags {
        ino: Ino => "inode",
        /// Bits of [`chiton_types::Attr::SETTABLE`]: those that are not in it are cleared.
        flags: u8,
    }
    text { format!("set flags of {ino} to {}", flag_letters(*flags)) }
    footprint { Footprint::at(*ino).subject(*ino, Rows::ATTRS) }
    grows { false } makes { false } late { true } server_only { false }
    across_plates { OfParts } batched { Batched::Pushed }

    /// Removes a directory with everything in it: its name goes at once, and the server frees its content afterwards.
    16 ["remove_tree"] RemoveTree {
        /// Directory that holds it.
        parent: Ino,
        name: Name,
        /// The directory that is meant: another one that has the name meanwhile stays.
        ino: Ino,
    }
    text { format!("remove the tree {ino}, {} in {parent}", quoted(name)) }
    footprint { Footprint::at(*parent).dir(*parent).uses(*parent, name, NameUse::RemovedDir) }
    grows { false } makes { false } late { false } server_only { false }
    across_plates { Guarded } batched { Batched::AtOnce }

    /// Gives a directory parts on the other plates, with the names in their ranges; a directory of very many names takes several steps. In
    /// the end each plate has an equal range, and it changes nothing.
    17 ["split"] Split {
        dir: Ino => "inode",
    }
    text { format!("split directory {dir} over the plates") }
    footprint { Footprint::at(*dir).dir(*dir) }
    grows { true } makes { false } late { false } server_only { false }
    across_plates { Never } batched { Batched::Never }

    /// Brings the names of a directory's first part home, or ends the parts that have none any more. In the end the directory has no parts,
    /// and it changes nothing.
    18 ["fold"] Fold {
        dir: Ino => "inode",
    }
    text { format!("fold directory {dir}") }
    footprint { Footprint::at(*dir).subject(*dir, Rows::ATTRS) }
    grows { false } makes { false } late { false } server_only { false }
    across_plates { Guarded } batched { Batched::Never }
}

impl Op {
    /// About what it holds in memory beside itself: content, extents, extended attributes.
    pub fn heap_bytes(&self) -> usize {
        if let Op::Make { make: Make::File { content: bytes } | Make::Symlink { target: bytes }, .. }
        | Op::Write { body: Body::Inline(bytes), .. } = self
        {
            return bytes.len();
        }
        if let Op::Write { body: Body::Extents(extents), .. } | Op::Remap { extents, .. } = self {
            return size_of::<Extent>() * extents.len();
        }
        if let Op::SetXattr { name, value, .. } = self { name.len() + value.len() } else { 0 }
    }

    /// The inode and the name of the extended attribute that it sets or removes.
    pub fn xattr(&self) -> Option<(Ino, &[u8])> {
        match self {
            Op::SetXattr { ino, name, .. } | Op::RemoveXattr { ino, name } => Some((*ino, name)),
            Op::Make { .. }
            | Op::Link { .. }
            | Op::Unlink { .. }
            | Op::Rmdir { .. }
            | Op::Rename { .. }
            | Op::SetAttr { .. }
            | Op::Write { .. }
            | Op::Clone { .. }
            | Op::Remap { .. }
            | Op::Reclaim { .. }
            | Op::MakeUnnamed { .. }
            | Op::LinkUnnamed { .. }
            | Op::SetFlags { .. }
            | Op::RemoveTree { .. }
            | Op::Split { .. }
            | Op::Fold { .. } => None,
        }
    }

    /// Puts each name that it is about into the directory's inode that `place` says: a directory may have parts.
    pub fn place_names(&mut self, place: impl Fn(Ino, &Name) -> Ino) {
        match self {
            Op::Make { parent, name, .. }
            | Op::LinkUnnamed { parent, name, .. }
            | Op::Link { parent, name, .. }
            | Op::Unlink { parent, name }
            | Op::Rmdir { parent, name }
            | Op::RemoveTree { parent, name, .. } => *parent = place(*parent, name),
            Op::Rename { from, from_name, to, to_name, .. } => {
                *from = place(*from, from_name);
                *to = place(*to, to_name);
            }
            Op::MakeUnnamed { .. }
            | Op::SetAttr { .. }
            | Op::Write { .. }
            | Op::Clone { .. }
            | Op::Remap { .. }
            | Op::SetXattr { .. }
            | Op::RemoveXattr { .. }
            | Op::SetFlags { .. }
            | Op::Split { .. }
            | Op::Fold { .. }
            | Op::Reclaim { .. } => {}
        }
    }
}
