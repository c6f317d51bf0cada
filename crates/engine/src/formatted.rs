//! The rows of an empty file system, for the tests of the engine.

use std::collections::BTreeMap;
use std::convert::Infallible;

use chiton_namespace::{Namespace, Need, RowSource, Rows};
use chiton_types::Time;

use crate::engine::Engine;

pub(crate) struct Formatted(BTreeMap<Vec<u8>, Vec<u8>>);

impl Formatted {
    pub(crate) fn new() -> Formatted {
        let rows = Namespace::format_rows(Time(1), 0, 0);
        Formatted(rows.into_iter().map(|(key, value)| (key, value.expect("a put"))).collect())
    }
}

impl Formatted {
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&Vec<u8>, &Vec<u8>)> {
        self.0.iter()
    }

    /// Gives an engine the rows that it needs.
    pub(crate) fn supply(&self, engine: &mut Engine, needs: &[Need]) {
        let generation = engine.namespace().generation();
        for need in needs {
            let fetched = Namespace::fetch(self, need).expect("cannot fail");
            engine.namespace().install(fetched, generation).expect("decodes");
        }
    }

    /// A checkpoint's rows.
    pub(crate) fn commit(&mut self, rows: impl IntoIterator<Item = (Vec<u8>, Option<Vec<u8>>)>) {
        for (key, value) in rows {
            match value {
                Some(value) => drop(self.0.insert(key, value)),
                None => drop(self.0.remove(&key)),
            }
        }
    }
}

impl RowSource for Formatted {
    type Error = Infallible;

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Infallible> {
        Ok(self.0.get(key).cloned())
    }

    fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Rows, Infallible> {
        let range = self.0.range(start.to_vec()..end.to_vec()).take(limit);
        Ok(range.map(|(key, value)| (key.clone(), value.clone())).collect())
    }
}
