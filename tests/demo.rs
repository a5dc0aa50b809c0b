//! The demo as a user runs it, held against the truth of the street that it draws.
//!
//! Faults: C41.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
};

use crate::support::{
    DONE, Ended, Program,
    broker::{Consumer, Heard, broker, retained},
    command, file, free_address,
    schemas::Schemas,
    spotter,
    viewer::Viewer,
};
use serde_json::Value;

use spotter_core::{Clock as _, NormBox, SystemClock, WallTime};
use spotter_street::score::{self, MatchTally};
use spotter_street::{
    Street,
    scene::{Class, Colour},
    truth::{self, truth},
};

/// The street, and its moment at which the run begins: 12:50:35 UTC on 1 June 2026. It was chosen by the truth alone,
/// among all moments of two hours: half a minute of clear daylight in which people and cars are there nearly all of the
/// time, and a red car and a dog about half of it, so that every prompt has something to find, something to leave
/// alone, and a change to report. It stays clear day for four more minutes, which a busy machine may take.
const SEED: u64 = 7;
const MOMENT_S: i64 = 1_780_318_235;

/// The prompts that are asked of every look, and what they mean. The traffic light is always there, so that there is a
/// message about every look, also about one that shows nothing else.
const PROMPTS: [(&str, &str, Class, Option<Colour>); 5] = [
    ("person", "person", Class::Person, None),
    ("car", "car", Class::Car, None),
    ("red_car", "red car", Class::Car, Some(Colour::Red)),
    ("dog", "dog", Class::Dog, None),
    ("light", "traffic light", Class::TrafficLight, None),
];

/// A question about each car, over the seconds before its event too.
const DESCRIBE: &str = "prompt.car.describe = \"What colour is the car?\"\nprompt.car.frames = 4\nprompt.car.over = \"3s\"\n";
/// Looks from a camera's first frame until its strips are full, and some more.
const FILLING_LOOKS: usize = 12;
/// Looks from an event to its description, at the most; a strip that began with the event would take six.
const DESCRIBED_LOOKS: usize = 3;

/// What has to be reached over the run (IoU 0.5).
const F1_MIN: f64 = 0.9;
/// Frames that a run needs, however long they take: at two looks a second 20 s.
const FRAMES_MIN: usize = 40;
/// A truth that held this long and in this number of looks must be published: more than presence needs to be confirmed or to end.
const SETTLED_MS: i64 = 5000;
const SETTLED_LOOKS: usize = 5;
/// Prompts that are settled at the end of a run.
const SETTLED_PROMPTS: usize = 2;
/// Settled prompts do not change for this long after the signal to stop: looks that have begun are still answered.
const ENDING_MS: i64 = 20_000;
/// Statistics of the program, one every ten seconds.
const STATS_MIN: usize = 2;
/// Largest error of a published time against the time burnt into the picture.
const TRUTH_MS: f64 = 20.0;
/// Largest median of these errors.
const TRUTH_MEDIAN_MS: f64 = 5.0;
/// Looks that a run may take; a machine that keeps up takes 60.
const LOOKS_MAX: usize = 400;

fn config(directory: &tempfile::TempDir, broker: SocketAddr) -> PathBuf {
    let camera = free_address();
    // On a busy machine looks may be slow here, as long as they are right, and pictures may come late.
    let mut text = format!(
        "node.name = \"demo\"\nhttp.listen = \"off\"\nmqtt.url = \"mqtt://{broker}\"\nmodel.path = \"embedded\"\nmodel.budget = \"60s\"\n\
         defaults.first_frame = \"60s\"\ndefaults.stall = \"60s\"\n[camera.street]\nurl = \"rtsp://{camera}/street\"\nrate = 2\n"
    );
    for (id, words, ..) in PROMPTS {
        text += &format!("prompt.{id}.detect = \"{words}\"\n");
    }
    text += DESCRIBE;
    file(directory.path(), "demo.toml", text)
}

/// A published detection with what its checks need.
struct Detection {
    prompt: String,
    captured: Option<WallTime>,
    frame: u64,
    boxes: Vec<NormBox>,
    json: Value,
}

