//! The outside at the time of a call: the engine has no clock and no disk of its own.

use std::time::Duration;

use chiton_types::{Position, Time};

/// Whether changes can be made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Health {
    /// The journal takes changes.
    #[default]
    Good,
    /// Not now: there is no space.
    Full,
    /// No more: the journal failed. The state is read-only until a restart.
    Failed,
}

/// State of the outside at the time of a call.
#[derive(Clone, Copy, Debug, Default)]
pub struct Moment {
    pub now: Time,
    pub mono: Duration,
    /// Everything up to here is durable.
    pub durable: Position,
    /// Whether changes can be made durable.
    pub health: Health,
    /// Checkpoints fail for lack of space: changes continue until too many rows are dirty, then they are refused.
    pub store_full: bool,
    /// A start would take as long as it may: changes wait for a checkpoint.
    pub budget_spent: bool,
    /// The disk is full but for the reserve: operations that need space are refused, those that give space back are not.
    pub tight: bool,
    /// The journal takes as much of the reserve as it may: the server's own work waits for a checkpoint, also while checkpoints fail.
    pub reserve_spent: bool,
}
