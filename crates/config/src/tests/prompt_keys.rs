//! The keys of a prompt from a command, compared with the same keys in the file.

use super::*;
use spotter_core::PromptId;

/// A camera with a zone, a line and values for its prompts, and a prompt `hat` with `keys`.
fn file(keys: &str) -> String {
    let camera = "crops = 5\nevents.confirm = \"3 of 4\"\nrate = 2\n\
        [camera.gate.zone.drive]\npolygon = [[0.2, 0.4], [0.6, 0.4], [0.6, 0.9]]\n\
        [camera.gate.line.door]\npoints = [[0.3, 0.5], [0.5, 0.5]]\n\
        [camera.gate.prompt.other]\ndetect = \"person\"\nlines = [\"door\"]\nevents.confirm = \"1 of 1\"\n";
    gate(camera) + "[camera.gate.prompt.hat]\n" + keys
}

fn of_command(keys: &str) -> Result<PromptConfig, String> {
    let camera = &loaded(&file("detect = \"hat\"")).config.cameras[0];
    let keys: toml::Table = toml::from_str(keys).unwrap();
    prompt_of_keys(&keys, &PromptId::new("hat").unwrap(), camera, &[])
}

#[test]
fn prompt_of_a_command_is_that_of_the_file() {
    for keys in [
        "detect = \" hat \"",
        "query = \"Is it \\\"red\\\"?\"\nchoices = [\"yes\", \"no\"]\ncrops = \"auto\"",
        "caption = \"long\"\nrate = 0.1\nstream = true",
        "segment = \"hat\"\nmax_segments = 1\nmin_area = 0.1\nzones = [\"drive\"]",
        "query = \"Red?\"\nreasoning = true\nrefs = [[0.5, 1], [0, 0.25, 0.5, 1], \"drive\"]\nstream = true",
        "detect = \"hat\"\nregion = \"drive\"\nzones = [\"drive\"]\ncrops = 1\nmin_area = 0.1",
        "detect = \"hat\"\nregion = [0, 0.25, 0.7, 1]\nlines = [\"door\"]\ndwell = \"30s\"",
        "detect = \"hat\"\ndwell = { drive = \"1m\" }\ndescribe = \"Whose?\"\nframes = 9\nover = \"2s\"",
    ] {
        let config = loaded(&file(keys)).config;
        let prompts = config.cameras[0].prompts.iter();
        let expected = prompts.clone().find(|prompt| prompt.id.as_str() == "hat");
        assert_eq!(of_command(keys).as_ref(), Ok(expected.unwrap()), "{keys}");
    }
}

#[test]
fn wrong_prompt_of_a_command_has_the_files_messages() {
    for keys in [
        "",
        "detect = \"hat\"\npoint = \"hat\"",
        "detect = \"hat\"\nrate = 3",
        "detect = \"hat\"\nminscore = 0.3",
        "detect = \"hat\"\nzones = [\"yard\"]",
        "detect = \"hat\"\ndwell.yard = \"30s\"",
        "frames = 5\nover = \"4s\"\nquery = \"Red?\"",
        "crops = 13\ndetect = \"hat\"\nevents.confirm = \"4 of 3\"",
    ] {
        let lines = said(&file(keys)).into_iter();
        let lines = lines.map(|line| {
            let (_, wrong) = line.split_once(" camera.gate.prompt.hat").unwrap();
            format!("prompt{wrong}")
        });
        let expected: Vec<String> = lines.collect();
        assert_ne!(expected, [""; 0], "{keys}");
        assert_eq!(of_command(keys), Err(expected.join("; ")), "{keys}");
    }
}

#[test]
fn question_of_a_command_is_one_text_or_one_object() {
    let camera = &loaded(&file("detect = \"hat\"")).config.cameras[0];
    let exactly_one = "ask: give exactly one of text, segment";
    for (keys, expected) in [
        ("", exactly_one),
        ("text = \"Red?\"\nsegment = \"hat\"", exactly_one),
        (
            "text = \" \"",
            "ask.text: empty; describe in plain words what to look for",
        ),
        (
            "segment = \"hat\"\nreasoning = true",
            "ask.reasoning: has no effect with segment; use it with text",
        ),
    ] {
        let asked = question_of_keys(&toml::from_str(keys).unwrap(), camera, &[]);
        assert_eq!(asked, Err(expected.to_owned()), "{keys}");
    }
}

#[test]
fn many_mistakes_of_a_command_are_counted() {
    let keys = format!("detect = \"hat\"\nzones = [{}]", "\"yard\", ".repeat(100));
    let wrong = of_command(&keys).unwrap_err();
    let shown = wrong.matches("\"yard\" is not a zone").count();
    assert_eq!(shown, 8, "{wrong}");
    assert!(wrong.ends_with("; and 92 more"), "{wrong}");
}
