//! `spotter check`: validates a configuration; with `--probe`, connects to its cameras and broker.

use std::{path::Path, sync::Arc};

use anyhow::bail;

use super::{
    args::CheckArgs,
    out::{counted, remark, say},
};
use crate::app::{
    self,
    costs::{ASSUMED_SIZE, CostBasis, frame_size},
    prompt_rule::{prompt_rule, prompts_fit},
};
use spotter_cameras::ingest::{self, ProbeReport};
use spotter_config::{self as config, AdapterConfig, CameraConfig, Environment, ModelSource};
use spotter_control::{ConfigStore, ReadOverrides};
use spotter_core::{Clock, Setting, SystemClock};
use spotter_engine::model::{ModelConfig, model_config};
use spotter_mqtt::TopicReader;
use spotter_state::{Document, stored_text};

/// Prints warnings, then one line about the configuration. Fails with all its errors.
pub fn check(args: &CheckArgs) -> anyhow::Result<()> {
    let loaded = config::check(&args.config, &Environment::process())?;
    for warning in &loaded.warnings {
        say(warning)?;
    }
    let (config, file) = (&loaded.config, args.config.display());
    if let Some(warning) = config::advice::no_model(&config.model) {
        say(format_args!("{file}: warning: {warning}"))?;
    }
    app::adapters_fit(&args.config, &config.model.source, &expected_here(config))?;
    let broker = &config.mqtt.broker;
    let broker = format!("{}:{}", broker.host, broker.port);
    if let Some(fleet) = &config.fleet {
        say(format_args!(
            "{file}: the cameras are in the list of the fleet {}, on {broker}",
            fleet.name,
        ))?;
    } else {
        say(format_args!("{file}: {}", summary(config, &broker)))?;
        costs(config)?;
        prompts_fit(&args.config, config, &prompt_rule(&config.model))?;
    }
    if args.effective {
        effective(config)?;
    }
    match args.probe {
        true => probe(&args.config, config, &broker),
        false => Ok(()),
    }
}

/// The values that the daemon of this machine has in force instead of the file's, a line each; of shapes the lines for the file.
fn effective(config: &config::Config) -> anyhow::Result<()> {
    if config.fleet.is_some() {
        return say(
            "what commands changed at cameras of a fleet is in its store: send {\"op\": \"get\", \"what\": \"overrides\"} to a node",
        );
    }
    let state_dir = &config.node.state_dir;
    let Some(text) = stored_text(state_dir, Document::Overrides) else {
        let place = state_dir.display();
        return say(format_args!(
            "no changes by commands are stored in {place}, or they cannot be read here"
        ));
    };
    let read = ReadOverrides::of_json(text.as_bytes())?;
    let clock = SystemClock::new();
    let mut store = ConfigStore::new(config.clone(), read.stored, clock.now(), clock.wall());
    store.set_prompt_rule(prompt_rule(&config.model), clock.now());
    if let Some(mode) = store.mode() {
        say(format_args!("mode {mode} is active"))?;
    }
    for change in store.overrides() {
        let camera = &change.camera;
        if let Setting::Shapes(_) = change.now {
            let shapes = store.shapes(camera)?;
            let lines = config::shapes_toml(&shapes.now, &shapes.file);
            say(format_args!(
                "camera {camera}: shapes are set; in the file:\n{lines}"
            ))?;
            continue;
        }
        let prompt = change.now.prompt();
        let prompt = prompt.map_or_else(String::new, |prompt| format!(", prompt {prompt}"));
        let (field, now, file) = (change.now.field(), shown(&change.now), shown(&change.file));
        say(format_args!(
            "camera {camera}{prompt}: {field} is {now}, in the file {file}"
        ))?;
    }
    let count = store.overrides().count();
    say(format_args!(
        "{} by commands and the page",
        counted(count, "change")
    ))
}

/// As the file has it; shapes are lines of their own.
fn shown(setting: &Setting) -> String {
    match setting {
        Setting::Enabled(on) | Setting::MotionGate(on) | Setting::PromptEnabled(_, on) => {
            on.to_string()
        }
        Setting::Rate(rate) => rate.to_string(),
        Setting::MinScore(_, score) => score.to_string(),
        Setting::Text(_, text) => format!("{:?}", text.as_str()),
        Setting::Shapes(_) => String::new(),
    }
}

/// Adapters whose files must be on this machine: with a model directory, which the machine that runs has, all; else those that are here,
/// because the file may be of another machine. Of those that are missing there is a warning.
fn expected_here(config: &config::Config) -> Vec<AdapterConfig> {
    let is_elsewhere = config.model.source == ModelSource::Embedded;
    let mut expected = config.adapters.all.clone();
    expected.retain(|adapter| !is_elsewhere || adapter.path.is_file());
    expected
}

/// Cameras, triggers, modes, webhooks and the API.
fn summary(config: &config::Config, broker: &str) -> String {
    let of_cameras = |count: fn(&CameraConfig) -> usize| config.cameras.iter().map(count).sum();
    let others = [
        (of_cameras(|camera| camera.triggers.len()), "trigger"),
        (config.modes.len(), "mode"),
        (config.webhooks.len(), "webhook"),
    ];
    let mut text = format!(
        "{} with {} on {broker}",
        counted(config.cameras.len(), "camera"),
        counted(of_cameras(|camera| camera.prompts.len()), "prompt"),
    );
    for (count, what) in others.into_iter().filter(|(count, _)| *count > 0) {
        text += &format!(", {}", counted(count, what));
    }
    if let Some(api) = &config.api {
        text += &format!(", HTTP API on {}", api.listen);
    }
    text
}

