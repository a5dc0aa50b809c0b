//! Rounding to e4m3 as the format has it, without tables.

/// The size of the largest number.
const LARGEST: f32 = 448.0;

/// The value of a byte of e4m3: sign, 4 bits of exponent with bias 7, 3 of mantissa; the last code is NaN.
pub fn value(byte: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(byte >> 3 & 15), f32::from(byte & 7));
    let size = match exponent {
        0 => mantissa * 2.0_f32.powi(-9),
        _ if byte & 127 == 127 => f32::NAN,
        _ => (8.0 + mantissa) * 2.0_f32.powi(exponent - 10),
    };
    if byte > 127 { -size } else { size }
}

/// The byte nearest to `x`, of two that are as near the one with an even mantissa; sizes above the largest are the largest.
pub fn rounded(x: f32) -> u8 {
    let off = |byte: &u8| (value(*byte) - x.abs().min(LARGEST)).abs();
    let nearest = (0..127_u8).min_by(|a, b| off(a).total_cmp(&off(b)).then((a & 1).cmp(&(b & 1))));
    nearest.unwrap() | if x.is_sign_negative() { 128 } else { 0 }
}

/// The numbers of a row, and its scale: a value is a number times that. The largest size is the largest number.
pub fn rounded_row(row: &[f32]) -> (Vec<u8>, f32) {
    let most = row.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    let scale = if most > 0.0 { most / LARGEST } else { 1.0 };
    (row.iter().map(|x| rounded(x / scale)).collect(), scale)
}

#[test]
fn numbers_are_rounded_like_the_format() {
    for (x, byte) in [
        (0.0, 0x00),
        (1.0, 0x38),
        (-2.0, 0xc0),
        (448.0, 0x7e),
        (1e9, 0x7e),
        (2.0_f32.powi(-6), 0x08),
        (2.0_f32.powi(-9), 0x01),
        (2.0_f32.powi(-10), 0x00),
        (1.0625, 0x38),
        (1.1875, 0x3a),
    ] {
        assert_eq!(rounded(x), byte, "{x}");
    }
    for byte in (0..=255_u8).filter(|byte| byte & 127 != 127 && *byte != 128) {
        assert_eq!(rounded(value(byte)), byte);
    }
}
