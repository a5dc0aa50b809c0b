//! The page as HTML. Everything that is not written here is escaped by the template crate.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{
    parts::{self, facts, known, pill, since},
    plot::{self, INKS},
    view::{
        Broker, Camera, Clock, Config, Engine, Frames, Latency, Look, Mood, Node, Prompt, View,
    },
    words::{ago, clock_time, counted, duration, machine_time, millis, number, state},
};

/// The picture that is shown may be a second older than the newest answers.
const SAME_LOOK_MS: u64 = 1500;
/// A look is old when it is older than this, and its picture says so.
const OLD_MS: u64 = 60_000;

/// The whole page.
pub fn page(view: &View) -> Markup {
    let troubled: Vec<&Camera> = view
        .cameras
        .iter()
        .filter(|c| c.mood == Mood::Bad)
        .collect();
    let troubles = troubled.len() + usize::from(view.broker.mood == Mood::Bad);
    let title = match troubles {
        0 => format!("{} · Spotter", view.node.name),
        n => format!("({n}) {} · Spotter", view.node.name),
    };
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                link rel="icon" href="/icon.svg" type="image/svg+xml";
                link rel="stylesheet" href="/page.css";
                script src="/page.js" defer {}
            }
            body {
                p #away .away role="alert" hidden { "Spotter does not answer. What you see is old." }
                (top(view, &troubled))
                main { (cameras(view)) (engines(view)) (broker(&view.broker)) (config(&view.config)) }
                (foot(view))
            }
        }
    }
}

fn top(view: &View, troubled: &[&Camera]) -> Markup {
    html! {
        header.top {
            h1 { span.brand { "Spotter" } " " span.node { (view.node.name) } }
            (verdict(view, troubled))
            (tiles(&view.node))
            noscript {
                p.note { "This is a snapshot. " a href="/" { "Load it again" } " for newer pictures and figures." }
            }
        }
    }
}

/// In one sentence; readers hear it when it changes, so no running number is in it.
fn verdict(view: &View, troubled: &[&Camera]) -> Markup {
    let good = view.cameras.iter().filter(|c| c.mood == Mood::Good).count();
    let wanted = view.cameras.iter().filter(|c| c.mood != Mood::Off).count();
    let engines_down = view.engines.iter().any(|engine| !engine.up);
    let bad = !troubled.is_empty() || engines_down || view.broker.mood == Mood::Bad;
    let mood = match (bad, good == wanted && view.broker.mood == Mood::Good) {
        (true, _) => Mood::Bad,
        (_, true) => Mood::Good,
        (_, false) => Mood::Busy,
    };
    let deliver = match (good, wanted) {
        (_, 0) => "all cameras off".to_owned(),
        (1, 1) => "the camera delivers".to_owned(),
        (good, wanted) if good == wanted => format!("all {wanted} cameras deliver"),
        (good, wanted) => format!("{good} of {} deliver", counted(wanted, "camera")),
    };
    let off = view.cameras.len() - wanted;
    let deliver = match (wanted, off) {
        (0, _) | (_, 0) => deliver,
        (_, off) => format!("{deliver}, {off} off"),
    };
    html! {
        p.verdict role="status" aria-live="polite" {
            (pill(mood, &deliver))
            " " (pill(view.broker.mood, &format!("broker {}", view.broker.state)))
            @for engine in view.engines.iter().filter(|engine| !engine.up) {
                " " (pill(Mood::Bad, &format!("engine {} ended", engine.device)))
            }
            @if !view.config.errors.is_empty() { " " (pill(Mood::Bad, "new configuration refused")) }
            @if !troubled.is_empty() {
                span.who {
                    "Look at "
                    @for (index, camera) in troubled.iter().enumerate() {
                        @if index > 0 { ", " }
                        a href=(format!("#cam-{}", camera.id)) { (camera.id) }
                    }
                }
            }
        }
    }
}

fn tiles(node: &Node) -> Markup {
    let figures = [
        (
            "Looks a second",
            known(node.looks_per_s, |hz| format!("{hz:.1}")),
        ),
        ("Latency, 95 %", known(node.total_p95_ms, millis)),
        (
            "Processor",
            known(node.cpu_pct, |pct| format!("{pct:.0} %")),
        ),
        ("Memory", known(node.rss_mib, |mib| format!("{mib:.0} MiB"))),
        ("Runs for", duration(node.uptime_s)),
    ];
    html! {
        dl.tiles {
            @for (name, value) in figures {
                div { dt { (name) } dd.unknown[value == "unknown"] { (value) } }
            }
            div.wide { dt { "Model" } dd.words { (node.model) } }
        }
    }
}

