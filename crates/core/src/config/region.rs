//! `region`: the part of the picture that a prompt is about.

use super::{
    ZoneConfig,
    defaults::{REGION_MIN, SHARE_RANGE},
    parse,
    reader::ConfigValue,
};
use crate::{NormBox, PromptRegion, RegionBox, ZoneId};

/// The word for the box in which something moved.
const MOTION: &str = "motion";
/// Room around a zone, shares of its size: an object is in a zone with its feet, and the rest of it is above.
const ZONE_MARGIN: f64 = 0.1;

/// The value of the key, or `None` after noting what is wrong.
pub(super) fn read(value: &ConfigValue<'_>, zones: &[ZoneConfig]) -> Option<PromptRegion> {
    if value.is_text() {
        return of_word(value, zones);
    }
    let numbers = value.list()?;
    if numbers.len() != 4 {
        let count = numbers.len();
        value.error(format!(
            "a region is [x0, y0, x1, y1] (left, top, right, bottom), this one has {count} numbers"
        ));
        return None;
    }
    // Every number is read before the first problem ends it, so that all of them are reported.
    let shares: Vec<Option<f64>> = numbers.iter().map(|n| n.number(SHARE_RANGE)).collect();
    let [x0, y0, x1, y1] = shares[..] else {
        return None;
    };
    let area = NormBox {
        x0: x0?,
        y0: y0?,
        x1: x1?,
        y1: y1?,
    };
    value.checked(checked(area)).map(PromptRegion::Fixed)
}

fn of_word(value: &ConfigValue<'_>, zones: &[ZoneConfig]) -> Option<PromptRegion> {
    let word = value.text()?;
    let zone = zones.iter().find(|zone| zone.id.as_str() == word);
    match (word, zone) {
        (MOTION, Some(_)) => {
            value.error(
                "is the box in which something moved and also a zone of this camera; rename the zone",
            );
            None
        }
        (MOTION, None) => Some(PromptRegion::Motion),
        // A zone with a wrong polygon has none; that is reported at the zone.
        (_, Some(zone)) => bounds(zone).map(|bounds| PromptRegion::Fixed(around(bounds))),
        (_, None) => {
            let names = zones.iter().map(|zone| zone.id.as_str());
            let known: Vec<_> = names.chain([MOTION]).collect();
            let guess = match parse::nearest(word, known.iter().copied()) {
                Some(near) => format!("; did you mean {near:?}?"),
                None => format!("; write one of {}, or [x0, y0, x1, y1]", known.join(", ")),
            };
            value.error(format!("{word:?} is not a zone of this camera{guess}"));
            None
        }
    }
}

fn checked(area: NormBox) -> Result<RegionBox, String> {
    let sides = [
        ("x1", "right of x0", area.x0, area.x1),
        ("y1", "below y0", area.y0, area.y1),
    ];
    for (name, place, from, to) in sides {
        if to <= from {
            return Err(format!(
                "{name} is {to}, which is not {place}, {from}; write [x0, y0, x1, y1]: left, top, right, bottom"
            ));
        }
        if to - from < REGION_MIN {
            return Err(format!(
                "from {from} to {to} is less than {REGION_MIN} of the picture; give the region more room"
            ));
        }
    }
    Ok(RegionBox::new(area))
}

fn bounds(zone: &ZoneConfig) -> Option<NormBox> {
    let corner = |&(x, y): &(f64, f64)| NormBox {
        x0: x,
        y0: y,
        x1: x,
        y1: y,
    };
    let corners = zone.polygon.iter().map(corner);
    corners.reduce(|a, b| NormBox {
        x0: a.x0.min(b.x0),
        y0: a.y0.min(b.y0),
        x1: a.x1.max(b.x1),
        y1: a.y1.max(b.y1),
    })
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

/// Notes zones of a prompt in which it cannot see anything.
pub(super) fn check_zones(
    value: &ConfigValue<'_>,
    region: PromptRegion,
    named: &[ZoneId],
    zones: &[ZoneConfig],
) {
    let PromptRegion::Fixed(region) = region else {
        return;
    };
    let seen = region.norm_box();
    for zone in zones.iter().filter(|zone| named.contains(&zone.id)) {
        let is_apart = |zone: NormBox| {
            zone.x0 >= seen.x1 || zone.x1 <= seen.x0 || zone.y0 >= seen.y1 || zone.y1 <= seen.y0
        };
        if bounds(zone).is_some_and(is_apart) {
            let id = &zone.id;
            value.error(format!(
                "zone \"{id}\" is outside of the prompt's region, so nothing is found in it; change one of them"
            ));
        }
    }
}
