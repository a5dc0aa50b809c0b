//! The drawn street: a camera whose every picture comes with its truth.
//!
//! A [`Scene`] says what is where, in plain data. It comes from [`random`] (any place, for training and evaluation) or
//! from a [`Street`] (a live street: what is there is a pure function of seed and UTC time, so whoever knows when a
//! frame was taken knows what it shows). [`draw`] turns it into pixels, [`truth()`] into boxes, and [`words`] and
//! [`questions`] turn the truth into captions and questions with their answers. [`records`] is the stream that the
//! trainer of the embedded model reads, [`rtsp`] the camera, [`tape`] what many cameras show, [`timecode`] the time burnt
//! into their pictures, [`h264`] what a camera does to them, and [`broker`] a mosquitto where there is none.
//!
//! Belongs here: the street, and what else a demonstration needs on one machine. Does not belong here: anything that
//! looks for things in pictures.

pub mod broker;
mod calibration;
mod chance;
mod class;
pub mod h264;
pub mod live;
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
pub mod timecode;
pub mod truth;
pub mod words;

pub use calibration::calibration_pictures;
pub use paint::{draw, draw_i420};
pub use random::random;
pub use scene::Scene;
pub use street::Street;
pub use truth::{Truth, truth};
