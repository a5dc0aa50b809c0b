//! Which part of the picture a prompt looks at, and how finely.

use serde::{Deserialize, Serialize};

use super::{PixelRect, PromptRegion, RegionBox, StripShape};

/// How a prompt sees the picture. Prompts of a look with equal views share one encoding of the image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PromptView {
    pub region: PromptRegion,
    /// The most crops that are encoded, 1 or more; `None`: as many as the model's rule makes.
    pub crops_max: Option<u8>,
    /// The whole picture is cut into as many crops as one that was scaled down to this width, pixels. A region keeps its pixels.
    pub width_max: Option<u32>,
    /// The picture is a strip of several frames; `None`: the look's frame.
    pub strip: Option<StripShape>,
}

impl PromptView {
    /// The pixels that it sees of a picture of `size`; `None`: all of them. `moved` is as in [`Look::moved`](super::Look::moved).
    pub fn part(&self, size: (usize, usize), moved: Option<RegionBox>) -> Option<PixelRect> {
        let region = match self.region {
            PromptRegion::Whole => None,
            PromptRegion::Fixed(region) => Some(region),
            PromptRegion::Motion => moved,
        };
        Some(region?.pixels(size))
    }
}
