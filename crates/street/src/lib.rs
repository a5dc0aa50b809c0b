//! The drawn street: a camera with the truth of every picture.
//!
//! A [`Scene`] describes what is where, in plain data. It is made by [`random()`] (any place, for training and evaluation) or by
//! a [`Street`] (a live street: its content is a pure function of seed and UTC time, so the capture time of a frame gives its
//! truth). [`draw`] turns it into pixels, [`truth()`] into boxes, and [`words`] and
//! [`questions`] turn the truth into captions and questions with their answers. [`records`] is the stream that the
//! trainer of the embedded model reads, [`rtsp`] the camera, [`tape`] a recording for many cameras, [`timecode`] the time burnt
//! into pictures, [`h264`] their encoding, [`score`] compares answers with the truth, and [`broker`] starts a mosquitto if no
//! broker runs.

pub mod broker;
mod calibration;
mod chance;
mod class;
pub mod h264;
mod i420;
mod paint;
pub mod questions;
mod random;
pub mod records;
mod routes;
pub mod rtsp;
pub mod scene;
pub mod score;
mod street;
pub mod tape;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod timecode;
pub mod truth;
pub mod words;

pub use calibration::calibration_pictures;
pub use i420::i420_picture;
pub use paint::{draw, draw_i420};
pub use random::random;
pub use scene::Scene;
pub use street::Street;
pub use truth::{Truth, truth};