/// One line for each prompt with what it asks of the device, and one for all of them.
fn costs(config: &config::Config) -> anyhow::Result<()> {
    let model = model_config(&config.model.source).or_else(|error| {
        say(format_args!("{error}; costs are those of Moondream 2"))?;
        anyhow::Ok(ModelConfig::default())
    })?;
    let basis = CostBasis::new(model, None, 0, 0).with_reuse_of(&config.model);
    let mut all = 0.0;
    for camera in &config.cameras {
        let size = frame_size(camera, ASSUMED_SIZE);
        for (prompt, cost) in camera.prompts.iter().zip(basis.prompts(camera, size)) {
            all += cost.tflop_per_s;
            let (width, height) = cost.pixels;
            let seen = match cost.follows_motion {
                true => format!("at least {width}x{height}"),
                false => format!("{width}x{height}"),
            };
            let shared = match cost.shared_by {
                1 => String::new(),
                prompts => format!(", image shared by {prompts} prompts"),
            };
            let other_adapter = cost.unshared_tflop.map_or_else(String::new, |tflop| {
                let text = "not shared with prompts of another adapter";
                format!(", {} TFLOP a look {text}", rounded(tflop))
            });
            say(format_args!(
                "camera {}, prompt {}: sees {seen} of {}x{}: {}, {} TFLOP a look, {} TFLOP/s at rate {}{shared}{other_adapter}",
                camera.id,
                prompt.id,
                size.0,
                size.1,
                counted(cost.crops, "crop"),
                rounded(cost.tflop),
                rounded(cost.tflop_per_s),
                prompt.rate,
            ))?;
        }
    }
    let (width, height) = ASSUMED_SIZE;
    say(format_args!(
        "all prompts: {} TFLOP/s, with cameras of {width}x{height} and one object in each answer",
        rounded(all)
    ))
}

/// Three significant digits, as far as decimals go.
fn rounded(value: f64) -> String {
    let decimals = match value {
        ten if ten >= 10.0 => 1,
        one if one >= 0.1 => 2,
        _ => 4,
    };
    format!("{value:.decimals$}")
}

/// Connects to every camera, one after the other, and to the broker, and prints what it finds.
fn probe(file: &Path, config: &config::Config, broker: &str) -> anyhow::Result<()> {
    app::start_logging(0, config)?;
    let runtime = app::runtime()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let mut failed = 0;
    for camera in &config.cameras {
        let id = &camera.id;
        remark(format_args!(
            "camera {id}: connecting (up to half a minute)"
        ));
        match runtime.block_on(ingest::probe(camera, Arc::clone(&clock))) {
            Ok(report) => say(described(camera, &report))?,
            Err(failure) => {
                failed += 1;
                let (code, text) = (failure.fault.code(), failure.text);
                say(format_args!("camera {id}: {code}: {text}"))?;
            }
        }
    }
    // With the login and TLS of the configuration.
    match runtime.block_on(TopicReader::open(&config.mqtt.broker, &[])) {
        Ok(_) => say(format_args!("broker {broker}: connected"))?,
        Err(error) => {
            failed += 1;
            say(format_args!("broker {broker}: {error}"))?;
        }
    }
    if failed > 0 {
        bail!("{}: {} failed", file.display(), counted(failed, "probe"));
    }
    Ok(())
}

/// One line about a camera that was probed.
pub fn described(camera: &CameraConfig, report: &ProbeReport) -> String {
    let stream = &report.stream;
    let number = |value: Option<f64>, unit: &str| {
        value.map_or_else(|| "unknown".to_owned(), |value| format!("{value:.1}{unit}"))
    };
    let size = stream
        .size
        .map_or_else(|| "unknown size".to_owned(), |(w, h)| format!("{w}x{h}"));
    let clock = match (report.clock.offset_ms, report.clock.note) {
        (Some(ms), None) => format!("{:+} ms", ms.round() as i64),
        (Some(ms), Some(note)) => format!("{:+} ms ({})", ms.round() as i64, note.as_str()),
        (None, _) => "unknown (no sender reports)".to_owned(),
    };
    let id = &camera.id;
    let mut text = format!(
        "camera {id}: {} {size}, {} measured ({} declared), keyframe interval {}, {}, decoder {}, clock offset {clock}, \
         first frame after {} ms",
        stream.codec.unwrap_or("unknown codec"),
        number(stream.fps_measured, " fps"),
        number(stream.fps_declared, ""),
        number(stream.gop_s, " s"),
        stream.transport.unwrap_or("no network"),
        stream.decoder.as_deref().unwrap_or("unknown"),
        report.first_frame_after.as_millis(),
    );
    if let Some(note) = stream.note_text() {
        text += &format!("\ncamera {id}: note: {note}");
    }
    let gop_s = stream
        .gop_s
        .filter(|_| camera.decode == config::Decode::KeyFrames);
    let warning = gop_s.and_then(|s| config::advice::key_frames_too_rare(camera.rate, s));
    if let Some(warning) = warning {
        text += &format!("\ncamera {id}: warning: {warning}");
    }
    text
}
