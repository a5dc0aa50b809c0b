//! Deals cameras over engines by a weighted rendezvous hash. Pure.
//!
//! Each camera ranks the engines by a hash of both names, weighted by the looks that the engine does in a second. The camera that costs the
//! most goes first, each to the first engine of its ranking that has room for it below its fair share; where none has, to the one
//! that is least busy with it. Nothing is remembered: the same cameras and engines are dealt alike, so the cameras of a lost engine return
//! to it, and only its cameras move.
//!
//! Faults: D11.

use std::collections::BTreeMap;

use spotter_core::CameraId;
use spotter_fleet::assignment::rank;

/// The label of each camera's engine.
pub type CameraAssignment = BTreeMap<CameraId, String>;

/// Looks of cost 1 that each camera asks for in a second.
pub type CameraCosts = BTreeMap<CameraId, f64>;

/// An engine that runs.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineCapacity {
    pub label: String,
    /// Looks of cost 1 that it does in a second.
    pub looks_hz: f64,
}

/// The engines of all cameras; those in `stay` have theirs already. Without engines, no camera has one.
pub fn deal(
    cameras: &CameraCosts,
    engines: &[EngineCapacity],
    stay: CameraAssignment,
) -> CameraAssignment {
    let capacity_hz: f64 = engines.iter().map(|engine| engine.looks_hz).sum();
    let fair = cameras.values().sum::<f64>() / capacity_hz;
    let mut busy = BTreeMap::<&str, f64>::new();
    for (camera, label) in &stay {
        *busy.entry(label).or_default() += cameras.get(camera).copied().unwrap_or_default();
    }
    let (mut dealt, mut open) = (stay.clone(), Vec::from_iter(cameras));
    open.retain(|(camera, _)| !stay.contains_key(*camera));
    open.sort_by(|a, b| b.1.total_cmp(a.1));
    for (camera, cost) in open {
        let mut ranking: Vec<&EngineCapacity> = engines.iter().collect();
        let rank = |engine: &EngineCapacity| rank(&engine.label, engine.looks_hz, camera);
        ranking.sort_by(|a, b| rank(b).total_cmp(&rank(a)));
        let load = |engine: &EngineCapacity| {
            let others = busy.get(&*engine.label).copied().unwrap_or_default();
            (others + cost) / engine.looks_hz
        };
        let roomy = ranking.iter().find(|engine| load(engine) <= fair);
        let least_busy = || ranking.iter().min_by(|a, b| load(a).total_cmp(&load(b)));
        if let Some(engine) = roomy.or_else(least_busy) {
            *busy.entry(&engine.label).or_default() += cost;
            dealt.insert(camera.clone(), engine.label.clone());
        }
    }
    dealt
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn site(costs: &[f64], rates: &[f64]) -> (CameraCosts, Vec<EngineCapacity>) {
        let camera = |index| CameraId::new(&format!("c{index}")).unwrap();
        let cameras = costs.iter().enumerate();
        let engines = rates.iter().enumerate().map(|(index, looks_hz)| {
            let label = format!("cuda {index}");
            EngineCapacity {
                label,
                looks_hz: *looks_hz,
            }
        });
        (
            cameras
                .map(|(index, cost)| (camera(index), *cost))
                .collect(),
            engines.collect(),
        )
    }

    /// The share of its time for which each engine is asked.
    fn loads(
        cameras: &CameraCosts,
        engines: &[EngineCapacity],
        dealt: &CameraAssignment,
    ) -> Vec<f64> {
        let load = |engine: &EngineCapacity| {
            let its = cameras
                .iter()
                .filter(|(camera, _)| dealt[*camera] == engine.label);
            its.map(|(_, cost)| cost).sum::<f64>() / engine.looks_hz
        };
        engines.iter().map(load).collect()
    }

    proptest! {
        /// No engine is busier than its fair share and one camera more on an engine of mean speed. A loss moves the cameras of the
        /// lost engine alone, and with it they return.
        #[test]
        fn loads_are_bounded_and_moves_are_minimal(
            costs in prop::collection::vec(0.0..8.0_f64, 1..40),
            rates in prop::collection::vec(2.0..50.0_f64, 1..6),
            lost in any::<prop::sample::Index>(),
        ) {
            let (cameras, engines) = site(&costs, &rates);
            let dealt = deal(&cameras, &engines, CameraAssignment::new());
            prop_assert_eq!(dealt.len(), cameras.len());
            let capacity_hz: f64 = rates.iter().sum();
            let largest = costs.iter().copied().fold(0.0, f64::max);
            let bound = (costs.iter().sum::<f64>() + largest * rates.len() as f64) / capacity_hz;
            for load in loads(&cameras, &engines, &dealt) {
                prop_assert!(load <= bound + 1e-9, "{load} of {bound}");
            }

            let mut left = engines.clone();
            let lost = left.remove(lost.index(engines.len())).label;
            let mut stay = dealt.clone();
            stay.retain(|_, label| *label != lost);
            let after = deal(&cameras, &left, stay.clone());
            prop_assert_eq!(after.len(), if left.is_empty() { 0 } else { cameras.len() });
            for (camera, label) in &after {
                prop_assert!(*label != lost && stay.get(camera).is_none_or(|before| before == label));
            }
            prop_assert_eq!(deal(&cameras, &engines, CameraAssignment::new()), dealt);
        }
    }
}
