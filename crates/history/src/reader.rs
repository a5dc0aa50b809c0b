//! Queries. Each opens a connection of its own, on a thread that may block.

use std::{
    fs, io,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rusqlite::{Connection, Row, functions::FunctionFlags, types};
use serde::Serialize;
use serde_json::Value;
use spotter_core::{Clock, rounded};
use spotter_state::{OpenError, open_reader};

use crate::{
    filter::{HistoryFilter, NamedValues, PageStart, named},
    folder::{file_name, picture_path, pictures_folder},
    judged_set::{JudgedPicture, JudgedSet, PictureFile, judged_pictures, picture_size},
    limits::{HistoryEnd, HistoryLimits, millis},
    looks::{LocationJson, LookJson, read_location, read_looks},
    marks::{self, SeriesKey, StoredSeries},
    recorded::{HistoryShared, HistoryStatus, WriterParts},
    records::{self, RecordFilter, StoredRecord},
    row,
    time_zone::{hour_end, time_zone},
};

const BARS: usize = 24;
/// Events that a person is asked about at a time.
const QUEUE_MAX: u32 = 50;
const DAY: Duration = Duration::from_hours(24);
const COLUMNS: &str = "e.number, e.id, e.camera, e.prompt, e.words, e.start_ms, e.end_ms, e.score, e.top_score, e.location, e.width, e.height, e.zones,
    e.description, e.looks, e.picture, e.picture_bytes, e.mark, e.near, e.drawn_ms IS NOT NULL, e.objects, e.all_found, e.others";

/// A query has no answer.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    #[error("{0}")]
    Database(#[from] OpenError),
    #[error("{0}")]
    Sqlite(#[from] rusqlite::Error),
    #[error("cannot read a picture of the history: {0}")]
    Picture(io::Error),
}

/// Answers queries about the history in a state directory.
#[derive(Clone, Debug)]
pub struct HistoryReader {
    state_dir: PathBuf,
    /// `None`: beside the daemon.
    daemon: Option<DaemonPart>,
}

/// What only the daemon knows.
#[derive(Clone)]
struct DaemonPart {
    shared: Arc<HistoryShared>,
    limits: HistoryLimits,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for DaemonPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("DaemonPart").field(&self.limits).finish()
    }
}

/// Where an answer says that pictures are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PictureLinks {
    /// From the page.
    Page,
    /// Of the HTTP API.
    Api,
    /// In an export.
    Export,
}

impl PictureLinks {
    /// A better picture has another address, so that each can be kept.
    fn link(self, id: &str, picture: i64) -> String {
        match self {
            Self::Page => format!("events/{id}.jpg?v={picture}"),
            Self::Api => format!("/v1/events/{id}/picture?v={picture}"),
            Self::Export => format!("pictures/{id}.jpg"),
        }
    }
}

/// A page of events, with what the whole range has.
#[derive(Debug, Serialize)]
pub struct EventsPage {
    is_on: bool,
    pub events: Vec<EventJson>,
    /// `before` of the next page.
    pub next: Option<String>,
    /// Events that began in each 24th of the range, repeats included.
    bars: [u64; BARS],
    bars_from_ms: i64,
    bars_to_ms: i64,
    time_zone: String,
    offset_min: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    reach: Option<HistoryReach>,
}

/// How far back the history reaches.
#[derive(Debug, Serialize)]
struct HistoryReach {
    /// The begin of the oldest event.
    since_ms: Option<i64>,
    limit: HistoryEnd,
    bytes: u64,
    judged_bytes: u64,
    events: u64,
    /// Written within the last 24 hours.
    bytes_a_day: u64,
    pictures_stopped: Option<String>,
    rows_stopped: Option<String>,
    pictures_dropped: u64,
    events_dropped: u64,
}

/// An event in an answer.
#[derive(Debug, Serialize)]
pub struct EventJson {
    #[serde(skip)]
    pub(crate) number: i64,
    pub id: String,
    pub camera: String,
    pub prompt: String,
    pub words: String,
    pub start_ms: i64,
    pub end_ms: Option<i64>,
    score: f64,
    pub top_score: f64,
    #[serde(flatten)]
    location: Option<LocationJson>,
    size: [i64; 2],
    zones: Vec<String>,
    pub description: Option<String>,
    looks: i64,
    pub picture: Option<String>,
    mark: Option<String>,
    /// Of an object below `min_score`: no alarm.
    near: bool,
    /// It was drawn by chance to be judged.
    drawn: bool,
    /// Places on the picture that a person says are right ones; `None`: not corrected.
    objects: Option<Value>,
    /// A person says that the picture has no further ones.
    all_found: bool,
    /// The other objects of its prompt on its picture.
    others: Value,
    /// Further events at its place that fit the filter.
    pub repeats: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    seen: Option<Vec<LookJson>>,
}

