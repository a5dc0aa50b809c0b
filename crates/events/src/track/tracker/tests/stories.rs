//! Stories of camera gate: what is seen, and all that is published. They are in `stories.txt`, which explains them.

use std::fmt::Write as _;

use super::*;
use spotter_config::{Environment, of_text};
use spotter_core::{LineId, Outline, PromptRegion, testing::check_stories};

/// Camera gate of a file with these lines, with one prompt.
fn camera_of(lines: &str) -> CameraConfig {
    let text = format!(
        "mqtt.url = \"mqtt://broker\"\n[camera.gate]\nurl = \"test://\"\nprompt.person.detect = \"person\"\n{lines}"
    );
    let loaded = of_text("site.toml", &text, &Environment::new("box", |_| None));
    loaded.unwrap().config.cameras.remove(0)
}

/// Something that is seen: `X`, `X:WIDTH`, with `@SCORE` behind it.
fn object(text: &str) -> FoundObject<NormBox> {
    let number = |text: &str| text.parse::<f64>().unwrap();
    let (place, score) = text.split_once('@').unwrap_or((text, "0.9"));
    let (x, width) = place.split_once(':').unwrap_or((place, "0.1"));
    let (x, half) = (number(x), number(width) / 2.0);
    found(x - half, 0.4, x + half, 0.8, number(score))
}

/// What one look sees: objects or `-`, behind the part of the picture `[LEFT,RIGHT]` if it is not all of it; `=`: the picture is the last
/// one.
fn seen(text: &str) -> Answer {
    let unchanged = text.strip_prefix('=');
    let text = unchanged.unwrap_or(text);
    let words = text
        .split(' ')
        .filter(|word| *word != "-" && !word.starts_with('['));
    let mut answer = answer(1, AnswerBody::Boxes(words.map(object).collect()));
    if let Some((part, _)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let (left, right) = part.split_once(',').unwrap();
        let [left, right] = [left, right].map(|side| side.parse().unwrap());
        answer.region = Some(NormBox::from_corners(left, 0.0, right, 1.0));
        Arc::make_mut(&mut answer.prompt).view.region = PromptRegion::Motion;
    }
    answer.unchanged = unchanged.is_some();
    answer
}

/// An outline with the corners `X,Y` in shares of the box that was asked about.
fn drawn(question: &Prompt, corners: &str) -> Outline {
    let bounds = asked_box(question);
    let number = |text: &str| text.parse::<f64>().unwrap();
    let corner = |(x, y): (&str, &str)| NormPoint::new(number(x), number(y));
    let corners = corners.split(' ').filter_map(|text| text.split_once(','));
    let ring = corners.map(|at| bounds.point_in_picture(corner(at)));
    let ring = Vec::from_iter(ring);
    Outline {
        bounds: Some(bounds),
        path: "M 0 0 Z".into(),
        polygons: Vec::from_iter((ring.len() > 2).then_some(ring)),
        parse_error: None,
        score: 0.5,
    }
}

fn asked_box(question: &Prompt) -> NormBox {
    let Task::Segment { places, .. } = &question.task else {
        panic!("{question:?}")
    };
    let [place] = &places[..] else {
        panic!("{question:?}")
    };
    let Location::Box(bounds) = place.location() else {
        panic!("{question:?}")
    };
    bounds
}

fn outline_text(track: &TrackId, outline: &ObjectOutline) -> String {
    let (_, track) = track.as_str().rsplit_once('-').unwrap();
    let (frame, area) = (outline.frame, outline.area);
    format!("track {track} outline of {frame} with {area:.3}")
}

/// A frame of that second, which is its number too.
fn frame(second: f64) -> Frame {
    Frame {
        number: second as u64,
        ..frame_at(&gate(), seconds(second))
    }
}

