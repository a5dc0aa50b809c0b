//! Descriptions: with `describe`, the model is asked about the object of each event, once the event is open.
//!
//! ```text
//!   event opens ──▶ due ──question──▶ asked ──text──▶ answered, the event is published again
//!                    ▲                  │
//!                    └── the look was late or failed; given up after some attempts
//! ```
//!
//! The question is about the part of the picture around the object, on the camera's next frame. It has a region of its own for each object, so each is
//! an encoding of its own for the model: there are few at a time. With `frames` it is about this part of several frames (a strip).

use spotter_core::{
    AnswerBody, Location, NormBox, NormPoint, PromptRegion, PromptView, RegionBox, StripShape,
};

/// Questions of a prompt that are under way at a time.
pub const DESCRIPTIONS_MAX: usize = 4;
/// A look that is late or fails may be followed by a better one; a model that is always too busy is left alone.
pub const ATTEMPTS_MAX: u32 = 3;
/// The object may have moved since it was seen: its box is widened by this share of its size, on each side.
const MARGIN: f64 = 0.5;
/// The same for a strip: the object was elsewhere in its older frames.
const STRIP_MARGIN: f64 = 1.0;
/// Of an object that is a point, half a side of the part of the picture.
const POINT_REACH: f64 = 0.15;

/// The answer as a description; `None`: it is no text.
pub fn description_of(answer: &AnswerBody) -> Option<&str> {
    match answer {
        AnswerBody::Text { text, .. } => Some(text.trim()).filter(|text| !text.is_empty()),
        AnswerBody::Boxes(_) | AnswerBody::Points(_) | AnswerBody::Outline(_) => None,
    }
}

/// How a question about an object sees the picture; `prompt`: how the prompt that has found it does.
pub fn view_of_object(
    location: Location,
    strip: Option<StripShape>,
    prompt: &PromptView,
) -> PromptView {
    let margin = match strip {
        Some(_) => STRIP_MARGIN,
        None => MARGIN,
    };
    PromptView {
        region: PromptRegion::Fixed(around(location, margin)),
        crops_max: prompt.crops_max,
        width_max: None,
        strip,
    }
}

/// The part of the picture around an object, with this margin around a box.
fn around(location: Location, margin: f64) -> RegionBox {
    let (x0, y0, x1, y1) = match location {
        Location::Box(NormBox { x0, y0, x1, y1 }) => {
            let (dx, dy) = (margin * (x1 - x0), margin * (y1 - y0));
            (x0 - dx, y0 - dy, x1 + dx, y1 + dy)
        }
        Location::Point(NormPoint { x, y }) => (
            x - POINT_REACH,
            y - POINT_REACH,
            x + POINT_REACH,
            y + POINT_REACH,
        ),
    };
    RegionBox::new(NormBox::from_corners(x0, y0, x1, y1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_around_an_object_stays_in_the_picture() {
        let area = |location| around(location, MARGIN).norm_box();
        let here = Location::Box(NormBox::from_corners(0.4, 0.2, 0.6, 0.6));
        assert_eq!(area(here), NormBox::from_corners(0.3, 0.0, 0.7, 0.8));
        let corner = Location::Point(NormPoint::new(0.95, 0.0));
        assert_eq!(area(corner), NormBox::from_corners(0.8, 0.0, 1.0, 0.15));
    }
}
