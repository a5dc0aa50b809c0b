use std::path::Path;

use proptest::prelude::*;
use sha2::{Digest, Sha256};

use super::*;
use crate::{
    model::{files::hex, rgb_from_picture},
    testing::{
        golden_model::{config, picture},
        golden_set, golden_tests, json,
    },
};

golden_tests!(crops_are_bit_equal_to_the_golden_ones);

/// The crops of an image of a set.
fn crops_of(set: &Path, name: &str) -> Crops {
    crops(&picture(set, name), &config(set).vision)
}

/// Golden files hold the crop of a single tile twice.
fn as_golden(crops: &Crops) -> Vec<u8> {
    match crops.encoded {
        1 => crops.bytes.repeat(2),
        _ => crops.bytes.clone(),
    }
}

/// Compares with the picture of the golden crops, so that a failure says where it begins.
fn assert_same_pixels(set: &Path, name: &str, got: &[u8]) {
    let path = set.join(format!("expected/crops/{name}.pil.png"));
    let want = rgb_from_picture(&spotter_pictures::read(&path).unwrap());
    assert_eq!(got.len(), want.len(), "{}", path.display());
    let first = got.iter().zip(&want).position(|(a, b)| a != b);
    assert_eq!(first, None, "{}: first differing byte", path.display());
}

fn crops_are_bit_equal_to_the_golden_ones(set: &Path) {
    let expected = json(&set.join("expected/preprocess.json"));
    let images = expected["images"].as_object().unwrap();
    assert!(!images.is_empty());
    for (name, image) in images {
        let crops = crops_of(set, name);
        let tiling = [crops.tiling.rows, crops.tiling.cols];
        assert_eq!(serde_json::json!(tiling), image["tiling"], "{name}");
        let got = as_golden(&crops);
        assert_same_pixels(set, name, &got);
        let hash = hex(&Sha256::digest(&got));
        let want = &expected["resizers"][format!("{name}.pil")]["sha256"];
        assert_eq!(want, hash.as_str(), "{name}");
    }
}

#[test]
fn crops_at_true_size_are_bit_equal_too() {
    let set = golden_set("md2-full");
    let expected = json(&set.join("expected/full.json"));
    for (name, image) in expected["images"].as_object().unwrap() {
        let got = as_golden(&crops_of(&set, name));
        assert_same_pixels(&set, name, &got);
        let hash = hex(&Sha256::digest(&got));
        assert_eq!(image["crops_sha256"], hash.as_str(), "{name}");
    }
}

#[test]
fn local_crops_overlap_by_two_margins() {
    let vision = VisionConfig::default();
    let (width, height) = (1920, 1080);
    let noise = (0..width * height * 3).map(|i: usize| (i.wrapping_mul(2_654_435_761) >> 13) as u8);
    let picture = Picture::from_rgb(width, height, noise.collect()).unwrap();
    let crops = crops(&picture, &vision);
    assert_eq!((crops.tiling.rows, crops.tiling.cols), (2, 4));
    assert_eq!(crops.tiling.resized(&vision), (1176, 644));
    let (row, shift) = (378 * 3, 266 * 3);
    let (left, right) = (crops.crop(1), crops.crop(2));
    for y in 0..378 {
        assert_eq!(
            left[y * row..][shift..row],
            right[y * row..][..row - shift],
            "row {y}"
        );
    }
    assert_eq!(crops.crop(1)[266 * row..], crops.crop(5)[..112 * row]);
}

#[test]
fn normalise_table_is_the_reference_s() {
    let tensors = crate::testing::tensors(&golden_set("ops").join("ops.safetensors"));
    let want = &tensors["normalise.f32"].1;
    assert_eq!(want.len(), 256);
    for (byte, (got, want)) in normalise_table().iter().zip(want).enumerate() {
        assert_eq!(got.to_bits(), want.to_bits(), "byte {byte}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(spotter_core::testing::cases(40)))]

    /// A picture of one colour stays so at every size, and the numbers of crops and bytes agree.
    #[test]
    fn one_colour_stays_one_colour(
        width in 1usize..900, height in 1usize..900, colour in any::<[u8; 3]>()
    ) {
        let vision = VisionConfig { crop_size: 84, overlap_margin: 1, ..VisionConfig::default() };
        let picture = Picture::from_rgb(width, height, colour.repeat(width * height)).unwrap();
        let crops = crops(&picture, &vision);
        let tiles = crops.tiling.rows * crops.tiling.cols;
        prop_assert_eq!(crops.encoded, if tiles == 1 { 1 } else { 1 + tiles });
        prop_assert_eq!(crops.bytes.len(), crops.encoded * 84 * 84 * 3);
        prop_assert!(crops.bytes.chunks_exact(3).all(|pixel| pixel == colour));
    }
}
