//! The example in docs/library.md works.

use crate::site::Site;

#[path = "../../../../examples/library/job.rs"]
mod job;

#[test]
fn the_example_of_a_job_works() {
    // With the words of the command line.
    let _: fn() -> Result<(), Box<dyn std::error::Error>> = job::main;
    let site = Site::new();
    let words = [site.address().to_string(), site.state_dir()];
    let mut said = Vec::new();
    job::job(words.into_iter(), &mut |line| said.push(line)).expect("it works");
    assert_eq!(said, ["before the merge: device or resource busy", "after the merge: 100 files"]);
    assert_eq!(site.connected().client.read_file("/results/part-99"), Ok(b"result 99\n".to_vec()));
    let usage = job::job(std::iter::empty(), &mut |_| {}).expect_err("no address");
    assert!(usage.to_string().starts_with("usage"), "{usage}");
}
