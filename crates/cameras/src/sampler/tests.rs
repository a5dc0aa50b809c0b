//! The sampler as a whole: real slots and shell, a clock driven by hand, an engine that is a counter of permits.

mod changes;
mod pools;
mod strips;
mod triggers;

use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use proptest::prelude::*;

use super::{
    slot::{FrameSlot, MovedRecently},
    *,
};
use spotter_config::{CameraConfig, ConfigChange, MotionConfig, PromptConfig};
use spotter_core::{
    CameraId, Clock, ColourMatrix, ColourRange, Frame, FrameCounters, FrameEnd, Look, ManualClock,
    Mono, NormBox, Picture, PictureLayout, PixelFormat, Prompt, PromptId, PromptRegion,
    SkippedSinceLast, Task,
    testing::{FakeDevicePlanes, frame_at, rate},
};

const BUDGET: Duration = Duration::from_millis(250);
/// A look of the machine that these tests think of.
const MEASURED: Duration = Duration::from_millis(200);

fn limits() -> TimeLimits {
    TimeLimits::new(BUDGET, Some(MEASURED))
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn camera(id: &str, rate_hz: f64, prompts: &[(&str, f64)]) -> CameraConfig {
    let prompt = |&(id, rate_hz): &(&str, f64)| PromptConfig {
        rate: rate(rate_hz),
        ..spotter_config::testing::prompt(id)
    };
    CameraConfig {
        rate: rate(rate_hz),
        ..spotter_config::testing::camera(id, prompts.iter().map(prompt).collect())
    }
}

/// A camera with one prompt, both once a second.
fn person(id: &str) -> CameraConfig {
    camera(id, 1.0, &[("person", 1.0)])
}

fn gated(camera: CameraConfig) -> CameraConfig {
    CameraConfig {
        motion: MotionConfig {
            on: true,
            ..camera.motion
        },
        ..camera
    }
}

/// With its upper half blacked out.
fn masked(camera: CameraConfig) -> CameraConfig {
    CameraConfig {
        mask: vec![vec![(0.0, 0.0), (1.0, 0.0), (1.0, 0.5), (0.0, 0.5)]],
        ..camera
    }
}

fn ids(cameras: &[CameraConfig]) -> Vec<CameraId> {
    cameras.iter().map(|camera| camera.id.clone()).collect()
}

/// The look that an engine with these cameras gets now, if one is due.
fn try_look(share: &CameraShare) -> Option<Look> {
    std::iter::from_fn(|| share.try_due()).find_map(|due| due.take())
}

/// A sampler with its clock and the count of frames put into each camera. Clones have the same sampler and clock.
#[derive(Clone)]
struct Bench {
    clock: ManualClock,
    configured: Vec<CameraConfig>,
    /// Those of the beginning, by which tests name them.
    cameras: Vec<CameraId>,
    put: Vec<u64>,
    sampler: Arc<Sampler>,
    share: Arc<CameraShare>,
}

impl Bench {
    fn new(cameras: &[CameraConfig]) -> Self {
        let clock = ManualClock::default();
        clock.advance(Duration::from_secs(1000));
        let sampler = Sampler::new(cameras, Arc::new(clock.clone()));
        let bench = Self {
            configured: cameras.to_vec(),
            cameras: ids(cameras),
            put: vec![0; cameras.len()],
            share: sampler.share(limits()),
            sampler,
            clock,
        };
        bench.sampler.assign(&bench.share, &bench.cameras);
        bench
    }

    /// Changes the cameras, as the app does after a change of the configuration.
    fn change(&mut self, cameras: &[CameraConfig]) {
        self.configure(cameras);
        self.sampler.assign(&self.share, &ids(cameras));
    }

    /// The same before the cameras are dealt again.
    fn configure(&mut self, cameras: &[CameraConfig]) {
        let change = ConfigChange::between(&self.configured, cameras);
        self.sampler.change(&change);
        self.configured = cameras.to_vec();
    }

    /// A frame of one grey level, whose first packet came `age` ago.
    fn frame(&mut self, camera: usize, age: Duration, grey: u8) -> Frame {
        self.put[camera] += 1;
        let now = self.clock.now();
        let received = Duration::from_nanos(now.before(age).as_nanos());
        Frame {
            number: self.put[camera],
            picture: Picture::from_rgb(2, 2, vec![grey; 12]).unwrap(),
            ..frame_at(&self.cameras[camera], received)
        }
    }

    fn put_frame(&self, frame: Frame) {
        self.sampler.camera_sink(&frame.camera).unwrap()(frame);
    }

    fn put_grey(&mut self, camera: usize, age: Duration, grey: u8) {
        let frame = self.frame(camera, age, grey);
        self.put_frame(frame);
    }

    fn put(&mut self, camera: usize) {
        self.put_grey(camera, ms(20), 100);
    }

    /// An NV12 picture of 2 x 2 pixels.
    fn put_picture(&mut self, camera: usize, planes: Arc<FakeDevicePlanes>) {
        let mut frame = self.frame(camera, ms(20), 0);
        let layout = PictureLayout {
            format: PixelFormat::Nv12,
            size: (2, 2),
            strides: [2, 2, 0],
            colour: (ColourMatrix::Bt709, ColourRange::Limited),
        };
        frame.picture = Picture::new(layout, planes).unwrap();
        self.put_frame(frame);
    }

    /// The look that an engine gets now, if one is due.
    fn try_look(&self) -> Option<Look> {
        try_look(&self.share)
    }

    /// The look that an engine gets now.
    fn look(&self) -> Look {
        self.try_look().expect("a look")
    }

    fn counters(&self, camera: usize) -> FrameCounters {
        let sampled = self.sampler.sampled(&self.cameras[camera]);
        sampled.unwrap().counters()
    }

    fn since_last(&self, camera: usize, prompt: &str) -> SkippedSinceLast {
        let prompt = PromptId::new(prompt).unwrap();
        let sampled = self.sampler.sampled(&self.cameras[camera]).unwrap();
        sampled.slot(|slot| slot.take_since_last(&prompt))
    }

    fn camera_of(&self, look: &Look) -> usize {
        let found = self.cameras.iter().position(|c| *c == look.frame.camera);
        found.unwrap()
    }

    fn answer(&self, look: Look) {
        self.end(look, FrameEnd::Looked);
    }

    fn end(&self, mut look: Look, end: FrameEnd) {
        look.token.end(end);
    }
}

#[test]
fn the_newest_frame_is_taken_and_the_others_are_counted() {
    let mut bench = Bench::new(&[camera("gate", 2.0, &[("person", 2.0), ("parcel", 0.2)])]);
    for _ in 0..3 {
        bench.put(0);
        bench.clock.advance(ms(40));
    }
    let look = bench.look();
    assert_eq!((look.frame.number, look.prompts.len()), (3, 2));
    let received = look.frame.times.received;
    assert_eq!(look.start_by, received.after(BUDGET));
    assert_eq!(look.answer_by, received.after(BUDGET + 20 * MEASURED));
    assert!(bench.try_look().is_none());
    bench.put(0);
    let expected = FrameCounters {
        arrived: 4,
        replaced: 2,
        skipped: 1,
        in_flight: 1,
        ..FrameCounters::default()
    };
    assert_eq!(bench.counters(0), expected);
    bench.answer(look);
    let counters = bench.counters(0);
    assert_eq!((counters.looked, counters.in_flight), (1, 0));
    let busy = SkippedSinceLast {
        busy: 2,
        ..SkippedSinceLast::default()
    };
    assert_eq!(bench.since_last(0, "parcel"), busy);
    assert_eq!(bench.since_last(0, "parcel"), SkippedSinceLast::default());
    assert_eq!(bench.since_last(0, "person"), busy);
}

#[test]
fn slow_prompt_shares_the_looks_of_a_fast_one() {
    let mut bench = Bench::new(&[camera("gate", 2.0, &[("person", 2.0), ("parcel", 0.2)])]);
    let (mut looks, mut with_second) = (0, 0);
    for _ in (0..100_000).step_by(40) {
        bench.put(0);
        if let Some(look) = bench.try_look() {
            assert_eq!(look.prompts[0].id.as_str(), "person");
            looks += 1;
            with_second += look.prompts.len() - 1;
            bench.answer(look);
        }
        bench.clock.advance(ms(40));
    }
    assert!((200..=201).contains(&looks), "{looks}");
    assert!((20..=21).contains(&with_second), "{with_second}");
}

fn what_happens() -> Task {
    Task::question("What happens?")
}

/// A prompt that is asked once.
fn question(id: &str) -> Arc<Prompt> {
    Arc::new(Prompt::new(
        PromptId::new(id).unwrap(),
        Prompt::ONCE,
        what_happens(),
    ))
}

/// With a second prompt, which asks for a free text.
fn with_text(mut camera: CameraConfig) -> CameraConfig {
    camera.prompts.push(PromptConfig {
        task: what_happens(),
        ..spotter_config::testing::prompt("scene")
    });
    camera
}

/// The engine answers a prompt of a look.
fn answer(look: &mut Look, prompt: &str) {
    let mut asked = look.prompts.iter();
    let asked = asked.find(|asked| asked.id.as_str() == prompt);
    look.token.answered(asked.unwrap());
}

#[test]
fn free_text_under_way_is_not_asked_again() {
    let mut bench = Bench::new(&[with_text(person("gate"))]);
    let prompts = |bench: &mut Bench| {
        bench.clock.advance(Duration::from_secs(1));
        bench.put(0);
        let look = bench.look();
        (look.prompts.len(), look)
    };
    let (both, mut first) = prompts(&mut bench);
    assert_eq!(both, 2);
    answer(&mut first, "person");
    let (one, second) = prompts(&mut bench);
    assert_eq!((one, second.prompts[0].id.as_str()), (1, "person"));
    bench.answer(second);
    answer(&mut first, "scene");
    bench.answer(first);
    let (both, third) = prompts(&mut bench);
    assert_eq!(both, 2);
    // One without an answer is asked again too.
    bench.end(third, FrameEnd::Late);
    let (both, fourth) = prompts(&mut bench);
    assert_eq!(both, 2);
    // So is one that an engine took with it.
    drop(fourth);
    assert_eq!(prompts(&mut bench).0, 2);
    let (scene, counters) = (bench.since_last(0, "scene"), bench.counters(0));
    assert_eq!((scene.busy, scene.late), (0, 1), "waiting is no loss");
    assert!(counters.balanced(), "{counters:?}");
    // A frame on which nothing else is due is skipped.
    let mut only_text = with_text(person("yard"));
    only_text.prompts.remove(0);
    let mut bench = Bench::new(&[only_text]);
    let (_, mut first) = prompts(&mut bench);
    bench.clock.advance(Duration::from_secs(1));
    bench.put(0);
    assert!(bench.try_look().is_none());
    assert_eq!(bench.counters(0).skipped, 1);
    answer(&mut first, "scene");
    assert_eq!(prompts(&mut bench).0, 1);
}

#[test]
fn frame_over_budget_is_late_and_next_starts_at_once() {
    let mut bench = Bench::new(&[person("gate")]);
    bench.put_grey(0, ms(0), 100);
    bench.clock.advance(BUDGET + ms(1));
    assert!(bench.try_look().is_none());
    assert_eq!(bench.counters(0).late, 1);
    bench.put(0);
    assert_eq!(bench.look().frame.number, 2);
    assert_eq!(bench.since_last(0, "person").late, 1);
}

#[test]
fn device_picture_stays_there_without_motion_gate_and_mask() {
    // Copies to the host; whether the engine finds the picture on the device.
    for (camera, copies, on_device) in [
        (person("plain"), 0, true),
        (gated(person("gated")), 1, true),
        (masked(person("masked")), 1, false),
    ] {
        let mut bench = Bench::new(&[camera]);
        let planes = FakeDevicePlanes::new(vec![vec![200; 4], vec![128; 2]]);
        let planes = Arc::new(planes);
        bench.put_picture(0, planes.clone());
        let picture = bench.look().frame.picture;
        assert_eq!(planes.copies(), copies, "{}", bench.cameras[0]);
        assert_eq!(picture.on_device().is_some(), on_device);
        assert_eq!(picture.is_on_host(), copies > 0);
        assert_eq!(picture.row(0, 1), [200; 2]);
        assert_eq!(picture.row(0, 0), [if on_device { 200 } else { 16 }; 2]);
    }
}

#[test]
fn person_gets_the_next_frame_at_any_pace() {
    let mut bench = Bench::new(&[masked(camera("gate", 0.1, &[("person", 0.1)]))]);
    bench.put(0);
    bench.look();
    let gate = bench.cameras[0].clone();
    let wait = |bench: &Bench| bench.sampler.next_frame(&gate).unwrap();
    let (mut masked, mut unmasked, mut lost) = (wait(&bench), wait(&bench), wait(&bench));
    assert!(masked.try_recv().is_err(), "the last frame is no next one");
    bench.put_grey(0, ms(20), 200);
    assert!(bench.try_look().is_none(), "it is not due");
    let rows = |picture: Picture| [0, 1].map(|y| picture.row(0, y).to_vec());
    let masked = masked.try_recv().unwrap().masked();
    assert_eq!(rows(masked.unwrap()), [vec![0; 6], vec![200; 6]]);
    let unmasked = unmasked.try_recv().unwrap().unmasked();
    assert_eq!(rows(unmasked.unwrap()), [vec![200; 6], vec![200; 6]]);
    assert!(lost.try_recv().is_ok());
    bench.put_grey(0, ms(20), 50);
    assert!(lost.try_recv().is_err(), "once");

    // In full size, before the frame that is scaled for the looks.
    let whole = bench.sampler.whole_pictures(&gate).unwrap();
    assert!(!whole.is_wanted());
    let mut next = wait(&bench);
    assert!(whole.is_wanted());
    whole.take_whole(Picture::from_rgb(4, 2, vec![9; 24]).unwrap());
    bench.put_grey(0, ms(20), 50);
    let next = next.try_recv().unwrap();
    assert_eq!((next.camera_size(), whole.is_wanted()), ((4, 2), false));
    assert_eq!(next.masked().unwrap().size(), (4, 2));

    // A picture that cannot be fetched from its device is not shown as a black one.
    let mut next = wait(&bench);
    let planes = FakeDevicePlanes::lost(vec![vec![200; 4], vec![128; 2]]);
    bench.put_picture(0, Arc::new(planes));
    assert!(next.try_recv().unwrap().masked().is_none());

    let mut next = wait(&bench);
    bench.change(&[]);
    assert!(next.try_recv().is_err());
    assert!(bench.sampler.next_frame(&gate).is_none());
}

#[test]
fn unreadable_picture_is_not_sent_as_a_black_one() {
    let mut bench = Bench::new(&[masked(person("masked")), person("plain")]);
    let lost = || Arc::new(FakeDevicePlanes::lost(vec![vec![200; 4], vec![128; 2]]));
    bench.put_picture(0, lost());
    assert!(bench.try_look().is_none());
    let counters = bench.counters(0);
    assert!(counters.failed == 1 && counters.balanced(), "{counters:?}");
    assert_eq!(bench.since_last(0, "person").error, 1);
    // The prompt is still due.
    bench.put(0);
    assert_eq!(bench.look().prompts.len(), 1);
    // The sampler does not read the pictures of a camera without a mask.
    bench.put_picture(1, lost());
    assert!(bench.try_look().is_some());
}

#[test]
fn caller_waits_for_a_frame_and_is_woken_by_it() {
    let mut bench = Bench::new(&[person("gate")]);
    let share = bench.share.clone();
    let mut context = Context::from_waker(Waker::noop());
    let mut next = pin!(share.due());
    assert!(next.as_mut().poll(&mut context).is_pending());
    bench.put(0);
    assert!(
        matches!(next.poll(&mut context), Poll::Ready(due) if due.take().unwrap().frame.number == 1)
    );

    // Two frames for two waiting callers, and a caller that stops waiting: no caller waits while a frame is queued.
    let mut bench = Bench::new(&[person("a"), person("b")]);
    let share = bench.share.clone();
    let mut gives_up = Box::pin(share.due());
    let mut stays = pin!(share.due());
    assert!(gives_up.as_mut().poll(&mut context).is_pending());
    assert!(stays.as_mut().poll(&mut context).is_pending());
    bench.put(0);
    drop(gives_up);
    assert!(stays.as_mut().poll(&mut context).is_ready());
}

#[test]
fn frame_that_arrives_during_a_look_does_not_start_another() {
    let mut bench = Bench::new(&[person("gate")]);
    let mut slot = FrameSlot::new(rate(1.0), 0.0);
    slot.change(rate(1.0), vec![(question("person"), rate(1.0))]);
    let (first, second) = (bench.frame(0, ms(20), 0), bench.frame(0, ms(20), 0));
    let now = bench.clock.now();
    assert!(slot.put(first, now) && slot.take().is_some());
    assert!(slot.put(second, now) && slot.unneeded.is_none());
    let moved = MovedRecently {
        region: None,
        whole_every: ms(30_000),
    };
    let look = slot.look(moved, |_| true, now).unwrap();
    let unneeded = slot.unneeded.take().unwrap();
    assert_eq!((look.prompts.len(), unneeded.number), (1, 2));
    assert_eq!(slot.due_since(), None);
    assert!(slot.counters.balanced());
}

/// A street of 1920 x 1080 pixels, with a person of 20 x 60 pixels at `x`, if any.
fn street(x: Option<usize>) -> Picture {
    let mut bytes = vec![90; 1920 * 1080 * 3];
    for y in x.map_or(0..0, |_| 500..560) {
        let from = (y * 1920 + x.unwrap_or_default()) * 3;
        bytes[from..from + 60].fill(220);
    }
    Picture::from_rgb(1920, 1080, bytes).unwrap()
}

#[test]
fn prompt_with_the_region_motion_looks_where_something_moved() {
    let mut walker = camera("gate", 1.0, &[("person", 1.0), ("door", 0.1)]);
    walker.prompts[0].region = PromptRegion::Motion;
    let mut bench = Bench::new(&[walker]);
    let second = |bench: &mut Bench, x: Option<usize>| {
        let mut frame = bench.frame(0, ms(20), 0);
        frame.picture = street(x);
        bench.put_frame(frame);
        let look = bench.try_look();
        bench.clock.advance(ms(1000));
        look.map(|look| {
            let ids: Vec<String> = look.prompts.iter().map(|p| p.id.to_string()).collect();
            let region = look.moved.map(|moved| moved.norm_box());
            bench.answer(look);
            (ids.join(" "), region)
        })
    };
    let both = "person door".to_owned();
    assert_eq!(second(&mut bench, None), Some((both, None)), "never looked");
    assert_eq!(second(&mut bench, None), None, "nothing moved");
    let (prompts, region) = second(&mut bench, Some(960)).expect("a person came");
    let region = region.expect("a region");
    assert_eq!(prompts, "person");
    let person = NormBox::from_corners(0.5, 500.0 / 1080.0, 980.0 / 1920.0, 560.0 / 1080.0);
    assert!(region.covers(&person) && region.area() < 0.1, "{region:?}");
    // The person does not move any more: the region stays for `hold`, then nothing is worth a look until the whole picture is due.
    let mut looks = Vec::new();
    for after_motion in 1..=40 {
        if let Some((prompts, region)) = second(&mut bench, Some(960)) {
            looks.push((after_motion, prompts, region.is_some()));
        }
    }
    // The region stays for `hold`; then the whole picture is looked at thirty seconds after the last time.
    let parts = (1..=10).map(|after| match after {
        3 => (after, "person door", true),
        _ => (after, "person", true),
    });
    let whole = [(13, "door"), (23, "door"), (28, "person"), (33, "door")];
    let whole = whole.map(|(after, prompts)| (after, prompts, false));
    let expected = parts.chain(whole);
    let expected: Vec<_> = expected
        .map(|(after, prompts, part)| (after, prompts.to_owned(), part))
        .collect();
    assert_eq!(looks, expected);
    let counters = bench.counters(0);
    assert!(counters.balanced() && counters.gated > 20, "{counters:?}");
    assert!(bench.since_last(0, "person").gated > 0);
}

#[test]
fn threads_lose_no_frame() {
    let fast = |id| camera(id, 30.0, &[("person", 30.0)]);
    let cameras = [fast("a"), gated(fast("b"))];
    let bench = Bench::new(&cameras);
    let threads: Vec<_> = (0..cameras.len())
        .map(|index| {
            let mut own = bench.clone();
            let body = move || {
                for grey in 0..2000u32 {
                    own.clock.advance(ms(1));
                    own.put_grey(index, ms(1), (grey / 100 * 10) as u8);
                }
            };
            let name = format!("camera {index}");
            std::thread::Builder::new().name(name).spawn(body).unwrap()
        })
        .collect();
    while threads.iter().any(|thread| !thread.is_finished()) {
        if let Some(look) = bench.try_look() {
            assert_eq!(look.prompts.len(), 1);
            bench.answer(look);
        }
    }
    for (_, counters) in bench.sampler.counters() {
        assert!(counters.balanced());
        assert_eq!((counters.arrived, counters.in_flight), (2000, 0));
    }
}

/// Cameras with these frame intervals (ms) and rates, an engine that takes `service_ms` for a look, for `seconds`.
/// Returns when each camera was looked at, and checks what must hold at each moment.
fn simulate(cameras: &[(u64, f64)], service_ms: u64, seconds: u64) -> Vec<Vec<Mono>> {
    let configs: Vec<CameraConfig> = (cameras.iter().enumerate())
        .map(|(i, &(_, rate))| camera(&format!("c{i}"), rate, &[("person", rate)]))
        .collect();
    let mut bench = Bench::new(&configs);
    let mut looks = vec![Vec::new(); cameras.len()];
    let mut engine: Option<(Look, Mono)> = None;
    for tick in 0..seconds * 1000 {
        bench.clock.advance(ms(1));
        for (index, &(interval_ms, _)) in cameras.iter().enumerate() {
            if tick % interval_ms == 0 {
                bench.put(index);
            }
        }
        let now = bench.clock.now();
        if let Some((look, _)) = engine.take_if(|(_, until)| *until <= now) {
            bench.answer(look);
        }
        if engine.is_none()
            && let Some(look) = bench.try_look()
        {
            let index = bench.camera_of(&look);
            assert_eq!(look.frame.number, bench.put[index], "the newest frame");
            assert!(now.since(look.frame.times.received) <= BUDGET);
            looks[index].push(now);
            engine = Some((look, now.after(ms(service_ms))));
        }
        assert!(bench.sampler.counters().iter().all(|(_, b)| b.balanced()));
    }
    for (index, &put) in bench.put.iter().enumerate() {
        assert_eq!(bench.counters(index).arrived, put);
    }
    looks
}

#[test]
fn cameras_that_start_together_look_apart() {
    let cameras = [(40, 1.0); 16];
    let looks = simulate(&cameras, 20, 20);
    let mut taken: Vec<Mono> = looks.into_iter().flatten().collect();
    taken.sort();
    let start = taken[0];
    // Sixteen looks a second, at most four in an eighth of a second, as soon as each camera had its first look.
    let settled: Vec<Mono> = taken
        .into_iter()
        .filter(|at| at.since(start) > ms(1500))
        .collect();
    for five in settled.windows(5) {
        assert!(five[4].since(five[0]) >= ms(125), "{five:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(spotter_core::testing::cases(24)))]

    #[test]
    fn fair_within_rates_and_balanced(
        cameras in prop::collection::vec((20u64..300, 0.5f64..30.0), 1..5),
        service_ms in 1u64..200,
    ) {
        let looks = simulate(&cameras, service_ms, 8);
        let n = cameras.len() as u64;
        for (taken, &(interval_ms, rate_hz)) in looks.iter().zip(&cameras) {
            let period_ms = (1000.0 / rate_hz) as u64;
            for (index, pair) in taken.windows(2).enumerate() {
                // The second look waits for the camera's phase.
                let pace_ms = if index == 0 { period_ms * 3 / 2 } else { period_ms };
                let longest = ms(pace_ms + interval_ms + n * service_ms + 2);
                prop_assert!(pair[1].since(pair[0]) >= ms(period_ms / 2));
                // A frame that goes stale while others are served is late, and then the next one is needed.
                if n * service_ms + 20 < BUDGET.as_millis() as u64 {
                    prop_assert!(pair[1].since(pair[0]) <= longest, "starved for {:?}", pair[1].since(pair[0]));
                }
            }
            prop_assert!(taken.len() as f64 <= 8.0 * rate_hz + 1.5);
            prop_assert!(!taken.is_empty() || n * service_ms >= 200);
        }
    }
}
