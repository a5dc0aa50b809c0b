//! The number of objects in each zone, with the same hysteresis as the count of all.

use std::collections::BTreeMap;

use super::{hysteresis::Hysteresis, rules::PromptRules};
use spotter_core::{Mono, ZoneId};

/// The confirmed count of each zone. One that is not in it has no look yet.
#[derive(Clone, Debug, Default)]
pub struct ZoneCounts(BTreeMap<ZoneId, Hysteresis>);

impl ZoneCounts {
    /// A look saw objects in these zones; the zone of an object that is in two appears twice.
    pub fn look<'a>(
        &mut self,
        occupied: impl Iterator<Item = &'a ZoneId> + Clone,
        now: Mono,
        rules: &PromptRules,
    ) {
        for zone in &rules.zones {
            let inside = occupied.clone().filter(|&other| other == zone).count();
            let inside = u32::try_from(inside).unwrap_or(u32::MAX);
            let hysteresis = self.0.entry(zone.clone()).or_default();
            hysteresis.look(inside, now, rules.hysteresis);
        }
    }

    /// `None` = unknown.
    pub fn count(&self, zone: &ZoneId) -> Option<u32> {
        self.0.get(zone).and_then(Hysteresis::count)
    }

    /// There are no looks any more: all counts become unknown.
    pub fn forget(&mut self) {
        self.0.clear();
    }

    pub fn retain(&mut self, is_kept: impl Fn(&ZoneId) -> bool) {
        self.0.retain(|zone, _| is_kept(zone));
    }
}
