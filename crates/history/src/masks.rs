//! Which masks the stored pictures of each camera have. Pure.
//!
//! The state has `painted` of each camera, so that pictures are removed also when Spotter was killed before it removed them, or when the file
//! was edited while it was stopped.

use std::collections::BTreeMap;

use i_overlay::{
    core::{fill_rule::FillRule, overlay_rule::OverlayRule},
    float::single::SingleFloatOverlay,
};
use serde::{Deserialize, Serialize, de::Error as _};
use spotter_core::{CameraId, NormPoint, rings_area};

/// Polygons in shares of the picture.
pub type MaskAreas = Vec<Vec<(f64, f64)>>;

/// Rises with each change that an older program could not read.
const VERSION: u32 = 1;
/// What is less of the picture is the inexactness of the difference: a pixel of a picture of 3840 x 2160 is more.
const AREA_MIN: f64 = 1e-7;

#[derive(Debug, Default)]
struct CameraMask {
    in_force: MaskAreas,
    /// Each stored picture of the camera has at least these areas painted over; none, while pictures are to be removed.
    painted: MaskAreas,
}

#[derive(Debug, Default)]
pub(crate) struct CameraMasks(BTreeMap<CameraId, CameraMask>);

/// `painted` of each camera that has some.
#[derive(Deserialize, Serialize)]
struct StoredMasks {
    v: u32,
    cameras: BTreeMap<CameraId, MaskAreas>,
}

impl CameraMasks {
    /// What [`text`](Self::text) stored. Of one that cannot be read, no picture counts as painted over.
    pub fn read(text: Option<String>) -> Self {
        let stored = text.map(|text| StoredMasks::of_json(&text)).transpose();
        let stored = stored.unwrap_or_else(|error| {
            tracing::error!(%error, "the stored masks of the history's pictures cannot be read; the pictures of masked cameras are removed");
            None
        });
        let cameras = stored.map(|stored| stored.cameras).unwrap_or_default();
        let mask = |painted| CameraMask {
            painted,
            ..CameraMask::default()
        };
        let masks = cameras.into_iter().map(|(id, areas)| (id, mask(areas)));
        Self(masks.collect())
    }

    pub fn text(&self) -> String {
        let masks = self.0.iter();
        let painted = masks.filter(|(_, mask)| !mask.painted.is_empty());
        let cameras = painted.map(|(id, mask)| (id.clone(), mask.painted.clone()));
        let stored = StoredMasks {
            v: VERSION,
            cameras: cameras.collect(),
        };
        // Numbers and names always serialise.
        serde_json::to_string(&stored).unwrap_or_default()
    }

    /// These areas are masked from now on. False: stored pictures may show some of it, and [`removed`](Self::removed) follows.
    pub fn set(&mut self, camera: &CameraId, areas: &MaskAreas) -> bool {
        let mask = self.0.entry(camera.clone()).or_default();
        mask.in_force.clone_from(areas);
        let is_painted = areas.iter().all(|area| is_covered(area, &mask.painted));
        match is_painted {
            // Pictures from now on have no more than these.
            true => mask.painted.clone_from(areas),
            // Pictures from now on have less of the former ones.
            false => mask.painted.clear(),
        }
        is_painted
    }

    /// All pictures are removed that came before these areas were masked. If others are masked meanwhile, their own removal follows.
    pub fn removed(&mut self, camera: &CameraId, areas: &MaskAreas) {
        let mask = self.0.get_mut(camera);
        if let Some(mask) = mask.filter(|mask| mask.in_force == *areas) {
            mask.painted.clone_from(areas);
        }
    }
}

impl StoredMasks {
    /// An error: the text is of another program or of a newer version.
    fn of_json(text: &str) -> serde_json::Result<Self> {
        let stored: Self = serde_json::from_str(text)?;
        let newer = || serde_json::Error::custom("written by a newer version");
        (stored.v <= VERSION).then_some(stored).ok_or_else(newer)
    }
}