impl Detection {
    fn from_heard(heard: &Heard) -> Option<Self> {
        let (_, prompt) = heard.topic.split_once("/cam/street/det/")?;
        let json = heard.json();
        let trusted = json["time"]["capture_src"] == "rtcp";
        let captured_ms = json["time"]["capture_ms"].as_i64().filter(|_| trusted);
        let objects = json["objects"].as_array().expect("objects");
        let boxes = objects.iter().map(|object| {
            let corner = |i: usize| object["box"][i].as_f64().expect("a number");
            NormBox::from_corners(corner(0), corner(1), corner(2), corner(3))
        });
        Some(Self {
            prompt: prompt.to_owned(),
            captured: captured_ms.map(WallTime::from_unix_millis),
            frame: json["frame"]["n"].as_u64().expect("a number"),
            boxes: boxes.collect(),
            json,
        })
    }
}

/// What the street really shows.
struct Truth {
    street: Street,
    ahead_s: i64,
}

impl Truth {
    fn at(&self, wall: WallTime) -> truth::Truth {
        let shown = wall.unix_nanos() + self.ahead_s * 1_000_000_000;
        truth(&self.street.at(WallTime::from_unix_nanos(shown)))
    }

    /// The boxes that a prompt has to give.
    fn of(&self, wall: WallTime, class: Class, colour: Option<Colour>) -> Vec<score::TruthObject> {
        self.at(wall).things(class, colour)
    }

    /// How many there were all the time; `None` when that changed or is unsure.
    fn settled(
        &self,
        (from, to): (i64, i64),
        class: Class,
        colour: Option<Colour>,
    ) -> Option<usize> {
        let counts = (from..=to).step_by(250).map(|millis| {
            let there = self.of(WallTime::from_unix_millis(millis), class, colour);
            there.iter().all(|t| !t.ignored).then_some(there.len())
        });
        let counts: BTreeSet<_> = counts.collect();
        counts
            .first()
            .copied()
            .flatten()
            .filter(|_| counts.len() == 1)
    }

    /// What has to be known of each prompt, when these were the last looks: what was so in all of them, and stays so for
    /// `ahead_ms`.
    fn known(&self, looks: &BTreeSet<i64>, ahead_ms: i64) -> Vec<(&'static str, usize)> {
        let newest = looks.last().copied().unwrap_or_default();
        let oldest = looks.iter().rev().nth(SETTLED_LOOKS).copied();
        let from = oldest.unwrap_or_default().min(newest - SETTLED_MS);
        let known = |&(id, _, class, colour): &(&'static str, _, _, _)| {
            let count = self.settled((from, newest + ahead_ms), class, colour)?;
            Some((id, count))
        };
        match oldest {
            Some(_) => PROMPTS.iter().filter_map(known).collect(),
            None => Vec::new(),
        }
    }
}

/// When the pictures that were looked at were captured, UTC milliseconds. Until the camera's first sender report its clock
/// is unknown, and so is what a picture showed.
fn looks(detections: &[Detection]) -> BTreeSet<i64> {
    let captured = detections.iter().filter_map(|detection| detection.captured);
    captured.map(WallTime::unix_millis).collect()
}

/// Waits until there is enough to compare, and something that is settled for as long as the end takes.
fn wait_for_enough(consumer: &Consumer, truth: &Truth) {
    let mut heard_before = 0;
    for _ in 0..LOOKS_MAX {
        consumer.wait_after(heard_before, "/det/light", |_| true);
        heard_before = consumer.now();
        let heard = consumer.all();
        let detections: Vec<_> = heard.iter().filter_map(Detection::from_heard).collect();
        let looks = looks(&detections);
        let stats = heard.iter().filter(|heard| heard.topic.ends_with("/stats"));
        if looks.len() >= FRAMES_MIN
            && stats.count() >= STATS_MIN
            && truth.known(&looks, ENDING_MS).len() >= SETTLED_PROMPTS
        {
            return;
        }
    }
    panic!("{LOOKS_MAX} looks are not enough: {:#?}", consumer.all());
}

