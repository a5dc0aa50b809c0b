//! Events that version 0.1.0 left in files: `spool/*.log` for the broker, `webhooks/NAME/*.json` for each webhook.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use rusqlite::{Connection, params};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use spotter_core::{
    CameraId, DirectionId, Epoch, Event, EventStep, LineCrossing, LineId, Location, NormBox,
    NormPoint, PromptId, ScoreSource, TrackId, WallTime, WebhookId, ZoneDwell, ZoneId,
    duration_from_secs,
};

use crate::event_table::{EventReceiver, LoggedEvent, names};

/// Length and checksum of a record of the spool.
const HEAD_BYTES: usize = 12;

/// What becomes a row.
struct FormerEvent {
    logged: LoggedEvent,
    waiting: BTreeSet<EventReceiver>,
    picture: Option<Vec<u8>>,
}

/// A record of the spool.
#[derive(Deserialize)]
enum SpoolRecord {
    #[serde(rename = "keep")]
    Keep { kept: Box<SpooledEvent> },
    #[serde(rename = "done")]
    Done(Vec<u64>),
}

#[derive(Deserialize)]
struct SpooledEvent {
    number: u64,
    #[serde(flatten)]
    logged: LoggedEvent,
}

/// A file of a webhook.
#[derive(Deserialize)]
struct StoredPost {
    id: String,
    body: FormerPayload,
}

/// The payload of an event or a crossing, which has fewer keys.
#[derive(Default, Deserialize)]
#[serde(default)]
struct FormerPayload {
    event: Option<TrackId>,
    cam: Option<CameraId>,
    epoch: Option<Epoch>,
    prompt: Option<FormerPrompt>,
    r#type: String,
    reason: String,
    start_ms: Option<i64>,
    end_ms: Option<i64>,
    last_seen_ms: Option<i64>,
    r#box: Option<[f64; 4]>,
    point: Option<[f64; 2]>,
    score: f64,
    score_src: String,
    top_score: f64,
    frames: u64,
    zones: Vec<ZoneId>,
    entered_zones: Vec<ZoneId>,
    dwell_s: BTreeMap<ZoneId, f64>,
    dwelling: Vec<ZoneId>,
    stationary: bool,
    snapshot: bool,
    description: Option<String>,
    frame: FormerFrame,
    snapshot_jpeg: Option<String>,
    line: Option<LineId>,
    direction: Option<DirectionId>,
    at_ms: Option<i64>,
    speed: Option<f64>,
    count: u64,
}

#[derive(Deserialize)]
struct FormerPrompt {
    id: PromptId,
    rev: u32,
}

#[derive(Default, Deserialize)]
struct FormerFrame {
    w: u32,
    h: u32,
}

impl FormerPayload {
    /// `None`: it is of another version.
    fn into_event(self) -> Option<Event> {
        let at = WallTime::from_unix_millis;
        let location = match (self.r#box, self.point) {
            (Some([x0, y0, x1, y1]), _) => Location::Box(NormBox { x0, y0, x1, y1 }),
            (None, Some([x, y])) => Location::Point(NormPoint { x, y }),
            (None, None) => return None,
        };
        let crossing = match (self.line, self.direction, self.at_ms) {
            (Some(line), Some(direction), Some(ms)) => Some(LineCrossing {
                line,
                direction,
                at: at(ms),
                speed: self.speed,
                count: self.count,
            }),
            _ => None,
        };
        let reason = match &crossing {
            Some(_) => "crossed",
            None => &*self.reason,
        };
        let step = match &*self.r#type {
            "new" => EventStep::New,
            "end" => EventStep::End(reason_of(reason)?),
            _ => EventStep::Update(reason_of(reason)?),
        };
        let dwell = self.dwell_s.into_iter().map(|(zone, seconds)| ZoneDwell {
            is_dwelling: self.dwelling.contains(&zone),
            time: duration_from_secs(seconds),
            zone,
        });
        let prompt = self.prompt?;
        let last_seen = at(self.last_seen_ms.or(self.at_ms)?);
        use ScoreSource::{Calibrated, Verify, VerifyCalibrated};
        let mut sources = [Verify, Calibrated, VerifyCalibrated].into_iter();
        Some(Event {
            track: self.event?,
            camera: self.cam?,
            prompt: prompt.id,
            revision: prompt.rev,
            step,
            started: self.start_ms.map_or(last_seen, at),
            last_seen,
            ended: self.end_ms.map(at),
            location,
            score: self.score,
            top_score: self.top_score,
            score_source: sources
                .find(|source| source.name() == self.score_src)
                .unwrap_or_default(),
            looks: self.frames,
            zones: self.zones,
            entered_zones: self.entered_zones,
            dwell: dwell.collect(),
            still: self.stationary,
            snapshot: self.snapshot,
            description: self.description,
            crossing,
            camera_size: (self.frame.w, self.frame.h),
        })
    }
}

