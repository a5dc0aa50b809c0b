//! Assigns each camera to one engine by load. Pure.
//!
//! ```text
//!   load of a camera on an engine = looks/s · cost of a look · time of the engine for a look of cost 1
//!
//!   placed   a camera without a running engine (at the start, after a reload, after a loss); others stay
//!   moved    a camera of a busy engine, when that lowers the load of the busier of two engines by a clear factor
//! ```
//!
//! A camera moves rarely, because what an engine keeps of a camera (drafts of its answers, features of its tiles) is of use on
//! that engine only. Every move lowers the larger load of two engines by more than loads vary from one measurement to the
//! next, so moves end while the loads stay: the sum of a high power of the loads becomes smaller each time.

use std::collections::BTreeMap;

use spotter_core::CameraId;

/// The label of each camera's engine.
pub type CameraAssignment = BTreeMap<CameraId, String>;

/// An engine below this share of its time has room for all its cameras: nothing is gained by a move.
const BUSY_LOAD: f64 = 0.5;
/// A move has to lower the larger load of its two engines by this factor.
const GAIN: f64 = 1.25;

/// What cameras ask for and what engines can do.
#[derive(Clone, Debug)]
pub struct LoadTable {
    /// Of each camera, the looks of cost 1 that it asks for in a second.
    pub camera_work: Vec<f64>,
    /// Of each engine, its time for a look of cost 1, seconds; `None` for one that does not run.
    pub engine_look_s: Vec<Option<f64>>,
}

/// A camera is to go to another engine; both are indices into a [`LoadTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CameraMove {
    pub camera: usize,
    pub engine: usize,
}

/// Two engines, the busier one first, and what they exchange.
#[derive(Clone, Copy)]
struct CameraExchange {
    from: usize,
    to: usize,
    /// Goes to the less busy engine.
    camera: usize,
    /// Returns for it.
    other: Option<usize>,
}

impl LoadTable {
    /// Cameras without a running engine get one, the heaviest first, each the engine that is the least busy with it. The
    /// others stay. `None` while no engine runs.
    pub fn place(&self, current: &[Option<usize>]) -> Vec<Option<usize>> {
        let mut placed: Vec<_> = current.iter().map(|at| self.running(*at)).collect();
        let mut loads = self.loads(&placed);
        let mut homeless: Vec<usize> = (0..placed.len()).filter(|&c| placed[c].is_none()).collect();
        homeless.sort_by(|&a, &b| self.camera_work[b].total_cmp(&self.camera_work[a]));
        for camera in homeless {
            let with_it =
                |engine: usize| Some((engine, loads[engine] + self.load(camera, engine)?));
            let engines = (0..loads.len()).filter_map(with_it);
            let Some((engine, load)) = engines.min_by(|a, b| a.1.total_cmp(&b.1)) else {
                break;
            };
            placed[camera] = Some(engine);
            loads[engine] = load;
        }
        placed
    }

    /// The moves that are worth it now: none, one camera, or two cameras that change places.
    pub fn rebalance(&self, current: &[Option<usize>]) -> Vec<CameraMove> {
        let loads = self.loads(current);
        let mut busiest: Vec<usize> = (0..loads.len())
            .filter(|&engine| loads[engine] >= BUSY_LOAD)
            .collect();
        busiest.sort_by(|&a, &b| loads[b].total_cmp(&loads[a]));
        let mut moves = busiest.into_iter().filter_map(|from| {
            // Two cameras move only where one alone does not help.
            [false, true].into_iter().find_map(|pairs| {
                let all = self.exchanges(current, from, pairs);
                let rated =
                    all.filter_map(|exchange| Some((self.rate(&loads, exchange)?, exchange)));
                rated.min_by(|a, b| a.0.total_cmp(&b.0))
            })
        });
        moves.next().map_or_else(Vec::new, |(_, exchange)| {
            let CameraExchange {
                from,
                to,
                camera,
                other,
            } = exchange;
            let there = CameraMove { camera, engine: to };
            let back = other.map(|camera| CameraMove {
                camera,
                engine: from,
            });
            [there].into_iter().chain(back).collect()
        })
    }

