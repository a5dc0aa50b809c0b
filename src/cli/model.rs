//! `spotter model get | list | remove | check | calibrate`: models from the Hugging Face hub.

use std::{
    io::{self, IsTerminal as _, Write as _},
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, bail};

use super::{
    args::{ModelCommand, ModelGetArgs},
    licence::accept,
    model_remove::remove,
    out::{remark, say},
    tools::calibrate,
};
use spotter_config::{Environment, ModelSource, has_model};
use spotter_core::{Clock as _, ModelRecord, Mono, SystemClock, WallTime};
use spotter_engine::model;
use spotter_hub::{
    FetchNews, FetchRequest, HubClient, HubError, HubSettings, KNOWN_MODELS, KnownModel, amount,
    check_file, fetch, is_root, model_files,
};

/// Between two lines about progress in a log.
const LOG_PERIOD: Duration = Duration::from_secs(5);
/// Between two changes of the line on a terminal.
const REDRAW_PERIOD: Duration = Duration::from_millis(200);

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
    let settings = HubSettings::from_environment()?;
    if let Some(warning) = settings.warning() {
        remark(format_args!("warning: {warning}"));
    }
    let client = HubClient::new(settings);
    remark(format_args!(
        "fetching {} from {} into {}",
        known.name,
        client.endpoint(),
        directory.display()
    ));
    let clock = SystemClock::new();
    let mut progress = FetchProgress::new(io::stderr().is_terminal());
    let mut listener = |news: &FetchNews<'_>| progress.show(news, clock.now());
    let request = FetchRequest {
        model: known,
        directory: &directory,
        today: date_utc(clock.wall())?,
        accept: &mut |licence| accept(licence, args.accept_licence),
    };
    let fetched = fetch(&client, request, &mut listener);
    progress.end();
    let record = match fetched {
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

/// The record of a directory that may have this model. The files of another have the same names, so one that has another is an error. What
/// `spotter eval` records has the name of the family alone.
pub(super) fn own_record(
    known: &KnownModel,
    directory: &Path,
) -> anyhow::Result<Option<ModelRecord>> {
    let record = ModelRecord::read(directory)?;
    let fetched = record.as_ref().filter(|record| record.hub.is_some());
    if let Some(other) = fetched.filter(|record| record.model != known.name) {
        bail!(
            "{} has {}, not {}; nothing was changed; name another directory with --dir",
            directory.display(),
            other.model,
            known.name
        );
    }
    Ok(record)
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
        for repository in known.repositories {
            let files: Vec<String> = repository.files.iter().map(ToString::to_string).collect();
            say(format_args!(
                "  {} at {}: {}",
                repository.name,
                repository.revision,
                files.join(", ")
            ))?;
        }
        let dirs = environment.model_dirs().into_iter();
        let mut found = Vec::new();
        for dir in dirs.map(|dir| dir.join(known.name)) {
            // A directory that this user may not list is shown as one that is not here.
            let files = model_files(known, &dir).unwrap_or_default();
            if !files.is_empty() {
                found.push((dir, amount(files.values().sum())));
            }
        }
        let default = environment.fetched_model();
        for (dir, size) in &found {
            let state = match has_model(dir) {
                true => described(dir).unwrap_or_else(|error| format!("{error:#}")),
                false => format!("incomplete; `spotter model get {}` continues", known.name),
            };
            let default = match default.as_ref() == Some(dir) {
                true => ", the default of model.path",
                false => "",
            };
            say(format_args!(
                "  here: {}{default}: {size}, {state}",
                dir.display()
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

/// Progress on stderr: one line that is redrawn on a terminal, a line every few seconds elsewhere.
struct FetchProgress {
    period: Duration,
    is_terminal: bool,
    /// A line is on the terminal and not ended.
    is_drawn: bool,
    of_file: Option<FileProgress>,
}

struct FileProgress {
    verb: &'static str,
    began: Mono,
    /// Bytes that were there then.
    had: u64,
    shown: Mono,
}

impl FetchProgress {
    fn new(is_terminal: bool) -> Self {
        Self {
            period: if is_terminal {
                REDRAW_PERIOD
            } else {
                LOG_PERIOD
            },
            is_terminal,
            is_drawn: false,
            of_file: None,
        }
    }

    fn show(&mut self, news: &FetchNews<'_>, now: Mono) {
        match (news, self.text(news, now)) {
            (FetchNews::Progress { .. }, Some(line)) if self.is_terminal => {
                // Over the line before, to its end. A closed terminal is no error.
                let _ = write!(io::stderr(), "\r{line}\x1b[K");
                let _ = io::stderr().flush();
                self.is_drawn = true;
            }
            (_, Some(line)) => {
                self.end();
                remark(line);
            }
            (_, None) => {}
        }
    }

    /// Ends the line on the terminal.
    fn end(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            remark("");
        }
    }

    /// What to show of `news`; progress is shown from time to time.
    fn text(&mut self, news: &FetchNews<'_>, now: Mono) -> Option<String> {
        let (verb, file, done, size) = match news {
            FetchNews::Note(text) => {
                self.of_file = None;
                return Some(text.clone());
            }
            &FetchNews::Progress {
                verb,
                file,
                done,
                size,
            } => (verb, file, done, size),
        };
        let begun = self.of_file.take().filter(|file| file.verb == verb);
        let progress = self.of_file.insert(begun.unwrap_or(FileProgress {
            verb,
            began: now,
            had: done,
            shown: now,
        }));
        if now.since(progress.shown) < self.period {
            return None;
        }
        progress.shown = now;
        let percent = done as f64 / size.max(1) as f64 * 100.0;
        let elapsed = now.since(progress.began).as_secs_f64();
        let speed = done.saturating_sub(progress.had) as f64 / elapsed;
        let mut text = format!(
            "{verb} {file}: {} of {} ({percent:.0} %)",
            amount(done),
            amount(size)
        );
        if speed.is_finite() && speed >= 1.0 {
            let seconds = ((size - done) as f64 / speed).round() as u64;
            let (minutes, seconds) = (seconds / 60, seconds % 60);
            let speed = amount(speed as u64);
            text += &format!(", {speed}/s, {minutes} min {seconds} s left");
        }
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spotter_core::ManualClock;

    /// The lines of a download of 3.9 GB at 100 MB/s that reports every 10 ms.
    fn lines(is_terminal: bool, seconds: u64) -> Vec<String> {
        let clock = ManualClock::default();
        let mut progress = FetchProgress::new(is_terminal);
        let mut lines = Vec::new();
        for step in 0..seconds * 100 {
            let news = FetchNews::Progress {
                verb: "receiving",
                file: "model.safetensors",
                done: step * 1_000_000,
                size: 3_900_000_000,
            };
            lines.extend(progress.text(&news, clock.now()));
            clock.advance(Duration::from_millis(10));
        }
        lines
    }

    #[test]
    fn log_gets_a_line_every_few_seconds() {
        let expected = [
            "receiving model.safetensors: 500.0 MB of 3.90 GB (13 %), 100.0 MB/s, 0 min 34 s left",
            "receiving model.safetensors: 1.00 GB of 3.90 GB (26 %), 100.0 MB/s, 0 min 29 s left",
        ];
        assert_eq!(lines(false, 11), expected);
    }

    #[test]
    fn terminal_line_changes_a_few_times_a_second() {
        assert_eq!(lines(true, 2).len(), 9);
    }
}
