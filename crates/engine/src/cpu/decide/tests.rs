use super::*;
use crate::scheduler::decision::Decision;

#[test]
fn the_coordinate_wins_a_tie_with_the_end() {
    let bins = [0.0, 3.0, 0.0];
    let tie = coord_or_end(&bins, 1.5, 1.5);
    assert_eq!(Decision::of(tie), Some(Decision::Coord(1)));
    assert_eq!(tie.probability(), 0.5);
    let end = coord_or_end(&bins, 1.0, 2.0);
    assert!(matches!(end, PickResult::End { .. }), "{end:?}");
    assert!((end.probability() - 0.731_058_6).abs() < 1e-6);
}

#[test]
fn sharpness_is_the_mass_around_the_chosen_bin() {
    // Equal logits: five of eight bins around the middle, three at the edge.
    assert!((sharpness(&[1.0; 8], 4) - 5.0 / 8.0).abs() < 1e-6);
    assert!((sharpness(&[1.0; 8], 0) - 3.0 / 8.0).abs() < 1e-6);
    assert!((sharpness(&[1.0; 8], 7) - 3.0 / 8.0).abs() < 1e-6);
}

#[test]
fn a_size_is_as_sharp_as_its_worse_side() {
    let mut logits = vec![0.0; 2 * BINS];
    logits[17] = 30.0;
    let size = size(&logits, 1.0);
    assert_eq!(Decision::of(size), Some(Decision::Size(17, 0)));
    assert!((size.sharpness() - 3.0 / BINS as f32).abs() < 1e-6);
}

#[test]
fn the_largest_allowed_token_wins_and_the_lowest_of_equals() {
    let logits = [9.0, 2.0, 3.0, 3.0];
    let banned = |ids: &[u32]| token(&logits, AllowedTokens::AllBut(ids));
    assert_eq!([banned(&[]), banned(&[0]), banned(&[0, 2])], [0, 2, 3]);

    let mut mask = TokenMask::none(logits.len());
    for id in [1, 3] {
        mask.allow(id);
    }
    assert_eq!(token(&logits, AllowedTokens::Only(&mask)), 3);
    mask.allow(2);
    assert_eq!(token(&logits, AllowedTokens::Only(&mask)), 2);
}
