use chiton_sim::orders::scenario::{PAIRS, Scenario, TRIPLES};
use chiton_sim::orders::{Commits, search, trace};

#[test]
fn probe() {
    for (shapes, plates, commits) in [(PAIRS, 2, Commits::AtOnce), (PAIRS, 2, Commits::AnyTime), (TRIPLES, 3, Commits::AtOnce)] {
        for shape in shapes {
            let begun = std::time::Instant::now();
            let (mut states, mut ends, mut n, mut most) = (0, 0, 0, 0);
            for scenario in Scenario::all(*shape, plates).step_by(5) {
                let found = search(&scenario, commits, None, 30_000);
                states += found.states; ends += found.ends; n += 1; most = most.max(found.states);
                if let Some((wrong, steps)) = found.wrong {
                    for line in trace(&scenario, commits, None, &steps) { println!("  {line}"); }
                    println!("{scenario}: {wrong}");
                }
            }
            println!("{} {plates} {commits:?}: {n} scenarios {states} states most {most} {ends} ends in {:?}", shape.name, begun.elapsed());
        }
    }
}
