//! The card of a camera: state, picture with what was found, answers, latency, frames.

use maud::{Markup, html};

use spotter_cameras::ingest::StreamNote;
use spotter_core::FrameCounters;
use spotter_mqtt::{CameraClockHealth, CameraHealth};

use super::{
    overlay::{INKS, overlay},
    parts::{self, chip, facts, known, pill, since},
    plot,
    status::{CameraStatus, DaemonStatus, LookStatus, MinuteLatency, PromptStatus},
    words::{ago, clock_time, counted, duration, machine_time, millis, number, state},
};

/// The picture that is shown may be a second older than the newest answers.
const SAME_LOOK_MS: u64 = 1500;
/// A look is old when it is older than this, and its picture says so.
const OLD_MS: u64 = 60_000;

pub fn card(camera: &CameraStatus, status: &DaemonStatus) -> Markup {
    let heading = format!("h-{}", camera.id);
    html! {
        article.card id=(format!("cam-{}", camera.id)) aria-labelledby=(heading) {
            header {
                h3 id=(heading) { (camera.id) }
                (pill(camera.mood, &card_state(camera)))
            }
            (picture(camera))
            div.body {
                @if let Some(reason) = &camera.health.reason {
                    (parts::reason(camera.mood, reason, camera.health.next_retry_s))
                }
                (triggers(camera))
                (answers(camera))
                (latency(&camera.latency, &status.stages))
                (losses(&camera.frames, &camera.health))
                (details(camera, status))
            }
        }
    }
}

fn card_state(camera: &CameraStatus) -> String {
    match camera.waits_for_trigger() {
        true => "waiting for a trigger".to_owned(),
        false => state(camera.health.state).to_owned(),
    }
}

/// Which triggers are active.
fn triggers(camera: &CameraStatus) -> Markup {
    let active = camera.triggers.iter().filter(|trigger| trigger.active);
    let active: Vec<&str> = active.map(|trigger| trigger.id.as_str()).collect();
    html! {
        @if !active.is_empty() { p.quiet { "Looked at because of " (active.join(", ")) } }
    }
}

fn picture(camera: &CameraStatus) -> Markup {
    let Some(look) = &camera.look else {
        return html! { div.still.empty { p { "No look yet" } } };
    };
    let old = look.age_ms > OLD_MS;
    let (width, height) = look.size;
    html! {
        figure {
            div.still.empty[!look.pictured].old[old] {
                @if look.pictured {
                    img src=(format!("/camera/{}.jpg?look={}", camera.id, look.frame)) alt=(alt(camera, look))
                        width=(width) height=(height) decoding="async";
                    (overlay(camera, look))
                } @else { p { "No picture yet; one follows within a second of the next look" } }
            }
            figcaption {
                @if old { strong { "Old: " } }
                time datetime=(machine_time(look.time_ms)) { (clock_time(look.time_ms)) " UTC" }
                ", " (ago(look.age_ms))
            }
        }
    }
}

/// The picture in words.
fn alt(camera: &CameraStatus, look: &LookStatus) -> String {
    let marks = look.marks();
    let count = |index| marks.iter().filter(|mark| mark.prompt == index).count();
    let found: Vec<String> = camera
        .prompts
        .iter()
        .enumerate()
        .filter(|(index, _)| count(*index) > 0)
        .map(|(index, prompt)| format!("{} {}", count(index), prompt.prompt.id))
        .collect();
    let found = if found.is_empty() {
        "nothing found".to_owned()
    } else {
        found.join(", ")
    };
    format!(
        "Camera {} at {} UTC: {found}",
        camera.id,
        clock_time(look.time_ms)
    )
}

fn answers(camera: &CameraStatus) -> Markup {
    html! {
        table.answers {
            caption.unseen { "Last answers of " (camera.id) }
            thead.unseen { tr { th scope="col" { "Prompt" } th scope="col" { "Answer" } } }
            tbody {
                @for (index, prompt) in camera.prompts.iter().enumerate() {
                    (answer(index, prompt, camera.look.as_ref()))
                }
            }
        }
    }
}

/// A prompt that is asked less often than others says how old its answer is.
fn answer(index: usize, prompt: &PromptStatus, look: Option<&LookStatus>) -> Markup {
    let (id, words) = (prompt.prompt.id.as_str(), prompt.words());
    let last = prompt.answer.as_ref();
    let newest_ms = look.map_or(0, |look| look.age_ms);
    let is_old = |age_ms: u64| age_ms > newest_ms + SAME_LOOK_MS;
    html! {
        tr {
            th scope="row" {
                svg class=(format!("ink ink{}", index % INKS)) viewBox="0 0 10 10" aria-hidden="true" focusable="false" {
                    rect.line x="1.5" y="1.5" width="7" height="7" rx="1.5" {}
                }
                span.name { (id) }
                @if words != id && !words.is_empty() { span.words { (words) } }
                @for line in &prompt.lines { span.words { (line.words()) } }
            }
            @match last {
                None => { td.none { "–" span.unseen { " no answer yet" } } }
                Some(last) => {
                    @let count = last.body.count();
                    td.some[count.is_some_and(|n| n > 0)].words[last.text().is_some()] {
                        @match last.text() {
                            Some(text) => { (text) }
                            None => { (count.unwrap_or_default()) }
                        }
                        @for (zone, time) in last.dwell() {
                            span.when { (zone) " " (duration(time.as_secs())) }
                        }
                        @if is_old(last.age_ms) { span.when { (ago(last.age_ms)) } }
                    }
                }
            }
        }
    }
}

