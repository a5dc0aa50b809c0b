//! `spotter model get | list | remove | check | calibrate`: models from the Hugging Face hub.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, bail};

use super::{
    args::{ModelCommand, ModelGetArgs},
    licence::accept,
    model_remove::{own_record, remove},
    out::{remark, say},
    tools::calibrate,
};
use spotter_config::{Environment, ModelSource, has_model};
use spotter_core::{Clock as _, ModelRecord, Mono, SystemClock, WallTime};
use spotter_engine::model;
use spotter_hub::{
    FetchNews, FetchRequest, HubClient, HubError, KNOWN_MODELS, amount, check_file, fetch, is_root,
};

/// Between two lines about progress.
const PROGRESS_PERIOD: Duration = Duration::from_secs(5);

pub fn model(command: &ModelCommand) -> anyhow::Result<()> {
    match command {
        ModelCommand::Get(args) => get(args),
        ModelCommand::List => list(),
        ModelCommand::Remove(args) => remove(args),
        ModelCommand::Check { dir } => check(dir),
        ModelCommand::Calibrate(args) => calibrate(args),
    }
}

fn get(args: &ModelGetArgs) -> anyhow::Result<()> {
    let known = args.name;
    let environment = Environment::process();
    let destination = || environment.models_destination(is_root()).join(known.name);
    let directory = args.dir.clone().unwrap_or_else(destination);
    own_record(known, &directory)?;
    let client = HubClient::of_environment()?;
    if let Some(warning) = client.warning() {
        remark(format_args!("warning: {warning}"));
    }
    remark(format_args!(
        "fetching {} from {} into {}",
        known.name,
        client.endpoint(),
        directory.display()
    ));
    let clock = SystemClock::new();
    let mut progress = None;
    let mut listener = |news: &FetchNews<'_>| {
        if let Some(line) = line(news, &mut progress, clock.now()) {
            remark(line);
        }
    };
    let request = FetchRequest {
        model: known,
        directory: &directory,
        today: date_utc(clock.wall())?,
        accept: &mut |licence| args.accept_licence || accept(licence),
    };
    let record = match fetch(&client, request, &mut listener) {
        Ok(record) => record,
        Err(error @ HubError::Unreachable { .. }) => {
            let by_hand = known.by_hand(client.endpoint(), &directory);
            bail!("{error}.\n{by_hand}");
        }
        Err(error) => return Err(error.into()),
    };
    // What the loader would reject has to be known now.
    let source = ModelSource::Directory(directory.clone());
    model::check_model(&source)
        .context("the fetched files are no model that this version loads")?;
    let bytes: u64 = record.files.iter().map(|file| file.size).sum();
    say(format_args!(
        "{}: {} complete, {} in {} files, verified",
        directory.display(),
        known.name,
        amount(bytes),
        record.files.len()
    ))?;
    say(usage(&environment, &directory))
}

/// Like `2026-11-27`.
fn date_utc(at: WallTime) -> anyhow::Result<String> {
    let at = jiff::Timestamp::from_millisecond(at.unix_millis())?;
    Ok(at.strftime("%Y-%m-%d").to_string())
}

/// How the configuration comes to use a directory.
fn usage(environment: &Environment, directory: &Path) -> String {
    let full = directory.canonicalize().ok();
    let default = environment
        .fetched_model()
        .and_then(|found| found.canonicalize().ok());
    match full.is_some() && full == default {
        true => "used by every configuration that does not set model.path".to_owned(),
        false => format!(
            "to use it, set model.path = {:?}",
            full.unwrap_or(directory.into())
        ),
    }
}

fn list() -> anyhow::Result<()> {
    let environment = Environment::process();
    for known in KNOWN_MODELS {
        say(format_args!("{}: {}", known.name, known.summary))?;
        let dirs = environment.model_dirs().into_iter();
        let dirs = dirs.map(|dir| dir.join(known.name));
        let found = dirs.map(|dir| (bytes_in(&dir), dir));
        let found: Vec<(u64, PathBuf)> = found.filter(|(bytes, _)| *bytes > 0).collect();
        let default = environment.fetched_model();
        for (bytes, dir) in &found {
            let state = match has_model(dir) {
                true => described(dir).unwrap_or_else(|error| format!("{error:#}")),
                false => format!("incomplete; `spotter model get {}` continues", known.name),
            };
            let default = match default.as_ref() == Some(dir) {
                true => ", the default of model.path",
                false => "",
            };
            say(format_args!(
                "  here: {}{default}: {}, {state}",
                dir.display(),
                amount(*bytes)
            ))?;
        }
        if found.is_empty() {
            say(format_args!(
                "  not here; `spotter model get {}` fetches it",
                known.name
            ))?;
        }
    }
    Ok(())
}