fn state_text(state: &PromptState) -> String {
    let count = |count: &Option<u32>| count.map_or("unknown".into(), |count| count.to_string());
    match state {
        PromptState::Presence(presence) => format!("{presence:?}"),
        PromptState::Count(number) => format!("count {}", count(number)),
        PromptState::ZoneCount { zone, count: n } => format!("{zone} {}", count(n)),
        PromptState::Dwell { zone, presence } => format!("dwell {zone} {presence:?}"),
        PromptState::LineCount {
            direction, count, ..
        } => format!("{direction} {count}"),
        PromptState::Answer(answer) => format!("answer {answer:?}"),
    }
}

fn event_text(event: &Event) -> String {
    let seconds = |at: WallTime| (at.seconds_since(WallTime::default()) * 100.0).round() / 100.0;
    let (_, track) = event.track.as_str().rsplit_once('-').unwrap();
    let [from, to] = [event.started, event.last_seen].map(seconds);
    let Location::Box(bounds) = event.location else {
        panic!("{event:?}")
    };
    let (step, looks, x) = (event.step, event.looks, bounds.centre().x);
    let mut text = format!("track {track} {step:?} {from}-{to} in {looks} looks at {x:.2}");
    assert_eq!(event.ended.is_some(), matches!(step, EventStep::End(_)));
    let ids = |zones: &[ZoneId]| Vec::from_iter(zones.iter().map(ZoneId::to_string)).join("+");
    if !event.entered_zones.is_empty() {
        let (now, ever) = (ids(&event.zones), ids(&event.entered_zones));
        _ = write!(text, " in ({now}) of ({ever})");
    }
    for dwell in event.dwell.iter().filter(|dwell| dwell.is_dwelling) {
        _ = write!(text, " dwells {} {:?}", dwell.zone, dwell.time);
    }
    if event.still {
        text += " still";
    }
    if event.top_score != 0.9 {
        let source = event.score_source.name();
        _ = write!(
            text,
            " score {} of {} {source}",
            event.score, event.top_score
        );
    }
    if let Some(description) = &event.description {
        _ = write!(text, " {description:?}");
    }
    if let Some(crossing) = &event.crossing {
        let speed = crossing.speed.unwrap_or_default();
        let (direction, count, at) = (&crossing.direction, crossing.count, seconds(crossing.at));
        _ = write!(text, " {direction} {count} at {at} with {speed:.2}");
    }
    text
}

#[derive(Default)]
struct Story {
    tracker: Option<Tracker>,
    configuration: String,
    questions: Vec<Arc<Prompt>>,
    /// The frame of each question about an outline.
    asked_at: Vec<f64>,
    outlines_max: u8,
    told: String,
}

impl Story {
    fn tracker(&mut self) -> &mut Tracker {
        let configuration = &self.configuration;
        self.tracker
            .get_or_insert_with(|| tracker(camera_of(configuration)))
    }

    fn tell(&mut self, second: f64, changes: Vec<PromptChange>) {
        for change in changes.iter().filter(|change| !change.is_empty()) {
            let states = Vec::from_iter(change.states.iter().map(state_text)).join(", ");
            let events = change.events.iter().map(event_text);
            let asked = change.questions.iter().map(|question| {
                assert_eq!(question.revision, Prompt::ONCE);
                let Task::Query { choices, .. } = &question.task else {
                    panic!("{question:?}")
                };
                self.questions.push(Arc::clone(question));
                let (number, text) = (self.questions.len(), question.task.text());
                format!("asks {number}: {text} {}", choices.join("/"))
            });
            let outlines = change.outlines.iter();
            let outlines = outlines.map(|new| outline_text(&new.track, &new.outline));
            let parts = Some(states).filter(|states| !states.is_empty()).into_iter();
            let all = Vec::from_iter(parts.chain(events).chain(asked).chain(outlines)).join("; ");
            _ = writeln!(self.told, "> {second}: {all}");
        }
    }

