//! Filters events by path: parents are learned from the events, or else from the metadata store.
//!
//! The path is the one at each event. Information that the journal lacks comes from the store, as of the last
//! checkpoint. Without a store it is unknown, and does not match.

use std::collections::BTreeMap;
use std::ops::Bound;

use chiton_metastore::{Metastore, StoreError};
use chiton_model::Event;
use chiton_namespace::{Fault, Namespace, Need, RowSource, Rows};
use chiton_types::{Cred, Ino, Name};

/// Directories above one another that are looked through.
const DEPTH_MAX: usize = 4096;

/// A filter by path.
pub struct Under<'a> {
    /// The path's names.
    names: Vec<Name>,
    /// The inode at each step: first the root's.
    bound: Vec<Option<Ino>>,
    parents: BTreeMap<Ino, Ino>,
    store: Option<&'a dyn Metastore>,
    /// A name of the path that no entry can have: nothing matches.
    hopeless: bool,
}

impl<'a> Under<'a> {
    /// Begins with the state of the store.
    ///
    /// # Errors
    /// The error of the store.
    pub fn new(path: &str, store: Option<&'a dyn Metastore>) -> Result<Under<'a>, StoreError> {
        let parts = path.split('/').filter(|part| !part.is_empty() && *part != ".");
        let names: Result<Vec<Name>, _> = parts.map(Name::try_from).collect();
        let hopeless = names.is_err();
        let names = names.unwrap_or_default();
        let mut bound = vec![None; names.len() + 1];
        bound[0] = Some(Ino::ROOT);
        let mut under = Under { names, bound, parents: BTreeMap::new(), store, hopeless };
        under.resolve_from(0)?;
        Ok(under)
    }

    /// Whether the event touches an inode at or below the path, before or after it.
    ///
    /// # Errors
    /// The error of the store.
    pub fn takes(&mut self, event: &Event) -> Result<bool, StoreError> {
        let before = self.touches(event)?;
        self.learn(event)?;
        Ok(!self.hopeless && (before || self.touches(event)?))
    }

    fn touches(&mut self, event: &Event) -> Result<bool, StoreError> {
        let Some(target) = *self.bound.last().expect("the root is always there") else { return Ok(false) };
        for touch in event.footprint().inodes() {
            if self.is_below(touch.ino, target)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_below(&mut self, mut ino: Ino, target: Ino) -> Result<bool, StoreError> {
        for _ in 0..DEPTH_MAX {
            if ino == target {
                return Ok(true);
            }
            if ino == Ino::ROOT {
                return Ok(false);
            }
            let parent = match self.parents.get(&ino) {
                Some(parent) => *parent,
                None => match self.stored_parent(ino)? {
                    Some(parent) => {
                        self.parents.insert(ino, parent);
                        parent
                    }
                    None => return Ok(false),
                },
            };
            ino = parent;
        }
        Ok(false)
    }

    fn learn(&mut self, event: &Event) -> Result<(), StoreError> {
        let footprint = event.footprint();
        for change in footprint.names() {
            if let Some(ino) = change.after {
                self.parents.insert(ino, change.dir);
            }
        }
        footprint.names().try_for_each(|change| self.bind(change.dir, change.name, change.after))
    }

    /// A name has a new target: that may move the path.
    fn bind(&mut self, dir: Ino, name: &Name, target: Option<Ino>) -> Result<(), StoreError> {
        for step in 0..self.names.len() {
            if self.bound[step] == Some(dir) && self.names[step] == *name {
                self.bound[step + 1] = target;
                return self.resolve_from(step + 1);
            }
        }
        Ok(())
    }

    /// Finds the inodes past a step that is known, as far as the store knows them.
    fn resolve_from(&mut self, step: usize) -> Result<(), StoreError> {
        for step in step..self.names.len() {
            self.bound[step + 1] = match (self.bound[step], self.store) {
                (Some(dir), Some(store)) => lookup(store, dir, &self.names[step])?,
                _ => None,
            };
        }
        Ok(())
    }

    fn stored_parent(&self, ino: Ino) -> Result<Option<Ino>, StoreError> {
        let Some(store) = self.store else { return Ok(None) };
        ask(store, |ns| ns.attr(ino).map(|attr| attr.parent))
    }
}

fn lookup(store: &dyn Metastore, dir: Ino, name: &Name) -> Result<Option<Ino>, StoreError> {
    ask(store, |ns| ns.lookup(&Cred::ROOT, dir, name)).map(Option::flatten)
}

/// Answers a question from the store's rows; `None` if it has no answer there.
fn ask<R>(
    store: &dyn Metastore,
    question: impl Fn(&Namespace) -> Result<R, Fault>,
) -> Result<Option<R>, StoreError> {
    let mut ns = Namespace::new();
    for _ in 0..8 {
        let needs = match question(&ns) {
            Ok(answer) => return Ok(Some(answer)),
            Err(Fault::Missing(needs)) => needs,
            Err(_) => return Ok(None),
        };
        for need in needs {
            // One entry is enough: the directory need not be read whole.
            let fetched = Namespace::fetch(&StoreRows(store), &need)?;
            let generation = ns.generation();
            if ns.install(fetched, generation).is_err() {
                return Ok(None);
            }
            if let Need::Inode(ino) = need
                && ns.attr(ino).is_err()
            {
                return Ok(None);
            }
        }
    }
    Ok(None)
}

struct StoreRows<'a>(&'a dyn Metastore);

impl RowSource for StoreRows<'_> {
    type Error = StoreError;

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        self.0.get(key)
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Rows, StoreError> {
        self.0.scan(Bound::Included(start), Some(end), limit)
    }
}
