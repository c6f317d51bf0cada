//! `chiton-figures`: measures the figures that are named, or all of them, and writes CSV. Drawn by `plot/`.

use std::path::PathBuf;
use std::process::ExitCode;

use chiton_figures::figures::{FIGURES, Figure, figure};
use chiton_figures::{Result, Scale, ServeArgs, Setting, serve};
use clap::{Parser, Subcommand};

/// Measures the figures of the Cudele paper.
#[derive(Parser)]
#[command(after_help = "Example:\n  chiton-figures measure --small --out /tmp/figures fig6a")]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// List the figures, and what each shows.
    List,
    /// Measure and write data/NAME.csv and policies/.
    Measure {
        /// Which ones; all if none is named.
        names: Vec<String>,
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
        What::List => {
            FIGURES.iter().for_each(|figure| println!("{:10} {}", figure.name, figure.about));
            Ok(())
        }
        What::Measure { names, small, out, work } => {
            let wanted = wanted(&names)?;
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

fn wanted(names: &[String]) -> Result<Vec<&'static Figure>> {
    let find = |name: &String| {
        let known = || FIGURES.iter().map(|figure| figure.name).collect::<Vec<_>>().join(", ");
        figure(name).ok_or_else(|| format!("there is no figure {name:?}: {}", known()).into())
    };
    if names.is_empty() { Ok(FIGURES.iter().collect()) } else { names.iter().map(find).collect() }
}
