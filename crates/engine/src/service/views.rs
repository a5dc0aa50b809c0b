//! The views of a look: its prompts grouped by what they see. Each view is one image for the scheduler, so that prompts with the
//! same view share its encoding. Pure.

use crate::model::{Tiling, VisionConfig, view_tiling};
use spotter_core::{Look, NormBox, Picture, PixelRect, PromptView, RegionBox};

/// Prompts of a look that see the same pixels in the same crops.
#[derive(Clone, Debug, PartialEq)]
pub struct LookView {
    /// That of its first prompt.
    pub view: PromptView,
    /// Of the frame, and of each frame of a strip; `None`: the whole picture.
    pub part: Option<PixelRect>,
    pub tiling: Tiling,
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
    /// The size of the strip that a view sees, if it sees one, when its part of a frame has this size.
    pub strip: F,
}

/// All views of a look, in the order of their first prompts.
pub fn views(
    prompts: impl IntoIterator<Item = PromptView>,
    sizes: &SeenSizes<impl Fn(&PromptView, (usize, usize)) -> Option<(usize, usize)>>,
    vision: &VisionConfig,
) -> Vec<LookView> {
    let mut views: Vec<LookView> = Vec::new();
    for (index, view) in prompts.into_iter().enumerate() {
        let part = view.part(sizes.frame, sizes.moved);
        let size = part.map_or(sizes.frame, |part| (part.width, part.height));
        let size = (sizes.strip)(&view, size).unwrap_or(size);
        let tiling = view_tiling(size, &view, vision);
        let is_same = |other: &LookView| {
            (other.part, other.tiling, other.view.strip) == (part, tiling, view.strip)
        };
        let same = |other: &&mut LookView| is_same(other);
        match views.iter_mut().find(same) {
            Some(same) => same.prompts.push(index),
            None => views.push(LookView {
                view,
                part,
                tiling,
                prompts: vec![index],
            }),
        }
    }
    views
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use spotter_core::{PromptRegion, StripShape};

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
                strip: |view: &PromptView, seen| Some(view.strip?.size(seen)),
            };
            let views = views(all, &sizes, &vision);
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
