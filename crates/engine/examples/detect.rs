//! Finds objects in a picture with the embedded model: `cargo run -p spotter-engine --example detect -- street.jpg car`

use std::{env, error::Error, sync::Arc};

use spotter_core::{Look, Outcome, SystemClock, Task, config};
use spotter_engine::{model::picture_from_image, service::Engine};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args().skip(1);
    let (Some(path), Some(object)) = (args.next(), args.next()) else {
        return Err("usage: detect PICTURE OBJECT".into());
    };
    let picture = picture_from_image(image::open(path)?)?;
    let settings = config::ModelSettings::of(config::ModelSource::Embedded);
    let clock = Arc::new(SystemClock::new());
    let (mut engine, _) = Engine::open(&settings, Vec::new, clock)?;
    match engine.look(Look::still(picture, [Task::Detect { object }])?)? {
        Outcome::Answered { answers, .. } => println!("{:#?}", answers[0].body),
        Outcome::Late(_) => return Err("the answer took longer than the look allows".into()),
        Outcome::Failed(_, why) => return Err(why.into()),
    }
    Ok(())
}
