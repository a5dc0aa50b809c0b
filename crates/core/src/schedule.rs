//! Weekly schedules such as `Mon-Fri 18:00-06:00 Europe/Berlin`: read, checked, and asked whether a moment is inside; and times
//! such as `Mon 06:00 Europe/Berlin`, asked for the last one.

use jiff::{Timestamp, ToSpan, civil::Date, tz};

use crate::{WallTime, nearest};

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

const SHAPE: &str = "write \"Mon-Fri 18:00-06:00 Europe/Berlin\"";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeeklySchedule {
    /// True for days on which a span starts, Monday first.
    pub days: [bool; 7],
    /// Minutes after midnight; a span whose end is not after its start runs over midnight.
    pub from_minute: u16,
    /// In minutes after midnight, like `from_minute`.
    pub to_minute: u16,
    /// IANA name, e.g. Europe/Berlin.
    pub zone: String,
}

/// A time of day on some days of the week.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeeklyTime {
    /// Monday first.
    pub days: [bool; 7],
    /// Minutes after midnight.
    pub minute: u16,
    /// IANA name of the time zone.
    pub zone: String,
}

impl WeeklySchedule {
    /// Reads `DAYS FROM-TO ZONE`: days as `Mon-Fri` or `Mon,Wed,Sat-Sun`, times as 00:00 to 24:00, an IANA zone.
    pub fn new(text: &str) -> Result<Self, String> {
        let words: Vec<_> = text.split_whitespace().collect();
        let [days_text, times, zone] = words[..] else {
            return Err(format!(
                "{text:?} is not days, times and a time zone; {SHAPE}"
            ));
        };
        let days = days(days_text)?;
        let (from, to) = times
            .split_once('-')
            .ok_or_else(|| format!("{times:?} is not a span of time; {SHAPE}"))?;
        let (from_minute, to_minute) = (minute(from)?, minute(to)?);
        if from_minute == MINUTES_A_DAY {
            return Err(format!("{from:?} cannot start a span; write 00:00"));
        }
        Ok(Self {
            days,
            from_minute,
            to_minute,
            zone: zone_name(zone)?,
        })
    }

    /// True when `now` is inside. Clock times are those of the zone, so that a span that ends at 06:00 does so in
    /// summer and in winter; a span over midnight belongs to the day on which it starts.
    pub fn covers(&self, now: WallTime) -> bool {
        let (Ok(zone), Ok(instant)) = (
            tz::db().get(&self.zone),
            Timestamp::from_nanosecond(i128::from(now.unix_nanos())),
        ) else {
            // The zone was found when the schedule was read; looking too often is the safe side.
            return true;
        };
        let local = zone.to_datetime(instant);
        let minute = local.hour() as u16 * 60 + local.minute() as u16;
        let today = weekday(local.date());
        let over_midnight = self.to_minute <= self.from_minute;
        if over_midnight {
            (self.days[today] && minute >= self.from_minute)
                || (self.days[(today + 6) % 7] && minute < self.to_minute)
        } else {
            self.days[today] && (self.from_minute..self.to_minute).contains(&minute)
        }
    }
}

impl WeeklyTime {
    /// Reads `TIME ZONE` or `DAYS TIME ZONE`.
    pub fn new(text: &str) -> Result<Self, String> {
        const EXAMPLES: &str = "write \"00:00 Europe/Berlin\" or \"Mon 06:00 Europe/Berlin\"";
        let words: Vec<_> = text.split_whitespace().collect();
        let (on_days, time, zone) = match words[..] {
            [time, zone] => ([true; 7], time, zone),
            [on_days, time, zone] => (days(on_days)?, time, zone),
            _ => {
                return Err(format!(
                    "{text:?} is not a time and a time zone; {EXAMPLES}"
                ));
            }
        };
        let minute = match minute(time)? {
            MINUTES_A_DAY => {
                return Err("\"24:00\" is 00:00 of the next day; write that".to_owned());
            }
            minute => minute,
        };
        Ok(Self {
            days: on_days,
            minute,
            zone: zone_name(zone)?,
        })
    }

    /// As it is read: all days, or those of a list.
    pub fn text(&self) -> String {
        let days = DAYS.iter().zip(self.days).filter(|(_, is_one)| *is_one);
        let days: Vec<&str> = days.map(|(day, _)| *day).collect();
        let (hour, minute, zone) = (self.minute / 60, self.minute % 60, &self.zone);
        match days.len() == DAYS.len() {
            true => format!("{hour:02}:{minute:02} {zone}"),
            false => format!("{} {hour:02}:{minute:02} {zone}", days.join(",")),
        }
    }

    /// The last such moment until `now`. Where the clocks skip the time, it is so much later; where they show it twice, the first counts.
    pub fn last_until(&self, now: WallTime) -> Option<WallTime> {
        let zone = tz::db().get(&self.zone).ok()?;
        let instant = Timestamp::from_nanosecond(i128::from(now.unix_nanos())).ok()?;
        let today = zone.to_datetime(instant).date();
        let (hour, minute) = ((self.minute / 60) as i8, (self.minute % 60) as i8);
        (0..=7).find_map(|back: i64| {
            let date = today.checked_sub(back.days()).ok()?;
            let due = date.at(hour, minute, 0, 0).to_zoned(zone.clone()).ok()?;
            let is_due = self.days[weekday(date)] && due.timestamp() <= instant;
            is_due.then(|| WallTime::from_unix_millis(due.timestamp().as_millisecond()))
        })
    }
}

