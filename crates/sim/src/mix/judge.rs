//! The possible trees after a merge, entry by entry.
//!
//! | of an entry or file | after the merge |
//! |---|---|
//! | theirs did not touch it | the version of ours |
//! | ours did not touch it | the version of theirs |
//! | both did, ours has a file or directory under the name | ours |
//! | both did, ours has nothing under the name | nothing, or theirs |
//! | it was in neither | nothing, or a file that was put aside or brought back, or one that ours moved there before it removed it, and theirs kept |
//! | a file that is on both sides | it is somewhere |
//!
//! The content of each file is, as a whole, one that a side had in a single file: no merge mixes the bytes of two.
//! Under `keep_both`, and where no conflict is reported, each content that theirs wrote exists somewhere; otherwise
//! at most as many are lost as conflicts are reported. If no side touched the other's changes, no conflict is
//! reported. If both created different files with one name, or wrote to one file, a conflict is reported. A version
//! that ours itself saw in a place, and replaced there, is no conflict: theirs may have put it there as well, or
//! moved it away and back.

use std::collections::{BTreeMap, BTreeSet};

use chiton_types::{Ino, Kind};

use super::acts::marks_of;
use super::view::{Entry, Touched, View};
use crate::tree::Node;

pub(super) struct Merge<'a> {
    pub(super) ours: &'a View,
    pub(super) theirs: &'a View,
    pub(super) merged: &'a View,
    /// Directories that became one with theirs at earlier merges.
    pub(super) twins: &'a BTreeMap<Ino, Ino>,
    /// Names under which earlier merges of ours put files that ours has elsewhere.
    pub(super) put: &'a BTreeSet<(Entry, Ino)>,
    /// The trees that ours saw since the last merge, in order.
    pub(super) seen: &'a [View],
    /// By ours since the decoupling began, and since the last merge.
    pub(super) by_ours: [&'a Touched; 2],
    pub(super) by_theirs: [&'a Touched; 2],
    pub(super) on_conflict: &'a str,
    /// Number of reported conflicts; `None` if a client that died got the report.
    pub(super) conflicts: Option<u64>,
    /// Something may have been merged at any time before.
    pub(super) by_itself: bool,
    /// Whether larger files are written in part, and attributes of copies are compared.
    pub(super) is_wide: bool,
}

impl Merge<'_> {
    /// The violation, if any.
    pub(super) fn judge(&self) -> Result<(), String> {
        let same = self.twins();
        let [o_all, o_round] = self.by_ours;
        let [t_all, _] = self.by_theirs;
        let there = |ino: Ino| same.get(&ino).copied().unwrap_or(ino);
        let entry = |(dir, name): &Entry| (there(*dir), name.clone());
        let o_names: BTreeSet<Entry> = o_all.names.iter().map(entry).collect();
        let o_now: BTreeSet<Entry> = match self.by_itself {
            true => o_names.clone(),
            false => o_round.names.iter().map(entry).collect(),
        };
        let o_inos = if self.by_itself { &o_all.inos } else { &o_round.inos };
        // Changes of ours to a directory that became one with theirs are changes to theirs.
        let o_inos: BTreeSet<Ino> = o_inos.iter().flat_map(|ino| [*ino, there(*ino)]).collect();
        let loops = o_all.moves_dirs && t_all.moves_dirs;
        for (at, ino) in &self.ours.names {
            let place = entry(at);
            let touched =
                t_all.names.contains(&place) || t_all.inos.contains(ino) || t_all.inos.contains(&there(*ino));
            let is = self.merged.names.get(&place);
            // A version that was merged before, and touched by others since, is theirs.
            if loops || (touched && (self.by_itself || !o_now.contains(&place))) {
                continue;
            }
            if is != Some(&there(*ino)) {
                return Err(format!("{} is {is:?}, ours saw {ino:?}", self.ours.paths[at]));
            }
            if !touched {
                self.like(&self.ours.paths[at], self.ours, self.merged, *ino, there(*ino))?;
            }
        }
        let ours_at: BTreeMap<Entry, Ino> =
            self.ours.names.iter().map(|(at, ino)| (entry(at), *ino)).collect();
        for (at, ino) in &self.theirs.names {
            // Theirs put another file where ours changed the file, or something in it: ours has the name.
            let is_kept = ours_at.get(at).is_some_and(|ours| {
                ours != ino && (o_inos.contains(ours) || o_now.iter().any(|(dir, _)| dir == ours))
            });
            let is = self.merged.names.get(at);
            // The same where ours has the file elsewhere, and an earlier merge put it there.
            let is_back = is.is_some_and(|is| {
                let was_put = self.by_itself || self.put.contains(&(at.clone(), *is));
                was_put && o_inos.contains(is) && !self.theirs.nodes.contains_key(is)
            });
            if o_now.contains(at) || o_inos.contains(ino) || is_kept || is_back {
                continue;
            }
            if is != Some(ino) {
                return Err(format!("{} is {is:?}, theirs saw {ino:?}", self.theirs.paths[at]));
            }
            if !same.values().any(|twin| twin == ino) {
                self.like(&self.theirs.paths[at], self.theirs, self.merged, *ino, *ino)?;
            }
        }
        let ours: BTreeSet<Entry> = self.ours.names.keys().map(entry).collect();
        for (at, ino) in &self.merged.names {
            let aside = at.1.contains(".theirs") || at.1.contains(".ours");
            // A file that theirs removed comes back under its last name.
            let is_back = self.ours.nodes.contains_key(ino) && !self.theirs.nodes.contains_key(ino);
            let is_kept = self.is_kept_on_the_way(at, *ino);
            if !loops
                && !aside
                && !is_back
                && !is_kept
                && !ours.contains(at)
                && !self.theirs.names.contains_key(at)
            {
                return Err(format!("{} is {ino:?}, and was on neither side", self.merged.paths[at]));
            }
        }
        let files = self.ours.nodes.values().filter(|node| node.kind != Kind::Dir);
        let mut files = files.filter(|node| self.theirs.nodes.contains_key(&node.ino));
        if let Some(lost) = files.find(|node| !self.by_itself && !self.merged.nodes.contains_key(&node.ino)) {
            return Err(format!("{:?} is gone, and was on both sides", lost.ino));
        }
        self.nothing_is_mixed()?;
        self.ours_has_its_name(&o_names, loops)?;
        self.nothing_is_lost()?;
        self.conflicts_are_reported(&o_names)
    }

    /// Each file has the content that a file of one side had.
    fn nothing_is_mixed(&self) -> Result<(), String> {
        for node in self.merged.nodes.values().filter(|node| node.kind == Kind::File) {
            let has_seen = || self.seen.iter().any(|view| view.has_content(&node.content));
            if !self.by_itself
                && !self.ours.has_content(&node.content)
                && !self.theirs.has_content(&node.content)
                && !has_seen()
            {
                let of = |view: &View| view.nodes.get(&node.ino).map(|node| marks_of(&node.content));
                return Err(format!(
                    "{:?} has a content that no side had: {}; ours had {:?}, theirs {:?}",
                    node.ino,
                    marks_of(&node.content),
                    of(self.ours),
                    of(self.theirs)
                ));
            }
        }
        Ok(())
    }

    /// A file that ours wrote in place has the name that ours has, also if theirs saved to another file.
    fn ours_has_its_name(&self, o_names: &BTreeSet<Entry>, loops: bool) -> Result<(), String> {
        let [_, o_round] = self.by_ours;
        for (at, ino) in &self.ours.names {
            let names = self.ours.names.values().filter(|other| *other == ino).count();
            let is_replaced = self.theirs.names.get(at).is_some_and(|other| other != ino)
                && !self.theirs.nodes.contains_key(ino);
            let is_plain = names == 1 && !loops && !self.by_itself && !o_names.contains(at);
            if is_plain && is_replaced && o_round.written.contains(ino) {
                let is = self.merged.names.get(at);
                if is != Some(ino) {
                    return Err(format!("{} is {is:?}, and ours wrote {ino:?} there", self.ours.paths[at]));
                }
            }
        }
        Ok(())
    }

    /// Whether ours moved a file there that it removed afterwards, and theirs stays: each merge knows it by the
    /// last name.
    fn is_kept_on_the_way(&self, at: &Entry, ino: Ino) -> bool {
        let is_removed = !self.ours.nodes.contains_key(&ino) && self.theirs.nodes.contains_key(&ino);
        is_removed && self.conflicts != Some(0) && self.has_seen_at(at, ino)
    }

    /// Whether ours saw an inode, or its own that became one with it, under a name.
    fn has_seen_at(&self, at: &Entry, ino: Ino) -> bool {
        let same = self.twins();
        let there = |ino: &Ino| same.get(ino).copied().unwrap_or(*ino);
        let is_it =
            |((dir, name), found): (&Entry, &Ino)| there(found) == ino && *name == at.1 && there(dir) == at.0;
        self.seen.iter().any(|view| view.names.iter().any(is_it))
    }

    /// Whether ours saw the version that theirs has in a file.
    fn has_seen_in(&self, ino: Ino) -> bool {
        let content = |view: &View| view.nodes.get(&ino).map(|node| node.content.clone());
        let theirs = content(self.theirs);
        self.seen.iter().any(|view| content(view) == theirs)
    }

    /// Names that the merge gave to files of ours which neither side has there.
    pub(super) fn puts(&self) -> Vec<(Entry, Ino)> {
        let is_put = |(at, ino): &(&Entry, &Ino)| {
            let has = |view: &View| view.names.get(*at) == Some(*ino);
            self.ours.nodes.contains_key(*ino) && !has(self.ours) && !has(self.theirs)
        };
        self.merged.names.iter().filter(is_put).map(|(at, ino)| (at.clone(), *ino)).collect()
    }

    /// Directories of ours that became one with theirs of the same name.
    pub(super) fn twins(&self) -> BTreeMap<Ino, Ino> {
        let mut same = self.twins.clone();
        same.retain(|ours, _| !self.merged.nodes.contains_key(ours));
        // By path, parents first.
        let mut dirs: Vec<(&String, &Entry)> = self.ours.paths.iter().map(|(at, path)| (path, at)).collect();
        dirs.sort();
        for (_, at) in dirs {
            let ino = self.ours.names[at];
            if !self.ours.is_dir(ino) || self.merged.nodes.contains_key(&ino) || same.contains_key(&ino) {
                continue;
            }
            let place = (same.get(&at.0).copied().unwrap_or(at.0), at.1.clone());
            if let Some(twin) = self.merged.names.get(&place).filter(|twin| self.merged.is_dir(**twin)) {
                same.insert(ino, *twin);
            }
        }
        same
    }

    fn like(&self, path: &str, before: &View, after: &View, was: Ino, is: Ino) -> Result<(), String> {
        let facts = |node: &Node| {
            let is_dir = node.kind == Kind::Dir;
            // How many names it has is seen from the names. Content is a directory's names.
            let content = if is_dir { Vec::new() } else { node.content.clone() };
            (node.kind, node.mode, content, node.xattrs.clone())
        };
        let (was, is) = (before.nodes.get(&was).map(facts), after.nodes.get(&is).map(facts));
        if was == is { Ok(()) } else { Err(format!("{path} is {is:?}, was {was:?}")) }
    }

    fn nothing_is_lost(&self) -> Result<(), String> {
        let [_, t_round] = self.by_theirs;
        if self.by_itself {
            return Ok(());
        }
        let written = t_round.written.iter().filter_map(|ino| self.theirs.nodes.get(ino));
        let written = written.filter(|node| node.kind == Kind::File && !node.content.is_empty());
        let written = written.filter(|node| !self.has_seen_in(node.ino));
        let lost: Vec<&Node> = written.filter(|node| !self.merged.has_content(&node.content)).collect();
        if self.is_wide && self.on_conflict == "keep_both" {
            self.copies_are_whole()?;
        }
        let Some(first) = lost.first() else { return Ok(()) };
        let what = format!("{:?} {:?} of theirs is lost", first.ino, String::from_utf8_lossy(&first.content));
        if self.on_conflict == "keep_both" {
            return Err(format!("{what} under keep_both"));
        }
        match self.conflicts {
            Some(reported) if (lost.len() as u64) > reported => {
                Err(format!("{what}, {} such, and {reported} conflicts are reported", lost.len()))
            }
            _ => Ok(()),
        }
    }

    /// A version that both sides wrote is kept with its mode, times and extended attributes.
    fn copies_are_whole(&self) -> Result<(), String> {
        let ([_, o_round], [_, t_round]) = (self.by_ours, self.by_theirs);
        let facts = |node: &Node| (node.content.clone(), node.mode, node.mtime, node.xattrs.clone());
        for ino in t_round.written.intersection(&o_round.written) {
            let Some(node) = self.theirs.nodes.get(ino).filter(|node| node.kind == Kind::File) else {
                continue;
            };
            let is_kept = self.merged.nodes.values().any(|kept| facts(kept) == facts(node));
            let is_same = self.seen.iter().any(|view| view.has_content(&node.content));
            if !is_kept && !is_same && !node.content.is_empty() {
                let (content, rest) = (marks_of(&node.content), (node.mode, node.mtime, &node.xattrs));
                return Err(format!("{ino:?} of theirs, {content}, is nowhere as it was: {rest:?}"));
            }
        }
        Ok(())
    }

    fn conflicts_are_reported(&self, o_names: &BTreeSet<Entry>) -> Result<(), String> {
        let ([o_all, o_round], [t_all, t_round]) = (self.by_ours, self.by_theirs);
        let Some(reported) = self.conflicts.filter(|_| !self.by_itself) else { return Ok(()) };
        let beside = |a: &Touched, b: &Touched| {
            a.removed_dirs.iter().any(|dir| b.names.iter().any(|(parent, _)| parent == dir))
        };
        let apart = o_names.is_disjoint(&t_all.names)
            && o_all.inos.is_disjoint(&t_all.inos)
            && !(o_all.moves_dirs && t_all.moves_dirs)
            && !beside(o_all, t_all)
            && !beside(t_all, o_all);
        if apart && reported > 0 {
            return Err(format!(
                "{reported} conflicts are reported although no side touched the changes of the other"
            ));
        }
        if reported > 0 {
            return Ok(());
        }
        let both = o_round
            .written
            .intersection(&t_round.written)
            .filter(|ino| self.ours.nodes.contains_key(ino) && self.theirs.nodes.contains_key(ino))
            .find(|ino| !self.has_seen_in(**ino));
        if let Some(ino) = both {
            return Err(format!("both wrote {ino:?}, and no conflict is reported"));
        }
        let made = o_round.names.intersection(&t_round.names).find(|at| {
            let (ours, theirs) = (self.ours.names.get(*at), self.theirs.names.get(*at));
            let is_dir = |view: &View, ino: Option<&Ino>| ino.is_some_and(|ino| view.is_dir(*ino));
            ours.is_some()
                && theirs.is_some()
                && ours != theirs
                && !theirs.is_some_and(|ino| self.has_seen_at(at, *ino))
                && !(is_dir(self.ours, ours) && is_dir(self.theirs, theirs))
        });
        match made {
            Some(at) => Err(format!("both put something under {at:?}, and no conflict is reported")),
            None => Ok(()),
        }
    }
}