/// Whether a polygon is inside of others together.
pub fn is_covered(area: &Vec<(f64, f64)>, others: &MaskAreas) -> bool {
    if others.contains(area) {
        return true;
    }
    let ring = |corners: &Vec<(f64, f64)>| -> Vec<[f64; 2]> {
        corners.iter().map(|&(x, y)| [x, y]).collect()
    };
    let mut left = vec![ring(area)];
    // One after the other: two that overlap would cancel each other.
    for other in others {
        let other = ring(other);
        let shapes = left.overlay(&other, OverlayRule::Difference, FillRule::EvenOdd);
        left = shapes.into_iter().flatten().collect();
    }
    let points = |ring: &Vec<[f64; 2]>| ring.iter().map(|&[x, y]| NormPoint::new(x, y)).collect();
    let left: Vec<Vec<NormPoint>> = left.iter().map(points).collect();
    rings_area(&left) < AREA_MIN
}

#[cfg(test)]
mod tests {
    use super::*;

    fn square(x: f64, y: f64, side: f64) -> Vec<(f64, f64)> {
        vec![(x, y), (x + side, y), (x + side, y + side), (x, y + side)]
    }

    #[test]
    fn area_inside_of_others_together_is_covered() {
        let reversed = |mut area: Vec<(f64, f64)>| {
            area.reverse();
            area
        };
        let two = vec![square(0.1, 0.1, 0.3), reversed(square(0.3, 0.1, 0.3))];
        let cases = [
            (square(0.1, 0.1, 0.3), true),
            (square(0.2, 0.15, 0.2), true),
            (reversed(square(0.2, 0.15, 0.2)), true),
            // On an edge, whose points are not those of the other one.
            (vec![(0.1, 0.1), (0.37, 0.1), (0.2, 0.3)], true),
            (vec![(0.2, 0.1), (0.6, 0.1), (0.6, 0.3), (0.2, 0.3)], true),
            (square(0.3, 0.1, 0.301), false),
            (square(0.1, 0.099, 0.3), false),
            (square(0.7, 0.7, 0.1), false),
        ];
        for (area, expected) in cases {
            assert_eq!(is_covered(&area, &two), expected, "{area:?}");
        }
        assert!(!is_covered(&square(0.0, 0.0, 0.001), &Vec::new()));
        // A part that covers the notch of the letter U is none of it.
        let u = vec![
            (0.0, 0.0),
            (0.2, 0.0),
            (0.2, 0.8),
            (0.8, 0.8),
            (0.8, 0.0),
            (1.0, 0.0),
            (1.0, 1.0),
            (0.0, 1.0),
        ];
        assert!(!is_covered(&square(0.1, 0.0, 0.8), &vec![u.clone()]));
        assert!(is_covered(&square(0.0, 0.8, 0.2), &vec![u]));
    }

    #[test]
    fn pictures_have_the_mask_under_which_all_of_them_came() {
        let gate = CameraId::new("gate").unwrap();
        let (small, large) = (vec![square(0.1, 0.1, 0.1)], vec![square(0.1, 0.1, 0.3)]);
        let elsewhere = vec![square(0.6, 0.6, 0.1)];
        let mut masks = CameraMasks::default();
        assert!(!masks.set(&gate, &large));
        let nothing = masks.text();
        masks.removed(&gate, &large);
        assert_ne!(masks.text(), nothing);
        // A smaller mask: later pictures show what it left, so that the larger one removes them.
        assert!(masks.set(&gate, &small));
        let mut masks = CameraMasks::read(Some(masks.text()));
        assert!(!masks.set(&gate, &large));
        // Another one comes before the removal is done.
        assert!(!masks.set(&gate, &elsewhere));
        masks.removed(&gate, &large);
        assert!(!masks.set(&gate, &elsewhere));
        masks.removed(&gate, &elsewhere);
        assert!(masks.set(&gate, &elsewhere));
        // The former one again before the removal is done: pictures may have come meanwhile.
        assert!(!masks.set(&gate, &large));
        assert!(!masks.set(&gate, &elsewhere));
        masks.removed(&gate, &large);
        assert!(!masks.set(&gate, &elsewhere));
        masks.removed(&gate, &elsewhere);
        assert!(masks.set(&gate, &elsewhere));
        assert!(masks.set(&gate, &Vec::new()));
        assert_eq!(masks.text(), nothing);
        for wrong in ["", "{\"v\":2,\"cameras\":{}}"] {
            assert_eq!(CameraMasks::read(Some(wrong.into())).text(), nothing);
        }
    }
}
