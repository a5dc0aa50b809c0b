//! Steps as the cameras will ask for them, before the first frame arrives: a device that records the launches of a step
//! (`cuda::graphs`) has recorded those of the usual steps then.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{
    scheduler::{backend::GraphUse, request::Options},
    service::{Engine, EngineError},
};
use spotter_core::{Clock, Look, Picture, Task};

/// A warm-up that takes longer ends early; what is missing is recorded while the engine is idle.
const LIMIT: Duration = Duration::from_secs(5);

/// A look that a camera will ask for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedLook {
    /// Pixels across, of a picture of 16 to 9.
    pub width: u32,
    pub tasks: Vec<Task>,
}

impl ExpectedLook {
    /// Grey: it only has to have the right size.
    fn look(&self) -> Option<Look> {
        let (width, height) = (self.width as usize, (self.width as usize * 9 / 16).max(1));
        let picture = Picture::from_rgb(width, height, vec![128; width * height * 3]).ok()?;
        Some(Look::still(picture, self.tasks.iter().cloned()))
    }
}

/// Runs each look alone and with others, as many as a step has room for, and prepares the shapes of the steps. Blocks for
/// some seconds at most. Does nothing on a device without shapes. An error means that the device does not work.
pub fn warm_up(
    engine: &mut Engine,
    looks: &[ExpectedLook],
    clock: &dyn Clock,
) -> Result<GraphUse, String> {
    let began = clock.now();
    let looks: Vec<Look> = looks.iter().filter_map(ExpectedLook::look).collect();
    // The look that was measured has run, so a device with shapes has queued some.
    let has_shapes = engine.worker().graph_use().queued > 0;
    if has_shapes {
        'rounds: for count in 1..=engine.worker().limits().images {
            // Steps of both slots are recorded: behind a look that runs, the others begin in the second one.
            for (look, is_behind) in looks.iter().flat_map(|look| [(look, false), (look, true)]) {
                if clock.now().since(began) >= LIMIT {
                    break 'rounds;
                }
                run(engine, look, count, is_behind)?;
                while engine.prepare_shape().map_err(|e| e.to_string())? {}
            }
        }
    }
    let counts = engine.worker().graph_use();
    if has_shapes {
        // What grey pictures cost says little about those of cameras.
        engine.worker().restart(Options::default());
        let (recorded, took) = (counts.recorded, clock.now().since(began));
        tracing::info!(recorded, ?took, "recorded the launches of usual steps");
    }
    Ok(counts)
}

/// `count` looks at once, alone or behind one that runs already.
fn run(engine: &mut Engine, look: &Look, count: usize, is_behind: bool) -> Result<(), String> {
    let fatal = |error: EngineError| match error {
        EngineError::Device(error) => Some(error.to_string()),
        // A look that cannot be asked is reported when a camera asks for it.
        _ => None,
    };
    let submit = |engine: &mut Engine| match engine.submit_unremembered(look.clone()) {
        Ok(_) => Ok(()),
        Err(error) => fatal(error).map_or(Ok(()), Err),
    };
    let turn = |engine: &mut Engine| engine.turn().map(drop).map_err(|error| error.to_string());
    if is_behind {
        submit(engine)?;
        turn(engine)?;
    }
    for _ in 0..count {
        submit(engine)?;
    }
    while !engine.is_idle() {
        turn(engine)?;
    }
    Ok(())
}