const MINUTES_A_DAY: u16 = 24 * 60;

/// Counted from Monday.
fn weekday(date: Date) -> usize {
    date.weekday().to_monday_zero_offset() as usize % 7
}

fn days(text: &str) -> Result<[bool; 7], String> {
    let mut on = [false; 7];
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (day(first)?, day(last)?);
        let span = (last + 7 - first) % 7;
        for step in 0..=span {
            on[(first + step) % 7] = true;
        }
    }
    Ok(on)
}

fn day(text: &str) -> Result<usize, String> {
    let found = DAYS.iter().position(|day| *day == text);
    found.ok_or_else(|| format!("{text:?} is not a day; days are {}", DAYS.join(" ")))
}

/// `18:30` as minutes after midnight; `24:00` is the end of the day.
fn minute(text: &str) -> Result<u16, String> {
    let wrong = || format!("{text:?} is not a time of day; write 00:00 to 24:00");
    let [b'0'..=b'2', b'0'..=b'9', b':', b'0'..=b'5', b'0'..=b'9'] = text.as_bytes() else {
        return Err(wrong());
    };
    let number = |digits: &str| digits.parse::<u16>().map_err(|_| wrong());
    let minute = number(&text[..2])? * 60 + number(&text[3..])?;
    if minute > MINUTES_A_DAY {
        return Err(wrong());
    }
    Ok(minute)
}

/// The zone's name as the database spells it.
fn zone_name(text: &str) -> Result<String, String> {
    let found = tz::db().get(text).ok();
    if let Some(name) = found.as_ref().and_then(|zone| zone.iana_name()) {
        return Ok(name.to_owned());
    }
    let names: Vec<String> = tz::db().available().map(|name| name.to_string()).collect();
    let near = nearest(text, names.iter().map(String::as_str));
    // Abbreviations such as CEST are near to many names and mean none of them.
    Err(match near.filter(|_| text.contains('/')) {
        Some(near) => format!("unknown zone {text:?}; did you mean {near:?}?"),
        None => format!("unknown zone {text:?}; use names such as Europe/Berlin"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(utc: &str) -> WallTime {
        let instant: Timestamp = utc.parse().unwrap();
        WallTime::from_unix_millis(instant.as_millisecond())
    }

    #[test]
    fn schedule_covers_the_clock_times_of_its_zone() {
        // 2026-11-20 is a Friday. Berlin is one hour ahead of UTC in winter, and two in summer.
        for (text, inside, outside) in [
            (
                // A span over midnight belongs to its first day.
                "Mon-Fri 18:00-06:00 Europe/Berlin",
                "2026-11-20T17:00:00Z 2026-11-21T04:59:59Z",
                "2026-11-20T16:59:59Z 2026-11-21T05:00:00Z 2026-11-21T20:00:00Z 2026-11-23T04:00:00Z",
            ),
            (
                "Mon-Sun 08:00-20:00 Europe/Berlin",
                "2026-07-01T06:00:00Z",
                "2026-12-01T06:00:00Z",
            ),
            (
                // 02:30 is there twice on 2026-10-25, and not on 2026-03-29.
                "Sun 02:00-03:00 Europe/Berlin",
                "2026-10-25T00:30:00Z 2026-10-25T01:30:00Z",
                "2026-10-25T02:00:00Z 2026-03-29T00:59:59Z 2026-03-29T01:00:00Z",
            ),
            (
                // What begins before the skipped hour ends with it.
                "Sun 01:30-02:30 Europe/Berlin",
                "2026-03-29T00:30:00Z 2026-03-29T00:59:59Z",
                "2026-03-29T00:29:59Z 2026-03-29T01:00:00Z 2026-03-29T01:30:00Z",
            ),
            (
                "Sat-Mon,Wed 00:00-24:00 UTC",
                "2026-11-21T23:59:00Z",
                "2026-11-24T12:00:00Z",
            ),
        ] {
            let schedule = WeeklySchedule::new(text).unwrap();
            let covers = |utc: &str| schedule.covers(at(utc));
            assert!(inside.split(' ').all(covers), "{text}");
            assert!(!outside.split(' ').any(covers), "{text}");
        }
    }

    #[test]
    fn last_time_is_the_newest_one_that_has_passed() {
        let (daily, night) = ("00:00 Europe/Berlin", "02:30 Europe/Berlin");
        for (text, now, last) in [
            (daily, "2026-11-20T22:59:59Z", "2026-11-19T23:00:00Z"),
            (daily, "2026-11-20T23:00:00Z", "2026-11-20T23:00:00Z"),
            (daily, "2026-07-01T12:00:00Z", "2026-06-30T22:00:00Z"),
            (
                "Mon 06:00 UTC",
                "2026-11-23T05:59:00Z",
                "2026-11-16T06:00:00Z",
            ),
            (
                "Mon 06:00 UTC",
                "2026-11-23T06:00:00Z",
                "2026-11-23T06:00:00Z",
            ),
            (night, "2026-03-29T12:00:00Z", "2026-03-29T01:30:00Z"),
            (night, "2026-10-25T12:00:00Z", "2026-10-25T00:30:00Z"),
        ] {
            let found = WeeklyTime::new(text).unwrap().last_until(at(now));
            assert_eq!(found, Some(at(last)), "{text} {now}");
        }
    }
}
