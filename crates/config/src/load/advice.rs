//! Warnings that only running can give: whether the machine keeps up and whether a camera fits its settings. Pure.

use std::time::Duration;

use super::file::Config;
use crate::{
    forms::environment::DEFAULT_MODEL,
    tables::{camera::*, model::*},
};
use spotter_core::{LookRate, StripShape};

/// A warning when a camera whose key frames alone are decoded sends them less often than looks are due.
pub fn key_frames_too_rare(rate: LookRate, key_frame_distance_s: f64) -> Option<String> {
    let needed_s = 1.0 / rate.hz();
    // Cameras keep their distance only roughly.
    (key_frame_distance_s > needed_s * 1.05).then(|| {
        let [rate, needed, sent] = [rate.hz(), needed_s, key_frame_distance_s].map(shown);
        format!(
            "rate {rate} needs a key frame every {needed} s, the camera sends one every {sent} s"
        )
    })
}

/// Why no strip can be made of a camera's frames, `every` apart, and what to do.
pub fn no_strip(shape: StripShape, every: Duration, decode: Decode) -> String {
    let StripShape { frames, over } = shape;
    let seconds = |time: Duration| shown(time.as_secs_f64());
    let over = seconds(over);
    if every <= shape.longest_interval() {
        return format!(
            "the camera's frames have gaps or change their size too often for {frames} frames over {over} s"
        );
    }
    let decode = match decode {
        Decode::KeyFrames => ", or decode = \"all\"",
        Decode::All => "",
    };
    let (needed, every) = (seconds(shape.longest_interval()), seconds(every));
    format!(
        "{frames} frames over {over} s need a frame every {needed} s, the camera sends one every {every} s; set a longer over or fewer frames{decode}"
    )
}

/// What `info.features` reports about certificates that are not checked: `insecure_tls:mqtt`, `insecure_tls:cam/gate`.
pub fn insecure_features(config: &Config) -> Vec<String> {
    let tls = config.mqtt.broker.tls.as_ref();
    let broker = tls.is_some_and(|tls| tls.insecure);
    let broker = broker.then(|| "insecure_tls:mqtt".to_owned());
    let cameras = config.cameras.iter();
    let cameras = cameras.filter(|camera| camera.source.is_insecure());
    let cameras = cameras.map(|camera| format!("insecure_tls:cam/{}", camera.id));
    broker.into_iter().chain(cameras).collect()
}

/// A warning when the embedded model is used because there is no other.
pub fn no_model(model: &ModelSettings) -> Option<String> {
    model.is_stand_in.then(|| {
        format!(
            "no model was fetched; the embedded demonstration model is used, which knows drawn streets only; run \
             `spotter model get {DEFAULT_MODEL}`, or name a model directory"
        )
    })
}

/// At most two decimals, no zeros at the end.
fn shown(number: f64) -> String {
    format!("{}", (number * 100.0).round() / 100.0)
}