/// The JPEG of an event.
#[derive(Debug)]
pub struct StoredPicture {
    pub jpeg: Vec<u8>,
    /// Its number, as in `?v=`.
    pub number: u64,
}

impl HistoryReader {
    /// Of the history in this directory, also beside a daemon.
    pub fn new(state_dir: &Path) -> Self {
        Self {
            state_dir: state_dir.to_owned(),
            daemon: None,
        }
    }

    pub(crate) fn of_daemon(self, shared: Arc<HistoryShared>, parts: &WriterParts) -> Self {
        let daemon = DaemonPart {
            shared,
            limits: parts.limits.clone(),
            clock: Arc::clone(&parts.clock),
        };
        Self {
            daemon: Some(daemon),
            ..self
        }
    }

    /// `None`: there is no database.
    fn connect(&self) -> Result<Option<Connection>, HistoryError> {
        let Some(connection) = open_reader(&self.state_dir)? else {
            return Ok(None);
        };
        let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
        // The second text is in lower case. SQLite itself knows the cases of ASCII alone.
        connection.create_scalar_function("has_text", 2, flags, |context| {
            let [text, wanted] = [0, 1].map(|index| context.get_raw(index).as_str().ok());
            let found = text.zip(wanted);
            Ok(found.is_some_and(|(text, wanted)| text.to_lowercase().contains(wanted)))
        })?;
        Ok(Some(connection))
    }

    /// Whether it has events of this run of a daemon, whose track ids a later run must not use.
    pub fn has_run(&self, boot: &str) -> Result<bool, HistoryError> {
        let Some(connection) = self.connect()? else {
            return Ok(false);
        };
        // `.` follows `-`.
        let sql = "SELECT EXISTS (SELECT 1 FROM history WHERE id > ?1 || '-' AND id < ?1 || '.')";
        Ok(connection.query_row(sql, [boot], |row| row.get(0))?)
    }

    /// A page of events, the newest first; those at one place are one. `now_ms`: where the range has no end.
    pub fn list(
        &self,
        filter: &HistoryFilter,
        links: PictureLinks,
        now_ms: i64,
    ) -> Result<EventsPage, HistoryError> {
        let (time_zone, offset_min) = time_zone(now_ms);
        let bars_to_ms = filter.to_ms.unwrap_or_else(|| hour_end(now_ms, offset_min));
        let day_before = bars_to_ms.saturating_sub(millis(DAY));
        let bars_from_ms = filter.from_ms.unwrap_or(day_before).min(bars_to_ms);
        let mut page = EventsPage {
            is_on: true,
            events: Vec::new(),
            next: None,
            bars: [0; BARS],
            bars_from_ms,
            bars_to_ms,
            time_zone,
            offset_min,
            reach: None,
        };
        let Some(connection) = self.connect()? else {
            return Ok(page);
        };
        page.events = listed(&connection, filter, links)?;
        if page.events.len() > filter.page_len() {
            page.events.pop();
            let last = page.events.last().map(EventJson::page_start);
            page.next = last.map(PageStart::text);
        }
        let range = HistoryFilter {
            from_ms: Some(bars_from_ms),
            to_ms: Some(bars_to_ms),
            ..filter.clone()
        };
        page.bars = bars(&connection, &range)?;
        page.reach = self.reach(&connection)?;
        Ok(page)
    }

    /// The next events after `filter.before`, repeats as events of their own. Each page has its own connection: a long export must not hold up
    /// the writer.
    pub(crate) fn export_page(
        &self,
        filter: &HistoryFilter,
    ) -> Result<Vec<EventJson>, HistoryError> {
        let Some(connection) = self.connect()? else {
            return Ok(Vec::new());
        };
        listed(&connection, filter, PictureLinks::Export)
    }

    /// An event with the looks that saw it.
    pub fn event(&self, id: &str, links: PictureLinks) -> Result<Option<EventJson>, HistoryError> {
        let Some(connection) = self.connect()? else {
            return Ok(None);
        };
        let sql = format!(
            "SELECT {COLUMNS}, (SELECT count(*) FROM history n WHERE n.place = e.place) - 1 FROM history e WHERE e.id = ?1"
        );
        let mut found = connection.prepare(&sql)?;
        let mut found = found.query_map([id], |row| EventJson::read(row, links))?;
        let Some(event) = found.next().transpose()? else {
            return Ok(None);
        };
        let mut parts =
            connection.prepare("SELECT body FROM history_looks WHERE number = ?1 ORDER BY part")?;
        let parts = parts.query_map([event.number], |row| row.get::<_, Vec<u8>>(0))?;
        let parts = parts.collect::<rusqlite::Result<Vec<_>>>()?;
        let seen = parts.iter().flat_map(|part| read_looks(part));
        Ok(Some(EventJson {
            seen: Some(seen.map(LookJson::from).collect()),
            ..event
        }))
    }

