//! Rules that are broken on purpose: a checker that does not see them is worth nothing.

/// A broken rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Canary {
    /// The journal's sync returns without having synced.
    FsyncSkipped,
    /// Operations that are sent again come as new ones: the server cannot know them as duplicates.
    WindowForgets,
    /// Leases are given back by the network, before their holder has heard that they are asked for.
    LeaseNotRecalled,
    /// What is reserved of inode numbers is not kept: a restart begins with old ones.
    InodesReused,
    /// A segment's number that another writer has taken is believed to be one's own.
    FenceIgnored,
    /// Blocks are not stored, although that is said.
    BlockDropped,
    /// Blocks are not deleted, although that is said.
    GarbageKept,
    /// What a client wants to discard of its subtree is merged.
    DiscardMerges,
    /// Of each piece of a merge the first event does not arrive; the server is told that it did nothing.
    MergeLoses,
    /// Others may do what they like in subtrees that are kept from them: whoever decouples says that he allows it.
    BlockIgnored,
    /// What clients have answered by themselves does not arrive, although that is said.
    PromiseLost,
    /// The names of a directory are given back by the network while their holder still tells what he did there.
    PromiseLate,
    /// What clients declare at their greeting does not arrive: files with content that is not pushed, and directories with
    /// operations that are not answered.
    DeclarationLost,
    /// Every caller is taken for root.
    CallersAreRoot,
    /// Servers do not hear to which groups a caller belongs, and judge by the caller's own group.
    GroupsForgotten,
}

impl Canary {
    /// All of them.
    pub const ALL: [Canary; 15] = [
        Canary::FsyncSkipped,
        Canary::WindowForgets,
        Canary::LeaseNotRecalled,
        Canary::InodesReused,
        Canary::FenceIgnored,
        Canary::BlockDropped,
        Canary::GarbageKept,
        Canary::DiscardMerges,
        Canary::MergeLoses,
        Canary::BlockIgnored,
        Canary::PromiseLost,
        Canary::PromiseLate,
        Canary::DeclarationLost,
        Canary::CallersAreRoot,
        Canary::GroupsForgotten,
    ];
}
