//! Bins of the region decoders and the values they stand for (docs/moondream.md section 7, the reference's rules).

/// Bins of a coordinate, of a width and of a height.
pub const BINS: usize = 1024;

/// Share of the picture that a coordinate bin means: `bin / 1024`, so 0 to 0.999.
pub fn coord_from_bin(bin: u16) -> f64 {
    f64::from(bin) / BINS as f64
}

/// Share of the picture that a size bin means: `2^(bin/1023*10 - 10)`, so 1/1024 to 1.
pub fn size_from_bin(bin: u16) -> f64 {
    (f64::from(bin) / (BINS - 1) as f64 * 10.0 - 10.0).exp2()
}

/// The nearest coordinate bin; values outside of the picture go to its edge.
pub fn bin_from_coord(coord: f64) -> u16 {
    (coord * BINS as f64).round().clamp(0.0, (BINS - 1) as f64) as u16
}

/// The nearest size bin on the logarithmic scale; sizes below 1/1024 go to bin 0.
pub fn bin_from_size(size: f64) -> u16 {
    let scaled = (size.max(1.0 / 1024.0).log2() + 10.0) / 10.0;
    (scaled * (BINS - 1) as f64)
        .round()
        .clamp(0.0, (BINS - 1) as f64) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        // A coordinate that the reference's public examples show.
        assert_eq!(coord_from_bin(451), 0.4404296875);
        assert_eq!((size_from_bin(0), size_from_bin(1023)), (1.0 / 1024.0, 1.0));
    }

    #[test]
    fn each_bin_converts_to_a_value_and_back() {
        for bin in 0..BINS as u16 {
            assert_eq!(bin_from_coord(coord_from_bin(bin)), bin);
            assert_eq!(bin_from_size(size_from_bin(bin)), bin);
        }
        assert_eq!((bin_from_coord(-1.0), bin_from_coord(2.0)), (0, 1023));
        assert_eq!((bin_from_size(0.0), bin_from_size(7.0)), (0, 1023));
    }
}
