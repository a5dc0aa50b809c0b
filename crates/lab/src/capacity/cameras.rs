//! The cameras of a box: as a file configures them, and how their frames arrive.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;

use spotter_cameras::sampler::Sampler;
use spotter_config::{self as config, CameraConfig, Environment};
use spotter_core::{
    CameraId, Frame, FrameTimes, LookRate, Mono, Picture, Task, WallTime, duration_from_secs,
};

/// Frames a second of a camera that is looked at less often.
const CAMERA_HZ: f64 = 15.0;

fn object(number: usize) -> String {
    format!("thing {number}")
}

pub fn tasks(prompts: usize) -> impl Iterator<Item = Task> {
    (0..prompts).map(|number| Task::Detect {
        object: object(number),
    })
}

/// The cameras as a file configures them, each with its part of the looks.
pub fn configured_cameras(
    cameras: usize,
    prompts: usize,
    has_query: bool,
    looks_hz: f64,
) -> anyhow::Result<Vec<CameraConfig>> {
    let mut text = String::from("mqtt.url = \"mqtt://127.0.0.1\"\n");
    for camera in 0..cameras {
        text += &format!("[camera.c{camera}]\nurl = \"test://\"\n");
        for prompt in 0..prompts {
            text += &format!("prompt.p{prompt}.detect = \"{}\"\n", object(prompt));
        }
        if has_query {
            text += "prompt.scene.query = \"What happens here?\"\n";
        }
    }
    let loaded = config::of_text("the simulated cameras", &text, &Environment::process())?;
    let mut configured = loaded.config.cameras;
    for camera in &mut configured {
        camera.rate = LookRate::nearest(looks_hz / cameras as f64);
        for prompt in &mut camera.prompts {
            prompt.rate = camera.rate;
        }
    }
    Ok(configured)
}

/// Delivers a camera's frames to the sampler.
pub struct FrameSender {
    pub id: CameraId,
    /// When the next frame is due.
    pub next: Mono,
    /// Frames so far; the number of the last one.
    pub frames: u64,
    sink: Box<dyn Fn(Frame) + Send>,
    period: Duration,
}

impl FrameSender {
    /// One for each camera. Their first frames are spread over a period.
    pub fn all(
        cameras: &[CameraConfig],
        sampler: &Arc<Sampler>,
        now: Mono,
    ) -> anyhow::Result<Vec<Self>> {
        let all = cameras.iter().enumerate().map(|(index, camera)| {
            let sink = sampler.camera_sink(&camera.id);
            let sink = sink.context("a camera that the sampler does not know")?;
            let period = duration_from_secs(1.0 / camera.rate.hz().max(CAMERA_HZ));
            Ok(Self {
                id: camera.id.clone(),
                next: now.after(period.mul_f64(index as f64 / cameras.len() as f64)),
                frames: 0,
                sink: Box::new(sink),
                period,
            })
        });
        all.collect()
    }

    /// The due frame arrives. A camera that was held up does not deliver a burst.
    pub fn deliver(&mut self, picture: Picture, now: Mono) {
        self.frames += 1;
        self.next = self.next.after(self.period).max(now);
        (self.sink)(Frame {
            camera: self.id.clone(),
            number: self.frames,
            camera_size: (picture.width() as u32, picture.height() as u32),
            key: false,
            times: FrameTimes {
                received: now,
                received_wall: WallTime::default(),
                decoded: now,
                capture: None,
                rtp: None,
            },
            picture,
        });
    }
}
