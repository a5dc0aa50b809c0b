//! A row of the table `history`.

use std::sync::Arc;

use rusqlite::{OptionalExtension as _, Transaction, named_params, params};
use spotter_core::{CameraId, Event, Location, PromptId, TrackId, WallTime, ZoneId};

use crate::{
    looks::{location_text, locations_text, read_location},
    message::HistoryMessage,
    near::NearPrompt,
};

/// Alarms of one prompt at one place within this time are shown as one.
const PLACE_MS: i64 = 86_400_000;
/// Places of a prompt that are compared, the newest first.
const PLACES_MAX: u32 = 500;
/// A model can write without end.
const DESCRIPTION_MAX_CHARS: usize = 4000;
/// Of a row without its texts, with its entries in the indexes, in pages that are partly free. Measured: docs/page.md.
const ROW_BYTES: u64 = 700;
/// What a transaction writes to the disk for a row, with the log and its checkpoints. Measured: docs/page.md.
const WRITE_BYTES: u64 = 7_000;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HistoryRow {
    pub id: TrackId,
    pub camera: CameraId,
    pub prompt: PromptId,
    /// Of an object below `min_score`, which is no alarm.
    pub is_near: bool,
    pub revision: u32,
    /// Of the prompt.
    pub words: Arc<str>,
    /// What marks of its alarms depend on.
    pub series: Arc<str>,
    pub start_ms: i64,
    pub end_ms: Option<i64>,
    pub last_seen_ms: i64,
    /// At the look of the picture.
    pub score: f64,
    pub top_score: f64,
    /// At the look of the picture.
    pub location: Location,
    /// The other objects of its prompt at that look.
    pub others: Vec<Location>,
    pub size: (u32, u32),
    pub zones: Vec<ZoneId>,
    pub description: Option<String>,
    pub looks: u64,
    /// The number of its last picture; 0 without one.
    pub picture: u64,
    pub picture_bytes: u64,
    pub look_bytes: u64,
    /// All that was ever written of it.
    pub written: u64,
}

impl HistoryRow {
    pub fn new(message: &HistoryMessage<'_>) -> Self {
        let event = message.event;
        let mut row = Self {
            id: event.track.clone(),
            camera: event.camera.clone(),
            prompt: event.prompt.clone(),
            is_near: message.is_near,
            revision: event.revision,
            words: message.words.into(),
            series: message.series.into(),
            start_ms: event.started.unix_millis(),
            end_ms: None,
            last_seen_ms: 0,
            score: event.score,
            top_score: 0.0,
            location: event.location,
            others: Vec::new(),
            size: event.camera_size,
            zones: Vec::new(),
            description: None,
            looks: 0,
            picture: 0,
            picture_bytes: 0,
            look_bytes: 0,
            written: 0,
        };
        row.update(event);
        row
    }

    /// What a message of the event changes.
    pub fn update(&mut self, event: &Event) {
        self.end_ms = event.ended.map(WallTime::unix_millis);
        self.last_seen_ms = event.last_seen.unix_millis();
        self.top_score = event.top_score;
        self.zones.clone_from(&event.entered_zones);
        self.looks = event.looks;
        if let Some(text) = &event.description {
            self.description = Some(text.chars().take(DESCRIPTION_MAX_CHARS).collect());
        }
    }

    pub fn prompt_key(&self) -> NearPrompt {
        (self.camera.clone(), self.prompt.clone())
    }

    /// On the disk.
    pub fn bytes(&self) -> u64 {
        let texts = self.words.len() + self.description.as_ref().map_or(0, String::len);
        ROW_BYTES + texts as u64 + self.look_bytes + self.picture_bytes
    }

    /// As it is once it is written, with these bytes of further looks.
    pub fn written_with(&self, looks: usize) -> Self {
        Self {
            look_bytes: self.look_bytes + looks as u64,
            written: self.written + WRITE_BYTES + looks as u64,
            ..self.clone()
        }
    }

    fn zone_text(&self) -> String {
        zone_text(self.zones.iter().map(ZoneId::as_str))
    }

