//! Three boxes share six cameras of the drawn street. One box is killed, later one is stopped, and the events are held against the
//! truth of the street: what a take-over loses, and that nothing else is lost.
//!
//! Faults: F1, F2.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use crate::support::{DONE, Program, broker::Heard, room::Room, schemas::Schemas, until};
use serde_json::Value;
use spotter_core::{Clock as _, NormBox, SystemClock, WallTime};
use spotter_street::{
    Street, draw_i420,
    rtsp::{RtspContent, RtspStreet, StreetOptions},
    scene::{Class, ObjectIdentity},
    score::{TruthObject, match_boxes},
    truth::{SeenObject, Visibility, truth},
};

const BOXES: [&str; 3] = ["edge1", "edge2", "edge3"];
/// Cameras with the seeds of their streets, and the moment at which all of them begin: these streets have clear daylight from
/// then on for more than four minutes, which a busy machine may take.
const CAMERAS: [(&str, u64); 6] = [
    ("c0", 7),
    ("c1", 151),
    ("c2", 167),
    ("c3", 223),
    ("c4", 287),
    ("c5", 303),
];
const MOMENT_S: i64 = 1_780_318_235;
const SIZE: (u32, u32) = (640, 360);
const FPS: u32 = 5;

/// What moves, and a traffic light, which is always there: so each look has a message, and each take-over an open event.
const PROMPTS: [(&str, &str, Class); 4] = [
    ("person", "person", Class::Person),
    ("car", "car", Class::Car),
    ("dog", "dog", Class::Dog),
    (LIGHT, "traffic light", Class::TrafficLight),
];
const LIGHT: &str = "light";

/// Looks at each camera before, between and after the take-overs: 18 s on a machine that keeps up.
const LOOKS: usize = 36;
/// `events.end_after`: an object that is hidden for longer begins another stay.
const END_AFTER_MS: i64 = 3000;
/// An object that was there in so many looks of one owner must have an event.
const DUE_LOOKS: usize = 4;

/// What each kind of owner has to reach: events of real objects, and stays with an event. Without a take-over these streets reach 1 and 1.
const PRECISION_MIN: f64 = 0.9;
const RECALL_MIN: f64 = 0.9;

/// What the cameras really show.
struct Truth {
    ahead_s: i64,
}

impl Truth {
    fn shown(&self, captured: WallTime) -> WallTime {
        WallTime::from_unix_nanos(captured.unix_nanos() + self.ahead_s * 1_000_000_000)
    }

    fn seen(&self, camera: &str, captured: WallTime) -> Vec<SeenObject> {
        let seed = CAMERAS.iter().find(|(id, _)| *id == camera);
        let (_, seed) = seed.expect("one of the cameras");
        truth(&Street::new(*seed).at(self.shown(captured))).seen
    }
}

/// A room whose cameras are drawn streets.
struct StreetRoom {
    room: Room,
    streets: Vec<RtspStreet>,
    truth: Truth,
}

impl StreetRoom {
    fn new() -> Self {
        let truth = Truth {
            ahead_s: MOMENT_S - SystemClock::new().wall().unix_millis() / 1000,
        };
        Self {
            room: Room::new(),
            streets: CAMERAS.map(|(_, seed)| serve(seed, &truth)).into(),
            truth,
        }
    }

    fn apply(&self) {
        // On a busy machine pictures may come late.
        let mut text = "[defaults]\nrate = 2\nfirst_frame = \"60s\"\nstall = \"60s\"\n".to_owned();
        for ((id, _), street) in CAMERAS.iter().zip(&self.streets) {
            text += &format!("[camera.{id}]\nurl = \"{}\"\n", street.url());
            for (prompt, words, _) in PROMPTS {
                text += &format!("prompt.{prompt}.detect = \"{words}\"\n");
            }
        }
        self.room.apply(&text);
    }

    fn messages(&self) -> Vec<CameraMessage> {
        let heard = self.room.consumer.all();
        heard.iter().filter_map(CameraMessage::from_heard).collect()
    }

    /// The boxes that the last messages name.
    fn owners(&self) -> BTreeMap<String, String> {
        let messages = self.messages();
        let owners = messages.iter().filter_map(|message| {
            let node = message.json["node"].as_str();
            let node = node.filter(|_| message.kind == "owner")?;
            Some((message.camera.clone(), node.to_owned()))
        });
        owners.collect()
    }

