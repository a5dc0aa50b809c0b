//! The views of a look: its prompts grouped by what they see. Each view is one image for the scheduler, so that prompts with the
//! same view share its encoding. Pure.

use crate::model::{Tiling, VisionConfig, view_tiling};
use spotter_core::{NormBox, Picture, PixelRect, PromptView, RegionBox};

/// Prompts of a look that see the same pixels in the same crops.
#[derive(Clone, Debug, PartialEq)]
pub struct LookView {
    /// That of its first prompt.
    pub view: PromptView,
    /// `None`: the whole picture.
    pub part: Option<PixelRect>,
    pub tiling: Tiling,
    /// Indices of its prompts in the look, in order.
    pub prompts: Vec<usize>,
}

impl LookView {
    /// The pixels of a frame's picture that it sees.
    pub fn picture(&self, whole: &Picture) -> Picture {
        match self.part {
            Some(part) => whole.part(part),
            None => whole.clone(),
        }
    }

    /// The part of a picture of `size` that it sees; `None`: all of it.
    pub fn region(&self, size: (usize, usize)) -> Option<NormBox> {
        self.part.map(|part| part.norm_box(size))
    }
}

/// All views of a look at a picture of `whole` pixels, in the order of their first prompts. `moved` is as in
/// [`Look::moved`](spotter_core::Look::moved).
pub fn views(
    prompts: impl IntoIterator<Item = PromptView>,
    whole: (usize, usize),
    moved: Option<RegionBox>,
    vision: &VisionConfig,
) -> Vec<LookView> {
    let mut views: Vec<LookView> = Vec::new();
    for (index, view) in prompts.into_iter().enumerate() {
        let part = view.part(whole, moved);
        let size = part.map_or(whole, |part| (part.width, part.height));
        let tiling = view_tiling(size, &view, vision);
        let same = |other: &&mut LookView| (other.part, other.tiling) == (part, tiling);
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
    use spotter_core::PromptRegion;

    #[test]
    fn prompts_that_see_the_same_share_a_view() {
        let quarter = RegionBox::new(NormBox::from_corners(0.0, 0.0, 0.25, 0.25));
        let view = |region, crops_max, width_max| PromptView {
            region,
            crops_max,
            width_max,
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
        ];
        let vision = VisionConfig::default();
        let prompts = |moved| -> Vec<Vec<usize>> {
            let views = views(all, (1920, 1080), moved, &vision).into_iter();
            views.map(|view| view.prompts).collect()
        };
        // A quarter of 480 x 270 pixels is one crop, with and without the limit.
        assert_eq!(
            prompts(None),
            [vec![0, 2, 3], vec![1, 4], vec![5]],
            "nothing moved: the whole picture"
        );
        assert_eq!(prompts(Some(quarter)), [vec![0, 2], vec![1, 3, 4], vec![5]]);
    }
}
