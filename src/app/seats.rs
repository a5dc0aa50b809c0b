//! Which engine looks at which camera. Pure.
//!
//! A camera stays with one engine: what an engine keeps of a camera (drafts of its answers, features of its tiles, the order
//! of its looks) is of use on that engine only. Cameras are dealt out by number, in the order of the file: camera `i` of `n`
//! engines goes to engine `i mod n`, so that whoever reads the file knows where a camera is, and no engine has two more than
//! another. After a reload a camera keeps the engine that it had, as long as the numbers stay even; only new cameras, and
//! those that are one too many, are dealt out again. A hash of the names would need no memory of the reload, but would give
//! one GPU three of four cameras as readily as two. By asked looks a second it would be more even and harder to follow: a
//! changed rate would move other cameras.

use std::collections::BTreeMap;

use spotter_core::CameraId;

/// The engine of each camera, by the engine's label.
pub type Seats = BTreeMap<CameraId, String>;

/// For each of the `cameras` the index of its engine. `before` is how they sat until now.
pub fn deal(cameras: &[CameraId], engines: &[String], before: &Seats) -> Vec<usize> {
    let mut cards = Dealer::new(cameras.len(), engines.len());
    let kept: Vec<Option<usize>> = cameras
        .iter()
        .map(|camera| {
            let label = before.get(camera)?;
            let engine = engines.iter().position(|engine| engine == label)?;
            cards.has_room(engine).then(|| cards.take(engine))
        })
        .collect();
    kept.into_iter()
        .map(|kept| kept.unwrap_or_else(|| cards.take(cards.emptiest())))
        .collect()
}

/// As [`deal`], while the engines run: nobody moves, and a new camera goes to the running engine that has the fewest. `before`
/// gives for each camera its engine, if it has one; `running` which engines are.
pub fn join(before: &[Option<usize>], running: &[bool]) -> Vec<usize> {
    let mut loads = vec![0; running.len()];
    for &engine in before.iter().flatten() {
        loads[engine] += 1;
    }
    let mut seat = |seated: &Option<usize>| {
        seated.unwrap_or_else(|| {
            let open = (0..running.len()).filter(|&engine| running[engine]);
            let engine = open.min_by_key(|&engine| loads[engine]).unwrap_or_default();
            loads[engine] += 1;
            engine
        })
    };
    before.iter().map(&mut seat).collect()
}

struct Dealer {
    /// Cameras of each engine so far.
    loads: Vec<usize>,
    /// What every engine gets.
    each: usize,
    /// How many get one more.
    more: usize,
}

impl Dealer {
    fn new(cameras: usize, engines: usize) -> Self {
        Self {
            loads: vec![0; engines],
            each: cameras / engines.max(1),
            more: cameras % engines.max(1),
        }
    }

    fn has_room(&self, engine: usize) -> bool {
        let load = self.loads[engine];
        let above = self.loads.iter().filter(|load| **load > self.each).count();
        load < self.each || (load == self.each && above < self.more)
    }

    /// The first of those with the fewest.
    fn emptiest(&self) -> usize {
        let by_load = self.loads.iter().enumerate().min_by_key(|(_, load)| **load);
        by_load.map_or(0, |(engine, _)| engine)
    }

    fn take(&mut self, engine: usize) -> usize {
        self.loads[engine] += 1;
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

    fn seats(cameras: &[CameraId], engines: &[String], dealt: &[usize]) -> Seats {
        let label = |&engine: &usize| engines[engine].clone();
        cameras
            .iter()
            .cloned()
            .zip(dealt.iter().map(label))
            .collect()
    }

    #[test]
    fn in_the_order_of_the_file_by_turns() {
        let dealt = deal(&cameras(0..5), &engines(2), &Seats::new());
        assert_eq!(dealt, [0, 1, 0, 1, 0]);
    }

    #[test]
    fn a_new_camera_moves_nobody_wherever_it_stands_in_the_file() {
        let (before, two) = (cameras([1, 2, 3]), engines(2));
        let seats = seats(&before, &two, &deal(&before, &two, &Seats::new()));
        let after = deal(&cameras([9, 1, 2, 3]), &two, &seats);
        assert_eq!(after, [1, 0, 1, 0]);
    }

    #[test]
    fn cameras_of_a_gpu_that_is_listed_no_more_move_and_others_stay() {
        let (four, three) = (cameras(0..4), engines(3));
        let seats = seats(&four, &three, &deal(&four, &three, &Seats::new()));
        // Cameras 0 and 3 were with the first, which is gone.
        assert_eq!(deal(&four, &three[1..], &seats), [0, 0, 1, 1]);
    }

    #[test]
    fn who_comes_while_engines_run_goes_where_fewest_are_and_moves_nobody() {
        let before = [Some(0), None, Some(0), None, Some(2), None];
        let dealt = join(&before, &[true, false, true]);
        assert_eq!(dealt, [0, 2, 0, 0, 2, 2]);
    }

    proptest! {
        #[test]
        fn numbers_stay_even_and_nobody_moves_without_need(
            before in prop::collection::btree_set(0_u8..20, 1..12),
            after in prop::collection::btree_set(0_u8..20, 1..12),
            counts in [1_usize..5, 1_usize..5],
        ) {
            let [old, new] = counts.map(engines);
            let (before, after) = (cameras(before), cameras(after));
            let first = seats(&before, &old, &deal(&before, &old, &Seats::new()));
            let dealt = deal(&after, &new, &first);
            let loads: Vec<usize> = (0..new.len())
                .map(|engine| dealt.iter().filter(|of| **of == engine).count())
                .collect();
            let (most, least) = (loads.iter().max().unwrap(), loads.iter().min().unwrap());
            prop_assert!(most - least <= 1, "{loads:?}");
            // What was dealt out is kept, and so it is when cameras come.
            let second = seats(&after, &new, &dealt);
            prop_assert_eq!(&deal(&after, &new, &second), &dealt);
            let with_new: Vec<CameraId> = after.iter().cloned().chain(cameras(100..103)).collect();
            prop_assert_eq!(&deal(&with_new, &new, &second)[..after.len()], &dealt);
        }
    }
}
