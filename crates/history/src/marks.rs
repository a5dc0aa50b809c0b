//! What people say of events, and which alarms they are asked about.

use rusqlite::{Connection, OptionalExtension as _, Row, Transaction, named_params, params};
use spotter_core::{CameraId, EventVerdict, Location, MarkOrder, PromptId, TrackId, WallTime};
use spotter_quality::{AlarmChoice, AlarmPlace, DrawableAlarm, Judgement, draw};
use tokio::sync::oneshot;

use crate::{
    looks::{locations_text, read_location, read_locations},
    row::track_id,
};

/// The events of a series, alarms as far as they count.
const COUNTS: &str = "e.camera = ?1 AND e.prompt = ?2 AND e.series = ?3 AND (e.near = 1 OR e.start_ms >= coalesce(
    (SELECT counted_from_ms FROM history_series s WHERE s.camera = ?1 AND s.prompt = ?2 AND s.series = ?3), 0))";

/// The events of a prompt whose marks belong together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SeriesKey {
    pub camera: CameraId,
    pub prompt: PromptId,
    /// `Series` of crates/quality.
    pub series: String,
}

/// What is stored of a series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoredSeries {
    /// The oldest first. When the limit `judged` removes marks, alarms from before the newest of these are none of them: those that are left
    /// were not chosen by chance.
    pub alarms: Vec<StoredAlarm>,
    /// Events that a person is asked about: alarms that were drawn, and objects below `min_score`, with a picture and without a mark.
    pub waiting: u64,
    pub promise: Option<StoredPromise>,
}

/// An alarm of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredAlarm {
    number: i64,
    pub id: TrackId,
    /// At its picture, and when it began.
    pub place: AlarmPlace,
    pub judgement: Option<Judgement>,
    /// It was drawn by chance.
    pub is_drawn: bool,
    pub has_picture: bool,
    /// The record in which it began.
    pub record_ms: Option<i64>,
    has_ended: bool,
    last_seen_ms: i64,
}

/// How far back the alarms without a mark reach: `keep` removes those that ended first, `size` those that began first.
#[derive(Clone, Copy, Debug)]
struct UnmarkedReach {
    start_ms: i64,
    last_seen_ms: i64,
}

/// What a proposal said whose `min_score` a series has: so many of 100 alarms are right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredPromise {
    pub percent: u8,
    /// When the proposal was taken.
    pub since_ms: i64,
}

/// Why a change is not stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JudgingError {
    #[error("there is no such event, or it was removed")]
    Unknown,
    #[error("the event has a better picture now; look at it, and mark it again")]
    OtherPicture,
    #[error("objects: those of this event are {0}")]
    OtherKind(&'static str),
    #[error("not stored: {0}; try again")]
    NotStored(String),
}

/// What is changed.
#[derive(Clone, Debug)]
pub(crate) enum JudgingChange {
    Mark(MarkOrder),
    /// Draws alarms until so many wait to be judged.
    Draw(SeriesKey, usize),
    /// A proposal said that so many of 100 alarms are right.
    Promise(SeriesKey, u8),
}

#[derive(Debug)]
pub(crate) struct QueuedJudging {
    pub change: JudgingChange,
    /// How many events it changed.
    pub reply: oneshot::Sender<Result<usize, JudgingError>>,
}

impl SeriesKey {
    /// The first values of a statement.
    pub(crate) fn values(&self) -> [&str; 3] {
        [self.camera.as_str(), self.prompt.as_str(), &self.series]
    }
}

impl StoredAlarm {
    /// Why it has a mark or gets one.
    pub fn choice(&self) -> Option<AlarmChoice> {
        match (self.is_drawn, self.judgement) {
            (true, _) => Some(AlarmChoice::Drawn),
            (false, Some(_)) => Some(AlarmChoice::Given),
            (false, None) => None,
        }
    }

    /// Chance may draw it, or has drawn it. An event that goes on may get a better picture. Events with a mark outlive those without one: of
    /// the time from which only they are left, none is drawn.
    fn is_drawable(&self, reach: Option<UnmarkedReach>) -> bool {
        let is_reached = |reach: UnmarkedReach| {
            self.place.at.unix_millis() >= reach.start_ms && self.last_seen_ms >= reach.last_seen_ms
        };
        self.is_drawn || self.has_picture && self.has_ended && reach.is_some_and(is_reached)
    }

    /// A person is asked about it.
    pub fn waits(&self) -> bool {
        self.is_drawn && self.judgement.is_none() && self.has_picture
    }
}

