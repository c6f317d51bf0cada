//! Tools of administrators beside a server: check and repair, journals, dumps. Libraries; the command line is in
//! `cli`.

pub mod dump;
pub mod fsck;
pub mod growth;
pub mod journal;
pub mod salvage;

mod cut;
mod overlay;
mod plates;
mod view;

pub use overlay::Overlay;
pub use plates::RowsOfPlates;
pub use view::{Lost, View, ViewError};
