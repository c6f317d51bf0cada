//! One file for each figure. The paper is Cudele (IPDPS 2018); fig8, fig9, fig13 and updatedb are those that only its draft has.

mod coexist;
mod fig13;
mod fig2;
mod fig3a;
mod fig3b;
mod fig3c;
mod fig5;
mod fig6a;
mod fig6b;
mod fig6c;
mod fig8;
mod fig9;
mod updatedb;

use crate::{Result, Setting};

/// A figure that can be measured.
#[derive(Clone, Copy)]
pub struct Figure {
    /// As the paper counts it, or its draft.
    pub name: &'static str,
    /// A description in one line.
    pub about: &'static str,
    /// Measures, and writes `data/<name>.csv`.
    pub run: fn(&Setting) -> Result<()>,
}

/// All of them, in the order in which they are measured.
pub const FIGURES: &[Figure] = &[
    Figure { name: "fig2", about: "what a job asks of the server", run: fig2::run },
    Figure { name: "fig3a", about: "what the server's journal costs", run: fig3a::run },
    Figure { name: "fig3b", about: "interference: the slowest client", run: fig3b::run },
    Figure { name: "fig3c", about: "interference: requests over time", run: fig3c::run },
    Figure { name: "fig5", about: "cost of every mechanism and of composed systems", run: fig5::run },
    Figure { name: "fig6a", about: "parallel creates: rpcs, decoupled, decoupled + merge", run: fig6a::run },
    Figure { name: "fig6b", about: "interference, allowed and blocked", run: fig6b::run },
    Figure { name: "fig6c", about: "merges at intervals while a job works", run: fig6c::run },
    Figure { name: "fig8", about: "a second command in the directory of a job", run: fig8::run },
    Figure { name: "fig9", about: "variability by what another client does", run: fig9::run },
    Figure {
        name: "fig13",
        about: "create, save, persist and apply, by the number of files",
        run: fig13::run,
    },
    Figure { name: "updatedb", about: "updatedb beside a client that creates", run: updatedb::run },
    Figure { name: "coexist", about: "four jobs under four policies at once", run: coexist::run },
];

/// A figure of either paper.
pub fn figure(name: &str) -> Option<&'static Figure> {
    FIGURES.iter().chain(crate::fpfs::FIGURES).find(|figure| figure.name == name)
}
