//! Looks against a real engine that the test turns itself. Time passes only when nothing else can happen.
//!
//! Faults: D12.

use std::time::Duration;

use tokio::{task::JoinHandle, time::timeout};

use super::*;
use crate::app::testing::{frame, no_limits, scene};
use spotter_cameras::sampler::Sampler;
use spotter_config::{
    CameraConfig, PromptConfig,
    testing::{camera, prompt},
};
use spotter_core::{
    AnswerBody, CaptionLength, Clock as _, FrameCounters, Look, ManualClock, Outcome, Picture, Task,
};
use spotter_engine::{
    service::{LookRule, engine_loop::EngineLoop, handle},
    testing::simulated,
};
use spotter_requests::{RequestQueue, UnansweredRequest};

const PERMITS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(60);
/// Without news for so long, nothing happens before the next turn of the engine.
const STEP_PAUSE: Duration = Duration::from_millis(100);

/// Two cameras and an engine.
struct Site {
    clock: ManualClock,
    cameras: Vec<CameraConfig>,
    sampler: Arc<Sampler>,
    looks: LooksInFlight,
    handle: EngineHandle,
    begins: JoinSet<()>,
    queue: Arc<RequestQueue>,
    engine: EngineLoop,
    frames: u64,
}

impl Site {
    fn open(permits: usize) -> Self {
        Self::open_with(permits, &[prompt("person")], Arc::default())
    }

    fn open_with(permits: usize, prompts: &[PromptConfig], queue: Arc<RequestQueue>) -> Self {
        let clock = ManualClock::default();
        clock.advance(PATIENCE);
        let cameras = ["gate", "yard"]
            .map(|id| camera(id, prompts.to_vec()))
            .to_vec();
        let sampler = Sampler::new(&cameras, Arc::new(clock.clone()));
        let share = sampler.share(no_limits());
        let ids: Vec<_> = cameras.iter().map(|camera| camera.id.clone()).collect();
        sampler.assign(&share, &ids);
        let engine = simulated::engine(simulated::device(1), Arc::new(clock.clone()));
        let (handle, _, engine) = handle::start_here(engine, LookRule::fixed(permits));
        let looks = LooksInFlight::default();
        let source = LookSource {
            engine: handle.clone(),
            share,
            requests: EngineRequests::new(&queue),
        };
        let mut begins = JoinSet::new();
        begins.spawn(source.begin_looks(looks.sender().unwrap()));
        Self {
            looks,
            handle,
            begins,
            queue,
            clock,
            cameras,
            sampler,
            engine,
            frames: 0,
        }
    }

    /// A frame of the camera, on which its prompt is due; then the looks go on as far as they can.
    async fn frame(&mut self, camera: usize) {
        self.clock.advance(Duration::from_secs(2));
        self.frames += 1;
        let camera = &self.cameras[camera].id;
        let now = self.clock.now();
        self.sampler.camera_sink(camera).unwrap()(frame(camera, self.frames, now));
        let news = timeout(STEP_PAUSE, self.looks.news()).await;
        assert!(news.is_err(), "the engine does not turn: {news:?}");
    }

    fn sum(&self, of: impl Fn(&FrameCounters) -> u64) -> u64 {
        let counters = self.sampler.counters();
        counters.iter().map(|(_, frames)| of(frames)).sum()
    }
}

fn expect_settled(sampler: &Sampler) {
    for (camera, frames) in sampler.counters() {
        assert!(
            frames.balanced() && frames.in_flight == 0,
            "{camera}: {frames:?}"
        );
    }
}