/// Of the files in a directory; none in one that this user may not list.
fn bytes_in(directory: &Path) -> u64 {
    let entries = directory.read_dir().into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| entry.metadata().ok());
    files
        .filter(|found| found.is_file())
        .map(|found| found.len())
        .sum()
}

/// What the record of a directory says, in a line.
fn described(directory: &Path) -> anyhow::Result<String> {
    let record = ModelRecord::read(directory)?;
    let record = record.filter(|record| !record.files.is_empty());
    let record =
        record.context("copied without model.toml, so the files are not compared with anything")?;
    let mut sources: Vec<String> = Vec::new();
    for file in &record.files {
        let licence = file.licence.as_deref();
        let licence = licence.unwrap_or("no licence named");
        let source = format!("{}@{} ({licence})", file.repository, file.revision);
        if !sources.contains(&source) {
            sources.push(source);
        }
    }
    let accepted = record.licences.iter();
    sources.extend(accepted.map(|licence| {
        format!(
            "{} of {} accepted on {}",
            licence.file, licence.repository, licence.accepted
        )
    }));
    Ok(sources.join(", "))
}

fn check(directory: &Path) -> anyhow::Result<()> {
    let record = ModelRecord::read(directory)?;
    let Some(record) = record.filter(|record| !record.files.is_empty()) else {
        model::check_model(&ModelSource::Directory(directory.to_owned()))?;
        let path = directory.display();
        return say(format_args!(
            "{path}: the files are those of a model; no {} has their hashes. `spotter self-test --model {path}` looks at a known picture \
             with them, `spotter model get NAME --dir {path}` compares them with the hub's record",
            ModelRecord::FILE
        ));
    };
    let mut wrong = Vec::new();
    for file in &record.files {
        remark(format_args!("reading {}", file.name));
        match check_file(directory, &record, file) {
            Ok(()) => say(format_args!("{}: good", file.name))?,
            Err(why) => wrong.push(why),
        }
    }
    let (model, path) = (&record.model, directory.display());
    if !wrong.is_empty() {
        bail!(
            "{path}: {}; `spotter model get {model} --dir {path}` fetches what is wrong",
            wrong.join("; ")
        );
    }
    model::check_model(&ModelSource::Directory(directory.to_owned()))?;
    say(format_args!("{path}: {}: {}", model, described(directory)?))
}

/// The progress of a file that is received or checked.
struct FileProgress {
    verb: &'static str,
    began: Mono,
    /// Bytes that were there then.
    had: u64,
    shown: Mono,
}

/// What to show of `news`; progress is shown every few seconds.
fn line(news: &FetchNews<'_>, progress: &mut Option<FileProgress>, now: Mono) -> Option<String> {
    let (verb, file, done, size) = match news {
        FetchNews::Note(text) => {
            *progress = None;
            return Some(text.clone());
        }
        &FetchNews::Progress {
            verb,
            file,
            done,
            size,
        } => (verb, file, done, size),
    };
    let begun = progress.take().filter(|begun| begun.verb == verb);
    let progress = progress.insert(begun.unwrap_or(FileProgress {
        verb,
        began: now,
        had: done,
        shown: now,
    }));
    if now.since(progress.shown) < PROGRESS_PERIOD {
        return None;
    }
    progress.shown = now;
    let percent = done as f64 / size.max(1) as f64 * 100.0;
    let elapsed = now.since(progress.began).as_secs_f64();
    let speed = done.saturating_sub(progress.had) as f64 / elapsed;
    let left = ((size - done) as f64 / speed.max(1.0)).round() as u64;
    Some(format!(
        "{verb} {file}: {} of {} ({percent:.0} %), {}/s, {} min {} s left",
        amount(done),
        amount(size),
        amount(speed as u64),
        left / 60,
        left % 60
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use spotter_core::ManualClock;

    #[test]
    fn progress_of_a_download_is_shown_every_few_seconds() {
        let clock = ManualClock::default();
        let (mut progress, mut lines) = (None, Vec::new());
        // At 100 MB/s.
        for step in 0..1100 {
            let news = FetchNews::Progress {
                verb: "receiving",
                file: "model.safetensors",
                done: step * 1_000_000,
                size: 3_900_000_000,
            };
            lines.extend(line(&news, &mut progress, clock.now()));
            clock.advance(Duration::from_millis(10));
        }
        let expected = [
            "receiving model.safetensors: 500.0 MB of 3.90 GB (13 %), 100.0 MB/s, 0 min 34 s left",
            "receiving model.safetensors: 1.00 GB of 3.90 GB (26 %), 100.0 MB/s, 0 min 29 s left",
        ];
        assert_eq!(lines, expected);
    }
}
