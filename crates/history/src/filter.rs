//! Which events are listed or exported: the query of a URL, checked.

use rusqlite::types::{ToSql, Value};
use spotter_core::{CameraId, PromptId, ZoneId};
use url::form_urlencoded;

use crate::row::zone_text;

const LIMIT_DEFAULT: usize = 50;
const LIMIT_MAX: usize = 500;
/// A time is within 30,000 years of 1970.
const TIME_MAX_MS: i64 = 1_000_000_000_000_000;
const TEXT_MAX_CHARS: usize = 200;

/// See the module's documentation. What is absent is no condition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryFilter {
    /// Events that began in this time, the end not included.
    pub from_ms: Option<i64>,
    pub to_ms: Option<i64>,
    pub camera: Option<CameraId>,
    pub prompt: Option<PromptId>,
    pub zone: Option<ZoneId>,
    /// In the words of the prompt or the description, in any case.
    pub text: Option<String>,
    pub mark: Option<MarkFilter>,
    /// Objects below `min_score`, which are no alarms.
    pub near: NearFilter,
    /// The others at the place of this event.
    pub of: Option<String>,
    /// Events before this one: `next` of the page before.
    pub(crate) before: Option<PageStart>,
    pub(crate) limit: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MarkFilter {
    Any,
    None,
    Is(&'static str),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NearFilter {
    /// Alarms alone.
    #[default]
    Without,
    Only,
    With,
}

/// The last event of a page: when it began, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageStart {
    pub start_ms: i64,
    pub number: i64,
}

impl PageStart {
    pub fn text(self) -> String {
        format!("{}.{}", self.start_ms, self.number)
    }

    fn read(text: &str) -> Option<Self> {
        let (start, number) = text.split_once('.')?;
        Some(Self {
            start_ms: start.parse().ok()?,
            number: number.parse().ok()?,
        })
    }
}

/// A condition of SQL: of the row with this alias.
pub(crate) type NamedValues = Vec<(&'static str, Value)>;

impl HistoryFilter {
    /// Reads the query of a URL. An error says what is wrong, and with which key.
    pub fn read(query: &str) -> Result<Self, String> {
        let mut filter = Self::default();
        for (key, value) in form_urlencoded::parse(query.as_bytes()) {
            let set = match value.is_empty() {
                // As a form sends what is not chosen.
                true => Ok(()),
                false => filter.set(&key, &value),
            };
            set.map_err(|why| format!("{key}: {why}"))?;
        }
        Ok(filter)
    }

    /// Sets a condition by the key of a query.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let time = || {
            let time = value.parse().ok();
            let time = time.filter(|ms: &i64| ms.abs() <= TIME_MAX_MS);
            time.ok_or_else(|| "needs Unix milliseconds".to_owned())
        };
        let id = |_| "is no such name: 1 to 32 characters of a-z 0-9 _ -".to_owned();
        match key {
            "from_ms" => self.from_ms = Some(time()?),
            "to_ms" => self.to_ms = Some(time()?),
            "camera" => self.camera = Some(CameraId::new(value).map_err(id)?),
            "prompt" => self.prompt = Some(PromptId::new(value).map_err(id)?),
            "zone" => self.zone = Some(ZoneId::new(value).map_err(id)?),
            // Keyboards of phones add a space.
            "text" => self.text = Some(value.trim().chars().take(TEXT_MAX_CHARS).collect()),
            "mark" => self.mark = Some(MarkFilter::read(value)?),
            "near" if value == "only" => self.near = NearFilter::Only,
            "near" => return Err("is not only".into()),
            "of" => self.of = Some(value.to_owned()),
            "before" => {
                let start = PageStart::read(value);
                self.before = Some(start.ok_or("needs the value of next of the page before")?);
            }
            "limit" => {
                let limit = value.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
                self.limit = Some(limit.ok_or(format!("needs a number from 1 to {LIMIT_MAX}"))?);
            }
            _ => return Err("no such key; there are from_ms, to_ms, camera, prompt, zone, text, mark, near, of, before and limit".into()),
        }
        Ok(())
    }

    /// Of the same, those that a person judged, also below `min_score`.
    #[must_use]
    pub fn judged(self) -> Self {
        Self {
            mark: Some(MarkFilter::Any),
            near: NearFilter::With,
            ..self
        }
    }

    /// Events that other programs and exports have: an error where objects below `min_score` are asked for.
    pub fn require_alarms(&self) -> Result<(), String> {
        match self.near {
            NearFilter::Without => Ok(()),
            NearFilter::Only | NearFilter::With => Err(
                "near: objects below min_score are for the page alone; `spotter history export --labels` exports those that were judged".into(),
            ),
        }
    }

    pub(crate) fn page_len(&self) -> usize {
        self.limit.unwrap_or(LIMIT_DEFAULT)
    }

    /// The conditions of a row with this alias, and their values. `before` and `of` are not among them.
    pub(crate) fn conditions(&self, alias: &str) -> (String, NamedValues) {
        let (mut conditions, mut values) = (vec!["TRUE".to_owned()], NamedValues::new());
        let mut add = |condition: &str, name: &'static str, value: Value| {
            conditions.push(condition.replace("e.", &format!("{alias}.")));
            values.push((name, value));
        };
        if let Some(from) = self.from_ms {
            add("e.start_ms >= :from", ":from", from.into());
        }
        if let Some(to) = self.to_ms {
            add("e.start_ms < :to", ":to", to.into());
        }
        let ids = [
            (
                "e.camera = :camera",
                ":camera",
                self.camera.as_ref().map(CameraId::as_str),
            ),
            (
                "e.prompt = :prompt",
                ":prompt",
                self.prompt.as_ref().map(PromptId::as_str),
            ),
        ];
        for (condition, name, id) in ids {
            if let Some(id) = id {
                add(condition, name, id.to_owned().into());
            }
        }
        if let Some(zone) = &self.zone {
            let zone = zone_text([zone.as_str()].into_iter());
            add("instr(e.zones, :zone) > 0", ":zone", zone.into());
        }
        if let Some(text) = &self.text {
            let text = text.to_lowercase();
            let found = "(has_text(e.words, :text) OR has_text(e.description, :text))";
            add(found, ":text", text.into());
        }
        match &self.mark {
            None => {}
            Some(MarkFilter::Any) => conditions.push(format!("{alias}.mark IS NOT NULL")),
            Some(MarkFilter::None) => conditions.push(format!("{alias}.mark IS NULL")),
            Some(MarkFilter::Is(mark)) => {
                add("e.mark = :mark", ":mark", (*mark).to_owned().into());
            }
        }
        match self.near {
            NearFilter::Without => conditions.push(format!("{alias}.near = 0")),
            NearFilter::Only => conditions.push(format!("{alias}.near = 1")),
            NearFilter::With => {}
        }
        (conditions.join(" AND "), values)
    }
}

