//! The figures and tables of the thesis of FPFS (chapters 4 to 6). One file for each.
//!
//! They do not use directories with parts yet. So those that compare a distributed directory with another are left out (5.6, 5.9, 5.13, 5.15, 5.16, 6.5,
//! 6.7, 6.9, 6.10), and of the others the columns of "dynamic" and "always".

mod fig4;
mod fig5_12;
mod fig5_5;
mod fig5_7;
mod fig6_4;
mod fig6_6;
mod tab5_1;
mod tab5_3;

use crate::figures::Figure;

/// All of them, in the order in which they are measured.
pub const FIGURES: &[Figure] = &[
    Figure { name: "fig4", about: "HP trace, creation and traversal of trees, metarates", run: fig4::run },
    Figure { name: "tab5_1", about: "creates in one directory, and local file systems", run: tab5_1::run },
    Figure {
        name: "fig5_5",
        about: "one shared directory of several sizes, and private ones",
        run: fig5_5::run,
    },
    Figure { name: "fig5_7", about: "creates over time as a directory grows", run: fig5_7::run },
    Figure { name: "fig5_12", about: "mdtest: 100 files of each process", run: fig5_12::run },
    Figure {
        name: "tab5_3",
        about: "eight directories at once, one by one and by batches",
        run: tab5_3::run,
    },
    Figure { name: "fig6_4", about: "operations in a batch", run: fig6_4::run },
    Figure { name: "fig6_6", about: "batches in one directory of several sizes", run: fig6_6::run },
];

/// The clients of tables and figures of which the thesis has 256.
pub(crate) fn many(setting: &crate::Setting) -> usize {
    setting.scale.pick(2, 16, 64)
}

/// Repetitions. The thesis has five.
pub(crate) fn runs(setting: &crate::Setting) -> usize {
    setting.scale.pick(1, 2, 5)
}
