//! Input that is nearly right: valid input with a few changes.

/// Random numbers from a seed (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n`, which is at least 1.
    pub fn below(&mut self, n: usize) -> usize {
        (self.draw() % n as u64) as usize
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.draw() as u8).collect()
    }
}

/// Numbers that often break readers.
const EDGES: [u64; 12] =
    [0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 1 << 48, u64::MAX >> 1, u64::MAX];
const BYTES_MAX: usize = 1 << 16;

/// Changes `bytes` in a few places; `other` is another valid input.
pub fn mutate(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len() + 1);
        match random.below(9) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 if at < bytes.len() => bytes[at] = random.draw() as u8,
            2 => put(bytes, at, &EDGES[random.below(EDGES.len())].to_le_bytes()[..1 << random.below(4)]),
            3 => put(bytes, at, &EDGES[random.below(EDGES.len())].to_be_bytes()[..1 << random.below(4)]),
            // A number of variable length, long or endless.
            4 => {
                let len = 1 + random.below(11);
                put(bytes, at, &vec![0x80 | random.draw() as u8; len]);
            }
            5 => bytes.truncate(at),
            6 => drop(bytes.drain(at..(at + random.below(16)).min(bytes.len()))),
            7 => {
                let from = random.below(other.len() + 1);
                let piece = other[from..(from + random.below(64)).min(other.len())].to_vec();
                bytes.splice(at..at, piece);
            }
            _ => {
                let piece = bytes[at..(at + random.below(64)).min(bytes.len())].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes.truncate(BYTES_MAX);
}

fn put(bytes: &mut [u8], at: usize, what: &[u8]) {
    for (to, from) in bytes.iter_mut().skip(at).zip(what) {
        *to = *from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_input_again_and_inputs_differ() {
        let make = |seed| {
            let mut bytes = vec![7; 40];
            mutate(&mut bytes, &[9; 30], &mut Random(seed));
            bytes
        };
        let made: std::collections::BTreeSet<_> = (0..200).map(make).collect();
        assert!(made.len() > 150, "only {} inputs", made.len());
        assert_eq!(make(3), make(3));
    }
}
