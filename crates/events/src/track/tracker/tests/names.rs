//! Track ids when boxes are misleading. The embedded model found these boxes in the drawn street.
//!
//! Faults: H7.

use std::collections::BTreeSet;

use super::*;

type Sides = [f64; 4];

/// The track ids of the boxes of each look, in their order. There is one look every `pause_s` seconds.
fn names(pause_s: f64, looks: &[Vec<Sides>]) -> Vec<Vec<String>> {
    let mut tracker = tracker(camera());
    let mut name = |(index, boxes): (usize, &Vec<Sides>)| {
        let found = |&[x0, y0, x1, y1]: &Sides| found(x0, y0, x1, y1, 0.9);
        let boxes = boxes.iter().map(found).collect();
        let tracks = tracks(&see(&mut tracker, index as f64 * pause_s, boxes));
        tracks.iter().map(TrackId::to_string).collect()
    };
    looks.iter().enumerate().map(&mut name).collect()
}

/// The number of different track ids.
fn different(names: &[Vec<String>]) -> usize {
    let all: BTreeSet<&String> = names.iter().flatten().collect();
    all.len()
}

#[test]
fn odd_boxes_of_one_object_are_one_track() {
    let walks = |x0: f64| vec![[x0, 0.700, x0 + 0.105, 0.843]];
    let rides = |x0: f64| vec![[x0, 0.517, x0 + 0.070, 0.765]];
    // A cat walks behind a car: one look misses the cat, another one boxes its visible half.
    let cat = [
        &[0.742, 0.682, 0.622, 0.562, 0.502, 0.441, 0.381, 0.323].map(walks)[..],
        &[vec![], vec![[0.258, 0.664, 0.316, 0.787]]],
        &[0.151, 0.086, 0.030].map(walks),
    ];
    // The box of a rider is wrong just before the edge, so the predicted box of the next look is outside the picture.
    let slower = [
        &[0.117, 0.251, 0.397, 0.544, 0.686, 0.862].map(rides)[..],
        &[vec![[0.939, 0.517, 0.998, 0.770]]],
    ];
    // Another rider enters where one left.
    let enters = [
        &[0.397, 0.544, 0.686, 0.826].map(rides)[..],
        &[vec![]],
        &[0.900, 0.760].map(rides),
    ];
    for (name, looks, tracks) in [
        ("cat", cat.concat(), 1),
        ("slower", slower.concat(), 1),
        ("enters", enters.concat(), 2),
    ] {
        assert_eq!(different(&names(1.0, &looks)), tracks, "{name}");
    }
}

/// A rider passes a parked bicycle, half hidden by it, and two boxes of him are wrong.
#[test]
fn stationary_object_keeps_its_track_when_another_passes() {
    let parked = [0.458, 0.680, 0.607, 0.838];
    let passes = [
        [0.076, 0.631, 0.225, 0.791],
        [0.145, 0.636, 0.293, 0.790],
        [0.214, 0.641, 0.355, 0.792],
        [0.339, 0.624, 0.473, 0.765],
        [0.411, 0.671, 0.561, 0.833],
        [0.414, 0.633, 0.566, 0.795],
        [0.505, 0.629, 0.647, 0.787],
        [0.558, 0.632, 0.713, 0.794],
        [0.640, 0.629, 0.787, 0.789],
    ];
    let mut looks = vec![vec![parked]; 80];
    looks.extend(passes.map(|rider| vec![rider, parked]));
    let names = names(0.5, &looks);
    let kept = names[80..].iter().all(|look| *look == names[80]);
    assert!(kept && different(&names) == 2, "{:?}", &names[80..]);
}