    /// False: there is one with its id.
    pub fn insert(&self, transaction: &Transaction<'_>) -> rusqlite::Result<bool> {
        let place = self.place(transaction)?;
        let sql = "INSERT INTO history (id, near, place, camera, prompt, revision, words, series, start_ms, last_seen_ms, score, top_score, location, width, height, zones, looks, picture, picture_bytes, bytes, written)
            VALUES (:id, :near, :place, :camera, :prompt, :revision, :words, :series, :start_ms, 0, 0, 0, '', :width, :height, '', 0, 0, 0, 0, 0)
            ON CONFLICT (id) DO NOTHING";
        let inserted = transaction.execute(
            sql,
            named_params! {
                ":id": self.id.as_str(), ":near": self.is_near, ":place": place.unwrap_or_default(), ":camera": self.camera.as_str(), ":prompt": self.prompt.as_str(),
                ":revision": self.revision, ":words": &*self.words, ":series": &*self.series, ":start_ms": self.start_ms, ":width": self.size.0, ":height": self.size.1,
            },
        )?;
        if inserted == 1 && place.is_none() {
            let sql = "UPDATE history SET place = number WHERE number = last_insert_rowid()";
            transaction.execute(sql, [])?;
        }
        Ok(inserted == 1)
    }

    /// False: it is not there any more.
    pub fn write(&self, transaction: &Transaction<'_>) -> rusqlite::Result<bool> {
        let sql = "UPDATE history SET end_ms = :end_ms, last_seen_ms = :last_seen_ms, score = :score, top_score = :top_score, location = :location, others = :others,
            zones = :zones, description = :description, looks = :looks, picture = :picture, picture_bytes = :picture_bytes, bytes = :bytes,
            written = :written WHERE id = :id";
        let updated = transaction.execute(
            sql,
            named_params! {
                ":id": self.id.as_str(), ":end_ms": self.end_ms, ":last_seen_ms": self.last_seen_ms, ":score": self.score,
                ":top_score": self.top_score, ":location": location_text(self.location), ":others": locations_text(&self.others), ":zones": self.zone_text(),
                ":description": self.description, ":looks": self.looks as i64, ":picture": self.picture as i64,
                ":picture_bytes": self.picture_bytes as i64, ":bytes": self.bytes() as i64, ":written": self.written as i64,
            },
        )?;
        Ok(updated == 1)
    }

    /// Adds looks, as the `part`-th row of them.
    pub fn write_looks(
        &self,
        transaction: &Transaction<'_>,
        part: u32,
        looks: &[u8],
    ) -> rusqlite::Result<()> {
        let sql = "INSERT INTO history_looks (number, part, body) SELECT number, ?2, ?3 FROM history WHERE id = ?1";
        transaction.execute(sql, params![self.id.as_str(), part, looks])?;
        Ok(())
    }

    /// The place of an earlier event that this one repeats. It is compared with the first one there, so that a place does not move.
    fn place(&self, transaction: &Transaction<'_>) -> rusqlite::Result<Option<i64>> {
        let sql = "SELECT number, location FROM history WHERE camera = ?1 AND prompt = ?2 AND start_ms > ?3 AND start_ms <= ?4 AND number = place AND near = ?5
            ORDER BY start_ms DESC LIMIT ?6";
        let mut places = transaction.prepare(sql)?;
        let key = params![
            self.camera.as_str(),
            self.prompt.as_str(),
            self.start_ms - PLACE_MS,
            self.start_ms,
            self.is_near,
            PLACES_MAX
        ];
        let mut places = places.query(key)?;
        while let Some(place) = places.next()? {
            let (number, text): (i64, String) = (place.get(0)?, place.get(1)?);
            if read_location(&text).is_some_and(|there| there.is_same_place(&self.location)) {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }
}

/// Between spaces, so that a name is found with its ends.
pub(crate) fn zone_text<'a>(zones: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<&str> = zones.collect();
    match names.is_empty() {
        true => String::new(),
        false => format!(" {} ", names.join(" ")),
    }
}

/// The camera of the row, and the number of its picture with its bytes.
pub(crate) fn find(
    connection: &rusqlite::Connection,
    id: &str,
) -> rusqlite::Result<Option<(String, u64, u64)>> {
    let sql = "SELECT camera, picture, picture_bytes FROM history WHERE id = ?1";
    let row = connection.query_row(sql, [id], |row| {
        let [picture, bytes] = [row.get::<_, i64>(1)?, row.get(2)?];
        Ok((row.get(0)?, picture as u64, bytes as u64))
    });
    row.optional()
}

/// The id of a row.
pub(crate) fn track_id(row: &rusqlite::Row<'_>, column: usize) -> rusqlite::Result<TrackId> {
    let text: String = row.get(column)?;
    let wrong = |error| {
        rusqlite::Error::FromSqlConversionFailure(
            column,
            rusqlite::types::Type::Text,
            Box::new(error),
        )
    };
    serde_json::from_value(text.into()).map_err(wrong)
}
