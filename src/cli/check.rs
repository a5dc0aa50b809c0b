//! `spotter check`: validates a configuration; with `--probe`, connects to its cameras and broker.

use std::{net::ToSocketAddrs as _, path::Path, sync::Arc, time::Duration};

use anyhow::bail;

use super::{
    args::CheckArgs,
    out::{counted, remark, say},
};
use crate::app::{
    self,
    costs::{ASSUMED_SIZE, CostBasis, frame_size},
};
use spotter_cameras::ingest::{self, ProbeReport};
use spotter_config::{self as config, CameraConfig, Environment, PromptConfig};
use spotter_core::{CameraId, Clock, Prompt, PromptView, SystemClock, Task};
use spotter_engine::{
    model::{ModelConfig, model_config},
    open::PromptCheck,
};

/// Time for the broker to accept a connection.
const BROKER_LIMIT: Duration = Duration::from_secs(5);

/// Prints warnings, then one line about the configuration. Fails with all its errors.
pub fn check(args: &CheckArgs) -> anyhow::Result<()> {
    let loaded = config::check(&args.config, &Environment::process())?;
    for warning in &loaded.warnings {
        say(warning)?;
    }
    let config = &loaded.config;
    if let Some(warning) = config::advice::no_model(&config.model) {
        say(format_args!(
            "{}: warning: {warning}",
            args.config.display()
        ))?;
    }
    app::adapters_fit(&args.config, &present(&config.model))?;
    if let Some(fleet) = &config.fleet {
        say(format_args!(
            "{}: the cameras are in the list of the fleet {}, on {}:{}",
            args.config.display(),
            fleet.name,
            config.mqtt.broker.host,
            config.mqtt.broker.port,
        ))?;
    } else {
        cameras(args, config)?;
    }
    if args.probe {
        app::start_logging(0, config)?;
        probe(&args.config, config)
    } else {
        Ok(())
    }
}

/// Without the adapters whose files are elsewhere, which is a warning.
fn present(model: &config::ModelSettings) -> config::ModelSettings {
    let mut model = model.clone();
    model.adapters.retain(|adapter| adapter.path.is_file());
    model
}

/// One line about cameras, triggers, modes, webhooks and the API, and what each prompt costs.
fn cameras(args: &CheckArgs, config: &config::Config) -> anyhow::Result<()> {
    let prompts: usize = config
        .cameras
        .iter()
        .map(|camera| camera.prompts.len())
        .sum();
    let triggers = config.cameras.iter().map(|camera| camera.triggers.len());
    let others = [
        (triggers.sum(), "trigger"),
        (config.modes.len(), "mode"),
        (config.webhooks.len(), "webhook"),
    ];
    let others = others.into_iter().filter(|(count, _)| *count > 0);
    let others: String = others
        .map(|(count, what)| format!(", {}", counted(count, what)))
        .collect();
    let api = config.api.as_ref();
    let api = api.map_or_else(String::new, |api| format!(", HTTP API on {}", api.listen));
    say(format_args!(
        "{}: {} with {} on {}:{}{others}{api}",
        args.config.display(),
        counted(config.cameras.len(), "camera"),
        counted(prompts, "prompt"),
        config.mqtt.broker.host,
        config.mqtt.broker.port,
    ))?;
    costs(config)?;
    check_prompts(args, config)
}

/// Fails when the model has no room for the words of a prompt. Only its files tell, so nothing is said where they are not.
fn check_prompts(args: &CheckArgs, config: &config::Config) -> anyhow::Result<()> {
    let Ok(check) = PromptCheck::open(&config.model) else {
        return Ok(());
    };
    let prompts = config.cameras.iter().flat_map(|camera| {
        let prompts = camera.prompts.iter();
        prompts.flat_map(move |prompt| prompts_for_model(camera, prompt))
    });
    let mut failed = 0;
    for (camera, prompt) in prompts {
        if let Err(error) = check.check(&prompt) {
            failed += 1;
            say(format_args!("camera {camera}, {error}"))?;
        }
    }
    if failed > 0 {
        let failed = counted(failed, "prompt");
        bail!(
            "{}: the model cannot answer {failed}",
            args.config.display()
        );
    }
    Ok(())
}

