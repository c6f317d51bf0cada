//! The smallest version of each figure of the thesis of FPFS goes through, and measures all that its page needs.

use std::path::Path;
use std::process::Command;

use chiton_figures::Setting;
use chiton_figures::figures::figure;

/// Runs a figure, and checks that each of these series has a value at each of these places.
fn measures(name: &str, series: &[&str], places: &[&str]) {
    let dir = tempfile::tempdir().expect("a folder");
    let setting = Setting::for_test(dir.path(), Path::new(env!("CARGO_BIN_EXE_chiton-figures")));
    let figure = figure(name).expect("it is there");
    (figure.run)(&setting).unwrap_or_else(|e| panic!("{name}: {e}"));
    let csv = std::fs::read_to_string(dir.path().join(format!("data/{name}.csv"))).expect("data");
    for series in series {
        let series = if series.contains(',') { format!("\"{series}\"") } else { (*series).to_owned() };
        for x in places {
            let found = csv.lines().any(|line| line.starts_with(&format!("{series},{x},0,")));
            assert!(found, "no {series} at {x} in\n{csv}");
        }
    }
    page(name, dir.path());
}

/// Makes the text and the tables of the page, not its drawings, which need a library that the tests do not install.
fn page(name: &str, out: &Path) {
    let program = "import sys, types\n\
        sys.modules['style'] = types.SimpleNamespace(plt=None, COLOURS=(), MARKERS='')\n\
        import importlib, series\n\
        module = importlib.import_module(sys.argv[1])\n\
        ours, paper = series.read(sys.argv[2]), series.paper(sys.argv[1])\n\
        assert 'nan' not in module.says(ours, paper), module.says(ours, paper)\n\
        assert module.baseline(ours, paper)\n\
        tables = [module.table(ours, paper)] if hasattr(module, 'table') else []\n\
        tables += module.more_tables(ours, paper) if hasattr(module, 'more_tables') else []\n\
        for heads, rows in tables: assert rows and all(len(row) == len(heads) for row in rows), rows\n";
    let plot = Path::new(env!("CARGO_MANIFEST_DIR")).join("plot");
    let ran = Command::new("python3")
        .args(["-B", "-c", program, name])
        .arg(out.join(format!("data/{name}.csv")))
        .current_dir(plot)
        .output()
        .expect("python3 is there: ./x installs it");
    assert!(ran.status.success(), "{name}: {}", String::from_utf8_lossy(&ran.stderr));
}

const OPERATIONS: [&str; 3] = ["create", "stat", "unlink"];

/// A series for each operation, alone and by batches, and each policy.
fn split(policies: &[&str], end: &str) -> Vec<String> {
    let names = OPERATIONS.map(|name| [name.to_owned(), format!("{name}, batches")]);
    let under =
        |name: &String| policies.iter().map(|huge| format!("{name}, {huge}, {end}")).collect::<Vec<_>>();
    names.as_flattened().iter().flat_map(under).collect()
}

fn texts(all: &[String]) -> Vec<&str> {
    all.iter().map(String::as_str).collect()
}

#[test]
fn fig4() {
    let names =
        ["HP trace", "creation of directories", "traversal of directories", "create-close", "stat", "utime"];
    let series = names.map(|name| format!("{name}, servers 1"));
    measures("fig4", &series.each_ref().map(String::as_str), &["2"]);
}

#[test]
fn tab5_1() {
    measures("tab5_1", &["Chiton"], &["1", "2"]);
}

#[test]
fn fig5_5() {
    let series =
        OPERATIONS.map(|name| [format!("{name}, one directory"), format!("{name}, private directories")]);
    let series: Vec<&str> = series.iter().flatten().map(String::as_str).collect();
    measures("fig5_5", &series, &["40", "80"]);
}

#[test]
fn fig5_6() {
    let series = split(&["never", "threshold", "always"], "40 files a server");
    measures("fig5_6", &texts(&series), &["1"]);
}

#[test]
fn fig5_16() {
    let series = OPERATIONS
        .map(|name| [name.to_owned(), format!("{name}, batches")])
        .as_flattened()
        .iter()
        .flat_map(|name| ["split", "unsplit", "both"].map(|kind| format!("{name}, {kind}")))
        .collect::<Vec<_>>();
    measures("fig5_16", &texts(&series), &["1"]);
}

#[test]
fn fig5_7() {
    measures("fig5_7", &["creates", "creates, split"], &["4", "80"]);
}

#[test]
fn fig5_12() {
    measures("fig5_12", &["never, servers 1", "threshold, servers 1", "always, servers 1"], &["2"]);
}

#[test]
fn tab5_3() {
    let series = split(&["never", "threshold", "always", "auto"], "servers 1");
    measures("tab5_3", &texts(&series), &["1"]);
}

#[test]
fn fig6_4() {
    let series =
        OPERATIONS.map(|name| ["never", "threshold"].map(|huge| format!("{name}, {huge}, servers 1")));
    measures("fig6_4", &texts(series.as_flattened()), &["1", "10", "50", "100", "500", "1000"]);
}

#[test]
fn scale() {
    let names = split(&["never", "always", "private"], "");
    let ends = [
        ("here", ""),
        ("here", ": model"),
        ("model", ""),
        ("model", ": servers"),
        ("model", ": busiest server"),
    ];
    let all = names
        .iter()
        .flat_map(|name| ends.map(|(start, end)| format!("{start}: {}{end}", name.trim_end_matches(", "))));
    let mut all = all.collect::<Vec<_>>();
    all.extend(["delay".to_owned(), "cost: create, always: message, server".to_owned()]);
    measures("scale", &texts(&all), &["1"]);
}

#[test]
fn fig6_6() {
    let series = OPERATIONS.map(|name| [format!("{name}, one by one"), format!("{name}, batches")]);
    let series: Vec<&str> = series.iter().flatten().map(String::as_str).collect();
    measures("fig6_6", &series, &["40", "80"]);
}
