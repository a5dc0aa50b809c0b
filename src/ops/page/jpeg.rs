//! Pictures for the page. One is encoded when somebody asks for it, once, and one at a time.

use std::{collections::HashMap, sync::Arc};

use axum::body::Bytes;
use image::codecs::jpeg::JpegEncoder;
use tokio::{sync::Mutex, task::spawn_blocking};

use super::Still;

/// Faces are recognised and 640 pixels take about 40 kB.
const QUALITY: u8 = 75;

/// The last picture of each camera, encoded.
#[derive(Default)]
pub struct Jpegs {
    /// Held while one is encoded: more people do not mean more work.
    kept: Mutex<HashMap<String, (u64, Bytes)>>,
}

impl Jpegs {
    /// The JPEG of `still`, the newest there is of the camera; `None` when it cannot be encoded, which is a mistake of
    /// this program.
    pub async fn of(&self, camera: &str, still: Arc<Still>) -> Option<Bytes> {
        let mut kept = self.kept.lock().await;
        if let Some((frame, jpeg)) = kept.get(camera)
            && *frame == still.frame
        {
            return Some(jpeg.clone());
        }
        let frame = still.frame;
        let encoded = spawn_blocking(move || encode(&still)).await.ok()?;
        let jpeg = encoded
            .inspect_err(|error| tracing::warn!(%error, camera, "a picture for the page"))
            .ok()?;
        kept.insert(camera.to_owned(), (frame, jpeg.clone()));
        Some(jpeg)
    }
}

fn encode(still: &Still) -> Result<Bytes, image::ImageError> {
    let mut jpeg = Vec::new();
    let colour = image::ExtendedColorType::Rgb8;
    JpegEncoder::new_with_quality(&mut jpeg, QUALITY).encode(
        &still.rgb,
        still.width,
        still.height,
        colour,
    )?;
    Ok(jpeg.into())
}