/// Camera and number of the frame of an answered look.
fn answered(news: &LookNews) -> Option<(String, u64)> {
    match news {
        LookNews::Piece { .. } | LookNews::Answer { .. } | LookNews::ShortAnswered(_) => None,
        LookNews::Ended(Outcome::Answered(frame)) => Some((frame.camera.to_string(), frame.number)),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn permits_bound_looks_and_finish_waits_for_the_begun() {
    let mut site = Site::open(PERMITS);
    for camera in [0, 1, 0, 0, 1] {
        site.frame(camera).await;
    }
    assert_eq!(site.sum(|frames| frames.in_flight), PERMITS as u64);
    assert_eq!(site.sum(|frames| frames.waiting), 2);
    let Site {
        mut looks,
        mut begins,
        engine,
        ..
    } = site;
    begins.shutdown().await;
    let deadline = Instant::now() + PATIENCE;
    let (last, ()) = tokio::join!(looks.finish(deadline), until_idle(engine));
    let mut seen: Vec<_> = last.iter().filter_map(answered).collect();
    seen.sort();
    let expected = [("gate", 1), ("gate", 3), ("yard", 2)];
    assert_eq!(seen, expected.map(|(camera, n)| (camera.to_owned(), n)));
    expect_settled(&site.sampler);
    let waiting = site.sampler.counters().into_iter();
    let waiting = waiting.map(|(_, frames)| frames.waiting);
    assert_eq!(Vec::from_iter(waiting), [1, 1], "no other is begun");
}

/// Turns the engine until no look is inside, while others wait for it.
async fn until_idle(mut engine: EngineLoop) {
    engine.take_waiting();
    while !engine.is_idle() {
        engine.turn().unwrap();
        tokio::task::yield_now().await;
    }
}

/// The prompts that were answered, with the numbers of their frames.
fn answers(news: &[LookNews]) -> Vec<(String, u64)> {
    let answer = |news: &LookNews| match news {
        LookNews::Answer { frame, answer, .. } => {
            Some((answer.prompt.id.to_string(), frame.number))
        }
        _ => None,
    };
    news.iter().filter_map(answer).collect()
}

#[tokio::test(start_paused = true)]
async fn next_look_runs_beside_the_text_of_the_last() {
    let mut site = Site::open_with(1, &[prompt("person"), scene()], Arc::default());
    let mut seen = Vec::new();
    for number in [1, 2] {
        site.clock.advance(Duration::from_secs(2));
        let camera = &site.cameras[0].id;
        let arrived = frame(camera, number, site.clock.now());
        site.sampler.camera_sink(camera).unwrap()(arrived);
        while seen.last() != Some(&("person".to_owned(), number)) {
            match timeout(STEP_PAUSE, site.looks.news()).await {
                Ok(news) => {
                    seen.extend(answers(&news));
                }
                // A step may be of the first look's text alone; the second look joins one of the next.
                Err(_) => site.engine.turn().unwrap(),
            }
        }
    }
    let person = |number| ("person".to_owned(), number);
    assert_eq!(seen, [person(1), person(2)], "the text takes longer");
    // The device hangs, and the engine is given up: each frame is counted once, and the text is asked again.
    site.handle.give_up();
    let last = site.looks.news().await;
    assert!(
        matches!(last[..], [LookNews::Ended(Outcome::Failed(..))]),
        "{last:?}"
    );
    expect_settled(&site.sampler);
    let (_, frames) = &site.sampler.counters()[0];
    assert_eq!((frames.looked, frames.failed), (1, 1), "{frames:?}");
}

/// A request of the API about a small picture.
fn request(
    queue: &Arc<RequestQueue>,
    task: Task,
    wait: Duration,
) -> JoinHandle<Result<(), UnansweredRequest>> {
    let queue = Arc::clone(queue);
    tokio::spawn(async move {
        let picture = Picture::from_rgb(2, 2, vec![0; 12]).unwrap();
        let is_text = task.is_free_text();
        let look = Look::still(picture, [task]);
        let answer = queue.ask(look, wait).await?.answer().await?;
        assert_eq!(matches!(answer.body, AnswerBody::Text { .. }), is_text);
        Ok(())
    })
}

fn detect() -> Task {
    let object = "thing".into();
    Task::Detect { object }
}

/// A site whose only permit is for cameras and requests.
fn site_with_requests() -> (Site, Arc<RequestQueue>) {
    let site = Site::open(1);
    let queue = Arc::clone(&site.queue);
    (site, queue)
}

impl Site {
    /// Turns the engine once, and the looks go on as far as they can. Returns their news.
    async fn step(&mut self) -> Vec<LookNews> {
        self.engine.turn().unwrap();
        self.settle().await
    }

    async fn settle(&mut self) -> Vec<LookNews> {
        let mut all = Vec::new();
        while let Ok(news) = timeout(STEP_PAUSE, self.looks.news()).await {
            all.extend(news);
        }
        all
    }
}

#[tokio::test(start_paused = true)]
async fn request_begins_when_no_camera_has_a_look_due() {
    let (mut site, queue) = site_with_requests();
    site.frame(0).await;
    let asked = request(&queue, detect(), PATIENCE);
    site.settle().await;
    site.frame(1).await;
    while !asked.is_finished() {
        if site.sum(|frames| frames.waiting) > 0 {
            assert_eq!(queue.waiting(), 1, "the camera goes first");
        }
        site.step().await;
    }
    assert_eq!(asked.await.unwrap(), Ok(()));
    assert_eq!(site.sum(|frames| frames.looked), 2);
    expect_settled(&site.sampler);
}

// Faults: K5.
#[tokio::test(start_paused = true)]
async fn request_without_room_is_refused_and_no_look_fewer() {
    let (mut site, queue) = site_with_requests();
    site.frame(0).await;
    let asked = request(&queue, detect(), 40 * STEP_PAUSE);
    site.settle().await;
    let mut steps = 0;
    while !asked.is_finished() {
        // One of both cameras has a look due whenever the permit is free.
        site.frame(0).await;
        site.frame(1).await;
        site.step().await;
        steps += 1;
    }
    assert_eq!(asked.await.unwrap(), Err(UnansweredRequest::NoRoom));
    assert_eq!(queue.waiting(), 0);
    // As many as without a request.
    let (mut other, _) = site_with_requests();
    other.frame(0).await;
    for _ in 0..steps {
        other.frame(0).await;
        other.frame(1).await;
        other.step().await;
    }
    let looked = |site: &Site| site.sum(|frames| frames.looked);
    assert_eq!(looked(&site), looked(&other));
    assert!(looked(&site) > 0);
}

#[tokio::test(start_paused = true)]
async fn free_texts_of_requests_are_written_together() {
    let (mut site, queue) = site_with_requests();
    let length = CaptionLength::Short;
    let caption = |_| request(&queue, Task::Caption { length }, PATIENCE);
    let asked: Vec<_> = (0..6).map(caption).collect();
    site.settle().await;
    let mut most_inside = 0;
    while !asked.iter().all(JoinHandle::is_finished) {
        let ended = asked.iter().filter(|asked| asked.is_finished()).count();
        most_inside = most_inside.max(asked.len() - queue.waiting() - ended);
        site.step().await;
    }
    // Some end before the fourth begins.
    assert!((3..=4).contains(&most_inside), "{most_inside}");
    for asked in asked {
        assert_eq!(asked.await.unwrap(), Ok(()));
    }
}

#[tokio::test(start_paused = true)]
async fn engine_with_room_takes_the_next_request() {
    let (mut busy, queue) = site_with_requests();
    busy.frame(0).await;
    let asked = request(&queue, detect(), PATIENCE);
    busy.settle().await;
    assert_eq!(queue.waiting(), 1);
    let mut idle = Site::open_with(1, &[prompt("person")], Arc::clone(&queue));
    while !asked.is_finished() {
        idle.step().await;
    }
    assert_eq!(asked.await.unwrap(), Ok(()));
    assert_eq!(busy.sum(|frames| frames.in_flight), 1);
}

// Faults: K5.
#[tokio::test(start_paused = true)]
async fn client_that_disconnects_gives_its_permit_back() {
    let (mut site, queue) = site_with_requests();
    let asked = request(&queue, detect(), PATIENCE);
    site.settle().await;
    assert_eq!(queue.waiting(), 0, "begun");
    site.frame(0).await;
    assert_eq!(site.sum(|frames| frames.waiting), 1, "behind the request");
    asked.abort();
    while site.sum(|frames| frames.looked) == 0 {
        site.step().await;
    }
    expect_settled(&site.sampler);
}

// Faults: K5.
#[tokio::test(start_paused = true)]
async fn requests_end_with_their_engine_and_with_their_queue() {
    let (mut site, queue) = site_with_requests();
    let ask = || request(&queue, detect(), PATIENCE);
    let (begun, waits) = (ask(), ask());
    site.settle().await;
    assert_eq!(queue.waiting(), 1, "one at a time");
    site.begins.shutdown().await;
    site.handle.give_up();
    assert_eq!(begun.await.unwrap(), Err(UnansweredRequest::EngineLost));
    queue.close();
    assert_eq!(waits.await.unwrap(), Err(UnansweredRequest::Stopping));
    assert_eq!(ask().await.unwrap(), Err(UnansweredRequest::Stopping));
}