    /// Waits until the cameras have owners among `boxes`, and then for so many looks of each.
    fn watch(&self, boxes: &[&str]) {
        until("owners of all cameras", || {
            let owners = self.owners();
            let is_among = |node: &String| boxes.contains(&node.as_str());
            (owners.len() == CAMERAS.len() && owners.values().all(is_among)).then_some(())
        });
        let from = self.room.consumer.now();
        for (camera, _) in CAMERAS {
            let looks = Cell::new(0);
            let topic = format!("cam/{camera}/det/{LIGHT}");
            self.room.consumer.wait_after(from, &topic, |_| {
                looks.set(looks.get() + 1);
                looks.get() == LOOKS
            });
        }
    }
}

fn serve(seed: u64, truth: &Truth) -> RtspStreet {
    let options = StreetOptions {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        mount: "/street".into(),
        size: SIZE,
        fps: FPS,
        content: RtspContent::Pictures { kbit_per_s: 1000 },
    };
    let street = Street::new(seed);
    let truth = Truth { ..*truth };
    let draw = move |wall: WallTime| draw_i420(&street.at(truth.shown(wall)), SIZE.0, SIZE.1);
    RtspStreet::start(options, Arc::new(SystemClock::new()), draw).expect("a camera")
}

/// A message of a camera that has an epoch.
struct CameraMessage {
    camera: String,
    /// `det`, `event`, `owner`, …
    kind: String,
    prompt: String,
    epoch: u64,
    json: Value,
}

impl CameraMessage {
    fn from_heard(heard: &Heard) -> Option<Self> {
        let mut levels = heard.topic.strip_prefix("spotter/hall/cam/")?.split('/');
        let mut level = || levels.next().unwrap_or_default().to_owned();
        let (camera, kind, prompt) = (level(), level(), level());
        let json: Value = serde_json::from_str(&heard.payload).ok()?;
        let epoch = json["epoch"].as_u64()?;
        Some(Self {
            camera,
            kind,
            prompt,
            epoch,
            json,
        })
    }

    fn text(&self, key: &str) -> String {
        self.json[key].as_str().unwrap_or_default().to_owned()
    }
}

/// What one camera published.
#[derive(Default)]
struct Recording {
    /// Owners in the order of their messages, with their epochs.
    owners: Vec<(String, u64)>,
    /// By epoch and the time at which the frame was received.
    looks: BTreeMap<(u64, i64), RecordedLook>,
    /// By their ids.
    events: BTreeMap<String, RecordedEvent>,
    /// Events that a consumer knows to be open.
    open: BTreeSet<String>,
    /// Events that were open when the owner of this epoch was published.
    ended_by_owner: BTreeMap<u64, usize>,
}

#[derive(Default)]
struct RecordedLook {
    /// `None` until the camera's first sender report.
    captured: Option<WallTime>,
    answers: BTreeMap<String, Vec<(NormBox, String)>>,
}

struct RecordedEvent {
    epoch: u64,
    prompt: String,
    end: Option<String>,
}

impl Recording {
    fn of(camera: &str, messages: &[CameraMessage]) -> Self {
        let mut recording = Self::default();
        for message in messages.iter().filter(|message| message.camera == camera) {
            match message.kind.as_str() {
                "owner" => recording.add_owner(message),
                "det" => recording.add_detection(message),
                "event" => recording.add_event(message),
                _ => {}
            }
        }
        recording
    }

    /// The rule for consumers: an owner on another node ends all open events of the node before.
    fn add_owner(&mut self, message: &CameraMessage) {
        let node = message.text("node");
        let is_other = self.owners.last().is_none_or(|(last, _)| *last != node);
        if is_other {
            let ended = std::mem::take(&mut self.open).len();
            self.ended_by_owner.insert(message.epoch, ended);
        }
        if is_other && !node.is_empty() {
            self.owners.push((node, message.epoch));
        }
    }

