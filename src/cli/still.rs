//! One picture out of a picture or video file.

use std::path::Path;

use anyhow::Context as _;

use spotter_cameras::ingest;
use spotter_core::{Picture, SystemClock};
use spotter_engine::model;

/// Reads a PNG or JPEG picture, else takes the first frame of a video. Blocks.
pub fn load(path: &Path) -> anyhow::Result<Picture> {
    let name = path.display();
    std::fs::metadata(path).with_context(|| format!("reading {name}"))?;
    let guessed = image::ImageReader::open(path).and_then(image::ImageReader::with_guessed_format);
    let reader = guessed.with_context(|| format!("reading {name}"))?;
    if reader.format().is_none() {
        let clock = SystemClock::new();
        let failed = |failure: ingest::Failure| anyhow::anyhow!(failure.text);
        let frames = ingest::still_frames(path, 1, &clock)
            .map_err(failed)
            .with_context(|| format!("{name} is neither PNG, JPEG nor a video"))?;
        let first = frames.into_iter().next();
        let first = first.with_context(|| format!("{name} holds no picture"))?;
        return Ok(first.picture);
    }
    let picture = reader
        .decode()
        .with_context(|| format!("{name} is a damaged picture"))?;
    model::picture_from_image(picture).with_context(|| format!("{name} cannot be looked at"))
}
