//! What is reported of files with mistakes: `mistakes.txt`.

use super::*;

/// The file of a block: `lines` at the place that `kind` names.
fn file(kind: &str, lines: &str) -> String {
    let fleet = "[mqtt]\nurl = \"mqtt://broker\"\n[node]\nname = \"edge1\"\n[fleet]\n";
    match kind {
        "whole" => lines.to_owned(),
        "gate" => gate(lines),
        "person" => person(lines),
        "prompt" => gate("").replace("detect = \"person\"", lines),
        "mqtt" => gate("").replace("url = \"mqtt://broker\"", lines),
        "url" => gate("").replace("rtsp://192.0.2.1/0", lines),
        "line" => person(&format!(
            "lines = [\"door\"]\n[camera.gate.line.door]\n{lines}"
        )),
        "trigger" => person(&format!("[camera.gate.trigger.bell]\n{lines}\n[api]")),
        "fleet" => format!("{fleet}{lines}"),
        "list" | "local list" | "list in networks" | "apply" => {
            format!(
                "[camera.gate]\nurl = \"rtsp://192.0.2.1/0\"\nprompt.car.detect = \"car\"\n{lines}"
            )
        }
        other => panic!("{other}"),
    }
}

/// What a box with these rights, or the operator who applies it, reads in a fleet's list.
fn of_list(kind: &str, text: &str, environment: &Environment) -> Vec<String> {
    let mut rights = ListRights::default();
    match kind {
        "local list" => {
            rights.allow_local = true;
            rights.camera_credentials.insert("mqtt_password".to_owned());
        }
        "list in networks" => rights.networks.push("192.0.2.0/24".parse().unwrap()),
        _ => {}
    }
    let reader = ListReader {
        adapters: &[],
        environment,
        has_api: true,
        rights: &rights,
    };
    let list = match kind {
        "apply" => check_camera_list("site.toml", text, environment),
        _ => camera_list("site.toml", text, &reader),
    };
    let SharedCameraList {
        refused, warnings, ..
    } = match list {
        Ok(list) => list,
        Err(problems) => {
            let whole = problems
                .iter()
                .map(|problem| format!("{problem} (the whole list)"));
            return whole.collect();
        }
    };
    assert!(!refused.keys().any(|camera| camera.as_str() == "gate"));
    let warnings = warnings.iter().map(ConfigProblem::to_string);
    refused.into_values().chain(warnings).collect()
}

#[test]
fn each_mistake_has_its_messages() {
    let environment = environment(&[("T", "canary"), ("S", "canary é")]);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/mistakes.txt");
    let expected = fs::read_to_string(&path).unwrap();
    let mut blocks = expected.split("### ");
    let mut found = blocks.next().unwrap().to_owned();
    for block in blocks {
        let (heading, rest) = block.split_once('\n').unwrap();
        let is_of_file = |line: &&str| !line.starts_with("> ");
        let lines: Vec<&str> = rest.trim_end().lines().filter(is_of_file).collect();
        let (kind, _) = heading.split_once(": ").unwrap();
        let text = file(kind, &lines.join("\n"));
        found += &["### ", heading, "\n"].concat();
        lines.iter().for_each(|line| found += &format!("{line}\n"));
        let lines = match kind.contains("list") || kind == "apply" {
            true => of_list(kind, &text, &environment),
            false => {
                let problems = problems(&text, &environment);
                assert!(!format!("{problems:?}").contains("canary"), "{heading}");
                problems.iter().map(ToString::to_string).collect()
            }
        };
        for line in lines {
            assert!(!line.contains("canary"), "{heading}: {line}");
            found += &format!("> {}\n", line.strip_prefix("site.toml:").unwrap());
        }
        found.push('\n');
    }
    let found = found.trim_end().to_owned() + "\n";
    if std::env::var_os("SPOTTER_WRITE_DOCS").is_some() {
        fs::write(&path, &found).unwrap();
    }
    let differs = |(found, expected): &(&str, &str)| found != expected;
    let difference = found.lines().zip(expected.lines()).find(differs);
    assert!(found == expected, "found and expected: {difference:#?}");
}

#[test]
fn prompt_has_200_characters_at_most() {
    let prompt = |count| file("prompt", &format!("detect = \"{}\"", "ä".repeat(count)));
    assert_eq!(said(&prompt(200)), [""; 0]);
    let line = "7:10 camera.gate.prompt.person.detect: 201 characters, limit 200";
    assert_eq!(said(&prompt(201)), [line]);
}

#[test]
fn insecure_works_but_warns_at_each_start() {
    let insecure = "mqtts://broker\"\ntls = { insecure = true }";
    let file = gate("tls = { insecure = true }").replace("rtsp://", "rtsps://");
    let file = file.replace("mqtt://broker\"", insecure);
    let loaded = loaded(&file);
    let keys: Vec<_> = loaded.warnings.iter().map(|w| w.key.as_str()).collect();
    assert_eq!(keys, ["mqtt.tls", "camera.gate.tls"]);
    let features = ["insecure_tls:mqtt", "insecure_tls:cam/gate"];
    assert_eq!(advice::insecure_features(&loaded.config), features);
}

#[test]
fn rare_key_frames_are_warned_of() {
    let rare =
        |distance_s| advice::key_frames_too_rare(spotter_core::testing::rate(0.5), distance_s);
    let line = "rate 0.5 needs a key frame every 2 s, the camera sends one every 10 s";
    assert_eq!((rare(10.0).as_deref(), rare(2.04)), (Some(line), None));
}

#[test]
fn file_that_is_not_read_says_why() {
    let problems = load(Path::new("/nowhere/a.toml"), &environment(&[])).unwrap_err();
    let start = "/nowhere/a.toml: cannot be read: No such file or directory";
    assert!(problems.to_string().starts_with(start), "{problems}");
    let bytes = b"x = 1\ny = \"\xff\"";
    let problems = read(bytes, ReadPurpose::Run, &environment(&[])).unwrap_err();
    let expected = "site.toml:2:6: not TOML: contains bytes that are not UTF-8\n\
                    1 problem; `spotter check site.toml` tests the file and starts nothing";
    assert_eq!(problems.to_string(), expected);
}