impl JudgingChange {
    pub fn execute(
        &self,
        transaction: &Transaction<'_>,
        now_ms: i64,
    ) -> rusqlite::Result<Result<usize, JudgingError>> {
        match self {
            Self::Mark(order) => mark(transaction, order, now_ms),
            Self::Draw(key, wanted) => draw_alarms(transaction, key, *wanted, now_ms).map(Ok),
            Self::Promise(key, percent) => {
                let sql = "INSERT INTO history_series (camera, prompt, series, percent, promised_ms) VALUES (?1, ?2, ?3, ?4, ?5)
                    ON CONFLICT DO UPDATE SET percent = excluded.percent, promised_ms = excluded.promised_ms";
                let [camera, prompt, series] = key.values();
                let row = params![camera, prompt, series, percent, now_ms];
                transaction.execute(sql, row).map(Ok)
            }
        }
    }
}

fn mark(
    transaction: &Transaction<'_>,
    order: &MarkOrder,
    now_ms: i64,
) -> rusqlite::Result<Result<usize, JudgingError>> {
    let MarkOrder {
        event,
        mark,
        picture,
    } = order;
    let sql = "SELECT location, picture FROM history WHERE id = ?1";
    let row = transaction.query_row(sql, [event.as_str()], |row| {
        Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)? as u64))
    });
    let Some((place, stored)) = row.optional()? else {
        return Ok(Err(JudgingError::Unknown));
    };
    if picture.is_some_and(|seen| seen != stored) {
        return Ok(Err(JudgingError::OtherPicture));
    }
    if let (Some(objects), Some(place)) = (mark.objects(), read_location(&place)) {
        let kind = kind(place);
        if objects.iter().any(|object| self::kind(*object) != kind) {
            return Ok(Err(JudgingError::OtherKind(kind)));
        }
    }
    let word = mark.word();
    let sql = "UPDATE history SET mark = :mark, objects = :objects, all_found = :all_found, judged_ms = :judged_ms WHERE id = :id";
    let changed = transaction.execute(
        sql,
        named_params! {
            ":id": event.as_str(), ":mark": word, ":objects": mark.objects().map(locations_text), ":all_found": mark.all_found,
            ":judged_ms": word.map(|_| now_ms),
        },
    )?;
    Ok(Ok(changed))
}

fn kind(place: Location) -> &'static str {
    match place {
        Location::Box(_) => "boxes, [x0, y0, x1, y1]",
        Location::Point(_) => "points, [x, y]",
    }
}

/// Returns how many are new. The times say in which order they were drawn.
fn draw_alarms(
    transaction: &Transaction<'_>,
    key: &SeriesKey,
    wanted: usize,
    now_ms: i64,
) -> rusqlite::Result<usize> {
    let mut alarms = alarms(transaction, key)?;
    let reach = unmarked_reach(transaction)?;
    alarms.retain(|alarm| alarm.is_drawable(reach));
    let waiting = alarms.iter().filter(|alarm| alarm.waits()).count();
    let drawable = alarms.iter().map(|alarm| DrawableAlarm {
        place: alarm.place,
        choice: alarm.choice(),
    });
    let drawable = Vec::from_iter(drawable);
    let drawn = draw(&drawable, wanted.saturating_sub(waiting), |below| {
        fastrand::usize(..below)
    });
    let mut set = transaction.prepare("UPDATE history SET drawn_ms = ?2 WHERE number = ?1")?;
    let all = drawn.to_judge.iter().chain(&drawn.judged_before);
    for (drawn_ms, &index) in (now_ms..).zip(all) {
        set.execute([alarms[index].number, drawn_ms])?;
    }
    Ok(drawn.to_judge.len())
}

/// `None`: all alarms have marks.
fn unmarked_reach(connection: &Connection) -> rusqlite::Result<Option<UnmarkedReach>> {
    let sql =
        "SELECT min(start_ms), min(last_seen_ms) FROM history WHERE mark IS NULL AND near = 0";
    connection.query_row(sql, [], |row| {
        let (start_ms, last_seen_ms): (Option<i64>, Option<i64>) = (row.get(0)?, row.get(1)?);
        let reach = |(start_ms, last_seen_ms)| UnmarkedReach {
            start_ms,
            last_seen_ms,
        };
        Ok(start_ms.zip(last_seen_ms).map(reach))
    })
}

