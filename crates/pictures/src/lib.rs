//! Picture files: the one way from a PNG or JPEG file to a [`spotter_core::Picture`], and the way back.
//!
//! ```text
//!  bytes ──▶ format ──▶ sides, area ──▶ decode_jpeg, decode_png ──▶ orientation ──▶ Picture
//! ```
//!
//! A file is hostile until it is decoded: its format is named, its size is bounded before anything of that size is allocated, a
//! picture that ends early is an error, and what EXIF says of its orientation is applied, so that boxes are in the picture that
//! viewers show.
//!
//! Alpha is dropped without blending, as the model's own client does; grey is replicated; colour profiles are ignored.
//!
//! Belongs here: files of users and of clients of the API. Does not belong here: frames of cameras (`spotter_cameras`), drawing.

mod decode_jpeg;
mod decode_png;
mod encode;
mod error;
mod format;
mod open;
mod orientation;
mod samples;

pub use decode_jpeg::jpeg_size;
pub use encode::{EncodeError, RgbPixels, jpeg_file, jpeg_photo, png_file};
pub use error::{PictureFileError, RATIO_MAX, SIDE_MAX};
pub use open::{FILE_PIXELS_MAX, decode, read};
