//! Between ingest, which has whole pictures, and the sampler, which knows who waits for one.

use spotter_core::Picture;

/// Takes pictures as the camera sent them, before they are scaled to what the looks need. In the source's thread; must not block.
pub trait WholePictures: Send + Sync {
    fn is_wanted(&self) -> bool;

    fn take_whole(&self, picture: Picture);
}
