//! A prompt that follows motion sees another part of the picture in each look: what an answer says of objects at its edge and
//! beyond it. Pure.
//!
//! An object outside of the part was not looked at: its track waits. One that the part's edge cuts has a wrong box, so it is left
//! out. A prompt whose region stays has no such part: to it, an object that leaves the region leaves.

use spotter_core::{Answer, Location, NormBox, PromptRegion};

/// A box this near to the part's edge is cut by it, shares of the part's size: a few of the model's 1024 steps.
const AT_EDGE: f64 = 0.01;

/// The part of the picture that a look saw, of a prompt that sees another one next time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeenPart(NormBox);

impl SeenPart {
    /// `None`: the answer is about everything that the prompt ever sees.
    pub fn of(answer: &Answer) -> Option<Self> {
        let changes = answer.prompt.view.region == PromptRegion::Motion;
        answer.region.filter(|_| changes).map(Self)
    }

    pub fn area(self) -> NormBox {
        self.0
    }

    /// True when all of an object at this location would have been seen.
    pub fn covers(self, location: Location) -> bool {
        match location {
            Location::Box(bounds) => self.0.covers(&bounds),
            Location::Point(at) => self.0.contains(at),
        }
    }

    /// True when an object that was found here may go on beyond the part. The picture's own edge cuts nothing.
    pub fn cuts(self, location: Location) -> bool {
        let Location::Box(found) = location else {
            return false;
        };
        let part = self.0;
        let (across, down) = (AT_EDGE * (part.x1 - part.x0), AT_EDGE * (part.y1 - part.y0));
        (part.x0 > 0.0 && found.x0 - part.x0 <= across)
            || (part.y0 > 0.0 && found.y0 - part.y0 <= down)
            || (part.x1 < 1.0 && part.x1 - found.x1 <= across)
            || (part.y1 < 1.0 && part.y1 - found.y1 <= down)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn box_at_an_edge_inside_of_the_picture_is_cut() {
        let part = SeenPart(NormBox::from_corners(0.5, 0.0, 0.75, 0.5));
        let cut = |x0, y0, x1, y1| part.cuts(Location::Box(NormBox::from_corners(x0, y0, x1, y1)));
        assert!(!cut(0.55, 0.1, 0.6, 0.3));
        assert!(cut(0.501, 0.1, 0.6, 0.3) && cut(0.6, 0.1, 0.75, 0.3) && cut(0.6, 0.2, 0.7, 0.499));
        assert!(!cut(0.55, 0.0, 0.6, 0.3), "the picture ends there");
        let covers = |x0, x1| part.covers(Location::Box(NormBox::from_corners(x0, 0.1, x1, 0.3)));
        assert!(covers(0.55, 0.6) && !covers(0.45, 0.6) && !covers(0.1, 0.2));
    }
}
