//! The views of a look: its prompts grouped by what they see. Each view is one image for the scheduler, so that prompts with the
//! same view share its encoding. Pure.

use crate::model::{Tiling, VisionConfig, view_tiling};
use spotter_core::{AdapterId, Drawing, Look, NormBox, Picture, PixelRect, PromptView, RegionBox};

/// Prompts of a look that see the same pixels in the same crops, with the same adapter.
#[derive(Clone, Debug, PartialEq)]
pub struct LookView {
    /// That of its first prompt.
    pub view: PromptView,
    /// Of the frame, and of each frame of a strip; `None`: the whole picture.
    pub part: Option<PixelRect>,
    pub tiling: Tiling,
    /// What its prompts are answered with: the image's prefix in the cache depends on it.
    pub adapter: Option<AdapterId>,
    /// Indices of its prompts in the look, in order.
    pub prompts: Vec<usize>,
}

impl LookView {
    /// The pixels of a look that it sees; `None`: the look does not have its strip.
    pub fn picture(&self, look: &Look) -> Option<Picture> {
        let frame = &look.frame.picture;
        match (self.view.strip, self.part) {
            (Some(_), _) => Some(look.strip_of(&self.view)?.picture.clone()),
            (None, Some(part)) => Some(frame.part(part)),
            (None, None) => Some(frame.clone()),
        }
    }

    /// The part of a picture of `size` that it sees; `None`: all of it.
    pub fn region(&self, size: (usize, usize)) -> Option<NormBox> {
        self.part.map(|part| part.norm_box(size))
    }
}

/// Sizes of what the prompts of a look can see, pixels.
pub struct SeenSizes<F> {
    pub frame: (usize, usize),
    /// As [`Look::moved`].
    pub moved: Option<RegionBox>,
    /// Pixels of the largest picture that the device accepts; larger ones are scaled down ([`fitted`]).
    pub pixels_max: usize,
    /// The size of the strip that a view sees, if it sees one, when its part of a frame has this size.
    pub strip: F,
}

/// All views of a look, in the order of their first prompts.
pub fn views(
    prompts: impl IntoIterator<Item = (PromptView, Option<AdapterId>)>,
    sizes: &SeenSizes<impl Fn(&PromptView, (usize, usize)) -> Option<(usize, usize)>>,
    vision: &VisionConfig,
) -> Vec<LookView> {
    let mut views: Vec<LookView> = Vec::new();
    for (index, (view, adapter)) in prompts.into_iter().enumerate() {
        let part = view.part(sizes.frame, sizes.moved);
        let size = part.map_or(sizes.frame, |part| (part.width, part.height));
        let size = (sizes.strip)(&view, size).unwrap_or(size);
        let size = fitted_size(size, sizes.pixels_max);
        let tiling = view_tiling(size, &view, vision);
        let is_same = |other: &LookView| {
            (other.part, other.tiling, other.view.strip) == (part, tiling, view.strip)
                && other.adapter == adapter
        };
        let same = |other: &&mut LookView| is_same(other);
        match views.iter_mut().find(same) {
            Some(same) => same.prompts.push(index),
            None => views.push(LookView {
                view,
                part,
                tiling,
                adapter,
                prompts: vec![index],
            }),
        }
    }
    views
}

/// A picture as it is, or scaled down to `pixels_max` pixels, each the mean of the pixels that it covers. Scaled on the host, on this
/// thread. A picture that cannot be read stays as it is.
pub fn fitted(picture: Picture, pixels_max: usize) -> Picture {
    let size = fitted_size(picture.size(), pixels_max);
    if size == picture.size() {
        return picture;
    }
    let drawn = Drawing::scaled(picture.clone(), size).draw();
    drawn.unwrap_or(picture)
}

