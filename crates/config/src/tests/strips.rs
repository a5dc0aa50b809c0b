//! `frames` and `over` of a prompt.

use super::*;
use spotter_core::StripShape;

fn prompt(lines: &str) -> String {
    format!(
        "[mqtt]\nurl = \"mqtt://broker\"\n[camera.gate]\nurl = \"rtsp://192.0.2.1/0\"\n[camera.gate.prompt.a]\n{lines}\n"
    )
}

fn strip(lines: &str) -> Option<StripShape> {
    let config = loaded(&prompt(lines)).config;
    config.cameras[0].prompts[0].strip
}

#[test]
fn strip_is_4_or_9_frames_over_4_seconds() {
    let query = "query = \"Is a parcel left behind?\"\n";
    let nine = StripShape {
        frames: 9,
        over: Duration::from_secs(4),
    };
    assert_eq!(strip(query), None);
    assert_eq!(strip(&format!("{query}frames = 1")), None);
    assert_eq!(strip(&format!("{query}frames = 9")), Some(nine));
    let of_describe =
        "detect = \"person\"\ndescribe = \"What happens?\"\nframes = 4\nover = \"1.5s\"";
    let four = StripShape {
        frames: 4,
        over: Duration::from_millis(1500),
    };
    assert_eq!(strip(of_describe), Some(four));
}

#[test]
fn strips_that_cannot_be_made_have_a_remedy() {
    let over = Duration::from_secs(4);
    let needs = "9 frames over 4 s need a frame every 1 s, the camera sends one every 3 s; set a longer over or fewer frames";
    let gaps = "the camera's frames have gaps or change their size too often for 9 frames over 4 s";
    let with_key_frames = format!("{needs}, or decode = \"all\"");
    for (seconds, decode, expected) in [
        (3, Decode::All, needs),
        (3, Decode::KeyFrames, &with_key_frames),
        (1, Decode::All, gaps),
    ] {
        let shape = StripShape { frames: 9, over };
        let said = advice::no_strip(shape, Duration::from_secs(seconds), decode);
        assert_eq!(said, expected);
    }
}
