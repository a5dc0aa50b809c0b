//! One readable line for each detection, for a terminal.

use std::{
    fmt::{self, Write as _},
    io::{self, Write as _},
};

use super::{
    notice::StageNotice,
    stage::{Stage, StageContext},
};
use spotter_core::{DetectionBody, Location, WallTime};
use spotter_mqtt::SentDetection;

/// Prints what is published.
pub struct Console;

impl Stage for Console {
    fn hear(&mut self, notice: &mut StageNotice, context: &mut StageContext<'_>) {
        if let StageNotice::Sent(sent) = notice {
            say(line(sent, context.wall));
        }
    }
}

/// Prints the heading of the columns.
pub fn title() {
    say(
        "time (UTC)    camera   prompt      found                                           latency   topic",
    );
}

/// A closed terminal does not stop the daemon, so an error is ignored.
pub fn say(line: impl fmt::Display) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Boxes are left, top, right, bottom in percent of the picture, with their score.
fn line(sent: &SentDetection, now: WallTime) -> String {
    let ms_of_day = now.unix_millis().rem_euclid(86_400_000);
    let (s, ms) = (ms_of_day / 1000, ms_of_day % 1000);
    format!(
        "{:02}:{:02}:{:02}.{ms:03}  {:8} {:11} {:47} {:5.0} ms  {}",
        s / 3600,
        s / 60 % 60,
        s % 60,
        sent.detection.camera(),
        sent.detection.prompt.id,
        found(&sent.detection.body),
        sent.latency.total_tenth_ms as f64 / 10.0,
        sent.topic,
    )
}

fn found(body: &DetectionBody) -> String {
    let percent = |share: f64| (share * 100.0).round();
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = match body {
        DetectionBody::Objects(objects) => objects.iter().try_for_each(|object| {
            let score = object.score;
            match object.location {
                Location::Box(b) => {
                    let [x0, y0, x1, y1] = [b.x0, b.y0, b.x1, b.y1].map(percent);
                    write!(text, "[{x0} {y0} {x1} {y1}] {score:.2}  ")
                }
                Location::Point(p) => {
                    write!(text, "({} {}) {score:.2}  ", percent(p.x), percent(p.y))
                }
            }
        }),
        DetectionBody::Text {
            text: answer,
            score,
            ..
        } => write!(text, "{answer:?} {score:.2}"),
    };
    match text.trim_end() {
        "" => "nothing".to_owned(),
        found => found.to_owned(),
    }
}