/// A merge that a conflict stopped before anything was merged, or a decoupling that was dropped before.
pub(super) fn unchanged(before: &View, after: &View) -> Result<(), String> {
    for at in before.names.keys().chain(after.names.keys()) {
        let (was, is) = (before.names.get(at), after.names.get(at));
        let node = |view: &View, ino: Option<&Ino>| ino.and_then(|ino| view.nodes.get(ino).cloned());
        if was != is || node(before, was) != node(after, is) {
            let path = before.paths.get(at).or(after.paths.get(at));
            return Err(format!("{path:?} is {:?}, was {:?}", node(after, is), node(before, was)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;
    use chiton_types::{Attr, Mode, Position, Time};

    /// `path=number:content`; a number of 50 or more is a directory.
    fn view(text: &str) -> View {
        let mut tree = Tree::default();
        for item in std::iter::once("/=50:").chain(text.split_whitespace()) {
            let (path, rest) = item.split_once('=').expect("a path");
            let (ino, content) = rest.split_once(':').expect("a number");
            let ino = Ino(ino.parse().expect("a number"));
            let attr = Attr {
                ino,
                kind: if ino.0 >= 50 { Kind::Dir } else { Kind::File },
                mode: Mode(0o644),
                nlink: 1,
                uid: 0,
                gid: 0,
                rdev: 0,
                size: 0,
                allocated: 0,
                atime: Time(0),
                mtime: Time(0),
                ctime: Time(0),
                btime: Time(0),
                parent: Ino(50),
                flags: 0,
                position: Position(0),
            };
            let node = Node::new(&attr, content.as_bytes().to_vec(), BTreeMap::new());
            tree.nodes.insert(path.to_owned(), node);
        }
        View::new(&tree)
    }

    fn judged(
        base: &str,
        ours: &str,
        theirs: &str,
        merged: &str,
        on_conflict: &str,
        reported: u64,
    ) -> Result<(), String> {
        judged_after(&[], base, ours, theirs, merged, on_conflict, reported)
    }

    /// The same after a merge that put files of ours under these names in the root.
    fn judged_after(
        put: &[(&str, u64)],
        base: &str,
        ours: &str,
        theirs: &str,
        merged: &str,
        on_conflict: &str,
        reported: u64,
    ) -> Result<(), String> {
        // One step after the other.
        let steps = |text: &str| text.split('>').map(view).collect::<Vec<View>>();
        let (ours, theirs, merged) = (steps(ours), steps(theirs), view(merged));
        let (mut o, mut t) = (Touched::default(), Touched::default());
        let mut seen = vec![view(base)];
        for (touched, steps) in [(&mut t, theirs.clone()), (&mut o, ours)] {
            seen.truncate(1);
            seen.extend(steps);
            seen.windows(2).for_each(|pair| touched.between(&pair[0], &pair[1]));
        }
        let (ours, theirs) = (seen.last().expect("the base"), theirs.last().expect("a step"));
        let merge = Merge {
            ours,
            theirs,
            merged: &merged,
            twins: &BTreeMap::new(),
            put: &put.iter().map(|(name, ino)| ((Ino(50), (*name).to_owned()), Ino(*ino))).collect(),
            seen: &seen,
            by_ours: [&o, &o],
            by_theirs: [&t, &t],
            on_conflict,
            conflicts: Some(reported),
            by_itself: false,
            is_wide: true,
        };
        merge.judge()
    }

    #[test]
    fn right_merges_are_right_and_each_wrong_one_is_noticed() {
        for (base, ours, theirs, merged, on_conflict, reported, right) in [
            // Apart.
            ("/a=1:a", "/a=1:b", "/a=1:a /t=9:t", "/a=1:b /t=9:t", "overwrite", 0, true),
            ("/a=1:a", "/a=1:b", "/a=1:a /t=9:t", "/a=1:a /t=9:t", "overwrite", 0, false),
            ("/a=1:a", "/a=1:b", "/a=1:a /t=9:t", "/a=1:b", "overwrite", 0, false),
            ("/a=1:a", "/a=1:b", "/a=1:a /t=9:t", "/a=1:b /t=9:t", "overwrite", 1, false),
            ("/a=1:a", "/a=1:b", "/a=1:a", "/a=1:b /x=3:x", "overwrite", 0, false),
            ("/a=1:a", "", "/a=1:a", "", "overwrite", 0, true),
            // Both made one.
            ("", "/a=1:o", "/a=9:t", "/a=1:o", "overwrite", 1, true),
            ("", "/a=1:o", "/a=9:t", "/a=9:t", "overwrite", 1, false),
            ("", "/a=1:o", "/a=9:t", "/a=1:o", "overwrite", 0, false),
            ("", "/a=1:o", "/a=9:t", "/a=1:o", "keep_both", 1, false),
            ("", "/a=1:o", "/a=9:t", "/a=1:o /a.theirs=9:t", "keep_both", 1, true),
            ("", "/a=51: /a/x=1:o", "/a=52: /a/y=9:t", "/a=52: /a/x=1:o /a/y=9:t", "abort", 0, true),
            // Both wrote, or moved.
            ("/a=1:a", "/a=1:o", "/a=1:t", "/a=1:o", "overwrite", 0, false),
            ("/a=1:a", "/a=1:o", "/a=1:t", "/a=1:o /a.theirs=5:t", "keep_both", 1, true),
            ("/a=1:a", "/b=1:a", "/c=1:a", "/b=1:a", "overwrite", 1, true),
            // Mixed; and theirs saved to another file.
            ("/a=1:aa", "/a=1:oa", "/a=1:at", "/a=1:ot", "overwrite", 1, false),
            ("/a=1:aa", "/a=1:oa", "/a=1:at", "/a=1:oa", "overwrite", 1, true),
            ("/a=1:a", "/a=1:o", "/a=9:t", "/a=1:o", "overwrite", 1, true),
            ("/a=1:a", "/a=1:o", "/a=9:t", "/a=9:t", "overwrite", 1, false),
            ("/a=1:a", "/a=1:o", "/a=9:t", "/a=1:o /a.theirs=9:t", "keep_both", 1, true),
            ("/a=1:a", "/c=2:o /a=1:a", "/c=1:a", "/c=2:o", "overwrite", 1, false),
            // Ours replaces a file that it saw there: theirs moved it to the same place, or away and back.
            ("/a=1:a", "/b=1:a > /a=1:a > /a=1:a /b=2:o", "/b=1:a", "/a=1:a /b=2:o", "overwrite", 0, true),
            ("/a=1:a", "/c=1:a > /a=2:o /c=1:a", "/b=1:a > /a=1:a", "/a=2:o /c=1:a", "keep_both", 0, true),
            ("/a=1:a", "/a=1:o", "/a=1:t > /a=1:a", "/a=1:o", "keep_both", 0, true),
            // Ours moved it, then removed it, and theirs stands.
            ("/a=1:a", "/b=1:a > ", "/a=1:t", "/b=1:t", "keep_both", 1, true),
            ("/a=1:a", "/b=1:a > ", "/a=1:t", "/b=1:t", "keep_both", 0, false),
            ("/a=1:a", "/b=1:a > ", "/a=1:t", "/c=1:t", "keep_both", 1, false),
        ] {
            let found = judged(base, ours, theirs, merged, on_conflict, reported);
            let about = format!("{base} | {ours} | {theirs} | {merged} | {on_conflict} {reported}");
            assert_eq!(found.is_ok(), right, "{about}: {found:?}");
        }
    }

    #[test]
    fn a_file_of_ours_that_a_merge_put_aside_prevails_there() {
        let judged = |put: &[(&str, u64)], ours: &str, on_conflict: &str, merged: &str| {
            let theirs = "/b=2:b /a.theirs=1:a > /b=2:b /a.theirs=9:t";
            judged_after(put, "/b=2:b /c=1:a", ours, theirs, merged, on_conflict, 1)
        };
        let (put, ours) = (&[("a.theirs", 1)][..], "/b=2:b /c=1:o");
        assert_eq!(judged(put, ours, "overwrite", "/b=2:b /a.theirs=1:o"), Ok(()));
        assert_eq!(judged(put, ours, "keep_both", "/b=2:b /a.theirs=1:o /a.theirs.theirs=9:t"), Ok(()));
        assert!(judged(&[], ours, "overwrite", "/b=2:b /a.theirs=1:o").is_err(), "no merge put it there");
        assert!(judged(put, "/b=2:b /c=1:a", "overwrite", "/b=2:b /a.theirs=1:a").is_err(), "ours left it");
        assert!(judged(put, ours, "overwrite", "/a.theirs=1:o").is_err(), "another file is gone");
    }
}
