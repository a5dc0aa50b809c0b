//! A site that was recorded, which a scripted daemon shows again.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use serde_json::{Value, json};
use spotter_core::WallTime;
use spotter_page::{StatusRequest, StatusSource, Thumbnail};
use spotter_pictures::{RgbPixels, jpeg_file};
use spotter_street::{Street, draw};

/// The street in clear daylight, with people, cars and a dog.
const STREET: (u64, i64) = (7, 1_780_318_245_000);
pub const SIZE: (u32, u32) = (640, 360);

/// A `/status.json`: the first of the cameras streams, the second refuses the login, the third has no look yet, the fourth stalled, the
/// fifth is off, the last one streams. The boxes are the people and cars of the street.
const SITE: &str = include_str!("site.json");

/// The site with so many of its cameras.
pub fn site(cameras: usize) -> Value {
    let mut site: Value = serde_json::from_str(SITE).expect("JSON");
    site["cameras"]
        .as_array_mut()
        .expect("cameras")
        .truncate(cameras);
    site
}

/// A site whose cameras all stream, with so many of them.
pub fn streaming_site(cameras: usize) -> Value {
    let mut site = site(1);
    let camera = site["cameras"][0].clone();
    let all = (0..cameras).map(|number| {
        let mut camera = camera.clone();
        camera["id"] = format!("camera{number}").into();
        camera
    });
    site["cameras"] = all.collect();
    site
}

/// As long as a name can be.
pub const LONG_NAME: &str = "entrance-of-the-north-east-wing0";

/// Shows the same site, each time with a look later.
pub struct Painted {
    site: Value,
    pub troubles: Vec<String>,
    thumbnail: Arc<Thumbnail>,
    looks: AtomicU64,
}

/// The bytes of the street's pixels.
pub fn street() -> Vec<u8> {
    let street = Street::new(STREET.0).at(WallTime::from_unix_millis(STREET.1));
    draw(&street, SIZE.0, SIZE.1)
}

impl Painted {
    pub fn new(site: Value) -> Self {
        let pixels = RgbPixels {
            rgb: &street(),
            width: SIZE.0 as usize,
            height: SIZE.1 as usize,
        };
        let jpeg = jpeg_file(pixels, 75).expect("a JPEG").into();
        Self {
            site,
            troubles: Vec::new(),
            thumbnail: Arc::new(Thumbnail { frame: 1, jpeg }),
            looks: AtomicU64::new(0),
        }
    }
}

impl StatusSource for Painted {
    fn status_json(&self, request: StatusRequest) -> String {
        let look_now = self.looks.fetch_add(1, Ordering::Relaxed) + 1;
        let mut site = self.site.clone();
        for camera in site["cameras"].as_array_mut().expect("cameras") {
            if !request.visitor.sees_pictures() && camera["look"].is_object() {
                camera["look"]["pictured"] = false.into();
            }
            if camera["mood"] == "good" {
                camera["look"]["frame"] = look_now.into();
            }
        }
        site["visitor"] = json!(request.visitor);
        site["has_login"] = json!(request.has_login);
        site.to_string()
    }

    fn metrics(&self) -> String {
        "spotter_engine_up 1\n".to_owned()
    }

    fn troubles(&self) -> Vec<String> {
        self.troubles.clone()
    }

    fn thumbnail(&self, camera: &str, _: Option<u64>) -> Option<Arc<Thumbnail>> {
        let mut cameras = self.site["cameras"].as_array().into_iter().flatten();
        cameras
            .any(|known| known["id"] == camera)
            .then(|| Arc::clone(&self.thumbnail))
    }
}
