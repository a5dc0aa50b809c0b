use super::*;
use spotter_core::{NormBox, PromptRegion, RegionBox};

/// A file with a zone `drive` and a prompt with `extra` lines, which begin at line 10.
fn with_zone(extra: &str) -> String {
    gate("").replace(
        "[camera.gate.prompt.person]\n",
        "[camera.gate.zone.drive]\npolygon = [[0.2, 0.4], [0.6, 0.4], [0.6, 0.9]]\n[camera.gate.prompt.person]\n",
    ) + extra
}

fn region(extra: &str) -> PromptRegion {
    loaded(&with_zone(extra)).config.cameras[0].prompts[0].region
}

#[test]
fn region_is_a_box_a_zone_or_motion() {
    let fixed =
        |x0, y0, x1, y1| PromptRegion::Fixed(RegionBox::new(NormBox::from_corners(x0, y0, x1, y1)));
    assert_eq!(region(""), PromptRegion::Whole);
    assert_eq!(
        region("region = [0, 0.25, 0.5, 1]"),
        fixed(0.0, 0.25, 0.5, 1.0)
    );
    assert_eq!(region("region = \"drive\""), fixed(0.16, 0.35, 0.64, 0.95));
    assert_eq!(region("region = \"motion\""), PromptRegion::Motion);
}

#[test]
fn crops_of_a_prompt_replace_those_of_its_camera() {
    let crops = |camera: &str, prompt: &str| {
        let text = gate(camera) + prompt;
        loaded(&text).config.cameras[0].prompts[0].crops_max
    };
    assert_eq!(crops("", ""), None);
    assert_eq!(crops("crops = 5", ""), Some(5));
    assert_eq!(crops("crops = 5", "crops = 1"), Some(1));
    assert_eq!(crops("crops = 5", "crops = \"auto\""), None);
    let line = "5:9 camera.gate.crops: 13 is not within 1 to 12";
    assert_eq!(said(&gate("crops = 13")), [line]);
    let line = "5:9 camera.gate.crops: \"all\" is not one of auto";
    assert_eq!(said(&gate("crops = \"all\"")), [line]);
}

#[test]
fn frames_keep_their_width_when_a_prompt_has_a_region() {
    let camera = |extra: &str| loaded(&with_zone(extra)).config.cameras[0].clone();
    let whole = camera("");
    assert_eq!(whole.frame_width(), Some(1280));
    assert_eq!(whole.view_of(&whole.prompts[0]).width_max, Some(1280));
    let part = camera("region = \"drive\"");
    assert_eq!(part.frame_width(), None);
    assert_eq!(part.view_of(&part.prompts[0]).width_max, None);
}
