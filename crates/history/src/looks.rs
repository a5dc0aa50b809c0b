//! The looks that saw the object of an event: scores and places, as they are stored.
//!
//! A row of `history_looks` has records of 24 bytes, little-endian: milliseconds since the start of the event (`u32`), the score, and the four
//! corners of the box (`f32`); of a point, x and y and two times NaN.

use serde::Serialize;
use serde_json::{Value, json};
use spotter_core::{Location, NormBox, NormPoint, rounded};

pub(crate) const RECORD_BYTES: usize = 24;
/// A look is stored when this part of the event's time has passed since the last stored one: about 200 looks of a short event, 1,700 of one that
/// lasts a day at five looks a second.
const SPACING: u32 = 200;

/// A look that saw the object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StoredLook {
    pub offset_ms: u32,
    pub score: f32,
    pub location: Location,
}

/// Which looks are stored.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LookSpacing {
    stored: u32,
    last_ms: u32,
}

impl LookSpacing {
    pub fn admit(&mut self, offset_ms: u32) -> bool {
        let is_due =
            self.stored < SPACING || offset_ms.saturating_sub(self.last_ms) >= offset_ms / SPACING;
        if is_due {
            self.stored += 1;
            self.last_ms = offset_ms;
        }
        is_due
    }
}

impl StoredLook {
    pub fn append_to(&self, bytes: &mut Vec<u8>) {
        let corners = match self.location {
            Location::Box(place) => [place.x0, place.y0, place.x1, place.y1],
            Location::Point(point) => [point.x, point.y, f64::NAN, f64::NAN],
        };
        bytes.extend(self.offset_ms.to_le_bytes());
        bytes.extend(self.score.to_le_bytes());
        for corner in corners {
            bytes.extend((corner as f32).to_le_bytes());
        }
    }

    fn read(record: &[u8; RECORD_BYTES]) -> Self {
        let mut words = record
            .chunks_exact(4)
            .map(|word| [word[0], word[1], word[2], word[3]]);
        let mut word = || words.next().unwrap_or_default();
        let (offset_ms, score) = (u32::from_le_bytes(word()), f32::from_le_bytes(word()));
        let corners = [(); 4].map(|()| f64::from(f32::from_le_bytes(word())));
        let [x0, y0, x1, y1] = corners;
        let location = match x1.is_nan() {
            true => Location::Point(NormPoint::new(x0, y0)),
            false => Location::Box(NormBox::from_corners(x0, y0, x1, y1)),
        };
        Self {
            offset_ms,
            score,
            location,
        }
    }
}

/// The records of a row. A rest that is none is left out.
pub(crate) fn read_looks(body: &[u8]) -> impl Iterator<Item = StoredLook> {
    let records = body.chunks_exact(RECORD_BYTES);
    records.filter_map(|record| Some(StoredLook::read(record.try_into().ok()?)))
}

/// A look in an answer.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LookJson {
    pub ms: u32,
    pub score: f64,
    #[serde(flatten)]
    pub location: LocationJson,
}

impl From<StoredLook> for LookJson {
    fn from(look: StoredLook) -> Self {
        Self {
            ms: look.offset_ms,
            score: rounded(look.score.into(), 3),
            location: look.location.into(),
        }
    }
}

/// A place in an answer, as in the messages of events.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LocationJson {
    Box([f64; 4]),
    Point([f64; 2]),
}

impl From<Location> for LocationJson {
    fn from(location: Location) -> Self {
        match location {
            Location::Box(place) => Self::Box(place.rounded()),
            Location::Point(point) => Self::Point(point.rounded()),
        }
    }
}

/// As a row has it.
pub(crate) fn location_text(location: Location) -> String {
    location_value(location).to_string()
}

/// As a row has several.
pub(crate) fn locations_text(locations: &[Location]) -> String {
    let places = locations.iter().copied().map(location_value);
    Value::from_iter(places).to_string()
}

fn location_value(location: Location) -> Value {
    match location.into() {
        LocationJson::Box(corners) => json!(corners),
        LocationJson::Point(point) => json!(point),
    }
}

/// `None`: it is no place.
pub(crate) fn read_location(text: &str) -> Option<Location> {
    read_value(&serde_json::from_str(text).ok()?)
}

/// What is no place is left out.
pub(crate) fn read_locations(text: &str) -> Vec<Location> {
    let places: Vec<Value> = serde_json::from_str(text).unwrap_or_default();
    places.iter().filter_map(read_value).collect()
}

fn read_value(numbers: &Value) -> Option<Location> {
    let numbers = numbers.as_array()?.iter().map(Value::as_f64);
    match *numbers.collect::<Option<Vec<_>>>()? {
        [x0, y0, x1, y1] => Some(Location::Box(NormBox::from_corners(x0, y0, x1, y1))),
        [x, y] => Some(Location::Point(NormPoint::new(x, y))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_and_places_are_read_as_they_were_stored() {
        let of_box = Location::Box(NormBox::from_corners(0.25, 0.5, 0.75, 1.0));
        let of_point = Location::Point(NormPoint::new(0.5, 0.125));
        let mut body = Vec::new();
        let looks = [(0, 0.5, of_box), (86_400_000, 0.75, of_point)];
        let looks = looks.map(|(offset_ms, score, location)| StoredLook {
            offset_ms,
            score,
            location,
        });
        looks.iter().for_each(|look| look.append_to(&mut body));
        body.extend([1, 2, 3]);
        assert_eq!(read_looks(&body).collect::<Vec<_>>(), looks);
        for place in [of_box, of_point] {
            assert_eq!(read_location(&location_text(place)), Some(place));
        }
        let places = [of_box, of_point];
        assert_eq!(read_locations(&locations_text(&places)), places);
        assert!(
            ["", "[1]", "[0,\"x\"]", "{}"]
                .map(read_location)
                .iter()
                .all(Option::is_none)
        );
    }

    #[test]
    fn looks_of_a_long_event_are_few() {
        let stored = |ms_each: u32, looks: u32| {
            let mut spacing = LookSpacing::default();
            let offsets = (0..looks).map(|look| look * ms_each);
            offsets.filter(|offset| spacing.admit(*offset)).count()
        };
        assert_eq!(stored(1000, 150), 150);
        let of_a_day = stored(200, 5 * 86_400);
        assert!((1600..1800).contains(&of_a_day), "{of_a_day}");
        assert!(stored(1000, 10 * 86_400) < 2500);
    }
}