    fn add_detection(&mut self, message: &CameraMessage) {
        let time = &message.json["time"];
        let received_ms = time["recv_ms"].as_i64().expect("a number");
        let look = self.looks.entry((message.epoch, received_ms)).or_default();
        if time["capture_src"] == "rtcp" {
            look.captured = time["capture_ms"].as_i64().map(WallTime::from_unix_millis);
        }
        let objects = message.json["objects"].as_array().expect("objects");
        let objects = objects.iter().map(|object| {
            let corner = |i: usize| object["box"][i].as_f64().expect("a number");
            let bounds = NormBox::from_corners(corner(0), corner(1), corner(2), corner(3));
            let track = object["track"].as_str().expect("a text");
            (bounds, track.to_owned())
        });
        let objects = objects.collect();
        look.answers.insert(message.prompt.clone(), objects);
    }

    fn add_event(&mut self, message: &CameraMessage) {
        let id = message.text("event");
        let new = || RecordedEvent {
            epoch: message.epoch,
            prompt: message.prompt.clone(),
            end: None,
        };
        let event = self.events.entry(id.clone()).or_insert_with(new);
        assert_eq!(event.epoch, message.epoch, "{id} changed its owner");
        assert_eq!(event.end, None, "{id} goes on after its end");
        if message.json["type"] == "end" {
            event.end = Some(message.text("reason"));
            self.open.remove(&id);
        } else {
            self.open.insert(id);
        }
    }

    /// Events of an epoch that its owner handed over.
    fn moved(&self, epoch: u64) -> usize {
        let events = self.events.values().filter(|event| event.epoch == epoch);
        events
            .filter(|event| event.end.as_deref() == Some("moved"))
            .count()
    }

    /// An owner that had its camera for a moment only need not have published anything.
    fn is_settled(&self, epoch: u64) -> bool {
        self.looks
            .range((epoch, i64::MIN)..=(epoch, i64::MAX))
            .count()
            >= LOOKS
    }

    /// The first and the last look of an epoch.
    fn watched_ms(&self, epoch: u64) -> Option<(i64, i64)> {
        let mut looks = self.looks.range((epoch, i64::MIN)..=(epoch, i64::MAX));
        let (&(_, first), _) = looks.next()?;
        Some((first, looks.next_back().map_or(first, |(&(_, ms), _)| ms)))
    }
}

/// How an owner came to its camera.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Begin {
    /// No box had the camera before.
    #[default]
    Start,
    /// The owner before was killed.
    Killed,
    /// The owner before handed the camera over.
    HandedOver,
}

/// The events of one owner of one camera, or of several.
#[derive(Clone, Copy, Debug, Default)]
struct WatchScore {
    /// Stays that need an event, and those that have one.
    due: usize,
    reported: usize,
    /// Events of objects, and of nothing.
    right: usize,
    wrong: usize,
}

impl WatchScore {
    fn add(&mut self, other: Self) {
        self.due += other.due;
        self.reported += other.reported;
        self.right += other.right;
        self.wrong += other.wrong;
    }

    fn precision(&self) -> f64 {
        self.right as f64 / (self.right + self.wrong).max(1) as f64
    }

    fn recall(&self) -> f64 {
        self.reported as f64 / self.due.max(1) as f64
    }
}

/// An object in the looks of one owner, from its first to its last one.
#[derive(Default)]
struct Stay {
    looks: usize,
    last_ms: i64,
    /// Those that were on it.
    tracks: BTreeSet<String>,
}

impl Stay {
    fn extend(stays: &mut Vec<Self>, at_ms: i64, track: Option<String>) {
        let has_ended = |stay: &Self| at_ms - stay.last_ms > END_AFTER_MS;
        if stays.last().is_none_or(has_ended) {
            stays.push(Self::default());
        }
        if let Some(stay) = stays.last_mut() {
            stay.looks += 1;
            stay.last_ms = at_ms;
            stay.tracks.extend(track);
        }
    }
}

/// What the looks of a camera show beside the truth.
#[derive(Default)]
struct JudgedLooks {
    /// By epoch and object.
    stays: BTreeMap<(u64, ObjectIdentity), Vec<Stay>>,
    /// Looks on an object, and looks on nothing.
    tracks: BTreeMap<String, (usize, usize)>,
}

