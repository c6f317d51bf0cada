//! Sessions that are over: the operations that the server had carried out, and the fate of the others.

use chiton_types::Seq;

/// The fate of a call that had no answer when its session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// A push, which was carried out.
    Pushed,
    /// Nothing of it was carried out, and nothing of it will be: its caller may ask anew.
    NotCarriedOut,
    /// Lost, or not known here.
    Lost,
}

/// A server's memory of a session that is over: runs of operations that were carried out. `None`: it remembers nothing, and none
/// counts as carried out.
#[derive(Clone, Debug, Default)]
pub(crate) struct CarriedOut(pub(crate) Option<Vec<(Seq, Seq)>>);

impl CarriedOut {
    pub(super) fn has(&self, seq: Seq) -> bool {
        let Some(runs) = &self.0 else { return false };
        let at = runs.partition_point(|(_, end)| *end <= seq);
        runs.get(at).is_some_and(|(first, _)| *first <= seq)
    }

    /// Whether it is certain that none of these was carried out.
    pub(super) fn has_none(&self, seqs: &mut impl Iterator<Item = Seq>) -> bool {
        self.0.is_some() && !seqs.any(|seq| self.has(seq))
    }
}
