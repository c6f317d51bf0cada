//! The arithmetic behind the plots, which is Python without libraries.

use std::path::Path;
use std::process::Command;

#[test]
fn means_deviations_ratios_and_the_paper_s_points() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("plot");
    let out = Command::new("python3")
        .args(["-B", "-m", "unittest"])
        .current_dir(dir)
        .output()
        .expect("python3 is there: ./x installs it");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}