/// The size of a picture of `size` with at most `pixels_max` pixels. A size that has more becomes even and keeps its shape.
fn fitted_size(size: (usize, usize), pixels_max: usize) -> (usize, usize) {
    let pixels = size.0.saturating_mul(size.1);
    if pixels <= pixels_max {
        return size;
    }
    let scale = (pixels_max as f64 / pixels as f64).sqrt();
    let even = |side: f64| (side as usize / 2 * 2).max(2);
    let (width, height) = (even(size.0 as f64 * scale), even(size.1 as f64 * scale));
    // A side of one pixel became two.
    let most = |other: usize| even(pixels_max as f64 / other as f64);
    (width.min(most(height)), height.min(most(width)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use proptest::prelude::*;

    use spotter_core::{PixelFormat, PromptRegion, StripShape, testing::planar_picture};

    proptest! {
        #[test]
        fn fitted_size_has_its_pixels_and_its_shape(
            size in (1_usize..9000, 1_usize..9000), pixels_max in 16_usize..3_000_000,
        ) {
            let (width, height) = fitted_size(size, pixels_max);
            prop_assert!(width * height <= pixels_max, "{width} x {height}");
            if size.0 * size.1 <= pixels_max {
                prop_assert_eq!((width, height), size);
            } else if width.min(height) >= 100 {
                let stretch = (width as f64 / height as f64) / (size.0 as f64 / size.1 as f64);
                prop_assert!((stretch - 1.0).abs() < 0.03, "{width} x {height}");
            }
        }
    }

    // Faults: E6.
    #[test]
    fn large_picture_is_scaled_in_its_own_format() {
        for format in [PixelFormat::Rgb, PixelFormat::Nv12, PixelFormat::I420] {
            let picture = planar_picture(format, (641, 363), 5, |plane, _| 60 + plane as u8);
            assert_eq!(fitted(picture.clone(), 641 * 363).size(), (641, 363));
            let small = fitted(picture.clone(), 50_000);
            assert_eq!((small.size(), small.format()), ((296, 168), format));
            let colour = (picture.matrix(), picture.range());
            assert_eq!((small.matrix(), small.range()), colour);
            assert!(small.row(0, 100).iter().all(|byte| *byte == 60));
        }
    }

    #[test]
    fn prompts_that_see_the_same_share_a_view() {
        let quarter = RegionBox::new(NormBox::from_corners(0.0, 0.0, 0.25, 0.25));
        let view = |region, crops_max, width_max| PromptView {
            region,
            crops_max,
            width_max,
            strip: None,
        };
        let nine = PromptView {
            strip: Some(StripShape {
                frames: 9,
                over: Duration::from_secs(4),
            }),
            ..PromptView::default()
        };
        let fixed = PromptRegion::Fixed(quarter);
        let all = [
            view(PromptRegion::Whole, None, Some(1280)),
            view(fixed, None, None),
            // A question beside the prompts of a camera whose width changes nothing.
            view(PromptRegion::Whole, None, None),
            view(PromptRegion::Motion, None, None),
            view(fixed, Some(1), None),
            view(PromptRegion::Whole, Some(1), Some(1280)),
            // As many crops as the frame, but other pixels.
            nine,
            nine,
        ];
        let vision = VisionConfig::default();
        let prompts = |moved| -> Vec<Vec<usize>> {
            let sizes = SeenSizes {
                frame: (1920, 1080),
                moved,
                pixels_max: usize::MAX,
                strip: |view: &PromptView, seen| Some(view.strip?.size(seen)),
            };
            let views = views(all.map(|view| (view, None)), &sizes, &vision);
            assert_eq!(views.last().unwrap().tiling.crops(), 9);
            views.into_iter().map(|view| view.prompts).collect()
        };
        // A quarter of 480 x 270 pixels is one crop, with and without the limit.
        assert_eq!(
            prompts(None),
            [vec![0, 2, 3], vec![1, 4], vec![5], vec![6, 7]],
            "nothing moved: the whole picture"
        );
        let moved = [vec![0, 2], vec![1, 3, 4], vec![5], vec![6, 7]];
        assert_eq!(prompts(Some(quarter)), moved);
    }
}
