//! `region = "motion"`: the part of the picture that is looked at because something moved there. Pure.
//!
//! ```text
//!   changed cells ─▶ their box ─▶ with room around it ─▶ at least a crop large, not long ─▶ inside of the picture
//! ```
//!
//! The region stays while what moves is inside of it and it is not far too large: looks at one region share drafts and encoded
//! crops, and a thing that crosses it is not cut in another way by each look.

use std::time::Duration;

use spotter_core::{Mono, NormBox, RegionBox};

/// Room on each side, share of what moved: of a person who walks, often only arms and legs change.
const MARGIN: f64 = 0.25;
/// The smallest region, pixels of the frame across and down: what fits into one crop of the released models is not enlarged.
pub const SIDE_MIN_PX: usize = 378;
/// Times that a side may be longer than the other: a model sees a long region squeezed.
const LONGER_MAX: f64 = 2.0;
/// Times the area that is needed, up to which a region stays as it is.
const STAYS_UP_TO: f64 = 4.0;

/// Where something moved last.
#[derive(Clone, Copy, Debug, Default)]
pub struct MotionRegion {
    last: Option<(NormBox, Mono)>,
}

impl MotionRegion {
    /// Something moved inside of `changed`, in a frame of `size` pixels.
    pub fn moved(&mut self, changed: NormBox, size: (usize, usize), now: Mono) {
        let needed = with_room(changed, size);
        let stays = self.last.map(|(region, _)| region).filter(|region| {
            region.covers(&changed) && region.area() <= STAYS_UP_TO * needed.area()
        });
        self.last = Some((stays.unwrap_or(needed), now));
    }

    /// The region of a look now; `None` when nothing moved within the last `hold`.
    pub fn current(&self, hold: Duration, now: Mono) -> Option<RegionBox> {
        let (region, at) = self.last?;
        (now.since(at) <= hold).then(|| RegionBox::new(region))
    }
}

fn with_room(changed: NormBox, size: (usize, usize)) -> NormBox {
    let (width_px, height_px) = (size.0 as f64, size.1 as f64);
    let wanted = |from: f64, to: f64, pixels: f64| {
        ((to - from) * pixels * (1.0 + 2.0 * MARGIN)).max(SIDE_MIN_PX as f64)
    };
    let across = wanted(changed.x0, changed.x1, width_px);
    let down = wanted(changed.y0, changed.y1, height_px);
    let (across, down) = (across.max(down / LONGER_MAX), down.max(across / LONGER_MAX));
    let middle = changed.centre();
    let (x0, x1) = span(middle.x, across / width_px);
    let (y0, y1) = span(middle.y, down / height_px);
    NormBox { x0, y0, x1, y1 }
}

/// A span of this length around `middle`, moved into 0..1; all of it when it is longer.
fn span(middle: f64, length: f64) -> (f64, f64) {
    let length = length.min(1.0);
    let from = (middle - length / 2.0).clamp(0.0, 1.0 - length);
    (from, from + length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SIZE: (usize, usize) = (1920, 1080);
    const HOLD: Duration = Duration::from_secs(10);

    fn at(second: u64) -> Mono {
        Mono::default().after(Duration::from_secs(second))
    }

    #[test]
    fn far_person_is_seen_at_the_size_of_a_crop() {
        let mut region = MotionRegion::default();
        assert_eq!(region.current(HOLD, at(0)), None);
        let far = NormBox::from_corners(0.5, 0.4, 0.51, 0.44);
        region.moved(far, SIZE, at(1));
        let rect = region.current(HOLD, at(1)).unwrap().pixels(SIZE);
        assert!((376..=380).contains(&rect.width), "{rect:?}");
        assert!((376..=380).contains(&rect.height), "{rect:?}");
        // At the picture's edge the region keeps its size.
        region.moved(NormBox::from_corners(0.99, 0.0, 1.0, 0.04), SIZE, at(2));
        let rect = region.current(HOLD, at(2)).unwrap().pixels(SIZE);
        assert_eq!((rect.left + rect.width, rect.top), (1920, 0));
        assert!(rect.width >= 376 && rect.height >= 376, "{rect:?}");
    }

    #[test]
    fn region_stays_while_motion_is_inside_and_ends_after_hold() {
        let mut region = MotionRegion::default();
        let step = |x: f64| NormBox::from_corners(x, 0.5, x + 0.01, 0.54);
        region.moved(step(0.5), SIZE, at(0));
        let first = region.current(HOLD, at(0));
        region.moved(step(0.55), SIZE, at(1));
        assert_eq!(region.current(HOLD, at(1)), first);
        region.moved(step(0.6), SIZE, at(2));
        assert_ne!(region.current(HOLD, at(2)), first, "it left the region");
        assert!(region.current(HOLD, at(12)).is_some());
        assert_eq!(region.current(HOLD, at(13)), None);
        // A large thing came and left: the region becomes small again.
        region.moved(NormBox::from_corners(0.1, 0.1, 0.9, 0.9), SIZE, at(20));
        let large = region.current(HOLD, at(20)).unwrap().norm_box();
        region.moved(step(0.6), SIZE, at(21));
        let small = region.current(HOLD, at(21)).unwrap().norm_box();
        assert!(small.area() < large.area() / 4.0);
    }

    proptest! {
        #[test]
        fn region_contains_what_moved_and_is_not_long(
            x in 0.0f64..1.0,
            y in 0.0f64..1.0,
            width in 0.0f64..1.0,
            height in 0.0f64..1.0,
        ) {
            let changed = NormBox::from_corners(x, y, x + width, y + height);
            let region = with_room(changed, SIZE);
            prop_assert!(region.x0 >= 0.0 && region.x1 <= 1.0 && region.y0 >= 0.0 && region.y1 <= 1.0);
            let slack = 1e-9;
            let grown = NormBox {
                x0: region.x0 - slack,
                y0: region.y0 - slack,
                x1: region.x1 + slack,
                y1: region.y1 + slack,
            };
            prop_assert!(grown.covers(&changed), "{region:?} {changed:?}");
            let (across, down) = ((region.x1 - region.x0) * 1920.0, (region.y1 - region.y0) * 1080.0);
            prop_assert!(across >= 377.9 && down >= 377.9);
            prop_assert!(across <= 2.001 * down || region.y1 - region.y0 > 0.999);
            prop_assert!(down <= 2.001 * across);
        }
    }
}
