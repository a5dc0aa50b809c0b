//! How values of prompts are written.

use std::{collections::BTreeMap, time::Duration};

use crate::{forms::prelude::*, read::prelude::*};
use spotter_core::{AdapterId, ZoneId};

/// How many frames a question is about.
pub(super) fn frames() -> Form<'static, u8> {
    let form = Form::new("1, 4 or 9", |value| {
        let frames = value.whole()?;
        let is_square = matches!(frames, 1 | 4 | 9).then_some(frames as u8);
        value.checked(is_square.ok_or_else(|| {
            format!("{frames} frames are no strip; write 4 or 9, or 1 for a single frame")
        }))
    });
    form.written(u8::to_string)
}

/// The most crops of a look; `None`: as many as the model's rule makes.
pub(crate) fn crops() -> Form<'static, Option<u8>> {
    let (auto, number) = (words(&[("auto", None)]), whole(1..=12, ""));
    let shown = (auto.write)(&None);
    let text = format!("{}, or a {}", auto.text, number.text);
    let form = Form::new(text, move |value| match value.as_text() {
        Some(_) => auto.read(value),
        None => number.read(value).map(Some),
    });
    form.written(move |crops| crops.map_or(shown.clone(), |crops: u8| crops.to_string()))
}

/// The name of an adapter. `known`: those of the box; `None`: not known here.
pub(super) fn adapter_id(known: Option<&[AdapterId]>) -> Form<'static, AdapterId> {
    let form = "name of an adapter";
    match known {
        Some(known) => known_id(form, "configured adapter", known.to_vec()),
        None => id(form, AdapterId::new),
    }
}

/// How long an object is in a zone until it is reported. `named`: the prompt's zones; none = all of the camera.
pub(super) fn dwell<'f>(
    named: &[ZoneId],
    of_camera: Vec<ZoneId>,
) -> Form<'f, BTreeMap<ZoneId, Duration>> {
    let time = time(Duration::from_millis(100)..=Duration::from_hours(24));
    let text = format!("{}; or a table of zone names with such times", time.text);
    let mut counted = of_camera;
    counted.retain(|zone| named.is_empty() || named.contains(zone));
    Form::new(text, move |value| {
        if counted.is_empty() {
            value.error("the camera has no zone; add [camera.NAME.zone.NAME] with a polygon");
            return None;
        }
        if !value.is_table() {
            let time = time.read(value)?;
            return Some(counted.iter().map(|zone| (zone.clone(), time)).collect());
        }
        let entries = Reader::of_value(value)?.entries().into_iter();
        let times = entries.filter_map(|(name, value)| {
            let zone = find_id(name.get_ref(), "zone of this prompt", &counted);
            Some((value.checked(zone)?.clone(), time.read(&value)?))
        });
        Some(times.collect())
    })
}
