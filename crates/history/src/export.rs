//! Events and their pictures as one ZIP file, which is written while it is made: none of it is in memory but a page of rows and a picture.

use std::{
    collections::BTreeSet,
    io::{self, Write},
};

use rawzip::{CompressionMethod, ZipArchiveWriter};

use crate::{
    filter::HistoryFilter,
    judged_set::JudgedPicture,
    reader::{EventJson, HistoryReader},
};

/// Writes `events.json`, a list of the events that fit the filter, the newest first, and `pictures/ID.jpg` of each; repeats are events of their
/// own. Where some were judged, `labels.json` has what was judged. Pictures are not compressed again. Returns how many events. Blocks.
pub fn export(
    reader: &HistoryReader,
    filter: &HistoryFilter,
    target: impl Write,
) -> io::Result<u64> {
    let mut archive = ZipArchiveWriter::new(target);
    let mut events = 0;
    add(&mut archive, "events.json", |entry| {
        let mut separator = "[\n";
        let mut write = |event: &EventJson| {
            events += 1;
            entry.write_all(std::mem::replace(&mut separator, ",\n").as_bytes())?;
            Ok(serde_json::to_writer(&mut *entry, event)?)
        };
        for_each(reader, filter, &mut write)?;
        let end = if events == 0 { "[]\n" } else { "\n]\n" };
        entry.write_all(end.as_bytes())
    })?;
    let mut pictured = BTreeSet::new();
    for_each(reader, filter, &mut |event| {
        // Deleted meanwhile, or without one.
        let Some(picture) = reader.picture(&event.id).map_err(io::Error::other)? else {
            return Ok(());
        };
        let name = format!("pictures/{}.jpg", event.id);
        pictured.insert(event.id.clone());
        add(&mut archive, &name, |entry| entry.write_all(&picture.jpeg))
    })?;
    let name_of = |judged: &JudgedPicture| {
        let is_there = pictured.contains(&judged.id);
        is_there.then(|| format!("pictures/{}.jpg", judged.id))
    };
    let judged = reader.judged_set_of(filter, name_of);
    let judged = judged.map_err(io::Error::other)?.unwrap_or_default();
    if !judged.is_empty() {
        add(&mut archive, "labels.json", |entry| {
            Ok(serde_json::to_writer(entry, &judged)?)
        })?;
    }
    archive.finish().map_err(io::Error::other)?.flush()?;
    Ok(events)
}

fn add<W: Write>(
    archive: &mut ZipArchiveWriter<W>,
    name: &str,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let file = archive.new_file(name);
    let started = file.compression_method(CompressionMethod::STORE).start();
    let (mut entry, config) = started.map_err(io::Error::other)?;
    let mut writer = config.wrap(&mut entry);
    write(&mut writer)?;
    let (_, descriptor) = writer.finish().map_err(io::Error::other)?;
    entry.finish(descriptor).map(drop).map_err(io::Error::other)
}

/// In pages.
fn for_each(
    reader: &HistoryReader,
    filter: &HistoryFilter,
    act: &mut dyn FnMut(&EventJson) -> io::Result<()>,
) -> io::Result<()> {
    let mut filter = filter.clone();
    loop {
        let page = reader.export_page(&filter).map_err(io::Error::other)?;
        for event in &page {
            act(event)?;
        }
        match page.last() {
            Some(last) => filter.before = Some(last.page_start()),
            None => return Ok(()),
        }
    }
}