    /// The judged events of the filter that have a picture, as labels of the files in the folder of pictures. `None`: there is no database.
    pub fn judged_set(&self, filter: &HistoryFilter) -> Result<Option<JudgedSet>, HistoryError> {
        self.judged_set_of(filter, |picture| {
            Some(file_name(&picture.id, picture.picture))
        })
    }

    /// Those that `name_of` gives a name for their file.
    pub(crate) fn judged_set_of(
        &self,
        filter: &HistoryFilter,
        name_of: impl Fn(&JudgedPicture) -> Option<String>,
    ) -> Result<Option<JudgedSet>, HistoryError> {
        let Some(connection) = self.connect()? else {
            return Ok(None);
        };
        let mut set = JudgedSet::default();
        for picture in judged_pictures(&connection, filter)? {
            let path = picture_path(&self.state_dir, &picture.id, picture.picture);
            let size = picture_size(&path).map_err(HistoryError::Picture)?;
            if let Some((name, size)) = name_of(&picture).zip(size) {
                set.add(&picture, PictureFile { name, size });
            }
        }
        Ok(Some(set))
    }

    /// The folder of pictures.
    pub fn pictures(&self) -> PathBuf {
        pictures_folder(&self.state_dir)
    }

    pub fn series(&self, key: &SeriesKey) -> Result<StoredSeries, HistoryError> {
        match self.connect()? {
            Some(connection) => Ok(marks::series(&connection, key)?),
            None => Ok(StoredSeries::default()),
        }
    }

