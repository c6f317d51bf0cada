use chiton_sim::orders::scenario::{PAIRS, LOOKS, Scenario, TRIPLES};
use chiton_sim::orders::{Broken, Commits, search, trace};

#[test]
fn probe() {
    for (shapes, plates, commits, broken) in [(PAIRS, 2, Commits::AtOnce, None), (LOOKS, 2, Commits::AnyTime, None),
      (LOOKS, 3, Commits::AtOnce, None),
      (PAIRS, 2, Commits::AtOnce, Some(Broken::GuardsLeftOut)),
      (PAIRS, 2, Commits::AtOnce, Some(Broken::TokenLeftOut)),
      (PAIRS, 3, Commits::AtOnce, None), (TRIPLES, 2, Commits::AtOnce, None)] {
        for shape in shapes {
            let begun = std::time::Instant::now();
            let (mut states, mut ends, mut n, mut most, mut cut, mut wrongs) = (0, 0, 0, 0, 0, 0);
            for scenario in Scenario::all(*shape, plates).step_by(if plates == 3 { 7 } else { 1 }) {
                let found = search(&scenario, commits, broken, 10_000);
                states += found.states; ends += found.ends; n += 1; most = most.max(found.states);
                cut += usize::from(found.is_cut_off);
                if let Some((wrong, steps)) = found.wrong {
                    wrongs += 1;
                    if broken.is_none() && wrongs == 1 {
                    for line in trace(&scenario, commits, None, &steps) { println!("  {line}"); }
                    println!("{scenario}: {wrong}"); }
                }
            }
            println!("SUM {} {plates} {commits:?} {broken:?}: {n} scenarios {states} states most {most} {ends} ends cut {cut} wrong {wrongs} in {:?}", shape.name, begun.elapsed());
        }
    }
}
