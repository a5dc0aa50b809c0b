//! How long a track has been in each zone.
//!
//! A visit begins half way between the last look that saw the object outside of the zone and the first that saw it inside, and ends half
//! way between the last inside and the first outside. It is over, as the count of a zone is, when none of the last `m` looks that saw
//! the object nor any in the last `end_after` saw it inside. So a box that leaves the zone for a moment does not end it, and neither
//! do looks that do not see the object, as long as its track goes on.

use std::{collections::BTreeMap, time::Duration};

use super::hysteresis::HysteresisRules;
use spotter_core::{Mono, ZoneDwell, ZoneId};

/// The last visit of a track to each zone.
#[derive(Clone, Debug, Default)]
pub struct TrackDwell {
    visits: Vec<ZoneVisit>,
    /// The last look that saw the object.
    seen: Option<Mono>,
}

#[derive(Clone, Debug)]
struct ZoneVisit {
    zone: ZoneId,
    entered: Mono,
    last_inside: Mono,
    /// As far as it is known.
    until: Mono,
    /// Looks since the last one that saw the object inside.
    looks_outside: u32,
    is_over: bool,
}

impl ZoneVisit {
    fn inside(&mut self, now: Mono) {
        (self.last_inside, self.until, self.looks_outside) = (now, now, 0);
    }

    fn outside(&mut self, now: Mono, rules: HysteresisRules) {
        if self.looks_outside == 0 {
            self.until = half_way(self.last_inside, now);
        }
        self.looks_outside += 1;
        let (needed, _) = rules.confirm;
        self.is_over =
            self.looks_outside >= needed && now.since(self.last_inside) >= rules.end_after;
    }
}

impl TrackDwell {
    /// A look saw the object in these zones.
    pub fn look(&mut self, inside: &[ZoneId], now: Mono, rules: HysteresisRules) {
        let before = self.seen.replace(now);
        for visit in self.visits.iter_mut().filter(|visit| !visit.is_over) {
            match inside.contains(&visit.zone) {
                true => visit.inside(now),
                false => visit.outside(now, rules),
            }
        }
        for zone in inside {
            let is_open = |visit: &ZoneVisit| visit.zone == *zone && !visit.is_over;
            if self.visits.iter().any(is_open) {
                continue;
            }
            self.visits.retain(|visit| visit.zone != *zone);
            self.visits.push(ZoneVisit {
                zone: zone.clone(),
                entered: before.map_or(now, |before| half_way(before, now)),
                last_inside: now,
                until: now,
                looks_outside: 0,
                is_over: false,
            });
        }
    }

    /// The look saw another part of the picture: the object is where it was.
    pub fn wait(&mut self, now: Mono) {
        let open = self.visits.iter_mut().filter(|visit| !visit.is_over);
        for visit in open.filter(|visit| visit.looks_outside == 0) {
            visit.inside(now);
        }
    }

    /// The times in `zones`, in their order. `occupied`: the zones in which the object is for certain.
    pub fn times(
        &self,
        zones: &[ZoneId],
        occupied: &[ZoneId],
        needed: &BTreeMap<ZoneId, Duration>,
    ) -> Vec<ZoneDwell> {
        let visits = zones.iter().filter_map(|zone| {
            let mut visits = self.visits.iter();
            visits.find(|visit| visit.zone == *zone)
        });
        let time = |visit: &ZoneVisit| {
            let (zone, time) = (&visit.zone, visit.until.since(visit.entered));
            let is_long = needed.get(zone).is_some_and(|needed| time >= *needed);
            ZoneDwell {
                zone: zone.clone(),
                time,
                is_dwelling: is_long && occupied.contains(zone),
            }
        };
        visits.map(time).collect()
    }
}

fn half_way(from: Mono, to: Mono) -> Mono {
    from.after(to.since(from) / 2)
}
