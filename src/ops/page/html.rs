//! The page as HTML. Everything that is not written here is escaped by the template crate.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use spotter_mqtt::ConfigReport;

use super::{
    api,
    card::card,
    fleet,
    parts::{self, chip, facts, known, pill},
    plot,
    status::{
        BrokerStatus, CameraStatus, DaemonStatus, EngineState, EngineStatus, Mood, NodeStatus,
    },
    webhooks::{self, WebhookLine},
    words::{ago, clock_time, counted, duration, machine_time, millis, number},
};

pub fn page(status: &DaemonStatus) -> Markup {
    let troubled: Vec<&CameraStatus> = status
        .cameras
        .iter()
        .filter(|c| c.mood == Mood::Bad)
        .collect();
    let fleet_mood = status.fleet.as_ref().map(|fleet| fleet.mood);
    let is_bad = |mood| usize::from(mood == Some(Mood::Bad));
    let failing = failing_webhooks(status).count();
    let troubles = troubled.len() + is_bad(Some(status.broker.mood)) + is_bad(fleet_mood) + failing;
    let title = match troubles {
        0 => format!("{} · Spotter", status.node.name),
        n => format!("({n}) {} · Spotter", status.node.name),
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
                p #away .away role="alert" hidden { "No answer from Spotter. This page shows its last answer." }
                (top(status, &troubled))
                main { (cameras(status)) (engines(status)) (broker(&status.broker)) (config(&status.config))
                    @if !status.webhooks.is_empty() { (webhooks::panel(&status.webhooks)) }
                    @if let Some(api) = &status.api { (api::panel(api)) }
                    @if let Some(fleet) = &status.fleet { (fleet::panel(fleet)) }
                }
                (foot(status))
            }
        }
    }
}

fn failing_webhooks(status: &DaemonStatus) -> impl Iterator<Item = &WebhookLine> {
    let all = status.webhooks.iter();
    all.filter(|webhook| webhook.mood == Mood::Bad)
}

fn top(status: &DaemonStatus, troubled: &[&CameraStatus]) -> Markup {
    html! {
        header.top {
            h1 {
                span.brand { "Spotter" } " " span.node { (status.node.name) }
                @if let Some(mode) = &status.node.mode { " " span.quiet { "mode " (mode) } }
            }
            (verdict(status, troubled))
            (tiles(&status.node))
            noscript {
                p.note { "This page is a snapshot. " a href="/" { "Reload it" } " for newer pictures and figures." }
            }
        }
    }
}

/// The overall state in one sentence. Screen readers read it aloud when it changes, so it contains no running number.
fn verdict(status: &DaemonStatus, troubled: &[&CameraStatus]) -> Markup {
    let good = status
        .cameras
        .iter()
        .filter(|c| c.mood == Mood::Good)
        .count();
    let wanted = status
        .cameras
        .iter()
        .filter(|c| c.mood != Mood::Off)
        .count();
    let is_in = |state| status.engines.iter().any(|engine| engine.state == state);
    let bad = !troubled.is_empty() || is_in(EngineState::Ended) || status.broker.mood == Mood::Bad;
    let ready = !is_in(EngineState::Opens) && status.broker.mood == Mood::Good;
    let mood = match (bad, good == wanted && ready) {
        (true, _) => Mood::Bad,
        (_, true) => Mood::Good,
        (_, false) => Mood::Busy,
    };
    let streaming = match (good, wanted) {
        (_, 0) if status.cameras.is_empty() => "no cameras".to_owned(),
        (_, 0) => "all cameras off".to_owned(),
        (1, 1) => "the camera is streaming".to_owned(),
        (0, 1) => "the camera is not streaming".to_owned(),
        (good, wanted) if good == wanted => format!("all {wanted} cameras streaming"),
        (good, wanted) => format!("{good} of {} streaming", counted(wanted, "camera")),
    };
    let off = status.cameras.len() - wanted;
    let streaming = match (wanted, off) {
        (0, _) | (_, 0) => streaming,
        (_, off) => format!("{streaming}, {off} off"),
    };
    html! {
        p.verdict role="status" aria-live="polite" {
            (pill(mood, &streaming))
            " " (pill(status.broker.mood, &format!("broker {}", status.broker.state)))
            @for engine in status.engines.iter().filter(|engine| engine.state != EngineState::Runs) {
                " " (pill(mood_of(engine.state).0, &format!("engine {} {}", engine.device, mood_of(engine.state).1)))
            }
            @if let Some(fleet) = status.fleet.as_ref().filter(|fleet| fleet.mood == Mood::Bad) {
                " " (pill(Mood::Bad, &format!("fleet {} incomplete", fleet.name)))
            }
            @for webhook in failing_webhooks(status) {
                " " (pill(Mood::Bad, &format!("webhook {} {}", webhook.name, webhook.state)))
            }
            @if !status.config.errors.is_empty() { " " (pill(Mood::Bad, "new configuration rejected")) }
            @if !troubled.is_empty() {
                span.who {
                    "Check "
                    @for (index, camera) in troubled.iter().enumerate() {
                        @if index > 0 { ", " }
                        a href=(format!("#cam-{}", camera.id)) { (camera.id) }
                    }
                }
            }
        }
    }
}

