//! Which prompts are due on a frame, and which camera is next.

use super::cadence::Cadence;
use spotter_core::Mono;

/// The pace of one camera and of its prompts.
///
/// The camera's rate is the ceiling of its looks. A look is due when one of the prompts is; the others that will be
/// due within half a camera period ride along, because a further prompt on the same picture costs little and a picture
/// of its own costs much. A prompt may so be answered that much early, never more often.
#[derive(Clone, Debug)]
pub struct Schedule {
    camera: Cadence,
    prompts: Vec<Cadence>,
}

impl Schedule {
    /// Rates in looks a second, above 0, the prompts in the order by which they are named afterwards.
    pub fn new(camera_rate_hz: f64, prompt_rates_hz: impl IntoIterator<Item = f64>) -> Self {
        Self {
            camera: Cadence::new(camera_rate_hz),
            prompts: prompt_rates_hz.into_iter().map(Cadence::new).collect(),
        }
    }

    /// Another pace for the camera, and other prompts: each with its rate and, when it was there before, the place it had.
    pub fn change(&mut self, camera_rate_hz: f64, prompts: &[(f64, Option<usize>)]) {
        self.camera.set_rate(camera_rate_hz);
        let before = std::mem::take(&mut self.prompts);
        let cadence = |&(rate_hz, place): &(f64, Option<usize>)| {
            let kept = place.and_then(|place| before.get(place)).copied();
            kept.map_or_else(
                || Cadence::new(rate_hz),
                |mut kept| {
                    kept.set_rate(rate_hz);
                    kept
                },
            )
        };
        self.prompts = prompts.iter().map(cadence).collect();
    }

    /// A look with all prompts is due at once.
    pub fn make_due(&mut self) {
        self.camera.make_due();
        self.prompts.iter_mut().for_each(Cadence::make_due);
    }

    /// When the next look is due; `None` without prompts.
    pub fn due(&self) -> Option<Mono> {
        let first_prompt = self.prompts.iter().map(Cadence::due).min()?;
        Some(first_prompt.max(self.camera.due()))
    }

    /// The prompts of a look taken now; empty when none is due.
    pub fn due_prompts(&self, now: Mono) -> Vec<usize> {
        if self.due().is_none_or(|due| now < due) {
            return Vec::new();
        }
        let soon = now.after(self.camera.period() / 2);
        let due_soon = |(index, prompt): (usize, &Cadence)| prompt.is_due(soon).then_some(index);
        self.prompts
            .iter()
            .enumerate()
            .filter_map(due_soon)
            .collect()
    }

    /// A look with these prompts was taken.
    pub fn looked(&mut self, prompts: &[usize], now: Mono) {
        self.camera.looked(now);
        for &index in prompts {
            self.prompts[index].looked(now);
        }
    }
}

/// Of several cameras, given since when each has had a look due (`None` = it has nothing for the engine), the index of
/// the one that waits longest. A camera that was served is due later than all that waited, so of `n` cameras at most
/// `n - 1` go before one that is due, however fast they are.
pub fn longest_overdue(due_since: impl IntoIterator<Item = Option<Mono>>) -> Option<usize> {
    due_since
        .into_iter()
        .enumerate()
        .filter_map(|(index, due)| due.map(|due| (due, index)))
        .min()
        .map(|(_, index)| index)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at_ms(ms: u64) -> Mono {
        Mono::default().after(Duration::from_millis(ms))
    }

    #[test]
    fn a_slow_prompt_shares_the_pictures_of_a_fast_one() {
        let mut schedule = Schedule::new(2.0, [2.0, 0.2]);
        let (mut looks, mut with_second) = (0, 0);
        for ms in (1_000..101_000).step_by(40) {
            let prompts = schedule.due_prompts(at_ms(ms));
            if !prompts.is_empty() {
                assert!(
                    prompts.contains(&0),
                    "the slow prompt never needs a picture of its own"
                );
                looks += 1;
                with_second += usize::from(prompts.contains(&1));
                schedule.looked(&prompts, at_ms(ms));
            }
        }
        assert!((200..=201).contains(&looks), "{looks}");
        assert!((20..=21).contains(&with_second), "{with_second}");
    }

    #[test]
    fn the_camera_rate_is_the_ceiling() {
        // Three prompts of one look a second each that would like to be asked at different times.
        let mut schedule = Schedule::new(1.0, [1.0, 1.0, 1.0]);
        schedule.looked(&[0], at_ms(5_000));
        assert!(
            schedule.due_prompts(at_ms(5_300)).is_empty(),
            "1 and 2 are due, the camera is not"
        );
        assert_eq!(schedule.due_prompts(at_ms(5_500)), [0, 1, 2]);
    }

    #[test]
    fn the_longest_overdue_is_next() {
        let due = [None, Some(at_ms(30)), Some(at_ms(10)), Some(at_ms(20))];
        assert_eq!(longest_overdue(due), Some(2));
        assert_eq!(longest_overdue([None, None]), None);
    }

    #[test]
    fn a_camera_without_prompts_is_never_due() {
        let schedule = Schedule::new(1.0, []);
        assert_eq!(schedule.due(), None);
        assert!(schedule.due_prompts(at_ms(1_000)).is_empty());
    }
}
