//! The page as HTML. Everything that is not written here is escaped by the template crate.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{
    card::card,
    parts::{self, chip, facts, known, pill},
    plot,
    view::{Broker, Camera, Config, Engine, EngineState, Mood, Node, View},
    words::{ago, clock_time, counted, duration, machine_time, millis, number},
};

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
    let is_in = |state| view.engines.iter().any(|engine| engine.state == state);
    let bad = !troubled.is_empty() || is_in(EngineState::Ended) || view.broker.mood == Mood::Bad;
    let ready = !is_in(EngineState::Opens) && view.broker.mood == Mood::Good;
    let mood = match (bad, good == wanted && ready) {
        (true, _) => Mood::Bad,
        (_, true) => Mood::Good,
        (_, false) => Mood::Busy,
    };
    let deliver = match (good, wanted) {
        (_, 0) => "all cameras off".to_owned(),
        (1, 1) => "the camera delivers".to_owned(),
        (0, 1) => "the camera does not deliver".to_owned(),
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
            @for engine in view.engines.iter().filter(|engine| engine.state != EngineState::Runs) {
                " " (pill(mood_of(engine.state).0, &format!("engine {} {}", engine.device, mood_of(engine.state).1)))
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

fn engines(view: &View) -> Markup {
    html! {
        section.panel aria-labelledby="h-engines" {
            h2 #h-engines { @if view.engines.len() == 1 { "Engine" } @else { "Engines" } }
            @for engine in &view.engines { (self::engine(engine)) }
        }
    }
}

/// How good that is, and its word.
fn mood_of(state: EngineState) -> (Mood, &'static str) {
    match state {
        EngineState::Runs => (Mood::Good, "runs"),
        EngineState::Opens => (Mood::Busy, "opens"),
        EngineState::Ended => (Mood::Bad, "ended"),
    }
}

fn engine(engine: &Engine) -> Markup {
    let (mood, word) = mood_of(engine.state);
    html! {
        div.engine {
            div.title { h3 { (engine.device) } (pill(mood, word)) }
            p.figures {
                span { b { (format!("{:.0} %", engine.busy_pct)) } " busy" }
                span { b { (engine.under_way) } " under way" }
                span { b { (engine.bars.len()) } " ended in " (millis(engine.span_ms as f64)) }
            }
            @if engine.bars.is_empty() {
                p.quiet { "No look in this time" }
            } @else {
                (plot::timeline(engine))
                p.span aria-hidden="true" { span { (ago(engine.span_ms)) } span { "now" } }
            }
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