    /// What the message of a look says of outlines, and which are asked for.
    fn tell_outlines(&mut self, second: f64, answer: &TrackedAnswer) {
        let objects = answer.body.objects().iter();
        let published = objects.filter_map(|object| {
            let outline = object.outline.as_deref()?;
            Some(outline_text(&object.track, outline))
        });
        let mut all = Vec::from_iter(published);
        for question in &answer.follow_ups {
            self.questions.push(Arc::clone(question));
            self.asked_at.resize(self.questions.len(), second);
            let (number, x) = (self.questions.len(), asked_box(question).centre().x);
            all.push(format!("asks {number}: outline at {x:.2}"));
        }
        if !all.is_empty() {
            _ = writeln!(self.told, "> {second}: {}", all.join("; "));
        }
    }

    fn look(&mut self, second: f64, text: &str) {
        let mut answer = seen(text);
        Arc::make_mut(&mut answer.prompt).outlines_max = self.outlines_max;
        match self.tracker().update(&frame(second), &answer) {
            Some(answer) => {
                self.tell_outlines(second, &answer);
                self.tell(second, vec![answer.change]);
            }
            None => _ = writeln!(self.told, "> {second}: ignored"),
        }
    }

    fn step(&mut self, line: &str) {
        if let Some(configuration) = line.strip_prefix("| ") {
            self.configuration += &format!("{configuration}\n");
            return;
        }
        let mut words = line.splitn(3, ' ');
        let [second, verb, rest] = [(); 3].map(|()| words.next().unwrap_or_default());
        let mut second: f64 = second.parse().unwrap();
        let wall = at(second).1;
        let question = |story: &Self, number: &str| {
            let number: usize = number.parse().unwrap();
            Arc::clone(&story.questions[number - 1])
        };
        let changes = match verb {
            "sees" => {
                for look_text in rest.split(" | ") {
                    let (text, times) = look_text.split_once('*').unwrap_or((look_text, "1"));
                    for _ in 0..times.parse::<u32>().unwrap() {
                        self.look(second, text);
                        second += 1.0;
                    }
                }
                return;
            }
            "hears" => {
                let (number, text) = rest.split_once(' ').unwrap();
                let question = question(self, number);
                let settled = hear(self.tracker(), second, &question, text);
                if settled.is_none() {
                    _ = writeln!(self.told, "> {second}: settled before");
                }
                settled.into_iter().collect()
            }
            "segments" => {
                self.outlines_max = rest.parse().unwrap();
                return;
            }
            "draws" => {
                let (number, corners) = rest.split_once(' ').unwrap();
                let question = question(self, number);
                let asked_at = self.asked_at[number.parse::<usize>().unwrap() - 1];
                let body = AnswerBody::Outline(drawn(&question, corners));
                let answer = answer_to(&question, body);
                let settled = self.tracker().settled(&frame(asked_at), &answer);
                if settled.is_none() {
                    _ = writeln!(self.told, "> {second}: settled before");
                }
                settled.into_iter().collect()
            }
            "misses" => {
                let question = question(self, rest);
                late(self.tracker(), second, &[question])
            }
            "ends" => {
                let look = frame(rest.parse().unwrap());
                self.tracker().look_ended(&look);
                return;
            }
            "ticks" => tick(self.tracker(), second),
            "disables" => self.tracker().suspend(&gate(), EndReason::Disabled, wall),
            "loses" => self.tracker().suspend(&gate(), EndReason::CameraLost, wall),
            "resumes" => {
                self.tracker().resume(&gate());
                return;
            }
            "resets" => {
                let line = LineId::new(rest).unwrap();
                self.tracker().reset_line(&gate(), &line, wall)
            }
            "configures" => {
                let site = camera_of(rest);
                self.tracker().configure(&site, wall)
            }
            other => panic!("{other}"),
        };
        self.tell(second, changes);
    }
}

#[test]
fn each_story_publishes_what_it_says() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/src/track/tracker/tests/stories.txt"
    );
    check_stories(path, |story: &mut Story, line| {
        story.step(line);
        std::mem::take(&mut story.told)
    });
}
