//! What Spotter publishes for Home Assistant when it starts with one configuration after the other. Prints a line of JSON for
//! each file, in the order of publication: the topics to clear, then the records.
//!
//! `cargo run --example records -- CONFIG...`

use std::{collections::BTreeSet, path::Path};

use serde_json::{Value, json};

use spotter_config::{self as config, Environment};
use spotter_mqtt::{Announcer, Topics, Update};

fn main() -> anyhow::Result<()> {
    let mut announcer = Announcer::new(None, "test");
    for path in std::env::args().skip(1) {
        let loaded = config::check(Path::new(&path), &Environment::process());
        let loaded = loaded.map_err(|problems| anyhow::anyhow!("{problems}"))?;
        let config = &loaded.config;
        let topics = Topics::new(&config.mqtt.base, &config.node.name);
        let (mut gone, mut records) = (Vec::new(), Vec::new());
        for update in announcer.announce(&topics, config, &config.cameras, true) {
            match update {
                Update::Discovery(record) => {
                    let payload: Value = serde_json::from_slice(&record.payload())?;
                    records.push(json!([record.topic, payload]));
                }
                Update::Clear(cleared) => gone.push(cleared.topic),
                _ => {}
            }
        }
        announcer.still_there(&BTreeSet::new());
        println!("{}", json!({"gone": gone, "records": records}));
    }
    Ok(())
}