#[test]
fn demo_publishes_the_drawn_objects() {
    let directory = tempfile::tempdir().expect("a directory");
    let address = free_address();
    let _broker = broker(address, "");
    let consumer = Consumer::on(address);
    let ahead_s = MOMENT_S - SystemClock::new().wall().unix_millis() / 1000;
    let truth = Truth {
        street: Street::new(SEED),
        ahead_s,
    };
    let config = config(&directory, address);
    let arguments = [
        format!("--config={}", config.display()),
        format!("--seed={SEED}"),
        format!("--ahead={ahead_s}"),
    ];
    let demo = Program::start(["demo".to_owned()].into_iter().chain(arguments));
    let mut viewer = Viewer::of(&config);
    demo.stdout.wait_for("/cam/street/det/");
    the_camera_is_probed(&config);
    wait_for_enough(&consumer, &truth);
    viewer.stop();
    demo.signal("INT");
    let ended = demo.end().expect_balanced();
    consumer.wait_for("/demo/status", |payload| payload == "offline");

    let heard = consumer.all();
    let detections: Vec<_> = heard.iter().filter_map(Detection::from_heard).collect();
    the_boxes_are_true(&detections, &truth);
    the_contract_is_kept(&heard, &detections);
    the_times_are_true(&detections, &viewer);
    it_is_documented(&heard);
    the_states_are_true(&heard, &detections, &truth);
    the_descriptions_come_at_once(&heard);
    people_can_read_it(&ended.stdout, &heard);
    nothing_is_wrong(&ended);
    // A later consumer receives all states and no streams.
    let left = retained(address);
    assert_eq!(left["spotter/demo/status"], "offline");
    let kept: BTreeSet<_> = left
        .keys()
        .filter_map(|topic| topic.split('/').nth(4))
        .collect();
    let values = ["enabled", "motion_gate", "prompt", "rate"];
    let states = ["count", "health", "present", "status"];
    assert_eq!(kept, states.into_iter().chain(values).collect());
    assert!(left.contains_key("spotter/demo/info"), "{left:?}");
    assert!(left.contains_key("spotter/demo/stats"), "{left:?}");
}

fn the_boxes_are_true(detections: &[Detection], truth: &Truth) {
    let mut frames: BTreeMap<u64, (WallTime, BTreeMap<&str, &[NormBox]>)> = BTreeMap::new();
    for detection in detections {
        if let Some(captured) = detection.captured {
            let (_, answers) = frames
                .entry(detection.frame)
                .or_insert((captured, BTreeMap::new()));
            answers.insert(&detection.prompt, &detection.boxes);
        }
    }
    let mut all = MatchTally::default();
    let mut report = String::new();
    for (id, _, class, colour) in PROMPTS {
        let mut tally = MatchTally::default();
        for (captured, answers) in frames.values() {
            // No message about a frame of which there are other messages means that nothing was found.
            let boxes = answers.get(id).copied().unwrap_or_default();
            let things = truth.of(*captured, class, colour);
            tally.add(score::match_boxes(boxes, &things).tally());
        }
        report += &format!("{id}: {tally:?}, F1 {:?}\n", tally.f1());
        // What never moves would only flatter the sum.
        if class != Class::TrafficLight {
            all.add(tally);
        }
    }
    let f1 = all.f1().unwrap_or_default();
    println!("{report}{} frames, F1 {f1:.3}", frames.len());
    assert!(
        frames.len() >= FRAMES_MIN,
        "{} frames\n{report}",
        frames.len()
    );
    assert!(f1 >= F1_MIN, "F1 {f1:.3}\n{report}");
}

fn the_contract_is_kept(heard: &[Heard], detections: &[Detection]) {
    let mut next_seq: BTreeMap<&str, u64> = BTreeMap::new();
    for Detection { prompt, json, .. } in detections {
        let seq = json["seq"].as_u64().expect("a number");
        let expected = next_seq.insert(prompt, seq + 1).unwrap_or(seq);
        assert_eq!(seq, expected, "a gap in {prompt}");

        let lat = |stage: &str| json["lat_ms"][stage].as_f64().expect("a number");
        let stages = [
            "decode", "wait", "prep", "vision", "prompt", "generate", "post", "out",
        ];
        let sum: f64 = stages.iter().map(|stage| lat(stage)).sum();
        assert!((sum - lat("total")).abs() <= 1.0, "{json}");
        if json["time"]["capture_src"] == "rtcp" {
            assert!(
                (lat("camera") + sum - lat("end_to_end")).abs() <= 1.0,
                "{json}"
            );
        }
        assert_eq!(
            json["count"].as_u64(),
            json["objects"].as_array().map(|all| all.len() as u64)
        );
        assert_eq!(
            (&json["frame"]["w"], &json["frame"]["h"]),
            (&640.into(), &360.into())
        );
    }
    let qos = |part: &str| {
        let of_part = heard.iter().filter(|heard| heard.topic.contains(part));
        of_part.map(|heard| heard.qos).collect::<BTreeSet<_>>()
    };
    for (part, expected) in [("/det/", 0), ("/stats", 1), ("/present/", 1), ("/info", 1)] {
        assert_eq!(qos(part), [expected].into(), "{part}");
    }
}

