//! Messages from the broker: commands, settings, owners. The first line of an input is the topic below the node's and the fleet's.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spotter_core::NodeId;
use spotter_mqtt::{Inbound, Topics, parse_inbound};

fuzz_target!(|message: &[u8]| {
    let mut lines = message.splitn(2, |byte| *byte == b'\n');
    let (Some(topic), Some(payload)) = (lines.next(), lines.next()) else {
        return;
    };
    let node = |name| NodeId::new(name).expect("an id");
    let topics = Topics::new("spotter", &node("edge1")).in_fleet(Some(&node("hall")));
    for name in ["edge1", "hall"] {
        let message = Inbound {
            topic: format!("spotter/{name}/{}", String::from_utf8_lossy(topic)),
            payload: payload.to_vec(),
            retained: false,
            reply_to: None,
        };
        _ = parse_inbound(&topics, Some("homeassistant/status"), &message);
    }
});
