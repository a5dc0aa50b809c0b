//! `spotter history`: stored events, also while the daemon writes them.

use std::{
    fs::{self, OpenOptions},
    io::{self, BufWriter},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use anyhow::{Context as _, anyhow, bail};
use jiff::{Timestamp, tz::TimeZone};
use spotter_history::{
    DeletedBeside, EventJson, HistoryFilter, HistoryReader, HistorySelection, PictureLinks,
    delete_beside, export,
};

use super::{
    args::{EventFilterArgs, HistoryCommand, HistoryDeleteArgs, HistoryListArgs},
    out::{counted, remark, say, say_part},
    table::{TableRow, TextTable},
};

pub fn history(command: &HistoryCommand) -> anyhow::Result<()> {
    match command {
        HistoryCommand::List(args) => list(args),
        HistoryCommand::Delete(args) => delete(args),
        HistoryCommand::Export {
            target,
            filter,
            labels,
            state_dir,
        } => {
            let filter = read_filter(filter)?;
            let filter = match labels {
                true => filter.judged(),
                false => filter,
            };
            export_to(target, &filter, state_dir)
        }
    }
}

fn read_filter(args: &EventFilterArgs) -> anyhow::Result<HistoryFilter> {
    let mut filter = HistoryFilter::default();
    (filter.from_ms, filter.to_ms) = (args.from, args.to);
    for (key, value) in [
        ("camera", &args.camera),
        ("prompt", &args.prompt),
        ("zone", &args.zone),
        ("text", &args.text),
    ] {
        if let Some(value) = value {
            let set = filter.set(key, value);
            set.map_err(|why| anyhow!("--{key}: {value:?} {why}"))?;
        }
    }
    Ok(filter)
}

fn list(args: &HistoryListArgs) -> anyhow::Result<()> {
    let mut filter = read_filter(&args.filter)?;
    let limit = filter.set("limit", &args.limit.to_string());
    limit.map_err(|why| anyhow!("--limit: {why}"))?;
    let reader = HistoryReader::new(&args.state_dir);
    let now_ms = Timestamp::now().as_millisecond();
    let page = reader.list(&filter, PictureLinks::Export, now_ms)?;
    if args.json {
        return say(serde_json::to_string(&page)?);
    }
    if page.events.is_empty() {
        let folder = args.state_dir.display();
        remark(format_args!("no such events are stored in {folder}"));
    }
    let table = TextTable::new(page.events.iter().map(row));
    say_part(table)
}

fn row(event: &EventJson) -> TableRow {
    let at = Timestamp::from_millisecond(event.start_ms).unwrap_or_default();
    let at = at.to_zoned(TimeZone::system());
    let length = event.end_ms.map(|end_ms| (end_ms - event.start_ms) / 1000);
    vec![
        ("begin", at.strftime("%Y-%m-%dT%H:%M:%S").to_string()),
        (
            "seconds",
            length.map_or_else(|| "open".into(), |it| it.to_string()),
        ),
        ("camera", event.camera.clone()),
        ("prompt", event.prompt.clone()),
        ("score", format!("{:.2}", event.top_score)),
        ("id", event.id.clone()),
    ]
}

fn delete(args: &HistoryDeleteArgs) -> anyhow::Result<()> {
    let selection = HistorySelection {
        id: args.id.clone(),
        repeats: args.repeats,
        camera: args.camera.clone(),
        from_ms: args.from,
        to_ms: args.to,
    };
    selection.check().map_err(anyhow::Error::msg)?;
    let now_ms = Timestamp::now().as_millisecond();
    let Some(deleted) = delete_beside(&args.state_dir, &selection, now_ms)? else {
        bail!(
            "{}: no database of a daemon here; `node.state_dir` of the configuration names the directory",
            args.state_dir.display()
        );
    };
    let DeletedBeside { events, left } = deleted;
    say(format_args!(
        "deleted: {}, {}",
        counted(events.events as usize, "event"),
        counted(events.pictures as usize, "picture")
    ))?;
    match left {
        Some(left) => bail!("some of it is still on the disk: {left}"),
        None => Ok(()),
    }
}

/// A file that is not whole is removed.
fn export_to(target: &Path, filter: &HistoryFilter, state_dir: &Path) -> anyhow::Result<()> {
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(target);
    let file = file.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => anyhow!(
            "{}: it exists, and an export replaces no file",
            target.display()
        ),
        _ => anyhow::Error::new(error).context(format!("cannot create {}", target.display())),
    })?;
    let reader = HistoryReader::new(state_dir);
    let exported = export(&reader, filter, BufWriter::new(file));
    let events = exported
        .inspect_err(|_| _ = fs::remove_file(target))
        .with_context(|| format!("cannot export to {}", target.display()))?;
    say(format_args!(
        "exported: {}",
        counted(events as usize, "event")
    ))
}
