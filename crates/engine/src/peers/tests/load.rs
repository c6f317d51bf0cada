//! The operations that the clients of a schedule carry out.

/// The operations of clients.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Load {
    /// Operations of all kinds.
    Mixed,
    /// They make a few directories and move them.
    Moves,
    /// The same, and they set policies and remove them.
    Policies,
    /// Everything, in directories with parts, and they change their permissions.
    Parts,
    /// The same in directories that get their parts while they have names.
    Splits,
    /// The same, and they lose their parts again.
    Folds,
    /// Everything, and they remove whole trees, which the plates free meanwhile.
    Trees,
    /// The same in directories with parts.
    TreesWithParts,
    /// Everything, with files that get names in several directories, on both sides of the borders of policies.
    LinkedPolicies,
}
