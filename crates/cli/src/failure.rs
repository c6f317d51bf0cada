//! Why a command failed, and the exit code for scripts.

use std::fmt;
use std::process::ExitCode;

use chiton_fuse::MountError;
use chiton_server::{FormatError, StartError};

/// Exit codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// 1: the command failed.
    Failed = 1,
    /// 2: wrong usage, which clap did not notice.
    Usage = 2,
    /// 3: the object is in use, or another client holds it.
    Busy = 3,
    /// 4: nothing there: no such directory, not formatted, no server.
    Absent = 4,
    /// 6: a store failed in a way that does not heal while the process runs: a supervisor starts it again.
    Restart = 6,
    /// 5: a conflict that the policy does not resolve.
    Conflict = 5,
}

impl Class {
    /// The class of an exit code from another process of Chiton, or from a mount.
    pub(crate) fn of(exit_code: u8) -> Class {
        match exit_code {
            2 => Class::Usage,
            3 => Class::Busy,
            4 => Class::Absent,
            5 => Class::Conflict,
            6 => Class::Restart,
            _ => Class::Failed,
        }
    }
}

/// A failure: its class, and a message that says what to do next.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) class: Class,
    pub(crate) message: String,
}

pub(crate) type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(class: Class, message: impl Into<String>) -> Failure {
        Failure { class, message: message.into() }
    }

    pub(crate) fn failed(message: impl fmt::Display) -> Failure {
        Failure::new(Class::Failed, message.to_string())
    }

    pub(crate) fn usage(message: impl fmt::Display) -> Failure {
        Failure::new(Class::Usage, message.to_string())
    }

    pub(crate) fn absent(message: impl fmt::Display) -> Failure {
        Failure::new(Class::Absent, message.to_string())
    }

    pub(crate) fn conflict(message: impl fmt::Display) -> Failure {
        Failure::new(Class::Conflict, message.to_string())
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.class as u8)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<FormatError> for Failure {
    fn from(error: FormatError) -> Failure {
        let class = match error {
            FormatError::Formatted(_) | FormatError::NotEmpty(_) => Class::Busy,
            FormatError::Shards(_) | FormatError::Plates { .. } | FormatError::Failed(_) => Class::Failed,
        };
        Failure::new(class, error.to_string())
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Failure {
        let class = match error {
            StartError::Held { .. } => Class::Busy,
            StartError::NotFormatted(_) | StartError::Foreign(..) | StartError::NoPlate { .. } => {
                Class::Absent
            }
            _ => Class::Failed,
        };
        Failure::new(class, error.to_string())
    }
}

impl From<MountError> for Failure {
    fn from(error: MountError) -> Failure {
        let class = match error {
            MountError::NotEmpty(_)
            | MountError::AlreadyMounted(_)
            | MountError::Dead(_)
            | MountError::Busy(_) => Class::Busy,
            MountError::NotFound(_) | MountError::NotDir(_) => Class::Absent,
            _ => Class::Failed,
        };
        Failure::new(class, error.to_string())
    }
}
