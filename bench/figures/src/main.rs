//! `chiton-figures`: measures the figures that are named, or all of them, and writes CSV. Drawn by `plot/`.

use std::path::PathBuf;
use std::process::ExitCode;

use chiton_figures::figures::Figure;
use chiton_figures::{Result, Scale, ServeArgs, Setting, figures, fpfs, serve};
use clap::{Parser, Subcommand, ValueEnum};

/// Measures the figures of the Cudele paper, or of the thesis of FPFS.
#[derive(Parser)]
#[command(after_help = "Example:\n  chiton-figures measure --small --out /tmp/figures fig6a")]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Clone, Copy, ValueEnum)]
enum Paper {
    Cudele,
    Fpfs,
}

impl Paper {
    fn figures(self) -> &'static [Figure] {
        match self {
            Paper::Cudele => figures::FIGURES,
            Paper::Fpfs => fpfs::FIGURES,
        }
    }
}

#[derive(Subcommand)]
enum What {
    /// List the figures, and what each shows.
    List {
        /// Whose figures.
        #[arg(long, value_enum, default_value_t = Paper::Cudele)]
        paper: Paper,
    },
    /// Measure and write data/NAME.csv and policies/.
    Measure {
        /// Which ones; all of the paper if none is named.
        names: Vec<String>,
        /// Whose figures.
        #[arg(long, value_enum, default_value_t = Paper::Cudele)]
        paper: Paper,
        /// The whole in a few minutes rather than as the paper measured.
        #[arg(long)]
        small: bool,
        /// Where data/ and policies/ are made.
        #[arg(long)]
        out: PathBuf,
        /// Where file systems are made and removed. Without it, in OUT/work.
        #[arg(long)]
        work: Option<PathBuf>,
    },
    /// A server for a figure, until standard input ends.
    #[command(hide = true)]
    Serve(ServeArgs),
}

fn main() -> ExitCode {
    chiton_bench::tasks::child_main_if_requested();
    match run(Arguments::parse().what) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("chiton-figures: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(what: What) -> Result<()> {
    match what {
        What::List { paper } => {
            paper.figures().iter().for_each(|figure| println!("{:10} {}", figure.name, figure.about));
            Ok(())
        }
        What::Measure { names, paper, small, out, work } => {
            let wanted = wanted(&names, paper)?;
            let setting = Setting {
                scale: if small { Scale::Small } else { Scale::Full },
                work: work.unwrap_or_else(|| out.join("work")),
                out,
                program: std::env::current_exe()?,
                report: |text| eprintln!("{text}"),
            };
            setting.describe()?;
            for (at, figure) in wanted.iter().enumerate() {
                setting.say(format!("{} of {}: {}, {}", at + 1, wanted.len(), figure.name, figure.about));
                (figure.run)(&setting)?;
            }
            Ok(())
        }
        What::Serve(args) => serve(&args),
    }
}

fn wanted(names: &[String], paper: Paper) -> Result<Vec<&'static Figure>> {
    let find = |name: &String| {
        let known = || paper.figures().iter().map(|figure| figure.name).collect::<Vec<_>>().join(", ");
        let found = paper.figures().iter().find(|figure| figure.name == name);
        found.ok_or_else(|| format!("there is no figure {name:?}: {}", known()).into())
    };
    if names.is_empty() { Ok(paper.figures().iter().collect()) } else { names.iter().map(find).collect() }
}