fn tiles(node: &NodeStatus) -> Markup {
    let figures = [
        (
            "Looks per second",
            known(node.looks_per_s, |hz| format!("{hz:.1}")),
        ),
        ("Latency, 95 %", known(node.total_p95_ms, millis)),
        ("CPU", known(node.cpu_pct, |pct| format!("{pct:.0} %"))),
        ("Memory", known(node.rss_mib, |mib| format!("{mib:.0} MiB"))),
        ("Uptime", duration(node.uptime_s)),
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

fn cameras(status: &DaemonStatus) -> Markup {
    html! {
        section.cameras aria-labelledby="h-cameras" {
            div.title {
                h2 #h-cameras { "Cameras" }
                ul.legend aria-label="Stages of the latency, from reception to publication" {
                    @for (index, stage) in status.stages.iter().enumerate() {
                        li { (chip(index)) (stage) }
                    }
                }
            }
            div.grid.one[status.cameras.len() == 1] {
                @for camera in &status.cameras { (card(camera, status)) }
            }
        }
    }
}

fn engines(status: &DaemonStatus) -> Markup {
    html! {
        section.panel aria-labelledby="h-engines" {
            h2 #h-engines { @if status.engines.len() == 1 { "Engine" } @else { "Engines" } }
            @for engine in &status.engines { (self::engine(engine)) }
        }
    }
}

fn mood_of(state: EngineState) -> (Mood, &'static str) {
    match state {
        EngineState::Runs => (Mood::Good, "running"),
        EngineState::Opens => (Mood::Busy, "opening"),
        EngineState::Ended => (Mood::Bad, "failed"),
    }
}

fn engine(engine: &EngineStatus) -> Markup {
    let (mood, word) = mood_of(engine.state);
    html! {
        div.engine {
            div.title { h3 { (engine.device) } (pill(mood, word)) }
            p.figures {
                span { b { (format!("{:.0} %", engine.busy_pct)) } " busy" }
                span { b { (engine.under_way) } " in progress" }
                span { b { (engine.bars.len()) } " finished in " (millis(engine.span_ms as f64)) }
            }
            @if engine.bars.is_empty() {
                p.quiet { "No looks in this time" }
            } @else {
                (plot::timeline(engine))
                p.span aria-hidden="true" { span { (ago(engine.span_ms)) } span { "now" } }
            }
        }
    }
}

fn broker(broker: &BrokerStatus) -> Markup {
    let lost: u64 = broker.dropped.iter().map(|(_, n)| n).sum();
    let lines = [
        ("Address", broker.address.clone()),
        ("Topics", broker.topics.clone()),
        ("Sent", number(broker.sent)),
        ("Acknowledgement, 95 %", known(broker.puback_p95_ms, millis)),
        ("Events waiting for the broker", number(broker.spooled)),
        ("Dropped", number(lost)),
    ];
    html! {
        section.panel aria-labelledby="h-broker" {
            div.title { h2 #h-broker { "Broker" } (pill(broker.mood, &broker.state)) }
            @if let Some(reason) = &broker.reason {
                (parts::reason(broker.mood, reason, broker.next_retry_s))
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

fn config(config: &ConfigReport) -> Markup {
    let (mood, word) = match config.errors.is_empty() {
        true => (Mood::Good, "active"),
        false => (Mood::Bad, "new version rejected"),
    };
    let lines = [("Hash", config.hash.clone()), ("Loaded", config.at.clone())];
    html! {
        section.panel aria-labelledby="h-config" {
            div.title { h2 #h-config { "Configuration" } (pill(mood, word)) }
            (facts(&lines))
            @if !config.errors.is_empty() {
                p { "The previous configuration stays active. Errors in the new version:" }
                ul.errors { @for error in &config.errors { li { (error) } } }
            }
        }
    }
}

fn foot(status: &DaemonStatus) -> Markup {
    let dot = PreEscaped(" &middot; ");
    html! {
        footer {
            p {
                "Spotter " (status.node.version) (dot)
                time datetime=(machine_time(status.time_ms)) { (clock_time(status.time_ms)) " UTC" } (dot)
                a href="/status.json" { "status.json" } (dot)
                a href="/metrics" { "metrics" } (dot)
                a href="/healthz" { "healthz" }
            }
        }
    }
}