fn cameras(view: &View) -> Markup {
    html! {
        section.cameras aria-labelledby="h-cameras" {
            div.title {
                h2 #h-cameras { "Cameras" }
                ul.legend aria-label="Stages of the latency, from reception to publication" {
                    @for (index, stage) in view.stages.iter().enumerate() {
                        li { (chip(index)) (stage) }
                    }
                }
            }
            div.grid.one[view.cameras.len() == 1] {
                @for camera in &view.cameras { (card(camera, view)) }
            }
        }
    }
}

fn chip(stage: usize) -> Markup {
    html! {
        svg.chip viewBox="0 0 10 10" aria-hidden="true" focusable="false" {
            rect class=(format!("s{stage}")) width="10" height="10" rx="2" {}
        }
    }
}

fn card(camera: &Camera, view: &View) -> Markup {
    let heading = format!("h-{}", camera.id);
    html! {
        article.card id=(format!("cam-{}", camera.id)) aria-labelledby=(heading) {
            header {
                h3 id=(heading) { (camera.id) }
                (pill(camera.mood, &state(&camera.state)))
            }
            (picture(camera))
            div.body {
                @if let Some(reason) = &camera.reason {
                    (parts::reason(reason, camera.next_retry_s))
                }
                (answers(camera))
                (way(&camera.latency, &view.stages))
                (losses(&camera.frames))
                (details(camera, view))
            }
        }
    }
}