/// While the demo runs.
fn the_camera_is_probed(config: &Path) {
    let config = config.display().to_string();
    let probed = spotter(["check", "--probe", &config]).expect(DONE);
    let expected = "camera street: h264 640x360, ";
    assert!(probed.stdout.contains(expected), "{probed:#?}");
}

/// The camera's own time, and with it the latency from the light to the message, against the time that is burnt into the
/// picture: two ways that share nothing but the machine's clock.
fn the_times_are_true(detections: &[Detection], viewer: &Viewer) {
    let mut errors_ms: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    for Detection { frame, json, .. } in detections {
        let time = &json["time"];
        let rtp = time["rtp"].as_u64().expect("a number") as u32;
        let by_camera = time["capture_src"] == "rtcp";
        let Some(burnt) = viewer.burnt(rtp).filter(|_| by_camera) else {
            continue;
        };
        let burnt_ms = burnt.unix_millis() as f64;
        let told_ms = |value: &Value| value.as_f64().expect("a number");
        let capture = told_ms(&time["capture_ms"]) - burnt_ms;
        let truth = told_ms(&time["publish_ms"]) - burnt_ms;
        let end_to_end = told_ms(&json["lat_ms"]["end_to_end"]) - truth;
        errors_ms.insert(*frame, (capture, end_to_end));
    }
    println!("published times off by (capture, end to end) ms: {errors_ms:?}");
    let frames = errors_ms.len();
    assert!(frames >= FRAMES_MIN / 2, "{frames} with a time code");
    let captures: Vec<f64> = errors_ms.values().map(|error| error.0).collect();
    let ends: Vec<f64> = errors_ms.values().map(|error| error.1).collect();
    for (what, errors) in [("capture", captures), ("end to end", ends)] {
        // A sender that is held up while it reads its two clocks for a report is wrong by that until the next one.
        let wrong = errors.iter().filter(|error| error.abs() > TRUTH_MS).count();
        assert!(wrong * 10 <= frames, "{what}: {errors:?}");
        let mut sizes: Vec<f64> = errors.iter().map(|error| error.abs()).collect();
        sizes.sort_by(f64::total_cmp);
        let median = sizes[frames / 2];
        assert!(median <= TRUTH_MEDIAN_MS, "{what}: {median} ms, {errors:?}");
    }
}

/// Every topic and every payload is as `docs/` says.
fn it_is_documented(heard: &[Heard]) {
    let schemas = Schemas::load();
    let faults = |heard: &Heard| {
        let below: Vec<_> = heard.topic.split('/').skip(2).collect();
        schemas.faults_at(&below, heard.payload.as_bytes())
    };
    let faults: BTreeSet<_> = heard.iter().flat_map(faults).collect();
    assert!(faults.is_empty(), "{faults:#?}");
}

/// States stay with the broker after the end, and at the end they were true.
fn the_states_are_true(heard: &[Heard], detections: &[Detection], truth: &Truth) {
    let last: BTreeMap<&str, &str> = heard
        .iter()
        .map(|heard| (heard.topic.as_str(), heard.payload.as_str()))
        .collect();
    let info: Value = serde_json::from_str(last["spotter/demo/info"]).expect("JSON");
    assert_eq!(info["cams"][0]["id"], "street");
    assert_eq!(last["spotter/demo/status"], "offline");
    assert!(last.contains_key("spotter/demo/cam/street/health"));
    let online = |heard: &&Heard| heard.topic.ends_with("/cam/street/status");
    let of_camera: Vec<_> = heard
        .iter()
        .filter(online)
        .map(|heard| &heard.payload)
        .collect();
    assert!(
        of_camera.iter().any(|payload| *payload == "online"),
        "{of_camera:?}"
    );

    let stats = heard.iter().filter(|heard| heard.topic.ends_with("/stats"));
    let online: Vec<_> = stats
        .map(|heard| heard.json()["cams_online"].as_u64())
        .collect();
    // The first message may be published before the camera's first frame.
    assert!(online.is_sorted(), "{online:?}");
    assert_eq!(online.last(), Some(&Some(1)), "{online:?}");

    let known = truth.known(&looks(detections), 0);
    for &(id, count) in &known {
        let (present, counted) = (
            last[format!("spotter/demo/cam/street/present/{id}").as_str()],
            last[format!("spotter/demo/cam/street/count/{id}").as_str()],
        );
        let expected = (if count > 0 { "ON" } else { "OFF" }, count.to_string());
        assert_eq!((present, counted.to_owned()), expected, "{id}");
    }
    assert!(known.len() >= SETTLED_PROMPTS, "{known:?}");
}

