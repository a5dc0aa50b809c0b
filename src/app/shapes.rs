//! What the page shows of the shapes on a camera.

use spotter_config::{shapes_of, shapes_toml};
use spotter_control::{FleetOwner, ShapesReport};
use spotter_page::{ShapesAnswer, ShapesOwner, ShapesPrompt};

/// Share by which the aspect ratio of the stream may differ from that of the drawing.
const ASPECT_TOLERANCE: f64 = 0.02;

/// Positions are shares, so that shapes which were drawn on a picture of another form are in other places of the scene now.
pub fn has_other_aspect(drawn: [u32; 2], now: (u32, u32)) -> bool {
    let [drawn, now] =
        [drawn, now.into()].map(|[width, height]| f64::from(width) / f64::from(height));
    (now / drawn - 1.0).abs() > ASPECT_TOLERANCE
}

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
        has_other_aspect: (report.drawn_size.zip(size))
            .is_some_and(|(drawn, size)| has_other_aspect(drawn, size)),
        prompts: prompts.collect(),
        toml: shapes_toml(&report.now, &report.file),
        owner: report
            .owner
            .map(|FleetOwner { node: name, url }| ShapesOwner { name, url }),
        file,
        now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_aspect_is_no_other_resolution() {
        let cases = [
            ([1920, 1080], (640, 360), false),
            // Rows of a multiple of 16.
            ([1920, 1088], (1920, 1080), false),
            ([1920, 1080], (640, 480), true),
            ([1920, 1080], (1080, 1920), true),
            ([0, 0], (640, 480), false),
        ];
        for (drawn, size, expected) in cases {
            assert_eq!(
                has_other_aspect(drawn, size),
                expected,
                "{drawn:?} {size:?}"
            );
        }
    }
}