impl MarkFilter {
    fn read(text: &str) -> Result<Self, String> {
        Ok(match text {
            "any" => Self::Any,
            "none" => Self::None,
            "right" => Self::Is("right"),
            "wrong" => Self::Is("wrong"),
            "corrected" => Self::Is("corrected"),
            _ => return Err("is not one of any, none, right, wrong, corrected".into()),
        })
    }
}

/// For SQLite's interface.
pub(crate) fn named(values: &NamedValues) -> Vec<(&str, &dyn ToSql)> {
    let named = values
        .iter()
        .map(|(name, value)| (*name, value as &dyn ToSql));
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_of_a_url_becomes_a_filter() {
        let read = HistoryFilter::read(
            "from_ms=1&to_ms=2&camera=gate&prompt=person&zone=drive&text=+Red+c%C3%A4r+&mark=none&near=only&before=17.4&limit=3&of=a-1",
        );
        let filter = HistoryFilter {
            from_ms: Some(1),
            to_ms: Some(2),
            camera: CameraId::new("gate").ok(),
            prompt: PromptId::new("person").ok(),
            zone: ZoneId::new("drive").ok(),
            text: Some("Red cär".into()),
            mark: Some(MarkFilter::None),
            near: NearFilter::Only,
            of: Some("a-1".into()),
            before: Some(PageStart {
                start_ms: 17,
                number: 4,
            }),
            limit: Some(3),
        };
        assert!(filter.require_alarms().is_err());
        assert_eq!(read, Ok(filter));
        assert_eq!(
            HistoryFilter::read("camera=&text="),
            Ok(HistoryFilter::default())
        );
    }

    #[test]
    fn wrong_query_is_refused_with_its_key() {
        for wrong in [
            "from_ms=now",
            "camera=Gate'--",
            "mark=good",
            "near=with",
            "before=last",
            "limit=0",
            "limit=501",
            "order=1",
        ] {
            let why = HistoryFilter::read(wrong).unwrap_err();
            let (key, _) = wrong.split_once('=').unwrap();
            assert!(why.starts_with(&format!("{key}: ")), "{why}");
        }
    }
}
