//! `./x figures cudele`, `./x figures fpfs`: a paper's evaluation, measured on this machine and drawn beside the paper's points.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::run::{Result, build_release, captured, root, shown, target};
use crate::stopwatch::Stopwatch;

const USAGE: &str = "usage: ./x figures cudele|fpfs [--small] [--out DIR] [FIGURE]...";

const CUDELE: &str = "cudele";
const PAPERS: [&str; 2] = [CUDELE, "fpfs"];

/// The figures in the arguments.
#[derive(Debug, Default, PartialEq)]
struct Wanted {
    paper: &'static str,
    small: bool,
    out: Option<PathBuf>,
    figures: Vec<String>,
}

pub(crate) fn run(args: &[String]) -> Result<()> {
    let wanted = parse(args)?;
    let clock = Stopwatch::start();
    let python = python()?;
    let is_all = wanted.paper == CUDELE && wanted.figures.is_empty();
    if is_all || wanted.figures.iter().any(|name| name == "updatedb") {
        plocate();
    }
    let is_baseline = wanted.paper != CUDELE
        && (wanted.figures.is_empty() || wanted.figures.iter().any(|name| name == "tab5_1"));
    let path = if is_baseline { juicefs() } else { None };
    println!("figures: building (release)");
    build_release(&["--package", "chiton", "--package", "chiton-figures"])?;
    let out = wanted.out.unwrap_or_else(|| target().join("figures").join(wanted.paper));
    println!("figures: measuring (the machine should have nothing else to do)");
    let mut measure = Command::new(target().join("release/chiton-figures"));
    measure
        .args(["measure", "--paper", wanted.paper])
        .arg("--out")
        .arg(&out)
        .arg("--work")
        .arg(target().join("figures/work"));
    if let Some(path) = path {
        measure.env("PATH", path);
    }
    if wanted.small {
        measure.arg("--small");
    }
    shown(measure.args(&wanted.figures))?;
    println!("figures: drawing");
    shown(Command::new(python).arg(plot().join("draw.py")).arg(wanted.paper).arg(&out))?;
    println!("figures: {:.0} s; open {}", clock.seconds(), out.join("index.html").display());
    Ok(())
}

fn parse(args: &[String]) -> Result<Wanted> {
    let mut wanted = Wanted::default();
    let mut args = args.iter();
    let paper = args.next().and_then(|word| PAPERS.into_iter().find(|paper| paper == word));
    wanted.paper = paper.ok_or(USAGE)?;
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--small" => wanted.small = true,
            "--out" => {
                let dir = std::path::absolute(args.next().ok_or(USAGE)?);
                wanted.out = Some(dir.map_err(|e| format!("--out: {e}"))?);
            }
            other if other.starts_with('-') => return Err(format!("{other} is not known\n{USAGE}")),
            name => wanted.figures.push(name.into()),
        }
    }
    Ok(wanted)
}

fn plot() -> PathBuf {
    root().join("bench/figures/plot")
}

/// Python with the libraries for the plots.
fn python() -> Result<PathBuf> {
    Ok(installed("figures/venv", &plot().join("requirements.txt"))?.join("python"))
}

/// The folder of the programs of a virtual environment, which is created if necessary.
fn installed(name: &str, requirements: &Path) -> Result<PathBuf> {
    let needs = fs::read_to_string(requirements).map_err(|e| format!("{}: {e}", requirements.display()))?;
    let venv = target().join(name);
    let (python, complete) = (venv.join("bin/python"), venv.join("complete"));
    // It is a link to the system's interpreter, which may be another one than it was.
    if python.exists() && fs::read_to_string(&complete).is_ok_and(|found| found == needs) {
        return Ok(venv.join("bin"));
    }
    println!("figures: installing {} into {}", needs.trim(), venv.display());
    captured(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]).arg(requirements);
    captured(&mut pip)?;
    write(&complete, &needs)?;
    Ok(venv.join("bin"))
}

/// The search path with JuiceFS in front. The figure says what is missing without it.
fn juicefs() -> Option<OsString> {
    Command::new("redis-server").arg("--version").output().ok()?;
    let programs = installed("figures/juicefs", &root().join("bench/figures/juicefs.txt"));
    let programs = programs
        .inspect_err(|error| {
            println!("figures: tab5_1 without JuiceFS, which could not be installed: {error}")
        })
        .ok()?;
    let others = std::env::var_os("PATH").unwrap_or_default();
    std::env::join_paths(std::iter::once(programs).chain(std::env::split_paths(&others))).ok()
}

/// Installs plocate for one figure, which is skipped if that fails.
fn plocate() {
    let version = Command::new("plocate").arg("--version").output();
    if version.is_ok() {
        return;
    }
    println!("figures: installing plocate");
    let install = || -> Result<String> {
        captured(Command::new("apt-get").args(["update", "-qq"]))?;
        let mut apt = Command::new("apt-get");
        apt.env("DEBIAN_FRONTEND", "noninteractive");
        captured(apt.args(["install", "-y", "-qq", "--no-install-recommends", "plocate"]))
    };
    if let Err(error) = install() {
        println!("figures: without updatedb, which needs plocate: install it and run this again ({error})");
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for() {
        let words = |text: &str| text.split_whitespace().map(String::from).collect::<Vec<_>>();
        for paper in PAPERS {
            assert_eq!(parse(&words(paper)), Ok(Wanted { paper, ..Wanted::default() }));
        }
        let wanted = parse(&words("cudele --small --out /tmp/f fig6a fig5")).expect("understood");
        assert!(wanted.small);
        assert_eq!(wanted.out, Some("/tmp/f".into()));
        assert_eq!(wanted.figures, ["fig6a", "fig5"]);
        for wrong in ["", "fig6a", "cudele --out", "cudele --quick"] {
            assert!(parse(&words(wrong)).is_err(), "{wrong}");
        }
    }
}
