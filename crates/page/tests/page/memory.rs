//! What BENCHMARKS.md says about the memory of a browser with many events.
//!
//! `cargo test -p spotter-page --test page memory -- --ignored --nocapture`

use std::{path::Path, time::Duration};

use spotter_core::{Event, EventStep, Location, NormBox, testing};
use spotter_history::{History, HistoryMessage, testing::stored_events};
use spotter_pictures::{RgbPixels, jpeg_file};

use super::{events::EventsView, site, *};

const EVENTS: u64 = 5000;
const CAMERAS: u64 = 25;
/// Events on a frame of a camera.
const OF_FRAME: u64 = 10;

/// Scrolls by less than a screen at a time, as a reader does, until there is nothing more; pictures in view are there before it goes on.
const SCROLL: &str = "(async () => { \
     const frame = () => new Promise(requestAnimationFrame); \
     const isInView = (image) => ((at) => at.bottom > 0 && at.top < innerHeight)(image.getBoundingClientRect()); \
     IS_PAINTED \
     const isThere = () => [...document.querySelectorAll('.event canvas')].filter(isInView).every(isPainted); \
     for (let still = 0; still < 20;) { \
       const before = scrollY; \
       scrollBy(0, WAY * innerHeight * 0.7); \
       do { await frame(); await frame(); } while (!isThere()); \
       still = scrollY === before && (WAY < 0 || !document.getElementById('more-events')) ? still + 1 : 0; \
     } \
     return [scrollY, document.querySelectorAll('.event').length] \
   })()";

pub const IS_PAINTED: &str = "const probe = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true }); \
     const isPainted = (canvas) => { \
       probe.clearRect(0, 0, 1, 1); \
       probe.drawImage(canvas, 0, 0, 1, 1); \
       return probe.getImageData(0, 0, 1, 1).data[3] > 0; \
     };";

#[test]
#[ignore = "a measurement"]
fn memory_of_5000_scrolled_events() {
    let folder = tempfile::tempdir().expect("a folder");
    let history = stored_events(folder.path(), &[("gate", 1)]);
    store(&history, folder.path());
    let mut view = EventsView::of(Some(history), folder, (1440, 900));
    view.browser.until("document.querySelector('.event')");
    print(&mut view, "first page");
    for (name, way) in [("scrolled to the end", "1"), ("scrolled back", "-1")] {
        let script = SCROLL.replace("WAY", way).replace("IS_PAINTED", IS_PAINTED);
        let seen = view.browser.says(&script);
        print(&mut view, &format!("{name}, at pixel and with rows {seen}"));
    }
}

fn print(view: &mut EventsView, when: &str) {
    let memory = view.browser.memory_mb();
    let of = |kind: &str| memory.get(kind).copied().unwrap_or_default();
    println!(
        "{when}: private {} MB, PSS {} MB, RSS {} MB",
        of("Private_Clean") + of("Private_Dirty"),
        of("Pss"),
        of("Rss"),
    );
}

/// Events at places of their own, each with a picture.
fn store(history: &History, folder: &Path) {
    for batch in 0..EVENTS / CAMERAS / OF_FRAME {
        let places = OF_FRAME * batch..OF_FRAME * (batch + 1);
        let events =
            places.flat_map(|place| (0..CAMERAS).map(move |camera| event_at(camera, place)));
        let events: Vec<_> = events.collect();
        for event in &events {
            let frame = testing::frame_at(&event.camera, Duration::ZERO);
            history.event(&HistoryMessage {
                event,
                words: "a red car",
                series: "5e71e5",
                frame: Some(&frame),
                objects: &[],
                is_near: false,
            });
        }
        // The encoder's queue has no more room.
        for event in &events {
            while !matches!(history.reader().picture(event.track.as_str()), Ok(Some(_))) {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
    photograph(folder);
}

/// Replaces the stored pictures of a history by real ones.
pub fn photograph(folder: &Path) {
    let (width, height) = site::SIZE;
    let rgb = &site::street();
    let (width, height) = (width as usize, height as usize);
    let jpeg = jpeg_file(RgbPixels { rgb, width, height }, 75).expect("a JPEG");
    for file in fs::read_dir(folder.join("history")).expect("pictures") {
        fs::write(file.expect("a picture").path(), &jpeg).expect("written");
    }
}

fn event_at(camera: u64, place: u64) -> Event {
    let (x, y) = (place % 20, place / 20);
    let (x, y) = (0.025 + 0.05 * x as f64, 0.05 + 0.1 * y as f64);
    let location = NormBox::from_centre(x, y, 0.04, 0.09);
    Event {
        location: Location::Box(location),
        ..testing::event(&format!("camera{camera}"), place, EventStep::New)
    }
}
