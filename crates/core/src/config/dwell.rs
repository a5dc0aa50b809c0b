//! `dwell` of a prompt: how long an object is in a zone until it is reported.

use std::{collections::BTreeMap, time::Duration};

use super::{ZoneConfig, defaults::DWELL_RANGE, reader::ConfigValue};
use crate::ZoneId;

/// The time for each zone, or `None` after noting what is wrong. `named`: the prompt's zones; none = all of the camera.
pub(super) fn read(
    value: &ConfigValue<'_>,
    named: &[ZoneId],
    zones: &[ZoneConfig],
) -> Option<BTreeMap<ZoneId, Duration>> {
    let all = zones.iter().map(|zone| &zone.id);
    let counted: Vec<&ZoneId> = all
        .filter(|zone| named.is_empty() || named.contains(zone))
        .collect();
    if counted.is_empty() {
        value.error("the camera has no zone; add [camera.NAME.zone.NAME] with a polygon");
        return None;
    }
    if !value.is_table() {
        let time = value.duration(DWELL_RANGE)?;
        return Some(
            counted
                .into_iter()
                .map(|zone| (zone.clone(), time))
                .collect(),
        );
    }
    let mut times = BTreeMap::new();
    for (name, value) in value.table()?.entries() {
        let Some(&zone) = counted.iter().find(|zone| zone.as_str() == name) else {
            let names: Vec<_> = counted.iter().map(|zone| zone.as_str()).collect();
            let has = names.join(", ");
            value.error(format!("{name:?} is not a zone of this prompt; has: {has}"));
            continue;
        };
        times.extend(value.duration(DWELL_RANGE).map(|time| (zone.clone(), time)));
    }
    Some(times)
}