impl JudgedLooks {
    /// The traffic light is not counted.
    fn add(&mut self, epoch: u64, look: &RecordedLook, truth: &Truth, camera: &str) {
        let Some(captured) = look.captured else {
            return;
        };
        let seen = truth.seen(camera, captured);
        for (prompt, _, class) in PROMPTS.iter().filter(|(id, ..)| *id != LIGHT) {
            // No message about a look that has other messages means that nothing was found.
            let found = look.answers.get(*prompt).map_or(&[][..], Vec::as_slice);
            let of_class: Vec<_> = seen.iter().filter(|seen| seen.class == *class).collect();
            let boxes: Vec<NormBox> = found.iter().map(|(bounds, _)| *bounds).collect();
            let thing = |seen: &&SeenObject| TruthObject {
                bounds: seen.box_in_frame,
                ignored: seen.visibility == Visibility::Ignored,
            };
            let things: Vec<TruthObject> = of_class.iter().map(thing).collect();
            let matches = match_boxes(&boxes, &things);
            let track = |answer: usize| found[answer].1.clone();
            for wrong in &matches.wrong {
                self.tracks.entry(track(*wrong)).or_default().1 += 1;
            }
            for hit in &matches.found {
                self.tracks.entry(track(hit.answer)).or_default().0 += 1;
            }
            for (index, seen) in of_class.iter().enumerate() {
                if seen.visibility == Visibility::Present {
                    let hit = matches.found.iter().find(|hit| hit.thing == index);
                    let track = hit.map(|hit| track(hit.answer));
                    let stays = self.stays.entry((epoch, seen.identity)).or_default();
                    Stay::extend(stays, captured.unix_millis(), track);
                }
            }
        }
    }
}

/// A camera's recording beside the truth.
struct ScoredCamera {
    recording: Recording,
    /// By epoch.
    scores: BTreeMap<u64, WatchScore>,
}

impl ScoredCamera {
    fn new(camera: &str, recording: Recording, truth: &Truth) -> Self {
        let mut looks = JudgedLooks::default();
        for (&(epoch, _), look) in &recording.looks {
            looks.add(epoch, look, truth, camera);
        }
        let mut scores: BTreeMap<u64, WatchScore> = BTreeMap::new();
        for (id, event) in &recording.events {
            let score = scores.entry(event.epoch).or_default();
            match looks.tracks.get(id) {
                Some((0, 1..)) => score.wrong += 1,
                Some((1.., _)) => score.right += 1,
                // The light, something that may be found, or before the camera's first sender report.
                _ => {}
            }
        }
        for ((epoch, _), stays) in &looks.stays {
            let score = scores.entry(*epoch).or_default();
            for stay in stays.iter().filter(|stay| stay.looks >= DUE_LOOKS) {
                let has_event = |track| recording.events.contains_key(track);
                score.due += 1;
                score.reported += usize::from(stay.tracks.iter().any(has_event));
            }
        }
        Self { recording, scores }
    }

    /// From the last look of the owner before to the first one of this owner.
    fn unwatched(&self, number: usize) -> Option<Duration> {
        let owners = &self.recording.owners;
        let (_, last_ms) = self.recording.watched_ms(owners[number - 1].1)?;
        let (first_ms, _) = self.recording.watched_ms(owners[number].1)?;
        Some(Duration::from_millis(first_ms.abs_diff(last_ms)))
    }
}

