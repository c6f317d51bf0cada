//! Rules that are broken on purpose: a checker that does not see them is worth nothing.

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Canary {
    /// The journal's sync returns without having synced.
    FsyncSkipped,
    /// Operations that are sent again come as new ones: the server cannot know them as duplicates.
    DedupForgets,
    /// The network releases leases before their holder has received the recall.
    LeaseNotRecalled,
    /// Reservations of inode numbers are lost: a restart hands out old numbers.
    InodesReused,
    /// A segment's number that another writer has taken is believed to be one's own.
    FenceIgnored,
    /// Blocks are reported as stored, and are not.
    BlockDropped,
    /// Blocks are reported as deleted, and are not.
    GarbageKept,
    /// A discard merges instead.
    DiscardMerges,
    /// The first event of each piece of a merge is replaced by one without effect.
    MergeLoses,
    /// A decoupling's policy allows others to interfere, although it says otherwise.
    BlockIgnored,
    /// The network answers pending operations, and the server never gets them.
    PendingLost,
    /// The network releases the lease on a directory's names while its holder still sends operations there.
    PendingLate,
    /// The declarations in a client's greeting are dropped: files with buffered content, and directories with
    /// pending operations.
    DeclarationLost,
    /// Every caller is taken for root.
    CallersAreRoot,
    /// Servers do not hear to which groups a caller belongs, and judge by the caller's own group.
    GroupsForgotten,
}

impl Canary {
    pub const ALL: [Canary; 15] = [
        Canary::FsyncSkipped,
        Canary::DedupForgets,
        Canary::LeaseNotRecalled,
        Canary::InodesReused,
        Canary::FenceIgnored,
        Canary::BlockDropped,
        Canary::GarbageKept,
        Canary::DiscardMerges,
        Canary::MergeLoses,
        Canary::BlockIgnored,
        Canary::PendingLost,
        Canary::PendingLate,
        Canary::DeclarationLost,
        Canary::CallersAreRoot,
        Canary::GroupsForgotten,
    ];
}
