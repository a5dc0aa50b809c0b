//! Heartbeats of other nodes of a fleet, and what a node decides and shows of them.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use spotter_core::{Mono, NodeId};
use spotter_fleet::{
    entries::{Heartbeat, HeartbeatEntry},
    state::FleetState,
};

fuzz_target!(|json: &[u8]| {
    let Ok(heartbeat) = serde_json::from_slice::<Heartbeat>(json) else {
        return;
    };
    let node = |name| NodeId::new(name).expect("an id");
    let me = node("edge1");
    for mut state in [FleetState::member(me), FleetState::default()] {
        state.connected(Mono::default());
        state.current();
        for name in ["edge1", "edge2"] {
            let entry = HeartbeatEntry {
                node: node(name),
                heartbeat: heartbeat.clone(),
                revision: 1,
            };
            state.heartbeat(entry, Mono::default());
        }
        let later = Mono::default().after(Duration::from_secs(60));
        _ = state.decide(later);
        _ = state.view(later);
    }
});
