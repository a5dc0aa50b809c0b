//! Assigns each camera to one engine. Pure.
//!
//! A camera stays with one engine, because what an engine keeps of a camera (drafts of its answers, features of its tiles, the
//! order of its looks) is of use on that engine only. Camera `i` of the file goes to engine `i mod n`, so that the file shows
//! where a camera runs, and no engine has two cameras more than another.
//!
//! A hash of the names would give one GPU three of four cameras as readily as two. Balancing by looks per second would move
//! other cameras whenever a rate changes.

use std::collections::BTreeMap;

use spotter_core::CameraId;

/// The label of each camera's engine.
pub type CameraAssignment = BTreeMap<CameraId, String>;

/// The index of each camera's engine.
pub fn assign_cameras(cameras: usize, engines: usize) -> Vec<usize> {
    (0..cameras).map(|camera| camera % engines.max(1)).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cameras_are_assigned_round_robin_in_file_order() {
        assert_eq!(assign_cameras(5, 2), [0, 1, 0, 1, 0]);
    }

    #[test]
    fn new_camera_joins_the_least_loaded_running_engine() {
        let before = [Some(0), None, Some(0), None, Some(2), None];
        let dealt = assign_new_cameras(&before, &[true, false, true]);
        assert_eq!(dealt, [0, 2, 0, 0, 2, 2]);
    }
}
