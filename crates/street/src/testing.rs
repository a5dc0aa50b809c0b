//! What tests of several modules and crates share.

mod outlines;

pub use outlines::{TrueOutline, outlines};

use crate::{
    scene::{Class, Colour, Daylight, ObjectIdentity, SceneLayout, Weather},
    truth::{SeenObject, Truth, Visibility},
};
use spotter_core::NormBox;

pub fn seen(class: Class, colour: Option<Colour>, visibility: Visibility) -> SeenObject {
    SeenObject {
        identity: ObjectIdentity::Anonymous,
        class,
        colour,
        box_in_frame: NormBox::from_corners(0.1, 0.1, 0.3, 0.2),
        visible: 0.8,
        visibility,
    }
}

/// The truth of a street in a rainy night.
pub fn night_street(seen: Vec<SeenObject>) -> Truth {
    Truth {
        layout: SceneLayout::Street,
        light: Daylight::Night,
        weather: Weather::Rain,
        seen,
    }
}
