//! The last frames of a camera for strips: small copies, never memory of a decoder.
//!
//! ```text
//!   arriving frames   │ │ │ │ │ │ │ │ │ │ │ │ │ │ │ │ ▶ time
//!   copies            ●     ●     ●     ●     ●     ●     one for each spacing, on a fixed beat
//!   strip of a look   ●     ●     ●           ●       ◆   the nearest to each wanted age, and the look's own frame
//! ```
//!
//! A copy is taken of the first frame after each beat, so the copies are apart by the spacing on average at any rate of the
//! camera. A strip is ready when a copy is near to its age in the strip, for the oldest: a camera that has just connected has none, and of
//! one that was away for longer than the strip the copies are too old. At least half of its panels show frames of their own: of a camera that
//! sends fewer, the model would see a scene in which nothing moves. A camera of whose frames no strip is ever made is reported.
//!
//! Pure: the caller makes copies and drawings.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use super::mask::Mask;
use spotter_config::{CameraConfig, PromptConfig};
use spotter_core::{
    ColourMatrix, ColourRange, Drawing, Mono, Picture, PixelFormat, PromptId, PromptRegion,
    PromptView, StripShape, Task, shrunk,
};

/// Copies beyond those of a strip: frames arrive while a look waits for the engine.
const SPARE: usize = 2;

/// Of what copies are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripSource {
    shape: StripShape,
    /// As large as a panel. `None`: the whole picture in twice the size of a panel, of which parts are cut that are not known before.
    part: Option<PromptRegion>,
}

/// How the frames of a camera are. Frames of another kind do not fit into one strip with them.
type FrameKind = (PixelFormat, (usize, usize), ColourMatrix, ColourRange);

fn kind_of(picture: &Picture) -> FrameKind {
    let (matrix, range) = (picture.matrix(), picture.range());
    (picture.format(), picture.size(), matrix, range)
}

/// A reduced copy of a frame.
#[derive(Debug)]
struct FrameCopy {
    at: Mono,
    picture: Picture,
}

/// The copies of a camera, for all its prompts that see strips.
#[derive(Debug, Default)]
pub struct KeptFrames {
    rings: Vec<StripRing>,
    /// What of a frame may not be copied. Another one when all copies are forgotten: one that is being made then is not kept.
    pub mask: Arc<Mask>,
}

#[derive(Debug)]
struct StripRing {
    source: StripSource,
    prompts: Vec<PromptId>,
    /// Of the copies' frames.
    kind: Option<FrameKind>,
    /// The oldest first.
    copies: VecDeque<FrameCopy>,
    /// The next beat.
    due: Option<Mono>,
    /// Frames since the last strip, or since the last report that there is none, and when the first one came.
    unready: (u32, Mono),
    /// How far frames are apart of which there was no strip for its patience.
    shortage: Option<Duration>,
}

/// A camera's frames make no strip, so that prompts are not asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StripShortage {
    pub prompts: Vec<PromptId>,
    pub shape: StripShape,
    /// From one frame to the next, in the mean.
    pub frame_every: Duration,
}

impl StripSource {
    /// What a prompt needs; `None`: no strip.
    fn of(prompt: &PromptConfig) -> Option<Self> {
        // The strips of descriptions are about objects.
        let is_known =
            matches!(prompt.task, Task::Query { .. }) && prompt.region != PromptRegion::Motion;
        let shape = prompt.strip?;
        let part = is_known.then_some(prompt.region);
        Some(Self { shape, part })
    }

    fn is_of(self, view: &PromptView) -> bool {
        let is_part = match self.part {
            Some(region) => region == view.region,
            None => matches!(view.region, PromptRegion::Fixed(_)),
        };
        is_part && Some(self.shape) == view.strip
    }

    /// The drawing of a copy of `picture`.
    pub fn copy(self, picture: &Picture) -> Drawing {
        let seen = part_of(picture, self.part.unwrap_or(PromptRegion::Whole));
        let size = match self.part {
            Some(_) => self.shape.panel(seen.size()),
            None => shrunk(seen.size(), 2 * self.shape.panel_max()),
        };
        Drawing::scaled(seen, size)
    }
}

fn part_of(picture: &Picture, region: PromptRegion) -> Picture {
    match region {
        PromptRegion::Fixed(region) => picture.part(region.pixels(picture.size())),
        PromptRegion::Whole | PromptRegion::Motion => picture.clone(),
    }
}

