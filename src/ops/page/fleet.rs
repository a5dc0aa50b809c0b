//! The fleet on the page: its boxes with their load, which cameras are where, and what is missing.

use maud::{Markup, html};
use serde::Serialize;

use super::{
    parts::{facts, pill, reason},
    status::Mood,
    words::{counted, number},
};

/// The fleet of this node, as the node sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FleetStatus {
    pub name: String,
    pub mood: Mood,
    /// What is wrong with the store and what to do; `None`: nothing.
    pub reason: Option<String>,
    pub nodes: Vec<FleetNodeStatus>,
    /// Looks of cost 1 a second that cameras ask for and no node can do.
    pub missing_hz: f64,
    /// Cameras of the list that no living node has.
    pub unowned: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FleetNodeStatus {
    pub name: String,
    pub mood: Mood,
    pub state: &'static str,
    pub version: String,
    pub labels: Vec<String>,
    /// Looks of cost 1 a second.
    pub capacity_hz: f64,
    /// What its cameras ask for by their configuration, in percent of what it can do.
    pub load_pct: f64,
    pub cameras: Vec<String>,
    /// Cameras of the list that it cannot watch.
    pub refused: usize,
    pub list_revision: Option<u64>,
}

pub fn panel(fleet: &FleetStatus) -> Markup {
    let cameras = fleet.nodes.iter().map(|node| node.cameras.len());
    let lines = [
        ("Boxes", number(fleet.nodes.len() as u64)),
        ("Cameras watched", number(cameras.sum::<usize>() as u64)),
        ("Cameras without a box", number(fleet.unowned.len() as u64)),
        (
            "Missing looks per second",
            format!("{:.1}", fleet.missing_hz),
        ),
    ];
    let word = match fleet.mood {
        Mood::Good => "complete",
        Mood::Busy => "joining",
        _ => "incomplete",
    };
    html! {
        section.panel aria-labelledby="h-fleet" {
            div.title { h2 #h-fleet { "Fleet " (fleet.name) } (pill(fleet.mood, word)) }
            @if let Some(text) = &fleet.reason { (reason(Mood::Bad, text, None)) }
            (facts(&lines))
            @if !fleet.unowned.is_empty() {
                p { "No box has: " (fleet.unowned.join(", ")) "." }
            }
            @for node in &fleet.nodes { (self::node(node)) }
        }
    }
}

fn node(node: &FleetNodeStatus) -> Markup {
    html! {
        div.engine {
            div.title { h3 { (node.name) } (pill(node.mood, node.state)) }
            p.figures {
                span { b { (format!("{:.0} %", node.load_pct)) } " of " (format!("{:.1}", node.capacity_hz)) " looks/s" }
                @if node.refused > 0 { span { b { (node.refused) } " not possible here" } }
                @if !node.labels.is_empty() { span { (node.labels.join(", ")) } }
            }
            @if node.cameras.is_empty() {
                p.quiet { "No cameras" }
            } @else {
                details {
                    summary { (counted(node.cameras.len(), "camera")) }
                    p { (node.cameras.join(", ")) }
                }
            }
        }
    }
}
