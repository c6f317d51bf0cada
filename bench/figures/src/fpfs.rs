//! The figures and tables of the thesis of FPFS (chapters 4 to 6). One file for each group that has one measurement.

mod fig4;
mod fig5_12;
mod fig5_16;
mod fig5_5;
mod fig5_6;
mod fig5_7;
mod fig6_4;
mod fig6_6;
mod scale;
mod tab5_1;
mod tab5_3;

use crate::figures::Figure;
use crate::huge::Huge;

/// All of them, in the order in which they are measured.
pub const FIGURES: &[Figure] = &[
    Figure { name: "fig4", about: "HP trace, creation and traversal of trees, metarates", run: fig4::run },
    Figure { name: "tab5_1", about: "creates in one directory, and local file systems", run: tab5_1::run },
    Figure {
        name: "fig5_5",
        about: "one shared directory of several sizes, and private ones",
        run: fig5_5::run,
    },
    Figure { name: "fig5_6", about: "one shared directory, split and unsplit, by servers", run: fig5_6::run },
    Figure { name: "fig5_7", about: "creates over time as a directory grows", run: fig5_7::run },
    Figure {
        name: "fig5_12",
        about: "mdtest: 100 files of each process, split and unsplit",
        run: fig5_12::run,
    },
    Figure {
        name: "tab5_3",
        about: "eight directories at once, split and unsplit, one by one and by batches",
        run: tab5_3::run,
    },
    Figure { name: "fig5_16", about: "a split directory and an unsplit one at once", run: fig5_16::run },
    Figure { name: "fig6_4", about: "operations in a batch", run: fig6_4::run },
    Figure { name: "fig6_6", about: "batches in one directory of several sizes", run: fig6_6::run },
    Figure {
        name: "scale",
        about: "a model of up to 300 servers, with costs measured here",
        run: scale::run,
    },
];

/// The policies that the thesis compares. Its "dynamic" is `threshold`.
pub(crate) const COMPARED: [Huge; 3] = [Huge::Never, Huge::Threshold, Huge::Always];

/// The clients of tables and figures of which the thesis has 256.
pub(crate) fn many(setting: &crate::Setting) -> usize {
    setting.scale.pick(2, 16, 64)
}

/// The numbers of servers for figures with so many configurations that the smallest has one server only.
pub(crate) fn several(setting: &crate::Setting) -> &'static [usize] {
    let counts = crate::servers::counts(setting);
    setting.scale.pick(&counts[..1], counts, counts)
}

/// Repetitions. The thesis has five.
pub(crate) fn runs(setting: &crate::Setting) -> usize {
    setting.scale.pick(1, 2, 5)
}
