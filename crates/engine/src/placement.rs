//! Where a directory is born: weighted straw2 over the shards, as CRUSH draws its straws.
//!
//! Invariants:
//! - Pure: the same key and weights give the same shard, everywhere.
//! - Changing one weight moves keys only to or from that shard.

use chiton_types::{Ino, ShardId};

/// Key of a directory that is about to be born under a name with this hash.
pub(crate) fn birth_key(parent: Ino, name_hash: u64) -> u64 {
    mix(parent.0 ^ mix(name_hash))
}

/// The shard whose straw is longest. A shard of weight 0 is never drawn.
///
/// Straw2: `ln(u) / weight` with `u` in (0, 1] drawn by hashing key and shard; the largest wins. With equal weights
/// that is the largest `u`, so the logarithms are spared.
///
/// # Panics
/// If no shard has a weight.
pub(crate) fn draw_shard(key: u64, weights: &[u32]) -> ShardId {
    let draw = |shard: usize| mix(key ^ mix(shard as u64 + 1));
    let even = weights.windows(2).all(|pair| pair[0] == pair[1]);
    let shards = (0..weights.len()).filter(|&shard| weights[shard] > 0);
    let chosen = if even {
        shards.max_by_key(|&shard| draw(shard))
    } else {
        let straw = |shard: usize| {
            let u = ((draw(shard) >> 11) + 1) as f64 / (1u64 << 53) as f64;
            u.ln() / f64::from(weights[shard])
        };
        shards.max_by(|&a, &b| straw(a).total_cmp(&straw(b)))
    };
    ShardId(chosen.expect("at least one shard has a weight") as u16)
}

/// The finisher of SplitMix64.
fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(weights: &[u32]) -> Vec<u32> {
        let mut counts = vec![0; weights.len()];
        for n in 0..40_000 {
            counts[draw_shard(birth_key(Ino(n), 7), weights).0 as usize] += 1;
        }
        counts
    }

    #[test]
    fn shares_follow_weights() {
        let check = |weights: &[u32]| {
            let total: u32 = weights.iter().sum();
            for (count, weight) in shares(weights).iter().zip(weights) {
                let expect = 40_000 * weight / total;
                assert!(count.abs_diff(expect) <= expect / 10, "{weights:?}: {count} instead of {expect}");
            }
        };
        check(&[1; 4]);
        check(&[100, 100, 200, 0]);
    }

    #[test]
    fn a_new_weight_moves_only_what_it_must() {
        let (before, after) = ([100, 100, 100], [100, 100, 300]);
        for n in 0..5_000 {
            let key = birth_key(Ino(n), 1);
            let (from, to) = (draw_shard(key, &before), draw_shard(key, &after));
            assert!(from == to || to == ShardId(2), "{key} moved from {from} to {to}");
        }
    }
}
