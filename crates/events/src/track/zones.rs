//! The number of objects in each zone, with the same hysteresis as the count of all.

use super::hysteresis::{Hysteresis, HysteresisRules};
use spotter_core::{Mono, ZoneId};

/// The confirmed count of each zone, in the order of the configuration.
#[derive(Clone, Debug)]
pub struct ZoneCounts(Vec<(ZoneId, Hysteresis)>);

impl ZoneCounts {
    /// All counts are unknown.
    pub fn new(zones: &[ZoneId], rules: HysteresisRules) -> Self {
        let unknown = |zone: &ZoneId| (zone.clone(), Hysteresis::new(rules));
        Self(zones.iter().map(unknown).collect())
    }

    /// A look saw objects in these zones; the zone of an object that is in two appears twice.
    pub fn look<'a>(&mut self, occupied: impl Iterator<Item = &'a ZoneId> + Clone, now: Mono) {
        for (zone, hysteresis) in &mut self.0 {
            let inside = occupied.clone().filter(|&other| other == zone).count();
            hysteresis.look(u32::try_from(inside).unwrap_or(u32::MAX), now);
        }
    }

    /// Each zone with its count; `None` = unknown.
    pub fn counts(&self) -> impl Iterator<Item = (&ZoneId, Option<u32>)> {
        self.0.iter().map(|(zone, known)| (zone, known.count()))
    }

    /// The zones with a confirmed count above zero.
    pub fn occupied(&self) -> impl Iterator<Item = &ZoneId> {
        let occupied = self
            .counts()
            .filter(|(_, count)| count.is_some_and(|n| n > 0));
        occupied.map(|(zone, _)| zone)
    }

    /// There are no looks any more: all counts become unknown.
    pub fn forget(&mut self) {
        for (_, hysteresis) in &mut self.0 {
            hysteresis.forget();
        }
    }

    /// Replaces zones and rules. Zones for which `kept` is true keep their count.
    pub fn change(
        &mut self,
        zones: &[ZoneId],
        rules: HysteresisRules,
        kept: impl Fn(&ZoneId) -> bool,
    ) {
        let before = std::mem::take(&mut self.0);
        let known = |zone: &ZoneId| before.iter().find(|(other, _)| other == zone && kept(zone));
        let next = |zone: &ZoneId| {
            let hysteresis = known(zone).map(|(_, known)| known.clone());
            let mut hysteresis = hysteresis.unwrap_or_else(|| Hysteresis::new(rules));
            hysteresis.set_rules(rules);
            (zone.clone(), hysteresis)
        };
        self.0 = zones.iter().map(next).collect();
    }
}