#[test]
#[ignore = "two minutes; runs in make test-all"]
fn events_of_the_street_go_on_when_boxes_fail() {
    let room = StreetRoom::new();
    room.apply();
    let mut programs: BTreeMap<&str, Program> =
        BOXES.map(|name| (name, room.room.start(name))).into();
    for name in BOXES {
        let topic = format!("spotter/{name}/status");
        room.room
            .consumer
            .wait_for(&topic, |payload| payload == "online");
    }
    room.watch(&BOXES);

    let box_of = |camera: &str| {
        let owners = room.owners();
        BOXES
            .into_iter()
            .find(|name| owners[camera] == *name)
            .expect("a box")
    };
    let camera = CAMERAS[0].0;
    let killed = box_of(camera);
    programs.remove(killed);
    let others: Vec<&str> = BOXES.into_iter().filter(|name| *name != killed).collect();
    room.watch(&others);

    // The box that took the camera over is the next one that ends.
    let stopped = box_of(camera);
    let program = programs.remove(stopped).expect("it runs");
    program.terminate().expect(DONE);
    let last = *programs.keys().next().expect("one is left");
    room.watch(&[last]);
    let program = programs.remove(last).expect("it runs");
    program.terminate().expect(DONE);

    let messages = room.messages();
    it_is_documented(&room.room.consumer.all());
    no_message_is_published_twice(&messages);
    epochs_never_decrease(&messages);
    let cameras = CAMERAS.map(|(camera, _)| {
        let recording = Recording::of(camera, &messages);
        (camera, ScoredCamera::new(camera, recording, &room.truth))
    });
    let begin_of = |scored: &ScoredCamera, number: usize| match number.checked_sub(1) {
        None => Begin::Start,
        Some(before) if scored.recording.owners[before].0 == killed => Begin::Killed,
        Some(_) => Begin::HandedOver,
    };
    let mut scores: BTreeMap<Begin, WatchScore> = BTreeMap::new();
    for (camera, scored) in &cameras {
        for (number, (_, epoch)) in scored.recording.owners.iter().enumerate() {
            let begin = begin_of(scored, number);
            let score = scored.scores.get(epoch).copied().unwrap_or_default();
            scores.entry(begin).or_default().add(score);
            if let Some(before) = number.checked_sub(1) {
                println!("{camera}: {begin:?} after {:?}", scored.unwatched(number));
                the_events_before_are_over(scored, before, begin);
            }
            the_owner_reports_what_it_sees(scored, *epoch);
        }
        assert!(
            scored.recording.open.is_empty(),
            "{camera}: events are open"
        );
    }
    println!("{scores:#?}");
    the_scores_are_good(&scores);
}

/// Every topic and every payload is as `docs/` says, and no event is on a topic of a box.
fn it_is_documented(heard: &[Heard]) {
    let schemas = Schemas::load();
    let mut faults = BTreeSet::new();
    for heard in heard {
        let levels: Vec<&str> = heard.topic.split('/').collect();
        faults.extend(schemas.faults_at(&levels[2..], heard.payload.as_bytes()));
        assert!(levels[1] == "hall" || levels[2] != "cam", "{}", heard.topic);
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

fn no_message_is_published_twice(messages: &[CameraMessage]) {
    let mut ids = BTreeSet::new();
    let published = ["det", "event"];
    for message in messages
        .iter()
        .filter(|m| published.contains(&m.kind.as_str()))
    {
        let id = message.text("id");
        assert!(ids.insert(id), "{}: {}", message.camera, message.json);
    }
}

fn epochs_never_decrease(messages: &[CameraMessage]) {
    let mut epochs: BTreeMap<&str, u64> = BTreeMap::new();
    for message in messages {
        let newest = epochs.entry(&message.camera).or_default();
        let place = format!("{} {}: {}", message.camera, message.kind, message.json);
        assert!(message.epoch >= *newest, "older than {newest}: {place}");
        *newest = message.epoch;
    }
}

/// The traffic light is always there.
fn the_owner_reports_what_it_sees(scored: &ScoredCamera, epoch: u64) {
    let mut events = scored.recording.events.values();
    let is_light = |event: &RecordedEvent| event.epoch == epoch && event.prompt == LIGHT;
    if scored.recording.is_settled(epoch) {
        assert!(events.any(is_light), "epoch {epoch} has no event");
    }
}

/// A killed box cannot end its events: the new owner's message does. A box that hands over ends all of them before.
fn the_events_before_are_over(scored: &ScoredCamera, before: usize, begin: Begin) {
    let owners = &scored.recording.owners;
    let (old, new) = (owners[before].1, owners[before + 1].1);
    let by_owner = scored.recording.ended_by_owner[&new];
    let moved = scored.recording.moved(old);
    let place = format!("{old} to {new}: {by_owner} by the owner, {moved} moved");
    let (open, others) = match begin {
        Begin::Killed => (by_owner, moved),
        Begin::Start | Begin::HandedOver => (moved, by_owner),
    };
    assert_eq!(others, 0, "{place}");
    assert!(open > 0 || !scored.recording.is_settled(old), "{place}");
}

fn the_scores_are_good(scores: &BTreeMap<Begin, WatchScore>) {
    for begin in [Begin::Start, Begin::Killed, Begin::HandedOver] {
        let score = scores
            .get(&begin)
            .unwrap_or_else(|| panic!("no camera: {begin:?}"));
        assert!(score.precision() >= PRECISION_MIN, "{begin:?}: {score:?}");
        assert!(score.recall() >= RECALL_MIN, "{begin:?}: {score:?}");
    }
}
