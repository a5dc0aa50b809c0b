//! Events that version 0.1.0 left in files: `spool/*.log` for the broker, `webhooks/NAME/*.json` for each webhook.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use rusqlite::{Connection, params};
use serde::Deserialize;
use serde_json::{Value, json};
use spotter_core::{WallTime, WebhookId, duration_from_secs};

use crate::event_table::{EventReceiver, LoggedEvent, names};

/// Length and checksum of a record of the spool.
const HEAD_BYTES: usize = 12;

/// What becomes a row.
struct FormerEvent {
    logged: LoggedEvent,
    waiting: BTreeSet<EventReceiver>,
    picture: Option<Vec<u8>>,
}

/// By the ids of their messages, which sort as the events happened.
type FormerEvents = BTreeMap<String, FormerEvent>;

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
    body: Value,
}

impl StoredPost {
    /// A payload has the values of an event under other keys, and that of a crossing has fewer. `None`: it is of another version.
    fn logged(&self) -> Option<LoggedEvent> {
        let body = &self.body;
        let at = |key: &str| body[key].as_i64().map(WallTime::from_unix_millis);
        let last_seen = at("last_seen_ms").or(at("at_ms"))?;
        let reason = variant(body["reason"].as_str().unwrap_or("crossed"));
        let step = match body["type"].as_str() {
            Some("new") => json!("New"),
            Some("end") => json!({ "End": reason }),
            _ => json!({ "Update": reason }),
        };
        let place = match &body["box"] {
            Value::Null => json!({ "Point": body["point"] }),
            corners => json!({ "Box": corners }),
        };
        let crossing = at("at_ms").map(|at| {
            json!({
                "line": body["line"], "direction": body["direction"], "at": at,
                "speed": body["speed"], "count": body["count"],
            })
        });
        let dwelling = body["dwelling"].as_array();
        let dwell = body["dwell_s"].as_object().into_iter().flatten();
        let dwell = dwell.map(|(zone, seconds)| {
            json!({
                "zone": zone, "time": duration_from_secs(seconds.as_f64().unwrap_or_default()),
                "is_dwelling": dwelling.is_some_and(|zones| zones.contains(&json!(zone))),
            })
        });
        let score_source = body["score_src"].as_str().unwrap_or("token_prob");
        let or = |key: &str, default: Value| match &body[key] {
            Value::Null => default,
            value => value.clone(),
        };
        let (frame, zones) = (&body["frame"], || json!([]));
        let event = json!({
            "track": body["event"], "camera": body["cam"], "prompt": body["prompt"]["id"],
            "revision": body["prompt"]["rev"], "step": step, "started": at("start_ms").unwrap_or(last_seen),
            "last_seen": last_seen, "ended": at("end_ms"), "place": place, "score": body["score"],
            "top_score": or("top_score", json!(0.0)), "score_source": variant(score_source),
            "looks": or("frames", json!(0)), "zones": or("zones", zones()),
            "entered_zones": or("entered_zones", zones()), "dwell": dwell.collect::<Vec<_>>(),
            "still": or("stationary", json!(false)), "snapshot": or("snapshot", json!(false)),
            "description": body["description"], "crossing": crossing,
            "camera_size": [frame["w"].as_u64().unwrap_or(0), frame["h"].as_u64().unwrap_or(0)],
        });
        let epoch = serde_json::from_value(body["epoch"].clone()).ok()?;
        let event = serde_json::from_value(event).ok()?;
        Some(LoggedEvent::new(self.id.clone(), event, epoch))
    }

    fn picture(&self) -> Option<Vec<u8>> {
        BASE64_STANDARD
            .decode(self.body["snapshot_jpeg"].as_str()?)
            .ok()
    }
}

/// The name of a variant in the table: `CameraLost` for `camera_lost`.
fn variant(word: &str) -> String {
    let parts = word.split('_').filter_map(|part| {
        let (first, rest) = part.split_at_checked(1)?;
        Some(first.to_uppercase() + rest)
    });
    parts.collect()
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
    let mut events = FormerEvents::new();
    let read = read_spool(&folder.join("spool"), &mut events)
        .and_then(|()| read_webhooks(&folder.join("webhooks"), &mut events));
    if let Err(error) = read {
        tracing::error!(%error, "events of an earlier version cannot be read; some are lost");
    }
    let transaction = connection.transaction()?;
    let sql = "SELECT EXISTS (SELECT 1 FROM event)";
    let is_moved: bool = transaction.query_row(sql, [], |row| row.get(0))?;
    if !is_moved {
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

/// The files of this kind in a folder, or its folders, by name. None where there is no folder.
fn paths_in(folder: &Path, extension: Option<&str>) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = paths.collect::<io::Result<Vec<_>>>()?;
    paths.retain(|path| path.extension() == extension.map(OsStr::new));
    paths.sort_unstable();
    Ok(paths)
}

/// Reads each file up to a record that is torn. Delivered events are read too: they show which tracks are open.
fn read_spool(folder: &Path, events: &mut FormerEvents) -> io::Result<()> {
    let (mut kept, mut done) = (BTreeMap::new(), BTreeSet::new());
    for path in paths_in(folder, Some("log"))? {
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

fn read_webhooks(folder: &Path, events: &mut FormerEvents) -> io::Result<()> {
    for webhook in paths_in(folder, None)? {
        let name = webhook.file_name().and_then(OsStr::to_str);
        let Some(Ok(id)) = name.map(WebhookId::new) else {
            continue;
        };
        for path in paths_in(&webhook, Some("json"))? {
            let post = serde_json::from_slice::<StoredPost>(&fs::read(&path)?).ok();
            let found = post.and_then(|post| Some((post.logged()?, post.picture())));
            let Some((logged, picture)) = found else {
                let path = path.display();
                tracing::error!(%path, "an event of an earlier version cannot be read; it is lost");
                continue;
            };
            let former = events.entry(logged.id.clone()).or_insert(FormerEvent {
                logged,
                waiting: BTreeSet::new(),
                picture: None,
            });
            former.waiting.insert(EventReceiver::webhook(&id));
            former.picture = former.picture.take().or(picture);
        }
    }
    Ok(())
}
