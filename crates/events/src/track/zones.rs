//! How many things are in each zone, with the same hysteresis as the count of all.

use super::hysteresis::{Hysteresis, Rules};
use spotter_core::{Mono, ZoneId};

/// What is believed of each zone, in the order of the configuration.
#[derive(Clone, Debug)]
pub struct Zones(Vec<(ZoneId, Hysteresis)>);

impl Zones {
    /// Nothing is known of any of them.
    pub fn new(zones: &[ZoneId], rules: Rules) -> Self {
        let unknown = |zone: &ZoneId| (zone.clone(), Hysteresis::new(rules));
        Self(zones.iter().map(unknown).collect())
    }

    /// A look saw things in these zones; one that is in two is named twice.
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

    /// The zones in which something is believed to be.
    pub fn occupied(&self) -> impl Iterator<Item = &ZoneId> {
        let something = self
            .counts()
            .filter(|(_, count)| count.is_some_and(|n| n > 0));
        something.map(|(zone, _)| zone)
    }

    /// Nobody looks any more.
    pub fn forget(&mut self) {
        for (_, hysteresis) in &mut self.0 {
            hysteresis.forget();
        }
    }

    /// Other zones or rules; what is known of zones that `kept` lets stay is kept.
    pub fn change(&mut self, zones: &[ZoneId], rules: Rules, kept: impl Fn(&ZoneId) -> bool) {
        let before = std::mem::take(&mut self.0);
        let known = |zone: &ZoneId| before.iter().find(|(other, _)| other == zone && kept(zone));
        let next = |zone: &ZoneId| {
            let hysteresis = known(zone).map(|(_, known)| known.clone());
            let mut hysteresis = hysteresis.unwrap_or_else(|| Hysteresis::new(rules));
            hysteresis.obey(rules);
            (zone.clone(), hysteresis)
        };
        self.0 = zones.iter().map(next).collect();
    }
}