fn picture(camera: &Camera) -> Markup {
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
                    (plot::overlay(look, &camera.prompts))
                } @else { p { "The picture comes with the next look" } }
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
fn alt(camera: &Camera, look: &Look) -> String {
    let count = |index| look.found.iter().filter(|f| f.prompt == index).count();
    let found: Vec<String> = camera
        .prompts
        .iter()
        .enumerate()
        .filter(|(index, _)| count(*index) > 0)
        .map(|(index, prompt)| format!("{} {}", count(index), prompt.id))
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

fn answers(camera: &Camera) -> Markup {
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
fn answer(index: usize, prompt: &Prompt, look: Option<&Look>) -> Markup {
    let said = prompt.answer.as_ref();
    let newest_ms = look.map_or(0, |look| look.age_ms);
    let is_old = |age_ms: u64| age_ms > newest_ms + SAME_LOOK_MS;
    html! {
        tr {
            th scope="row" {
                svg class=(format!("ink ink{}", index % INKS)) viewBox="0 0 10 10" aria-hidden="true" focusable="false" {
                    rect.line x="1.5" y="1.5" width="7" height="7" rx="1.5" {}
                }
                span.name { (prompt.id) }
                @if prompt.words != prompt.id && !prompt.words.is_empty() { span.words { (prompt.words) } }
            }
            @match said {
                None => { td.none { "–" span.unseen { " no answer yet" } } }
                Some(said) => {
                    td.some[said.count.is_some_and(|n| n > 0)].words[said.text.is_some()] {
                        @match (&said.text, said.count) {
                            (Some(text), _) => { (text) }
                            (None, count) => { (count.unwrap_or_default()) }
                        }
                        @if is_old(said.age_ms) { span.when { (ago(said.age_ms)) } }
                    }
                }
            }
        }
    }
}

fn way(latency: &Latency, stages: &[&str]) -> Markup {
    let Some((p50, p95)) = latency.p50_ms.zip(latency.p95_ms) else {
        return html! { p.quiet { "No message in the last minute" } };
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

/// What an operator wants to know of frames; the whole books are among the details.
fn losses(frames: &Frames) -> Markup {
    let lost = [
        ("replaced", frames.replaced),
        ("late", frames.late),
        ("failed", frames.failed),
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

fn details(camera: &Camera, view: &View) -> Markup {
    let stream = &camera.stream;
    let size = known(stream.size, |(w, h)| format!("{w} × {h}"));
    let lines = [
        ("Codec", known(stream.codec.clone(), |codec| codec)),
        ("Size", size),
        (
            "Rate",
            known(stream.fps, |fps| format!("{fps:.1} frames/s")),
        ),
        (
            "Transport",
            known(stream.transport.clone(), |transport| transport),
        ),
        ("Lost packets", number(stream.rtp_lost)),
        ("Broken frames", number(stream.frames_corrupt)),
        ("Reconnects, 1 h", stream.reconnects_1h.to_string()),
        ("Stalls, 1 h", stream.stalls_1h.to_string()),
        ("Clock", clock(&stream.clock)),
    ];
    html! {
        details {
            summary { "Details" span.unseen { " of " (camera.id) } span.for { (since(camera.since_ms, view.time_ms)) } }
            (facts(&lines))
            (books(&camera.frames))
            (stages(&camera.latency, &view.stages))
        }
    }
}

fn clock(clock: &Clock) -> String {
    let offset = known(clock.offset_ms, |ms| format!("{ms:+.0} ms"));
    let drift = known(clock.drift_ppm, |ppm| format!("{ppm:+.1} ppm"));
    match (clock.trusted, &clock.note) {
        (true, _) => format!("trusted, {offset}, drift {drift}"),
        (false, Some(note)) => format!("not trusted: {}", note.replace('_', " ")),
        (false, None) => "not known yet".to_owned(),
    }
}

fn books(frames: &Frames) -> Markup {
    let rows = [
        ("looked at", frames.looked),
        ("skipped: none was due", frames.skipped),
        ("gated: nothing moved", frames.gated),
        ("replaced by a newer one", frames.replaced),
        ("late: too old", frames.late),
        ("failed", frames.failed),
        ("waiting or under way", frames.open),
        ("decoded", frames.arrived),
    ];
    html! {
        table.sums {
            caption { "Frames since the start" }
            tbody { @for (name, n) in rows { tr { th scope="row" { (name) } td { (number(n)) } } } }
        }
    }
}

fn stages(latency: &Latency, names: &[&str]) -> Markup {
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

fn engines(view: &View) -> Markup {
    html! {
        section.panel aria-labelledby="h-engines" {
            h2 #h-engines { @if view.engines.len() == 1 { "Engine" } @else { "Engines" } }
            @for engine in &view.engines { (self::engine(engine)) }
        }
    }
}

fn engine(engine: &Engine) -> Markup {
    let (mood, word) = match engine.up {
        true => (Mood::Good, "runs"),
        false => (Mood::Bad, "ended"),
    };
    html! {
        div.engine {
            div.title { h3 { (engine.device) } (pill(mood, word)) }
            p.figures {
                span { b { (format!("{:.0} %", engine.busy_pct)) } " busy" }
                span { b { (engine.under_way) } " under way" }
                span { b { (engine.bars.len()) } " ended in " (millis(engine.span_ms as f64)) }
            }
            @if engine.bars.is_empty() { p.quiet { "No look in this time" } } @else { (plot::timeline(engine)) }
            p.span aria-hidden="true" { span { (ago(engine.span_ms)) } span { "now" } }
        }
    }
}

fn broker(broker: &Broker) -> Markup {
    let lost: u64 = broker.dropped.iter().map(|(_, n)| n).sum();
    let lines = [
        ("Address", broker.address.clone()),
        ("Topics", broker.topics.clone()),
        ("Sent", number(broker.sent)),
        ("Acknowledged in, 95 %", known(broker.puback_p95_ms, millis)),
        ("Spooled on disk", number(broker.spooled)),
        ("Dropped", number(lost)),
    ];
    html! {
        section.panel aria-labelledby="h-broker" {
            div.title { h2 #h-broker { "Broker" } (pill(broker.mood, &broker.state)) }
            @if let Some(reason) = &broker.reason {
                (parts::reason(reason, broker.next_retry_s))
            }
            (facts(&lines))
            @if lost > 0 {
                table.sums {
                    caption { "Messages dropped since the start" }
                    tbody {
                        @for (reason, n) in broker.dropped.iter().filter(|(_, n)| *n > 0) {
                            tr { th scope="row" { (reason) } td { (number(*n)) } }
                        }
                    }
                }
            }
        }
    }
}

fn config(config: &Config) -> Markup {
    let (mood, word) = match config.errors.is_empty() {
        true => (Mood::Good, "in use"),
        false => (Mood::Bad, "a newer one was refused"),
    };
    let lines = [("Hash", config.hash.clone()), ("Read", config.at.clone())];
    html! {
        section.panel aria-labelledby="h-config" {
            div.title { h2 #h-config { "Configuration" } (pill(mood, word)) }
            (facts(&lines))
            @if !config.errors.is_empty() {
                p { "The configuration above keeps running. What is wrong with the new one:" }
                ul.errors { @for error in &config.errors { li { (error) } } }
            }
        }
    }
}

fn foot(view: &View) -> Markup {
    let dot = PreEscaped(" &middot; ");
    html! {
        footer {
            p {
                "Spotter " (view.node.version) (dot)
                time datetime=(machine_time(view.time_ms)) { (clock_time(view.time_ms)) " UTC" } (dot)
                a href="/status.json" { "status.json" } (dot)
                a href="/metrics" { "metrics" } (dot)
                a href="/healthz" { "healthz" }
            }
        }
    }
}