/// The prompts of the model for a configured one: itself, its question before an event and the one about an event.
fn prompts_for_model<'a>(
    camera: &'a CameraConfig,
    prompt: &PromptConfig,
) -> impl Iterator<Item = (&'a CameraId, Prompt)> + use<'a> {
    let question = |question: &String, choices: &[&str], view: PromptView| {
        let choices = choices.iter().map(|&choice| choice.to_owned());
        let question = question.clone();
        let choices = choices.collect();
        (
            Task::Query {
                question,
                choices,
                options: Default::default(),
            },
            view,
        )
    };
    let verify = prompt.verify.as_ref();
    let verify = verify.map(|text| question(text, &["yes", "no"], PromptView::default()));
    let of_strip = PromptView {
        strip: prompt.strip,
        ..PromptView::default()
    };
    let describe = prompt.describe.as_ref();
    let describe = describe.map(|text| question(text, &[], of_strip));
    let own = (prompt.task.clone(), camera.view_of(prompt));
    let (id, revision) = (prompt.id.clone(), prompt.revision);
    let all = [Some(own), verify, describe].into_iter().flatten();
    all.map(move |(task, view)| {
        let prompt = Prompt {
            id: id.clone(),
            revision,
            task,
            view,
            adapter: None,
        };
        (&camera.id, prompt)
    })
}

/// One line for each prompt with what it asks of the device, and one for all of them.
fn costs(config: &config::Config) -> anyhow::Result<()> {
    let of_released = |error| {
        say(format_args!("{error}; costs are those of Moondream 2"))?;
        anyhow::Ok(ModelConfig::default())
    };
    let model = model_config(&config.model.source).or_else(of_released)?;
    let basis = CostBasis::new(model, None, 0, 0);
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
            say(format_args!(
                "camera {}, prompt {}: sees {seen} of {}x{}: {}, {} TFLOP a look, {} TFLOP/s at rate {}{shared}",
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
fn probe(path: &Path, config: &config::Config) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let mut failed = 0;
    for camera in &config.cameras {
        remark(format_args!(
            "camera {}: connecting (up to half a minute)",
            camera.id
        ));
        match runtime.block_on(ingest::probe(camera, Arc::clone(&clock))) {
            Ok(report) => say(described(camera, &report))?,
            Err(failure) => {
                failed += 1;
                say(format_args!(
                    "camera {}: {}: {}",
                    camera.id,
                    failure.fault.code(),
                    failure.text
                ))?;
            }
        }
    }
    let (host, port) = (&config.mqtt.broker.host, config.mqtt.broker.port);
    match reach(host, port) {
        Ok(()) => say(format_args!("broker {host}:{port}: accepts connections"))?,
        Err(reason) => {
            failed += 1;
            say(format_args!("broker {host}:{port}: {reason}"))?;
        }
    }
    if failed > 0 {
        bail!("{}: {} failed", path.display(), counted(failed, "probe"));
    }
    Ok(())
}

fn reach(host: &str, port: u16) -> Result<(), String> {
    let addresses = (host, port)
        .to_socket_addrs()
        .map_err(|e| format!("cannot resolve the host name: {e}"))?;
    let mut last = "the host name has no address".to_owned();
    for address in addresses {
        match std::net::TcpStream::connect_timeout(&address, BROKER_LIMIT) {
            Ok(_) => return Ok(()),
            Err(e) => last = format!("cannot connect: {e}"),
        }
    }
    Err(last)
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
    let mut text = format!(
        "camera {}: {} {size}, {} measured ({} declared), keyframe interval {}, {}, decoder {}, clock offset {clock}, \
         first frame after {} ms",
        camera.id,
        stream.codec.unwrap_or("unknown codec"),
        number(stream.fps_measured, " fps"),
        number(stream.fps_declared, ""),
        number(stream.gop_s, " s"),
        stream.transport.unwrap_or("no network"),
        stream.decoder.as_deref().unwrap_or("unknown"),
        report.first_frame_after.as_millis(),
    );
    if let Some(note) = stream.note_text() {
        text.push_str(&format!("\ncamera {}: note: {note}", camera.id));
    }
    if camera.decode == config::Decode::KeyFrames
        && let Some(warning) = stream
            .gop_s
            .and_then(|s| config::advice::key_frames_too_rare(camera.rate, s))
    {
        text.push_str(&format!("\ncamera {}: warning: {warning}", camera.id));
    }
    text
}