    /// What the engine `from` could give to others, against a camera of theirs or without.
    fn exchanges<'a>(
        &'a self,
        current: &'a [Option<usize>],
        from: usize,
        pairs: bool,
    ) -> impl Iterator<Item = CameraExchange> + 'a {
        let of = move |engine| (0..current.len()).filter(move |&c| current[c] == Some(engine));
        let engines = (0..self.engine_look_s.len()).filter(move |&engine| engine != from);
        let to_each = move |to| {
            of(from).flat_map(move |camera| {
                let alone = (!pairs).then_some(None);
                let others = of(to).filter(move |_| pairs).map(Some);
                alone
                    .into_iter()
                    .chain(others)
                    .map(move |other| CameraExchange {
                        from,
                        to,
                        camera,
                        other,
                    })
            })
        };
        engines.flat_map(to_each)
    }

    /// The larger load of the two engines afterwards; `None` when it is not worth it.
    fn rate(&self, loads: &[f64], exchange: CameraExchange) -> Option<f64> {
        let CameraExchange {
            from,
            to,
            camera,
            other,
        } = exchange;
        let load = |camera: Option<usize>, engine| match camera {
            Some(camera) => self.load(camera, engine),
            None => Some(0.0),
        };
        let left = loads[from] - self.load(camera, from)? + load(other, from)?;
        let right = loads[to] + self.load(camera, to)? - load(other, to)?;
        let after = left.max(right);
        (after * GAIN <= loads[from]).then_some(after)
    }

    /// The share of each engine's time that its cameras ask for; more than 1 where it is overloaded.
    pub fn loads(&self, current: &[Option<usize>]) -> Vec<f64> {
        let mut loads = vec![0.0; self.engine_look_s.len()];
        for (camera, engine) in current.iter().enumerate() {
            if let Some(engine) = *engine {
                loads[engine] += self.load(camera, engine).unwrap_or_default();
            }
        }
        loads
    }

    /// `None` on an engine that does not run.
    fn load(&self, camera: usize, engine: usize) -> Option<f64> {
        Some(self.camera_work[camera] * self.engine_look_s[engine]?)
    }

    fn running(&self, engine: Option<usize>) -> Option<usize> {
        engine.filter(|&engine| self.engine_look_s[engine].is_some())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table(camera_work: &[f64], engine_look_s: &[f64]) -> LoadTable {
        LoadTable {
            camera_work: camera_work.to_vec(),
            engine_look_s: engine_look_s.iter().map(|s| Some(*s)).collect(),
        }
    }

    fn at(engines: &[usize]) -> Vec<Option<usize>> {
        engines.iter().copied().map(Some).collect()
    }

    #[test]
    fn cameras_are_placed_by_load_not_by_number() {
        let equal = table(&[1.0; 5], &[0.1, 0.1]);
        assert_eq!(equal.place(&[None; 5]), at(&[0, 1, 0, 1, 0]));
        // One asks for as much as four others; the second engine is half as fast.
        let heavy = table(&[1.0, 4.0, 1.0, 1.0, 1.0], &[0.1, 0.1]);
        assert_eq!(heavy.place(&[None; 5]), at(&[1, 0, 1, 1, 1]));
        let unequal = table(&[1.0; 6], &[0.1, 0.2]);
        assert_eq!(unequal.loads(&unequal.place(&[None; 6])), [0.4, 0.4]);
    }

    #[test]
    fn moves_are_worth_it_or_are_not_made() {
        let engines = [0.1, 0.1];
        let moved = |camera, engine| CameraMove { camera, engine };
        let unequal = table(&[4.0, 3.0, 2.0, 1.0], &engines);
        assert_eq!(unequal.rebalance(&at(&[0, 0, 0, 1])), [moved(0, 1)]);
        // 0.6 and 0.5: a further move gains less than the factor.
        assert_eq!(unequal.rebalance(&at(&[0, 1, 0, 1])), []);
        // No camera alone, but two that change places.
        let pairs = table(&[6.0, 6.0, 3.0, 3.0], &engines);
        assert_eq!(
            pairs.rebalance(&at(&[0, 0, 1, 1])),
            [moved(0, 1), moved(2, 0)]
        );
        let idle = table(&[2.0, 2.0], &engines);
        assert_eq!(idle.rebalance(&at(&[0, 0])), [], "an engine with room");
    }

    /// Cameras, engines, and noise of measurements.
    fn sites() -> impl Strategy<Value = (Vec<f64>, Vec<f64>, Vec<f64>)> {
        let engines = prop::collection::vec(0.02..0.4_f64, 2..5);
        let cameras = prop::collection::vec(0.05..8.0_f64, 1..12);
        let noise = prop::collection::vec(0.95..1.05_f64, 60);
        (cameras, engines, noise)
    }

    proptest! {
        /// At a loss only the cameras of the lost engine move, each to an engine that runs, and they are shared fairly.
        #[test]
        fn loss_moves_only_the_cameras_of_the_lost_engine(site in sites(), lost in any::<prop::sample::Index>()) {
            let (cameras, engines, _) = site;
            let mut table = table(&cameras, &engines);
            let before = table.place(&vec![None; cameras.len()]);
            let lost = lost.index(engines.len());
            table.engine_look_s[lost] = None;
            let after = table.place(&before);
            for (before, after) in before.iter().zip(&after) {
                let engine = after.expect("an engine runs");
                prop_assert!(engine != lost);
                prop_assert!(*before == Some(lost) || before == after);
            }
            // Each camera went to the engine that is the least busy with it, so the busiest one cannot pass its last camera on.
            let loads = table.loads(&after);
            for (camera, engine) in after.iter().enumerate() {
                let (Some(engine), true) = (*engine, before[camera] == Some(lost)) else {
                    continue;
                };
                let is_last = (0..cameras.len()).all(|other| {
                    before[other] != Some(lost) || after[other] != Some(engine) || cameras[other] >= cameras[camera]
                });
                for other in (0..engines.len()).filter(|other| is_last && *other != lost) {
                    let there = loads[other] + cameras[camera] * engines[other];
                    prop_assert!(loads[engine] <= there + 1e-9);
                }
            }
        }

        /// With loads that stay and measurements that vary by five percent, no move makes anything worse, and moves end.
        #[test]
        fn moves_end_while_loads_stay(site in sites(), start in any::<prop::sample::Index>()) {
            let (cameras, engines, noise) = site;
            let mut current = vec![Some(start.index(engines.len())); cameras.len()];
            let exact = table(&cameras, &engines);
            let mut moves = 0;
            for round in 0..200 {
                let measured = cameras.iter().enumerate();
                let measured: Vec<f64> = measured
                    .map(|(camera, work)| work * noise[(round * 7 + camera * 13) % noise.len()])
                    .collect();
                let worst = |at: &[Option<usize>]| exact.loads(at).into_iter().fold(0.0, f64::max);
                let before = worst(&current);
                for moved in table(&measured, &engines).rebalance(&current) {
                    current[moved.camera] = Some(moved.engine);
                    moves += 1;
                }
                prop_assert!(worst(&current) <= before * 1.0001);
            }
            prop_assert!(moves <= 3 * cameras.len(), "{moves} moves");
        }
    }
}