impl KeptFrames {
    /// The camera has other prompts. Copies that are still needed stay, but for those that show what another mask left.
    pub fn change(&mut self, camera: &CameraConfig) {
        let mask = Mask::new(&camera.mask);
        if mask != *self.mask {
            self.mask = Arc::new(mask);
            self.rings.clear();
        }
        let mut before = std::mem::take(&mut self.rings);
        for prompt in camera.prompts.iter().filter(|prompt| prompt.is_asked()) {
            let Some(source) = StripSource::of(prompt) else {
                continue;
            };
            if let Some(ring) = self.rings.iter_mut().find(|ring| ring.source == source) {
                ring.prompts.push(prompt.id.clone());
                continue;
            }
            let prompts = vec![prompt.id.clone()];
            let same = before.iter().position(|ring| ring.source == source);
            let same = same.map(|at| before.swap_remove(at));
            self.rings.push(match same {
                Some(ring) => StripRing { prompts, ..ring },
                None => StripRing {
                    source,
                    prompts,
                    kind: None,
                    copies: VecDeque::new(),
                    due: None,
                    unready: Default::default(),
                    shortage: None,
                },
            });
        }
    }

    /// The copies to be taken of a frame that was received `at` this time.
    pub fn take_due(&mut self, frame: &Picture, at: Mono) -> Vec<StripSource> {
        let due = self.rings.iter_mut().filter_map(|ring| {
            ring.count(frame, at);
            ring.take_due(at)
        });
        due.collect()
    }

    /// The strips of which none could be made for long, though frames arrive.
    pub fn shortages(&self) -> impl Iterator<Item = StripShortage> {
        self.rings.iter().filter_map(|ring| {
            Some(StripShortage {
                prompts: ring.prompts.clone(),
                shape: ring.source.shape,
                frame_every: ring.shortage?,
            })
        })
    }

    /// Keeps a copy of `frame`, which was received `at` this time.
    pub fn keep(&mut self, source: StripSource, frame: &Picture, copy: Picture, at: Mono) {
        if let Some(ring) = self.rings.iter_mut().find(|ring| ring.source == source) {
            ring.keep(kind_of(frame), FrameCopy { at, picture: copy });
        }
    }

    /// Whether a prompt can be asked about a frame that was received `at` this time: at once without a strip, else when the copies
    /// reach back far enough.
    pub fn is_ready(&self, view: &PromptView, frame: &Picture, at: Mono) -> bool {
        let chosen = || self.ring(view)?.chosen(frame, at);
        view.strip.is_none() || chosen().is_some()
    }

    /// The drawing of the strip that a prompt sees, with `frame` as its last; `None`: it is not ready.
    pub fn strip(&self, view: &PromptView, frame: &Picture, at: Mono) -> Option<Drawing> {
        let ring = self.ring(view)?;
        let chosen = ring.chosen(frame, at)?.into_iter();
        // Of a source that is not cut, copies show the region and no more.
        let shown = chosen.map(|index| match ring.source.part {
            Some(_) => ring.copies[index].picture.clone(),
            None => part_of(&ring.copies[index].picture, view.region),
        });
        let newest = part_of(frame, view.region);
        let pictures: Vec<Picture> = shown.chain([newest]).collect();
        view.strip?.drawing(&pictures)
    }

    /// A region of its own shows more than one that is cut of the whole.
    fn ring(&self, view: &PromptView) -> Option<&StripRing> {
        let rings = self.rings.iter().filter(|ring| ring.source.is_of(view));
        rings.max_by_key(|ring| ring.source.part.is_some())
    }
}

impl StripRing {
    /// The places of the copies that a strip shows before its newest frame, the oldest first.
    fn chosen(&self, frame: &Picture, at: Mono) -> Option<Vec<usize>> {
        if self.kind != Some(kind_of(frame)) {
            return None;
        }
        // Frames that arrived after the look's are no part of its past.
        let past = self.copies.iter().filter(|copy| copy.at <= at);
        let ages: Vec<Duration> = past.map(|copy| at.since(copy.at)).collect();
        chosen(&ages, self.source.shape)
    }

    /// Counts a frame of which no strip can be made.
    fn count(&mut self, frame: &Picture, at: Mono) {
        if self.chosen(frame, at).is_some() {
            (self.unready, self.shortage) = Default::default();
            return;
        }
        let (count, since) = &mut self.unready;
        if *count > 0 && at.since(*since) >= self.source.shape.patience() {
            self.shortage = Some(at.since(*since) / *count);
            *count = 0;
        }
        if *count == 0 {
            *since = at;
        }
        *count += 1;
    }

    fn take_due(&mut self, at: Mono) -> Option<StripSource> {
        let spacing = self.source.shape.spacing();
        let beat = self.due.unwrap_or(at);
        if at < beat {
            return None;
        }
        // After a gap the beat begins again.
        let last = if at.since(beat) < spacing { beat } else { at };
        self.due = Some(last.after(spacing));
        Some(self.source)
    }

