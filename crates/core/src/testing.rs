//! What tests of several crates share: a frame, and pictures on the host and on a device. Panics name what
//! is wrong, as tests do.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::{
    Answer, AnswerBody, CameraId, ColourMatrix, ColourRange, DevicePlanes, DirectionId, Event,
    EventStep, Frame, FrameTimes, LineCrossing, LineId, Location, Look, LookRate, LookToken, Mono,
    NormBox, Picture, PictureLayout, PixelFormat, Planes, Prompt, PromptId, PromptText,
    ScoreSource, Share, StageTimes, Task, TokenCounts, TrackId, UpdateReason, WallTime, ZoneDwell,
    ZoneId,
};

/// A step of the event of a person at a camera: of its track with this number. It was seen once.
pub fn event(camera: &str, track: u64, step: EventStep) -> Event {
    let camera = CameraId::new(camera).expect("a name of a camera");
    let at = WallTime::from_unix_millis(1_787_393_729_900);
    Event {
        track: TrackId::new("b7c1", &camera, track),
        camera,
        prompt: PromptId::new("person").expect("a name of a prompt"),
        revision: 1,
        step,
        started: at,
        last_seen: at,
        ended: matches!(step, EventStep::End(_)).then_some(at),
        location: Location::Box(NormBox {
            x0: 0.412,
            y0: 0.205,
            x1: 0.488,
            y1: 0.731,
        }),
        score: 0.83,
        top_score: 0.83,
        score_source: ScoreSource::TokenProb,
        looks: 4,
        zones: Vec::new(),
        entered_zones: Vec::new(),
        dwell: Vec::new(),
        still: false,
        snapshot: false,
        description: None,
        crossing: None,
        camera_size: (2560, 1440),
    }
}

/// The same with times, a zone and a picture.
pub fn detailed_event(camera: &str, track: u64, step: EventStep) -> Event {
    let at = |ms: i64| WallTime::from_unix_millis(1_787_393_729_900 + ms);
    let drive = || ZoneId::new("drive").expect("a name of a zone");
    Event {
        revision: 3,
        last_seen: at(223),
        ended: matches!(step, EventStep::End(_)).then(|| at(3000)),
        top_score: 0.830_4,
        zones: vec![drive()],
        entered_zones: vec![drive()],
        dwell: vec![ZoneDwell {
            zone: drive(),
            time: Duration::from_millis(31_540),
            is_dwelling: true,
        }],
        snapshot: true,
        ..event(camera, track, step)
    }
}

/// The track has crossed the line `door`.
pub fn crossing(camera: &str, track: u64) -> Event {
    let [direction, _] = DirectionId::in_and_out();
    Event {
        crossing: Some(LineCrossing {
            line: LineId::new("door").expect("a name of a line"),
            direction,
            at: WallTime::from_unix_millis(1_787_393_730_023),
            speed: Some(0.080_4),
            count: 12,
        }),
        ..detailed_event(camera, track, EventStep::Update(UpdateReason::Crossed))
    }
}

/// A prompt about the whole picture.
pub fn asked(id: &str, revision: u32, task: Task) -> Arc<Prompt> {
    Arc::new(Prompt::new(
        PromptId::new(id).expect("a name of a prompt"),
        revision,
        task,
    ))
}

/// A look without strips that is late from the beginning.
pub fn look_at(frame: Frame, prompts: &[Arc<Prompt>]) -> Look {
    Look {
        frame,
        prompts: prompts.to_vec(),
        moved: None,
        strips: Vec::new(),
        start_by: Mono::default(),
        answer_by: Mono::default(),
        token: LookToken::default(),
    }
}

/// A complete answer about the whole picture.
pub fn answer_to(prompt: &Arc<Prompt>, body: AnswerBody) -> Answer {
    Answer {
        prompt: Arc::clone(prompt),
        region: None,
        body,
        reasoning: None,
        truncated: false,
        unchanged: false,
        tokens: TokenCounts::default(),
        marks: StageTimes::default(),
    }
}

/// Checks a file of stories, of which the first block is for readers. A story is a block of lines, and what each line leads to follows it, as
/// lines that begin with `> `: `tell` gives them. With `SPOTTER_WRITE_DOCS` the file is written again.
pub fn check_stories<S: Default>(path: &str, tell: fn(&mut S, &str) -> String) {
    let expected = std::fs::read_to_string(path).expect("a file of stories");
    let mut found = String::new();
    for block in expected.split_inclusive("\n\n") {
        let (is_story, mut story) = (!found.is_empty(), S::default());
        for line in block.lines().filter(|line| !line.starts_with("> ")) {
            found += &format!("{line}\n");
            if is_story && !line.is_empty() && !line.starts_with('#') {
                found += &tell(&mut story, line);
            }
        }
    }
    if std::env::var_os("SPOTTER_WRITE_DOCS").is_some() {
        std::fs::write(path, &found).expect("a writable file");
    }
    let differs = |(found, expected): &(&str, &str)| found != expected;
    let difference = found.lines().zip(expected.lines()).find(differs);
    assert!(found == expected, "found and expected: {difference:#?}");
}