/// The film of a description has the seconds before the event, so nothing has to be waited for.
fn the_descriptions_come_at_once(heard: &[Heard]) {
    let mut looks = 0;
    let (mut begun, mut waited) = (BTreeMap::new(), Vec::new());
    for heard in heard {
        looks += usize::from(heard.topic.ends_with("/det/light"));
        if !heard.topic.ends_with("/cam/street/event/car") {
            continue;
        }
        let event = heard.json();
        let track = event["event"].as_str().expect("a track").to_owned();
        if event["type"] == "new" {
            begun.insert(track, looks);
        } else if event["reason"] == "described" {
            let words = event["description"].as_str().expect("words");
            assert!(!words.is_empty(), "{event}");
            let began = begun.get(&track).copied().expect("the event has begun");
            waited.push((began, looks - began));
        }
    }
    println!(
        "descriptions (begin, looks waited): {waited:?} of {} events",
        begun.len()
    );
    let filled = waited.iter().filter(|(began, _)| *began >= FILLING_LOOKS);
    let filled: Vec<usize> = filled.map(|(_, looks)| *looks).collect();
    assert!(!filled.is_empty(), "{waited:?} of {begun:?}");
    assert!(
        filled.iter().all(|looks| *looks <= DESCRIBED_LOOKS),
        "{waited:?}"
    );
}

/// One line for each detection, with its topic at the end.
fn people_can_read_it(stdout: &str, heard: &[Heard]) {
    for (id, ..) in PROMPTS {
        let topic = format!("spotter/demo/cam/street/det/{id}");
        let published = heard.iter().filter(|heard| heard.topic == topic).count();
        let shown = stdout.lines().filter(|line| line.ends_with(&topic));
        assert_eq!(shown.count(), published, "{topic}\n{stdout}");
    }
}

/// Without a broker the demo brings its own, and Ctrl-C, which a terminal sends to both, is an orderly end.
#[test]
fn ctrl_c_ends_the_demo_with_its_summary() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = config(&directory, free_address());
    let arguments = ["demo".to_owned(), format!("--config={}", config.display())];
    let demo = Program::from_command(command(arguments).process_group(0));
    demo.stdout.wait_for("(started for this demo)");
    demo.stdout.wait_for("/cam/street/det/");
    demo.signal_group("INT");
    let ended = demo.end().expect_balanced();
    nothing_is_wrong(&ended);
}

/// What a machine says that is busy with something else, at the start or later.
const BUSY: [&str; 4] = [
    "the cameras ask for more prompt-frames/s",
    "decoding fell behind",
    "did not end in time",
    "did not stop in time",
];

/// Nothing but how fast the machine is.
fn nothing_is_wrong(ended: &Ended) {
    let may_be = |line: &str| BUSY.iter().any(|words| line.contains(words));
    let alarms = ended.stderr.lines().filter(|line| {
        let alarm = line.contains("WARN") || line.contains("ERROR");
        alarm && !may_be(line)
    });
    assert_eq!(alarms.collect::<Vec<_>>(), [""; 0], "{ended:#?}");
}

#[test]
fn a_demo_with_a_limit_ends_by_itself() {
    let directory = tempfile::tempdir().expect("a directory");
    let address = free_address();
    let _broker = broker(address, "");
    let config = format!("--config={}", config(&directory, address).display());
    let ended = Program::start(["demo", &config, "--seconds=1"]).end();
    ended.expect_balanced();
}