/// Before the limit `judged` removes these rows: counts begin after the alarms among them.
pub(crate) fn count_after(transaction: &Transaction<'_>, removed: &[i64]) -> rusqlite::Result<()> {
    let sql = "INSERT INTO history_series (camera, prompt, series, counted_from_ms)
        SELECT camera, prompt, series, start_ms + 1 FROM history WHERE number = ?1 AND mark IS NOT NULL AND near = 0
        ON CONFLICT DO UPDATE SET counted_from_ms = max(counted_from_ms, excluded.counted_from_ms)";
    let mut count = transaction.prepare(sql)?;
    for number in removed {
        count.execute([number])?;
    }
    Ok(())
}

/// The condition of SQL for the events that a person is asked about, with [`SeriesKey::values`].
pub(crate) fn waits() -> String {
    format!(
        "{COUNTS} AND e.mark IS NULL AND e.picture_bytes > 0 AND (e.near = 1 OR e.drawn_ms IS NOT NULL)"
    )
}

pub(crate) fn series(connection: &Connection, key: &SeriesKey) -> rusqlite::Result<StoredSeries> {
    let sql = format!("SELECT count(*) FROM history e WHERE {}", waits());
    let waiting: i64 = connection.query_row(&sql, key.values(), |row| row.get(0))?;
    Ok(StoredSeries {
        alarms: alarms(connection, key)?,
        waiting: waiting as u64,
        promise: promise(connection, key)?,
    })
}

fn alarms(connection: &Connection, key: &SeriesKey) -> rusqlite::Result<Vec<StoredAlarm>> {
    let sql = format!(
        "SELECT number, id, location, start_ms, mark, drawn_ms IS NOT NULL, picture_bytes > 0, record_ms, end_ms IS NOT NULL, last_seen_ms, objects
         FROM history e WHERE {COUNTS} AND near = 0 ORDER BY start_ms"
    );
    let mut rows = connection.prepare(&sql)?;
    let rows = rows.query_map(key.values(), alarm)?;
    // A place that cannot be read is on no picture.
    let read = rows.filter_map(Result::transpose);
    read.collect()
}

fn alarm(row: &Row<'_>) -> rusqlite::Result<Option<StoredAlarm>> {
    let (location, start_ms): (String, i64) = (row.get(2)?, row.get(3)?);
    let (mark, objects): (Option<String>, Option<String>) = (row.get(4)?, row.get(10)?);
    let Some(location) = read_location(&location) else {
        return Ok(None);
    };
    Ok(Some(StoredAlarm {
        number: row.get(0)?,
        id: track_id(row, 1)?,
        place: AlarmPlace {
            location,
            at: WallTime::from_unix_millis(start_ms),
        },
        judgement: mark
            .and_then(|mark| stored_verdict(&mark, objects.as_deref()))
            .map(|verdict| judgement(location, &verdict)),
        is_drawn: row.get(5)?,
        has_picture: row.get(6)?,
        record_ms: row.get(7)?,
        has_ended: row.get(8)?,
        last_seen_ms: row.get(9)?,
    }))
}

/// `None`: the row is not one that Spotter writes.
pub(crate) fn stored_verdict(mark: &str, objects: Option<&str>) -> Option<EventVerdict> {
    match mark {
        "right" => Some(EventVerdict::Right),
        "wrong" => Some(EventVerdict::Wrong),
        _ => objects.map(|objects| EventVerdict::Corrected(read_locations(objects))),
    }
}

/// What a verdict says of an alarm at this place. A corrected one was right where its place overlaps a right one by half; else it was at nothing,
/// and what was there was missed.
pub(crate) fn judgement(place: Location, verdict: &EventVerdict) -> Judgement {
    let is_right = match verdict {
        EventVerdict::Right => true,
        EventVerdict::Wrong => false,
        EventVerdict::Corrected(objects) => is_among(place, objects),
    };
    match is_right {
        true => Judgement::Right,
        false => Judgement::Wrong,
    }
}

pub(crate) fn is_among(place: Location, objects: &[Location]) -> bool {
    objects.iter().any(|object| object.is_same_place(&place))
}

fn promise(connection: &Connection, key: &SeriesKey) -> rusqlite::Result<Option<StoredPromise>> {
    let sql = "SELECT percent, promised_ms FROM history_series WHERE camera = ?1 AND prompt = ?2 AND series = ?3 AND percent IS NOT NULL";
    let promise = connection.query_row(sql, key.values(), |row| {
        Ok(StoredPromise {
            percent: row.get(0)?,
            since_ms: row.get(1)?,
        })
    });
    promise.optional()
}