/// The reason of this text: its name is `CameraLost` for `camera_lost`.
fn reason_of<T: DeserializeOwned>(text: &str) -> Option<T> {
    let words = text.split('_').filter_map(|word| {
        let (first, rest) = word.split_at_checked(1)?;
        Some(first.to_uppercase() + rest)
    });
    serde_json::from_value(Value::String(words.collect())).ok()
}

/// Moves the files into the table, and returns their folders. Where the table has events, they were moved before: then a crash came between, and
/// the folders are to be renamed only.
pub(crate) fn move_files(
    folder: &Path,
    connection: &mut Connection,
) -> rusqlite::Result<Vec<&'static str>> {
    let mut found = vec!["spool", "webhooks"];
    found.retain(|name| folder.join(name).is_dir());
    if found.is_empty() {
        return Ok(found);
    }
    let mut events = BTreeMap::new();
    let read = read_spool(&folder.join("spool"), &mut events)
        .and_then(|()| read_webhooks(&folder.join("webhooks"), &mut events));
    if let Err(error) = read {
        tracing::error!(%error, "events of an earlier version cannot be read; some are lost");
    }
    let transaction = connection.transaction()?;
    let sql = "SELECT EXISTS (SELECT 1 FROM event)";
    let is_moved: bool = transaction.query_row(sql, [], |row| row.get(0))?;
    if !is_moved {
        // Ids sort as the events happened.
        for (number, event) in (1_i64..).zip(events.values()) {
            insert(&transaction, number, event)?;
        }
    }
    transaction.commit()?;
    Ok(found)
}

fn insert(connection: &Connection, number: i64, event: &FormerEvent) -> rusqlite::Result<()> {
    // Numbers, texts and lists under text keys always serialise.
    let body = serde_json::to_string(&event.logged).unwrap_or_default();
    let sql = "INSERT INTO event (number, waiting, body) VALUES (?1, ?2, ?3)";
    connection.execute(sql, params![number, names(&event.waiting), body])?;
    if let Some(jpeg) = &event.picture {
        let sql = "INSERT INTO event_picture (number, jpeg) VALUES (?1, ?2)";
        connection.execute(sql, params![number, jpeg])?;
    }
    Ok(())
}

/// The plain files or folders in a folder, by name. None where there is no folder.
fn paths_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = paths.collect::<io::Result<Vec<_>>>()?;
    paths.sort_unstable();
    Ok(paths)
}

fn has_end(path: &Path, end: &str) -> bool {
    path.extension().is_some_and(|extension| extension == end)
}

/// Reads each file up to a record that is torn. Delivered events are read too: they show which tracks are open.
fn read_spool(folder: &Path, events: &mut BTreeMap<String, FormerEvent>) -> io::Result<()> {
    let (mut kept, mut done) = (BTreeMap::new(), BTreeSet::new());
    for path in paths_in(folder)?.iter().filter(|path| has_end(path, "log")) {
        let bytes = fs::read(path)?;
        let mut rest = &bytes[..];
        while let Some((head, after)) = rest.split_first_chunk::<HEAD_BYTES>() {
            let [l0, l1, l2, l3, ..] = *head;
            let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
            let Some((body, after)) = after.split_at_checked(length) else {
                break;
            };
            match serde_json::from_slice(body) {
                Ok(SpoolRecord::Keep { kept: event }) => drop(kept.insert(event.number, event)),
                Ok(SpoolRecord::Done(numbers)) => done.extend(numbers),
                Err(_) => break,
            }
            rest = after;
        }
    }
    for (number, event) in kept {
        let broker = (!done.contains(&number)).then(EventReceiver::broker);
        let former = FormerEvent {
            waiting: broker.into_iter().collect(),
            picture: None,
            logged: event.logged,
        };
        events.insert(former.logged.id.clone(), former);
    }
    Ok(())
}

fn read_webhooks(folder: &Path, events: &mut BTreeMap<String, FormerEvent>) -> io::Result<()> {
    for webhook in paths_in(folder)? {
        let name = webhook.file_name().and_then(OsStr::to_str);
        let Some(Ok(id)) = name.map(WebhookId::new) else {
            continue;
        };
        for path in paths_in(&webhook)?
            .iter()
            .filter(|path| has_end(path, "json"))
        {
            let post = serde_json::from_slice::<StoredPost>(&fs::read(path)?);
            let found = post.ok().and_then(|mut post| {
                let picture = post.body.snapshot_jpeg.take();
                let (id, epoch) = (post.id, post.body.epoch);
                Some((id, epoch, post.body.into_event()?, picture))
            });
            let Some((event_id, epoch, event, picture)) = found else {
                let path = path.display();
                tracing::error!(%path, "an event of an earlier version cannot be read; it is lost");
                continue;
            };
            let former = events.entry(event_id.clone()).or_insert(FormerEvent {
                logged: LoggedEvent::new(event_id, event, epoch),
                waiting: BTreeSet::new(),
                picture: None,
            });
            let receiver = EventReceiver::webhook(&id);
            former.waiting.insert(receiver);
            let jpeg = picture.and_then(|text| BASE64_STANDARD.decode(text).ok());
            former.picture = former.picture.take().or(jpeg);
        }
    }
    Ok(())
}
