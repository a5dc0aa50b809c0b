//! What Spotter publishes for Home Assistant when it starts with one configuration after the other. Prints a line of JSON for
//! each file, in the order of publication: the topics to clear, then the records.
//!
//! `cargo run --example records -- CONFIG...`

use std::{collections::BTreeSet, path::Path};

use serde_json::{Value, json};

use spotter_config::{self as config, Environment};
use spotter_mqtt::{
    Topics, discovery,
    retained::{self, RetainedList},
};

fn main() -> anyhow::Result<()> {
    let mut kept = RetainedList::new(None, "test");
    for path in std::env::args().skip(1) {
        let loaded = config::check(Path::new(&path), &Environment::process());
        let loaded = loaded.map_err(|problems| anyhow::anyhow!("{problems}"))?;
        let config = &loaded.config;
        let topics = Topics::new(&config.mqtt.base, &config.node.name);
        let records = discovery::records(config, &topics, true);
        let listed = retained::topics(config, &topics, &config.cameras, &records);
        let gone = kept.want(listed).into_iter();
        let gone: Vec<String> = gone.map(|cleared| cleared.topic).collect();
        kept.still_there(&BTreeSet::new());
        let records = records.into_iter().map(|record| {
            let record = kept.complete(record);
            let payload: Value = serde_json::from_slice(&record.payload())?;
            Ok(json!([record.topic, payload]))
        });
        let records = records.collect::<anyhow::Result<Vec<_>>>()?;
        println!("{}", json!({"gone": gone, "records": records}));
    }
    Ok(())
}
