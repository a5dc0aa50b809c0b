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
    FetchNews, FetchRequest, HubClient, HubError, HubSettings, KNOWN_MODELS, KnownModel,
    check_directory, fetch, is_root, model_files,
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
    let mut announced = String::new();
    let states = check_directory(directory, &record, |name, _| {
        if announced != name {
            remark(format_args!("reading {name}"));
            announced = name.to_owned();
        }
    });
    let mut wrong = Vec::new();
    for (name, state) in states {
        match state {
            Ok(()) => say(format_args!("{name}: good"))?,
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
    is_terminal: bool,
    last_shown: Option<Mono>,
    /// When how many bytes of the current file were there first.
    began: Option<(Mono, u64)>,
    /// Columns of the line that is on the terminal and not ended.
    drawn: usize,
}

impl FetchProgress {
    fn new(is_terminal: bool) -> Self {
        Self {
            is_terminal,
            last_shown: None,
            began: None,
            drawn: 0,
        }
    }

    fn show(&mut self, news: &FetchNews<'_>, now: Mono) {
        match self.text(news, now) {
            Some(line) if is_progress(news) && self.is_terminal => self.redraw(&line),
            Some(line) => {
                self.end();
                remark(line);
            }
            None => {}
        }
    }

    /// Overwrites the line on the terminal.
    fn redraw(&mut self, line: &str) {
        let width = line.chars().count();
        let padding = " ".repeat(self.drawn.saturating_sub(width));
        // A closed terminal is no error.
        let _ = write!(io::stderr(), "\r{line}{padding}");
        let _ = io::stderr().flush();
        self.drawn = width;
    }

    /// Ends the line on the terminal.
    fn end(&mut self) {
        if std::mem::take(&mut self.drawn) > 0 {
            remark("");
        }
    }

    /// What to show of `news`; progress is shown from time to time.
    fn text(&mut self, news: &FetchNews<'_>, now: Mono) -> Option<String> {
        let (verb, file, done, size) = match *news {
            FetchNews::Checked { file, done, size } => ("checking", file, done, size),
            FetchNews::Received { file, done, size } => ("receiving", file, done, size),
            ref other => {
                (self.last_shown, self.began) = (None, None);
                return Some(announced(other));
            }
        };
        let period = if self.is_terminal {
            REDRAW_PERIOD
        } else {
            LOG_PERIOD
        };
        let last = *self.last_shown.get_or_insert(now);
        let (from, less) = *self.began.get_or_insert((now, done));
        if now.since(last) < period {
            return None;
        }
        self.last_shown = Some(now);
        let percent = done as f64 / size.max(1) as f64 * 100.0;
        let speed = done.saturating_sub(less) as f64 / now.since(from).as_secs_f64();
        let rest = match speed.is_finite() && speed >= 1.0 {
            true => {
                let seconds = ((size - done) as f64 / speed).round() as u64;
                let (minutes, seconds) = (seconds / 60, seconds % 60);
                let speed = amount(speed as u64);
                format!(", {speed}/s, {minutes} min {seconds} s left")
            }
            false => String::new(),
        };
        let (done, size) = (amount(done), amount(size));
        Some(format!(
            "{verb} {file}: {done} of {size} ({percent:.0} %){rest}"
        ))
    }
}

fn is_progress(news: &FetchNews<'_>) -> bool {
    matches!(news, FetchNews::Checked { .. } | FetchNews::Received { .. })
}

/// News that is always shown.
fn announced(news: &FetchNews<'_>) -> String {
    match news {
        FetchNews::Repository {
            name,
            revision,
            commit,
            licence,
        } => {
            let licence = licence.map_or_else(
                || format!("the hub names no licence; see the page of {name}"),
                |licence| format!("licence {licence}"),
            );
            match revision == commit {
                true => format!("{name} at {revision}: {licence}"),
                false => format!("{name} at {revision} (commit {commit}): {licence}"),
            }
        }
        FetchNews::Kept { file } => format!("{file}: here already, and verified"),
        FetchNews::Repeated {
            file,
            reason,
            pause,
        } => format!("{file}: {reason}; next attempt in {} s", pause.as_secs()),
        FetchNews::Restarted { file } => {
            format!("{file}: the part of an earlier run has other content; starting again")
        }
        FetchNews::Verified { file } => format!("{file}: verified"),
        FetchNews::Room { missing, free } => format!(
            "{} to fetch, {} free on that disk",
            amount(*missing),
            amount(*free)
        ),
        FetchNews::Checked { file, .. } | FetchNews::Received { file, .. } => (*file).to_owned(),
    }
}

/// Bytes in the unit that fits.
pub fn amount(bytes: u64) -> String {
    let bytes = bytes as f64;
    match bytes {
        gigabytes if gigabytes >= 1e9 => format!("{:.2} GB", gigabytes / 1e9),
        megabytes if megabytes >= 1e6 => format!("{:.1} MB", megabytes / 1e6),
        kilobytes if kilobytes >= 1e3 => format!("{:.1} kB", kilobytes / 1e3),
        few => format!("{few} bytes"),
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
            let news = FetchNews::Received {
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

    #[test]
    fn licence_and_commit_are_shown_as_the_hub_names_them() {
        let news = |licence| FetchNews::Repository {
            name: "vikhyatk/moondream2",
            revision: "2025-06-21",
            commit: "9a7d",
            licence,
        };
        assert_eq!(
            announced(&news(Some("apache-2.0"))),
            "vikhyatk/moondream2 at 2025-06-21 (commit 9a7d): licence apache-2.0"
        );
        assert!(announced(&news(None)).contains("the hub names no licence"));
    }
}