    /// What a person is asked about, at most 50: alarms that were drawn, in their order, then objects below `min_score`.
    pub fn judging_queue(&self, key: &SeriesKey) -> Result<Vec<EventJson>, HistoryError> {
        let Some(connection) = self.connect()? else {
            return Ok(Vec::new());
        };
        let sql = format!(
            "SELECT {COLUMNS}, 0 FROM history e WHERE {} ORDER BY e.near, e.drawn_ms, e.start_ms DESC LIMIT {QUEUE_MAX}",
            marks::waits()
        );
        let mut rows = connection.prepare(&sql)?;
        let rows = rows.query_map(key.values(), |row| EventJson::read(row, PictureLinks::Page))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// `None`: there is no such event, or it has no picture, or the pictures of its camera are being removed, because more is masked.
    pub fn picture(&self, id: &str) -> Result<Option<StoredPicture>, HistoryError> {
        let Some(connection) = self.connect()? else {
            return Ok(None);
        };
        // A better one may replace it between row and file.
        for _ in 0..3 {
            let Some((camera, number, 1..)) = row::find(&connection, id)? else {
                return Ok(None);
            };
            // After the row: a removal that is done then has removed the file.
            let daemon = self.daemon.as_ref();
            if daemon.is_some_and(|it| it.shared.is_removing_of(&camera)) {
                return Ok(None);
            }
            match fs::read(picture_path(&self.state_dir, id, number)) {
                Ok(jpeg) => return Ok(Some(StoredPicture { jpeg, number })),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(HistoryError::Picture(error)),
            }
        }
        Ok(None)
    }

    /// Recorded looks that fit, the newest records first, until `visit` breaks. Each is read when it is its turn; one that is damaged or was
    /// removed meanwhile is left out.
    pub fn each_record(
        &self,
        filter: &RecordFilter,
        mut visit: impl FnMut(StoredRecord) -> ControlFlow<()>,
    ) -> Result<(), HistoryError> {
        let Some(connection) = self.connect()? else {
            return Ok(());
        };
        for key in records::record_keys(&connection, filter)? {
            let record = records::read_record(&connection, key)?;
            if record.map(&mut visit).is_some_and(|flow| flow.is_break()) {
                break;
            }
        }
        Ok(())
    }

    fn reach(&self, connection: &Connection) -> Result<Option<HistoryReach>, HistoryError> {
        let Some(daemon) = &self.daemon else {
            return Ok(None);
        };
        let now_ms = daemon.clock.wall().unix_millis();
        let oldest = "SELECT (SELECT start_ms FROM history WHERE near = 0 ORDER BY start_ms LIMIT 1),
            (SELECT start_ms FROM history WHERE mark IS NULL AND near = 0 ORDER BY start_ms LIMIT 1)";
        let (since_ms, unjudged_ms): (Option<i64>, Option<i64>) =
            connection.query_row(oldest, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let written = "SELECT coalesce(sum(written), 0) FROM history WHERE start_ms > ?1";
        let day_before = now_ms.saturating_sub(millis(DAY));
        let of_events: i64 = connection.query_row(written, [day_before], |row| row.get(0))?;
        let of_records = records::record_bytes_written(connection, day_before)?;
        let HistoryStatus {
            pictures_stopped,
            rows_stopped,
            pictures_dropped,
            events_dropped,
            totals,
            ..
        } = daemon.shared.lock().status.clone();
        Ok(Some(HistoryReach {
            since_ms,
            limit: daemon
                .limits
                .end(totals, unjudged_ms.unwrap_or(now_ms), now_ms),
            bytes: totals.unjudged() + totals.judged,
            judged_bytes: totals.judged,
            events: totals.events,
            bytes_a_day: of_events as u64 + of_records,
            pictures_stopped,
            rows_stopped,
            pictures_dropped,
            events_dropped,
        }))
    }
}

impl EventJson {
    fn read(row: &Row<'_>, links: PictureLinks) -> rusqlite::Result<Self> {
        let (id, picture): (String, i64) = (row.get(1)?, row.get(15)?);
        let (location, zones): (String, String) = (row.get(9)?, row.get(12)?);
        let (objects, others): (Option<String>, String) = (row.get(20)?, row.get(22)?);
        let has_picture = row.get::<_, i64>(16)? > 0;
        Ok(Self {
            number: row.get(0)?,
            picture: has_picture.then(|| links.link(&id, picture)),
            id,
            camera: row.get(2)?,
            prompt: row.get(3)?,
            words: row.get(4)?,
            start_ms: row.get(5)?,
            end_ms: row.get(6)?,
            score: rounded(row.get(7)?, 3),
            top_score: rounded(row.get(8)?, 3),
            location: read_location(&location).map(LocationJson::from),
            size: [row.get(10)?, row.get(11)?],
            zones: zones.split_whitespace().map(str::to_owned).collect(),
            description: row.get(13)?,
            looks: row.get(14)?,
            mark: row.get(17)?,
            near: row.get(18)?,
            drawn: row.get(19)?,
            objects: objects.as_deref().map(places),
            all_found: row.get(21)?,
            others: places(&others),
            repeats: row.get(23)?,
            seen: None,
        })
    }

    pub(crate) fn page_start(&self) -> PageStart {
        PageStart {
            start_ms: self.start_ms,
            number: self.number,
        }
    }
}

/// As the row has them.
fn places(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

/// One more than the page has, where there are more.
fn listed(
    connection: &Connection,
    filter: &HistoryFilter,
    links: PictureLinks,
) -> Result<Vec<EventJson>, HistoryError> {
    let (own, mut values) = filter.conditions("e");
    let (of_others, _) = filter.conditions("n");
    let mut conditions = vec![own];
    if let Some(before) = filter.before {
        conditions.push("(e.start_ms, e.number) < (:start, :number)".into());
        values.push((":start", types::Value::from(before.start_ms)));
        values.push((":number", types::Value::from(before.number)));
    }
    let place = match &filter.of {
        Some(id) => {
            values.push((":of", types::Value::from(id.clone())));
            "e.place = (SELECT place FROM history WHERE id = :of) AND e.id <> :of".to_owned()
        }
        None if links == PictureLinks::Export => "TRUE".to_owned(),
        // The newest of its place that fits.
        None => format!(
            "NOT EXISTS (SELECT 1 FROM history n WHERE n.place = e.place AND (n.start_ms, n.number) > (e.start_ms, e.number) AND {of_others})"
        ),
    };
    conditions.push(place);
    values.push((":limit", types::Value::from(filter.page_len() as i64 + 1)));
    let conditions = conditions.join(" AND ");
    let sql = format!(
        "SELECT {COLUMNS}, (SELECT count(*) FROM history n WHERE n.place = e.place AND {of_others}) - 1
         FROM history e WHERE {conditions} ORDER BY e.start_ms DESC, e.number DESC LIMIT :limit"
    );
    let mut rows = connection.prepare(&sql)?;
    let rows = rows.query_map(&*named(&values), |row| EventJson::read(row, links))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// `range` has both ends.
fn bars(connection: &Connection, range: &HistoryFilter) -> rusqlite::Result<[u64; BARS]> {
    let (conditions, values): (String, NamedValues) = range.conditions("e");
    let sql = format!(
        "SELECT (e.start_ms - :from) * {BARS} / (:to - :from), count(*) FROM history e WHERE {conditions} GROUP BY 1"
    );
    let mut bars = [0; BARS];
    let mut rows = connection.prepare(&sql)?;
    let mut rows = rows.query(&*named(&values))?;
    while let Some(row) = rows.next()? {
        let (bar, count): (i64, i64) = (row.get(0)?, row.get(1)?);
        if let Some(counted) = usize::try_from(bar).ok().and_then(|bar| bars.get_mut(bar)) {
            *counted = count as u64;
        }
    }
    Ok(bars)
}
