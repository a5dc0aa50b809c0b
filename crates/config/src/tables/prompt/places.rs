//! `refs`: places in the picture that a question is about.

use crate::{forms::prelude::*, read::value::ConfigValue, tables::area::ZoneConfig};
use spotter_core::{Location, NormBox, RegionBox, SpatialReference};

/// Points, boxes and names of zones.
pub(super) fn places(zones: &[ZoneConfig]) -> Form<'_, Vec<SpatialReference>> {
    let text = "`[x, y]`, `[x0, y0, x1, y1]`, shares 0 to 1, or zone names of this camera";
    list(Form::new(text, |value| match value.as_text() {
        Some(name) => of_zone(value, name, zones),
        None => {
            let numbers = value.list()?;
            let shares: Vec<_> = numbers.iter().map(ConfigValue::number).collect();
            let shares: Vec<f64> = shares.into_iter().collect::<Option<_>>()?;
            value.checked(SpatialReference::from_shares(&shares))
        }
    }))
}

/// The box around a zone.
fn of_zone(value: &ConfigValue<'_>, name: &str, zones: &[ZoneConfig]) -> Option<SpatialReference> {
    let ids: Vec<_> = zones.iter().map(|zone| &zone.id).collect();
    let id = *value.checked(find_id(name, "zone of this camera", &ids))?;
    let zone = zones.iter().find(|zone| zone.id == *id)?;
    // A zone with a wrong polygon has no bounds; that is reported at the zone.
    Some(SpatialReference::Box(RegionBox::new(zone.bounds()?)))
}

/// The number of the first of these places that is not wholly in the region, from 1 on.
pub(super) fn outside(places: &[SpatialReference], region: NormBox) -> Option<usize> {
    let is_outside = |place: &SpatialReference| match place.location() {
        Location::Point(point) => !region.contains(point),
        Location::Box(area) => !region.covers(&area),
    };
    places.iter().position(is_outside).map(|index| index + 1)
}
