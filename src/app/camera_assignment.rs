//! Assigns each camera to one engine. Pure.
//!
//! A camera stays with one engine, because what an engine keeps of a camera (drafts of its answers, features of its tiles, the
//! order of its looks) is of use on that engine only. CameraConfig `i` of the file goes to engine `i mod n`, so that the file shows
//! where a camera runs, and no engine has two cameras more than another. After a restart with another configuration a camera
//! keeps its engine as long as the numbers stay even; only new cameras, and those that are one too many, are assigned again.
//!
//! A hash of the names would need no memory of the last assignment, but would give one GPU three of four cameras as readily as
//! two. Balancing by looks per second would move other cameras whenever a rate changes.

use std::collections::BTreeMap;

use spotter_core::CameraId;

/// The label of each camera's engine.
pub type CameraAssignment = BTreeMap<CameraId, String>;

/// For each of the `cameras` the index of its engine in `engines`. `previous` is the assignment until now.
pub fn assign_cameras(
    cameras: &[CameraId],
    engines: &[String],
    previous: &CameraAssignment,
) -> Vec<usize> {
    let mut loads = EngineLoads::new(cameras.len(), engines.len());
    let kept: Vec<Option<usize>> = cameras
        .iter()
        .map(|camera| {
            let label = previous.get(camera)?;
            let engine = engines.iter().position(|engine| engine == label)?;
            loads.has_capacity(engine).then(|| loads.add(engine))
        })
        .collect();
    kept.into_iter()
        .map(|kept| kept.unwrap_or_else(|| loads.add(loads.smallest())))
        .collect()
}

/// As [`assign_cameras`], while the engines run: no camera moves, and a new camera goes to the running engine with the fewest
/// cameras. `current` gives each camera's engine, if it has one; `running` says which engines run.
pub fn assign_new_cameras(current: &[Option<usize>], running: &[bool]) -> Vec<usize> {
    let mut loads = vec![0; running.len()];
    for &engine in current.iter().flatten() {
        loads[engine] += 1;
    }
    let mut assign = |current: &Option<usize>| {
        current.unwrap_or_else(|| {
            let running = (0..running.len()).filter(|&engine| running[engine]);
            let engine = running.min_by_key(|&engine| loads[engine]);
            let engine = engine.unwrap_or_default();
            loads[engine] += 1;
            engine
        })
    };
    current.iter().map(&mut assign).collect()
}

/// How many cameras each engine has, and may have.
struct EngineLoads {
    cameras: Vec<usize>,
    /// Every engine gets this number,
    each: usize,
    /// and this number of engines get one more.
    remainder: usize,
}

impl EngineLoads {
    fn new(cameras: usize, engines: usize) -> Self {
        Self {
            cameras: vec![0; engines],
            each: cameras / engines.max(1),
            remainder: cameras % engines.max(1),
        }
    }

    fn has_capacity(&self, engine: usize) -> bool {
        let load = self.cameras[engine];
        let above = self.cameras.iter().filter(|load| **load > self.each);
        load < self.each || (load == self.each && above.count() < self.remainder)
    }

    /// The first engine of those with the fewest cameras.
    fn smallest(&self) -> usize {
        let by_load = self
            .cameras
            .iter()
            .enumerate()
            .min_by_key(|(_, load)| **load);
        by_load.map_or(0, |(engine, _)| engine)
    }

    fn add(&mut self, engine: usize) -> usize {
        self.cameras[engine] += 1;
        engine
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cameras(numbers: impl IntoIterator<Item = u8>) -> Vec<CameraId> {
        let id = |number| CameraId::new(&format!("c{number}")).unwrap();
        numbers.into_iter().map(id).collect()
    }

    fn engines(count: usize) -> Vec<String> {
        (0..count).map(|index| format!("cuda {index}")).collect()
    }

    fn assignment(cameras: &[CameraId], engines: &[String], dealt: &[usize]) -> CameraAssignment {
        let label = |&engine: &usize| engines[engine].clone();
        cameras
            .iter()
            .cloned()
            .zip(dealt.iter().map(label))
            .collect()
    }

    #[test]
    fn cameras_are_assigned_round_robin_in_file_order() {
        let dealt = assign_cameras(&cameras(0..5), &engines(2), &CameraAssignment::new());
        assert_eq!(dealt, [0, 1, 0, 1, 0]);
    }

    #[test]
    fn a_new_camera_moves_no_other_at_any_position() {
        let (before, two) = (cameras([1, 2, 3]), engines(2));
        let assigned = assignment(
            &before,
            &two,
            &assign_cameras(&before, &two, &CameraAssignment::new()),
        );
        let after = assign_cameras(&cameras([9, 1, 2, 3]), &two, &assigned);
        assert_eq!(after, [1, 0, 1, 0]);
    }

    #[test]
    fn only_cameras_of_a_removed_gpu_are_reassigned() {
        let (four, three) = (cameras(0..4), engines(3));
        let assigned = assignment(
            &four,
            &three,
            &assign_cameras(&four, &three, &CameraAssignment::new()),
        );
        // Cameras 0 and 3 were with the first, which is gone.
        assert_eq!(assign_cameras(&four, &three[1..], &assigned), [0, 0, 1, 1]);
    }

    #[test]
    fn new_camera_joins_the_least_loaded_running_engine() {
        let before = [Some(0), None, Some(0), None, Some(2), None];
        let dealt = assign_new_cameras(&before, &[true, false, true]);
        assert_eq!(dealt, [0, 2, 0, 0, 2, 2]);
    }

    proptest! {
        #[test]
        fn assignment_stays_even_and_moves_only_when_needed(
            before in prop::collection::btree_set(0_u8..20, 1..12),
            after in prop::collection::btree_set(0_u8..20, 1..12),
            counts in [1_usize..5, 1_usize..5],
        ) {
            let [old, new] = counts.map(engines);
            let (before, after) = (cameras(before), cameras(after));
            let first = assignment(&before, &old, &assign_cameras(&before, &old, &CameraAssignment::new()));
            let dealt = assign_cameras(&after, &new, &first);
            let loads: Vec<usize> = (0..new.len())
                .map(|engine| dealt.iter().filter(|of| **of == engine).count())
                .collect();
            let (most, least) = (loads.iter().max().unwrap(), loads.iter().min().unwrap());
            prop_assert!(most - least <= 1, "{loads:?}");
            // An assignment is stable, also when cameras are added.
            let second = assignment(&after, &new, &dealt);
            prop_assert_eq!(&assign_cameras(&after, &new, &second), &dealt);
            let with_new: Vec<CameraId> = after.iter().cloned().chain(cameras(100..103)).collect();
            prop_assert_eq!(&assign_cameras(&with_new, &new, &second)[..after.len()], &dealt);
        }
    }
}
