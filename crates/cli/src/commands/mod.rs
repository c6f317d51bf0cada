//! One file a command.

pub(crate) mod auth;
pub(crate) mod branch;
pub(crate) mod cluster;
pub(crate) mod completions;
pub(crate) mod conformance;
pub(crate) mod df;
pub(crate) mod dump;
pub(crate) mod flush;
pub(crate) mod format;
pub(crate) mod fsck;
pub(crate) mod jobs;
pub(crate) mod journal;
pub(crate) mod mount;
pub(crate) mod policy;
pub(crate) mod realm;
pub(crate) mod serve;
pub(crate) mod status;
pub(crate) mod top;
pub(crate) mod trees;
pub(crate) mod umount;
pub(crate) mod view;
