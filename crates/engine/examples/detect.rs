//! Finds objects in a picture with the embedded model: `cargo run -p spotter-engine --example detect -- street.jpg car`

use std::{env, error::Error, sync::Arc};

use spotter_config as config;
use spotter_core::{Look, SystemClock, Task};
use spotter_engine::service::Engine;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let (Some(path), Some(object)) = (args.next(), args.next()) else {
        return Err("usage: detect PICTURE OBJECT".into());
    };
    let picture = spotter_pictures::read(path.as_ref())?;
    let settings = config::ModelSettings::of(config::ModelSource::Embedded);
    let clock = Arc::new(SystemClock::new());
    let (mut engine, _) = Engine::open(&settings, Vec::new, clock)?;
    let look = engine.look(Look::still(picture, [Task::Detect { object }]))?;
    println!("{:#?}", look.into_answers()?[0].body);
    Ok(())
}