fn latency(latency: &MinuteLatency, stages: &[&str]) -> Markup {
    let Some((p50, p95)) = latency.p50_ms.zip(latency.p95_ms) else {
        return html! { p.quiet { "No messages in the last minute" } };
    };
    let longest = latency
        .columns_ms
        .iter()
        .flatten()
        .map(|column| column.iter().sum());
    let top = plot::round_up(longest.fold(0.0, f64::max));
    html! {
        div.way {
            p.figures {
                span { b { (millis(p50)) } " median" }
                span { b { (millis(p95)) } " 95 %" }
            }
            div.scaled {
                (plot::latency(latency, stages))
                span.top aria-hidden="true" { (millis(top)) }
            }
            p.span aria-hidden="true" { span { "1 min ago" } span { "now" } }
        }
    }
}

/// The frames that an operator may want to act on; all counters are in the details.
fn losses(frames: &FrameCounters, health: &CameraHealth) -> Markup {
    let lost = [
        ("replaced", frames.replaced),
        ("late", frames.late),
        ("failed", frames.failed),
        // Not among the frames above, which are decoded ones.
        ("undecoded", health.counters.frames_late),
    ];
    html! {
        p.losses {
            span { b { (number(frames.looked)) } " looks" }
            @for (name, n) in lost.into_iter().filter(|(_, n)| *n > 0) {
                span class=(name) { b { (number(n)) } " " (name) }
            }
        }
    }
}

/// With the declared one, where the camera sends much faster.
fn rate(fps: f64, health: &CameraHealth) -> String {
    let is_fast = health.note.as_deref() == Some(StreamNote::FasterThanDeclared.as_str());
    let declared = health.fps_declared.filter(|_| is_fast);
    let note = declared.map(|declared| format!(", more than twice the declared {declared:.1}"));
    format!("{fps:.1} frames/s{}", note.unwrap_or_default())
}

fn details(camera: &CameraStatus, status: &DaemonStatus) -> Markup {
    let health = &camera.health;
    let size = known(health.w.zip(health.h), |(w, h)| format!("{w} × {h}"));
    let mut lines = vec![
        ("Codec", known(health.codec.clone(), |codec| codec)),
        ("Size", size),
        ("Rate", known(health.fps_measured, |fps| rate(fps, health))),
        (
            "Transport",
            known(health.transport.clone(), |transport| transport),
        ),
        ("Decoder", known(health.decoder.clone(), |decoder| decoder)),
    ];
    for counter in spotter_core::StreamCounters::ALL {
        lines.push((counter.label, number((counter.get)(&health.counters))));
    }
    lines.extend([
        ("Reconnects, 1 h", health.reconnects_1h.to_string()),
        ("Stalls, 1 h", health.stalls_1h.to_string()),
        ("Clock", clock(&health.clock)),
    ]);
    for trigger in &camera.triggers {
        let times = counted(trigger.activations as usize, "time");
        lines.push(("Trigger", format!("{}: {times}", trigger.id)));
    }
    html! {
        details {
            summary { "Details" span.unseen { " of " (camera.id) } span.for { (since(health.since_ms, status.time_ms)) } }
            (facts(&lines))
            (costs(&camera.prompts))
            (frame_counts(&camera.frames))
            (stages(&camera.latency, &status.stages))
        }
    }
}

fn clock(clock: &CameraClockHealth) -> String {
    let offset = known(clock.offset_ms, |ms| format!("{ms:+.0} ms"));
    let drift = known(clock.drift_ppm, |ppm| format!("{ppm:+.1} ppm"));
    match (clock.trusted, &clock.note) {
        (true, _) => format!("trusted, {offset}, drift {drift}"),
        (false, Some(note)) => format!("not trusted: {}", note.replace('_', " ")),
        (false, None) => "unknown".to_owned(),
    }
}

/// What each prompt asks of the device.
fn costs(prompts: &[PromptStatus]) -> Markup {
    let known = || {
        prompts
            .iter()
            .filter_map(|prompt| Some((prompt, prompt.cost?)))
    };
    if known().next().is_none() {
        return html! {};
    }
    html! {
        table.sums {
            caption { "Cost of prompts" }
            thead { tr {
                th scope="col" { "prompt" }
                th scope="col" { "crops" }
                th scope="col" { "TFLOP" }
                th scope="col" { "share" }
            } }
            tbody {
                @for (prompt, cost) in known() {
                    tr {
                        th scope="row" { (prompt.prompt.id) }
                        td { @if cost.follows_motion { "≥ " } (cost.crops) }
                        td { (format!("{:.2}", cost.tflop)) }
                        td { (cost.share.map_or_else(|| "–".to_owned(), |share| format!("{:.1} %", share * 100.0))) }
                    }
                }
            }
        }
    }
}

fn frame_counts(frames: &FrameCounters) -> Markup {
    let rows = [
        ("analysed", frames.looked),
        ("skipped: no prompt was due", frames.skipped),
        ("gated: no motion", frames.gated),
        ("replaced by a newer one", frames.replaced),
        ("late: too old", frames.late),
        ("failed", frames.failed),
        ("waiting or in progress", frames.waiting + frames.in_flight),
        ("decoded", frames.arrived),
    ];
    html! {
        table.sums {
            caption { "Frames since the start" }
            tbody { @for (name, n) in rows { tr { th scope="row" { (name) } td { (number(n)) } } } }
        }
    }
}

fn stages(latency: &MinuteLatency, names: &[&str]) -> Markup {
    html! {
        table.sums {
            caption { "Mean of " (counted(latency.messages as usize, "message")) " of the last minute" }
            tbody {
                @for (index, (name, ms)) in names.iter().zip(latency.mean_ms).enumerate() {
                    tr { th scope="row" { (chip(index)) (name) } td { (millis(ms)) } }
                }
            }
        }
    }
}
