//! What the page shows of the shapes on a camera.

use spotter_config::{shapes_of, shapes_toml};
use spotter_control::{FleetOwner, ShapesReport};
use spotter_page::{ShapesAnswer, ShapesOwner, ShapesPrompt};

/// `size`: of the stream.
pub fn shapes_answer(report: ShapesReport, size: Option<(u32, u32)>) -> ShapesAnswer {
    let [file, now] = [&report.file, &report.now].map(shapes_of);
    let prompts = report.now.prompts.iter().map(|prompt| ShapesPrompt {
        id: prompt.id.clone(),
        kind: report.now.model_prompt(prompt).kind(),
        words: prompt.task.text().to_owned(),
        rate_hz: prompt.rate.hz(),
    });
    ShapesAnswer {
        camera: report.now.id.clone(),
        version: report.version(),
        file_mask: file.mask(),
        size,
        drawn_size: report.drawn_size,
        prompts: prompts.collect(),
        toml: shapes_toml(&report.now, &report.file),
        owner: report
            .owner
            .map(|FleetOwner { node: name, url }| ShapesOwner { name, url }),
        file,
        now,
    }
}
