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
use serde_json::{Map, Value};
use spotter_core::{Epoch, Event, WebhookId};

use crate::{
    event_table::{EventReceiver, names},
    logged_event::LoggedEvent,
};

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
    id: String,
    event: Event,
    #[serde(default)]
    epoch: Option<Epoch>,
}

/// A file of a webhook.
#[derive(Deserialize)]
struct StoredPost {
    /// The payload of an event.
    body: Map<String, Value>,
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
    let body = &event.logged.json;
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
            logged: LoggedEvent::new(event.id, &event.event, event.epoch),
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
            let post = serde_json::from_slice::<StoredPost>(&fs::read(&path)?);
            let found = post.ok().and_then(|StoredPost { mut body }| {
                body.remove("delayed");
                let picture = body.remove("snapshot_jpeg");
                let logged = LoggedEvent::read(&Value::from(body).to_string())?;
                Some((logged, picture))
            });
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
            let jpeg = picture.and_then(|text| BASE64_STANDARD.decode(text.as_str()?).ok());
            former.picture = former.picture.take().or(jpeg);
        }
    }
    Ok(())
}
