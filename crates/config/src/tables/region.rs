//! `region`: the part of the picture that a prompt is about.

use super::area::ZoneConfig;
use crate::forms::prelude::*;
use spotter_core::{NormBox, PromptRegion, RegionBox};

/// The smallest region, share of the picture's width and height: below it, a 4K picture has too few pixels for any model.
const REGION_MIN: f64 = 0.01;
/// The word for the box in which something moved.
const MOTION: &str = "motion";
/// Room around a zone, shares of its size: an object is in a zone with its feet, and the rest of it is above.
const ZONE_MARGIN: f64 = 0.1;

/// Corners, the name of a zone or the word for motion.
pub(crate) fn region(zones: &[ZoneConfig]) -> Form<'_, PromptRegion> {
    let text = format!("`[x0, y0, x1, y1]`, shares 0 to 1; a zone's name; or `\"{MOTION}\"`");
    Form::new(text, |value| {
        if let Some(text) = value.as_text() {
            return value.checked(of_word(text, zones));
        }
        // Every number is read before the first problem ends it, so that all of them are reported at their places.
        let (numbers, share) = (value.list()?, number(0.0..=1.0, ""));
        let shares: Vec<_> = numbers.iter().map(|number| share.read(number)).collect();
        let shares: Vec<f64> = shares.into_iter().collect::<Option<_>>()?;
        value.checked(of_corners(&shares).map(PromptRegion::Fixed))
    })
}

fn of_corners(corners: &[f64]) -> Result<RegionBox, String> {
    let &[x0, y0, x1, y1] = corners else {
        let count = corners.len();
        return Err(format!(
            "a region is [x0, y0, x1, y1] (left, top, right, bottom), this one has {count} numbers"
        ));
    };
    checked(NormBox { x0, y0, x1, y1 })
}

fn of_word(word: &str, zones: &[ZoneConfig]) -> Result<PromptRegion, String> {
    let zone = zones.iter().find(|zone| zone.id.as_str() == word);
    match (word, zone) {
        (MOTION, Some(_)) => Err(format!(
            "{MOTION:?} is the box in which something moved and also a zone of this camera; rename the zone"
        )),
        // A zone with a wrong polygon has no bounds; that is reported at the zone.
        (_, Some(zone)) => Ok(zone.bounds().map_or(PromptRegion::Whole, |bounds| {
            PromptRegion::Fixed(around(bounds))
        })),
        (_, None) => {
            let names = zones.iter().map(|zone| zone.id.as_str());
            let known: Vec<_> = names.chain([MOTION]).collect();
            find_id(word, "zone of this camera", &known).map(|_| PromptRegion::Motion)
        }
    }
}

fn checked(area: NormBox) -> Result<RegionBox, String> {
    let NormBox { x0, y0, x1, y1 } = area;
    for (name, from, to) in [("x", x0, x1), ("y", y0, y1)] {
        if to - from < REGION_MIN {
            return Err(format!(
                "{name}1 is {to}; it must be at least {REGION_MIN} above {name}0, which is {from}; write [x0, y0, x1, y1]: left, top, right, bottom"
            ));
        }
    }
    Ok(RegionBox::new(area))
}

fn around(bounds: NormBox) -> RegionBox {
    let (width, height) = (bounds.x1 - bounds.x0, bounds.y1 - bounds.y0);
    let room = |size: f64| (size * ZONE_MARGIN).max((REGION_MIN - size) / 2.0);
    RegionBox::new(NormBox::from_corners(
        bounds.x0 - room(width),
        bounds.y0 - room(height),
        bounds.x1 + room(width),
        bounds.y1 + room(height),
    ))
}