    fn keep(&mut self, kind: FrameKind, copy: FrameCopy) {
        if self.kind != Some(kind) {
            self.copies.clear();
            self.kind = Some(kind);
        }
        self.copies.push_back(copy);
        while self.copies.len() > usize::from(self.source.shape.frames) + SPARE {
            self.copies.pop_front();
        }
    }
}

/// Of copies with these ages, falling, those that a strip shows before its newest frame. `None`: the oldest of them is not as old as
/// the strip, give or take one spacing, or fewer than half of the strip's frames are different ones.
fn chosen(ages: &[Duration], shape: StripShape) -> Option<Vec<usize>> {
    let spacing = shape.spacing();
    let nearest = |wanted: Duration| {
        let ages = ages.iter().enumerate();
        ages.min_by_key(|(_, age)| age.abs_diff(wanted))
            .map(|(index, _)| index)
    };
    let steps = (1..u32::from(shape.frames)).rev();
    let chosen: Vec<usize> = steps.map_while(|step| nearest(spacing * step)).collect();
    let oldest = ages[*chosen.first()?];
    let reaches_back = oldest.abs_diff(shape.over) <= spacing;
    let mut different = chosen.clone();
    different.dedup();
    // The copy of the newest frame is no other frame.
    different.retain(|index| !ages[*index].is_zero());
    let is_half = 2 * (different.len() + 1) >= usize::from(shape.frames);
    (reaches_back && is_half).then_some(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NINE: StripShape = StripShape {
        frames: 9,
        over: Duration::from_secs(4),
    };

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(millis: u64) -> Mono {
        Mono::default().after(ms(millis))
    }

    fn grey(grey: u8) -> Picture {
        Picture::from_rgb(8, 4, vec![grey; 8 * 4 * 3]).unwrap()
    }

    fn scene() -> PromptView {
        PromptView {
            strip: Some(NINE),
            ..PromptView::default()
        }
    }

    fn kept(prompts: Vec<PromptConfig>) -> KeptFrames {
        let mut kept = KeptFrames::default();
        kept.change(&spotter_config::testing::camera("gate", prompts));
        kept
    }

    fn query() -> PromptConfig {
        PromptConfig {
            task: Task::question("What happens?"),
            strip: Some(NINE),
            ..spotter_config::testing::prompt("scene")
        }
    }

    /// Frames every `interval` ms from `from` to `to`, each as grey as its time in tenths of a second. Returns when copies were taken.
    fn frames(kept: &mut KeptFrames, interval: u64, from: u64, to: u64) -> Vec<u64> {
        let mut taken = Vec::new();
        for millis in (from..=to).step_by(interval as usize) {
            let frame = grey((millis / 100) as u8);
            for source in kept.take_due(&frame, at(millis)) {
                let copy = source.copy(&frame).draw().unwrap();
                kept.keep(source, &frame, copy, at(millis));
                taken.push(millis);
            }
        }
        taken
    }

    /// The greys of the panels that a look at `millis` sees.
    fn panels(kept: &KeptFrames, millis: u64) -> Option<Vec<u8>> {
        let frame = grey((millis / 100) as u8);
        let strip = kept.strip(&scene(), &frame, at(millis))?.draw().unwrap();
        assert!(kept.is_ready(&scene(), &frame, at(millis)));
        let grey = |index: usize| strip.row(0, index / 3 * 8)[index % 3 * 12 * 3];
        Some((0..9).map(grey).collect())
    }

    #[test]
    fn strip_shows_evenly_spread_frames_with_the_newest_last() {
        let mut kept = kept(vec![query()]);
        let taken = frames(&mut kept, 200, 0, 10_000);
        // The beat is not slowed down by frames that come after it.
        assert_eq!(taken[..6], [0, 600, 1000, 1600, 2000, 2600]);
        assert_eq!(
            panels(&kept, 10_000).unwrap(),
            [60, 66, 70, 76, 80, 86, 90, 96, 100]
        );
        // A look between two beats.
        assert_eq!(
            panels(&kept, 10_400).unwrap(),
            [66, 70, 76, 80, 86, 90, 96, 100, 104]
        );
        // A frame that waited for the engine while others came.
        assert_eq!(
            panels(&kept, 9_400).unwrap(),
            [56, 60, 66, 70, 76, 80, 86, 90, 94]
        );
    }

    #[test]
    fn frames_of_before_a_gap_are_not_too_old() {
        let mut kept = kept(vec![query()]);
        frames(&mut kept, 100, 0, 5000);
        // A short gap: the frames on both sides of it are the nearest ones.
        frames(&mut kept, 100, 7000, 8000);
        assert_eq!(
            panels(&kept, 8000).unwrap(),
            [40, 45, 50, 50, 50, 70, 70, 75, 80]
        );
        // A gap as long as the strip.
        frames(&mut kept, 100, 14_000, 14_500);
        assert_eq!(panels(&kept, 14_500), None);
        frames(&mut kept, 100, 14_600, 18_000);
        assert_eq!(
            panels(&kept, 18_000).unwrap(),
            [140, 145, 150, 155, 160, 165, 170, 175, 180]
        );
    }

    #[test]
    fn slow_camera_repeats_frames_up_to_two_spacings() {
        let mut one_a_second = kept(vec![query()]);
        for millis in (0..=20_000).step_by(1000) {
            frames(&mut one_a_second, 1000, millis, millis);
            if millis < 4000 {
                continue;
            }
            let panels = panels(&one_a_second, millis).unwrap();
            assert!(panels.is_sorted(), "{panels:?}");
        }
        // Of two different frames, nine panels would show a scene in which nothing moves.
        for interval in [4000, 10_000] {
            let mut too_slow = kept(vec![query()]);
            for millis in (0..=100_000).step_by(interval as usize) {
                frames(&mut too_slow, interval, millis, millis);
                assert_eq!(panels(&too_slow, millis), None, "{millis}");
            }
        }
    }

    /// From one frame to the next, of the strips of which none could be made.
    fn shortage(kept: &KeptFrames) -> Option<Duration> {
        let shortages = Vec::from_iter(kept.shortages());
        shortages.first().map(|shortage| shortage.frame_every)
    }

    #[test]
    fn frames_without_a_strip_are_reported_until_there_is_one() {
        let twin = PromptConfig {
            id: PromptId::new("twin").unwrap(),
            ..query()
        };
        let mut kept = kept(vec![query(), twin]);
        // Filling is no shortage.
        frames(&mut kept, 100, 0, 20_000);
        assert_eq!(shortage(&kept), None);
        frames(&mut kept, 3000, 30_000, 45_000);
        assert_eq!(shortage(&kept), None, "for less than 18 s");
        frames(&mut kept, 3000, 48_000, 48_000);
        let expected = StripShortage {
            prompts: ["scene", "twin"]
                .map(|id| PromptId::new(id).unwrap())
                .into(),
            shape: NINE,
            frame_every: ms(3000),
        };
        assert_eq!(Vec::from_iter(kept.shortages()), [expected]);
        // The figure follows the camera.
        frames(&mut kept, 6000, 51_000, 75_000);
        assert_eq!(shortage(&kept), Some(ms(5250)));
        frames(&mut kept, 500, 76_000, 78_000);
        assert!(shortage(&kept).is_some());
        frames(&mut kept, 500, 78_500, 78_500);
        assert_eq!(shortage(&kept), None);
    }

    #[test]
    fn copies_are_bounded_and_of_one_kind() {
        let mut kept = kept(vec![query()]);
        frames(&mut kept, 100, 0, 60_000);
        assert_eq!(kept.rings[0].copies.len(), 9 + SPARE);
        // The camera sends another size.
        let wide = Picture::from_rgb(16, 4, vec![0; 16 * 4 * 3]).unwrap();
        assert!(!kept.is_ready(&scene(), &wide, at(60_000)));
        let source = kept.rings[0].source;
        kept.keep(
            source,
            &wide,
            source.copy(&wide).draw().unwrap(),
            at(60_500),
        );
        assert_eq!(kept.rings[0].copies.len(), 1);
        // They show what is masked now.
        kept.change(&CameraConfig {
            mask: vec![vec![(0.0, 0.0), (1.0, 0.0), (1.0, 1.0)]],
            ..spotter_config::testing::camera("gate", vec![query()])
        });
        assert!(kept.rings[0].copies.is_empty());
    }

    #[test]
    fn reload_keeps_copies_that_are_still_needed() {
        let camera = |prompts| spotter_config::testing::camera("gate", prompts);
        let mut kept = kept(vec![query()]);
        frames(&mut kept, 100, 0, 5000);
        let twice = PromptConfig {
            rate: spotter_core::testing::rate(0.1),
            ..query()
        };
        kept.change(&camera(vec![twice, query()]));
        assert!(kept.rings.len() == 1 && panels(&kept, 5000).is_some());
        let off = PromptConfig {
            enabled: false,
            ..query()
        };
        kept.change(&camera(vec![off]));
        assert!(kept.take_due(&grey(0), at(6000)).is_empty() && kept.rings.is_empty());
    }
}
