//! What a person says of a stored event.

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use crate::{Location, NormBox, NormPoint, TrackId};

/// The most objects of a corrected event.
const OBJECTS_MAX: usize = 50;

/// A mark of an event, from whom it may come: page, API or MQTT.
#[derive(Clone, Debug, PartialEq)]
pub struct MarkOrder {
    pub event: TrackId,
    pub mark: EventMark,
    /// The number of the picture that the person saw. `None`: not known, or none was seen.
    pub picture: Option<u64>,
}

/// What a person says of an event. It replaces what was said before. In JSON: `mark`, `objects`, `all_found`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "MarkKeys", into = "MarkKeys")]
pub struct EventMark {
    /// `None`: the mark is taken back.
    pub verdict: Option<EventVerdict>,
    /// No object of the prompt on the event's picture is missed.
    pub all_found: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum EventVerdict {
    Right,
    Wrong,
    /// These are the right objects on the picture: its own one at another place, and those that were missed. All boxes or all points; never
    /// empty.
    Corrected(Vec<Location>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
enum MarkWord {
    Right,
    Wrong,
    Corrected,
    None,
}

/// The keys of a request and of its answer.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MarkKeys {
    mark: MarkWord,
    #[serde(default)]
    objects: Option<Vec<Vec<f64>>>,
    #[serde(default)]
    all_found: bool,
}

impl EventMark {
    /// As it is stored; `None`: no mark.
    pub fn word(&self) -> Option<&'static str> {
        self.verdict.is_some().then(|| self.mark_word().into())
    }

    fn mark_word(&self) -> MarkWord {
        match self.verdict {
            Some(EventVerdict::Right) => MarkWord::Right,
            Some(EventVerdict::Wrong) => MarkWord::Wrong,
            Some(EventVerdict::Corrected(_)) => MarkWord::Corrected,
            None => MarkWord::None,
        }
    }

    /// Those of a corrected event.
    pub fn objects(&self) -> Option<&[Location]> {
        match &self.verdict {
            Some(EventVerdict::Corrected(objects)) => Some(objects),
            _ => None,
        }
    }
}

impl TryFrom<MarkKeys> for EventMark {
    type Error = String;

    fn try_from(keys: MarkKeys) -> Result<Self, String> {
        let verdict = match keys.mark {
            MarkWord::None => return Ok(Self::default()),
            MarkWord::Right => EventVerdict::Right,
            MarkWord::Wrong => EventVerdict::Wrong,
            MarkWord::Corrected => {
                let objects = keys.objects.as_deref().unwrap_or_default();
                EventVerdict::Corrected(read_objects(objects)?)
            }
        };
        match (keys.mark, keys.objects) {
            (MarkWord::Right | MarkWord::Wrong, Some(_)) => {
                Err("objects: only a mark \"corrected\" has them".to_owned())
            }
            _ => Ok(Self {
                verdict: Some(verdict),
                all_found: keys.all_found,
            }),
        }
    }
}

impl From<EventMark> for MarkKeys {
    fn from(mark: EventMark) -> Self {
        let place = |object: &Location| match object {
            Location::Box(place) => place.rounded().to_vec(),
            Location::Point(point) => point.rounded().to_vec(),
        };
        let objects = mark.objects();
        Self {
            mark: mark.mark_word(),
            objects: objects.map(|objects| objects.iter().map(place).collect()),
            all_found: mark.all_found,
        }
    }
}

fn read_objects(objects: &[Vec<f64>]) -> Result<Vec<Location>, String> {
    if !(1..=OBJECTS_MAX).contains(&objects.len()) {
        let count = objects.len();
        return Err(format!(
            "objects: {count} places; a mark \"corrected\" needs 1 to {OBJECTS_MAX}"
        ));
    }
    let is_mixed = objects.iter().any(|place| place.len() != objects[0].len());
    if is_mixed {
        return Err("objects: boxes and points together; the event has one of them".to_owned());
    }
    let read = objects.iter().enumerate().map(|(index, place)| {
        read_object(place).ok_or_else(|| {
            format!("objects[{index}]: needs a box [x0, y0, x1, y1] with x0 < x1 and y0 < y1, or a point [x, y], in shares of the picture from 0 to 1")
        })
    });
    read.collect()
}

fn read_object(place: &[f64]) -> Option<Location> {
    if !place.iter().all(|share| (0.0..=1.0).contains(share)) {
        return None;
    }
    match *place {
        [x0, y0, x1, y1] if x0 < x1 && y0 < y1 => {
            Some(Location::Box(NormBox::from_corners(x0, y0, x1, y1)))
        }
        [x, y] => Some(Location::Point(NormPoint::new(x, y))),
        _ => None,
    }
}
