//! The views of a look: its prompts grouped by what they see. Each view is one image for the scheduler, so that prompts with the
//! same view share its encoding. Pure.

use crate::model::{Tiling, VisionConfig, view_tiling};
use spotter_core::{Look, NormBox, Picture, PixelRect, PromptView};

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

/// All views of a look, in the order of their first prompts.
pub fn views(look: &Look, vision: &VisionConfig) -> Vec<LookView> {
    let whole = look.frame.picture.size();
    let mut views: Vec<LookView> = Vec::new();
    for (index, prompt) in look.prompts.iter().enumerate() {
        let part = look.part_of(&prompt.view);
        let size = part.map_or(whole, |part| (part.width, part.height));
        let tiling = view_tiling(size, &prompt.view, vision);
        let same = |view: &&mut LookView| (view.part, view.tiling) == (part, tiling);
        match views.iter_mut().find(same) {
            Some(view) => view.prompts.push(index),
            None => views.push(LookView {
                view: prompt.view,
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
    use std::sync::Arc;

    use super::*;
    use spotter_core::{Prompt, PromptRegion, RegionBox, Task};

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
        let picture = Picture::from_rgb(1920, 1080, vec![0; 1920 * 1080 * 3]).unwrap();
        let mut look = Look::still(picture, []).unwrap();
        let task = Task::Detect {
            object: "person".into(),
        };
        let id = |index| spotter_core::PromptId::new(&format!("p{index}")).unwrap();
        look.prompts = (0..)
            .zip(all)
            .map(|(index, view)| {
                Arc::new(Prompt {
                    id: id(index),
                    revision: 1,
                    task: task.clone(),
                    view,
                })
            })
            .collect();
        let vision = VisionConfig::default();
        let prompts = |look: &Look| -> Vec<Vec<usize>> {
            let views = views(look, &vision).into_iter();
            views.map(|view| view.prompts).collect()
        };
        // A quarter of 480 x 270 pixels is one crop, with and without the limit.
        assert_eq!(
            prompts(&look),
            [vec![0, 2, 3], vec![1, 4], vec![5]],
            "nothing moved: the whole picture"
        );
        look.moved = Some(quarter);
        assert_eq!(prompts(&look), [vec![0, 2], vec![1, 3, 4], vec![5]]);
    }
}