/// How many cases a property has: `few` in `make test`, `SPOTTER_CASES_FACTOR` times as many with that variable
/// (`make test-properties`).
pub fn cases(few: u32) -> u32 {
    let factor = std::env::var("SPOTTER_CASES_FACTOR").ok();
    let factor = factor.map(|text| text.parse::<u32>().expect("SPOTTER_CASES_FACTOR: a number"));
    few.saturating_mul(factor.unwrap_or(1))
}

/// A picture whose rows have `gap` bytes between them, in colours that are not the default; `byte` gives the bytes of its
/// planes by plane and place.
pub fn planar_picture(
    format: PixelFormat,
    size: (usize, usize),
    gap: usize,
    byte: impl Fn(usize, usize) -> u8,
) -> Picture {
    let rows = |plane| format.plane_size(plane, size.0, size.1);
    let strides = [0, 1, 2].map(|plane| rows(plane).map_or(0, |(bytes, _)| bytes + gap));
    let plane = |plane: usize| {
        let (_, count) = rows(plane)?;
        Some(
            (0..strides[plane] * count)
                .map(|i| byte(plane, i))
                .collect(),
        )
    };
    let planes: Vec<Vec<u8>> = (0..3).map_while(plane).collect();
    let layout = PictureLayout {
        format,
        size,
        strides,
        colour: (ColourMatrix::Bt709, ColourRange::Limited),
    };
    Picture::new(layout, Arc::new(planes)).expect("planes of this layout")
}

pub fn rate(hz: f64) -> LookRate {
    LookRate::new(hz).expect("a rate")
}

pub fn share(value: f64) -> Share {
    Share::new(value).expect("a share")
}

pub fn prompt_text(text: &str) -> PromptText {
    PromptText::new(text).expect("the words of a prompt")
}

/// A frame of one black pixel that was received and taken so long after the beginning of both clocks.
pub fn frame_at(camera: &CameraId, after: Duration) -> Frame {
    let received = Mono::default().after(after);
    Frame {
        camera: camera.clone(),
        number: 1,
        camera_size: (640, 360),
        key: true,
        times: FrameTimes {
            received,
            received_wall: WallTime::from_unix_nanos(received.as_nanos() as i64),
            decoded: received,
            ..FrameTimes::default()
        },
        picture: Picture::from_rgb(1, 1, vec![0; 3]).expect("one pixel"),
    }
}

/// Planes that claim to be on a device, one behind the other, and count how often they are copied to the host.
pub struct FakeDevicePlanes {
    there: Vec<Vec<u8>>,
    here: OnceLock<Vec<Vec<u8>>>,
    copies: AtomicUsize,
    lost: bool,
}

impl FakeDevicePlanes {
    pub fn new(planes: Vec<Vec<u8>>) -> Self {
        Self {
            there: planes,
            here: OnceLock::new(),
            copies: AtomicUsize::new(0),
            lost: false,
        }
    }

    /// The same, which cannot be copied.
    pub fn lost(planes: Vec<Vec<u8>>) -> Self {
        Self {
            lost: true,
            ..Self::new(planes)
        }
    }

    /// How often they were copied to the host.
    pub fn copies(&self) -> usize {
        self.copies.load(Ordering::Relaxed)
    }
}

impl Planes for FakeDevicePlanes {
    fn plane(&self, index: usize) -> &[u8] {
        let copy = || {
            self.copies.fetch_add(1, Ordering::Relaxed);
            let black = self.there.iter().map(|plane| vec![0; plane.len()]);
            match self.lost {
                true => black.collect(),
                false => self.there.clone(),
            }
        };
        &self.here.get_or_init(copy)[index]
    }

    fn fetch(&self) -> bool {
        self.plane(0);
        !self.lost
    }

    fn plane_len(&self, index: usize) -> usize {
        self.there[index].len()
    }

    fn on_device(&self) -> Option<DevicePlanes<'_>> {
        let mut offsets = [0; 3];
        for (index, plane) in self.there.iter().enumerate().take(2) {
            offsets[index + 1] = offsets[index] + plane.len();
        }
        offsets[self.there.len()..].fill(0);
        Some(DevicePlanes {
            memory: &(),
            offsets,
        })
    }

    fn is_on_host(&self) -> bool {
        !self.lost && self.here.get().is_some()
    }
}
