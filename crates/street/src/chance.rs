//! Seeded random generators: every use has a stream of its own, so that a new draw in one place changes no other.

use rand::SeedableRng;
use rand_pcg::Pcg32;

/// Ground of a backdrop; sky, houses and marks have their own streams, because the sky changes with the time while
/// the houses stay.
pub(super) const GROUND: u64 = 1;
/// Sun, moon, clouds.
pub(super) const SKY: u64 = 5;
/// Houses and trees at the far end.
pub(super) const HOUSES: u64 = 6;
/// Marks and stains on the ground.
pub(super) const MARKS: u64 = 7;
pub(super) const LENS: u64 = 8;
pub(super) const SCENE: u64 = 2;
/// What passes through the live street.
pub(super) const STREET: u64 = 3;
/// Questions for a truth.
pub(super) const QUESTIONS: u64 = 4;

/// A generator for one `stream` of `seed`. Seeds that are neighbours give unrelated draws.
pub(super) fn rng(seed: u64, stream: u64) -> Pcg32 {
    Pcg32::seed_from_u64(mix(seed ^ stream.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
}

/// Spreads every bit over all others (the finalizer of SplitMix64, Steele, Lea and Flood 2014).
pub(super) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}
