//! One test for each row of the table of mistakes in configuration.md.

use super::*;

#[test]
fn valid_file_has_no_problem() {
    assert_eq!(said(&gate("")), [""; 0]);
}

#[test]
fn unknown_key() {
    let line = "5:1 camera.gate.promts: unknown key; did you mean \"prompt\"?";
    assert_eq!(said(&gate("promts = 1")), [line]);
    let alone = gate("").replace("gate.prompt.person", "gate.promts.person");
    let line = "6:14 camera.gate.promts: unknown key; did you mean \"prompt\"?";
    // The missing prompt is explained by it.
    assert_eq!(said(&alone), [line]);
    let line = "9:1 http.colour: unknown key; valid keys: listen, names";
    assert_eq!(said(&person("[http]\ncolour = 1")), [line]);
}

#[test]
fn wrong_type_or_unit() {
    let line = "9:9 defaults.stall: \"5\" has no unit; write \"5s\", \"500ms\" or \"1m\"";
    assert_eq!(said(&person("[defaults]\nstall = \"5\"")), [line]);
    let line = "5:9 camera.gate.stall: 5 has no unit; write \"5s\", \"500ms\" or \"1m\"";
    assert_eq!(said(&gate("stall = 5")), [line]);
    let line = "5:8 camera.gate.rate: needs a number, found a value of type string";
    assert_eq!(said(&gate("rate = \"2\"")), [line]);
    let line = "5:9 camera.gate.width: needs a whole number, found a value of type float";
    assert_eq!(said(&gate("width = 640.5")), [line]);
    let line =
        "5:13 camera.gate.transport: \"tpc\" is not one of tcp, udp, auto; did you mean \"tcp\"?";
    assert_eq!(said(&gate("transport = \"tpc\"")), [line]);
    let line = "1:8 http: needs a table, found a value of type integer";
    assert_eq!(said(&format!("http = 3\n{}", gate(""))), [line]);
}

#[test]
fn out_of_range() {
    for (extra, said_of_it) in [
        ("rate = 60", "5:8 camera.gate.rate: 60 is above 30"),
        ("rate = 0", "5:8 camera.gate.rate: 0 is below 0.01"),
        ("rate = nan", "5:8 camera.gate.rate: nan is not a number"),
        ("width = -1", "5:9 camera.gate.width: -1 is below 64"),
        ("stall = \"90m\"", "5:9 camera.gate.stall: 90m is above 10m"),
        (
            "motion.threshold = 2.5",
            "5:20 camera.gate.motion.threshold: 2.5 is above 1",
        ),
    ] {
        assert_eq!(said(&gate(extra)), [said_of_it]);
    }
    let line = "5:9 camera.gate.width: 99999999999999999999 is above 7680";
    assert_eq!(said(&gate("width = 99999999999999999999")), [line]);
}

#[test]
fn names_of_the_page_have_neither_scheme_nor_port() {
    for wrong in [
        "https://spotter.example",
        "spotter.example:9464",
        "*.example",
        ".example",
        "",
    ] {
        let lines = said(&person(&format!("[http]\nnames = [\"{wrong}\"]")));
        assert!(
            lines.len() == 1 && lines[0].contains("is not a host name"),
            "{wrong}: {lines:?}"
        );
    }
    assert_eq!(
        said(&person("[http]\nnames = [\"nvr\", \"spotter.example\"]")),
        [""; 0]
    );
}

#[test]
fn bad_urls() {
    let with = |url: &str| said(&gate("").replace("rtsp://192.0.2.1/0", url));
    let line =
        "4:7 camera.gate.url: contains a user name or password; use \"user\" and \"password\"";
    assert_eq!(with("rtsp://admin:canary@192.0.2.1/0"), [line]);
    let line = "4:7 camera.gate.url: scheme \"http\" is not supported; use one of rtsp, rtsps, file, usb, test";
    assert_eq!(with("http://192.0.2.1/0"), [line]);
}

#[test]
fn duplicate_keys_and_tables_are_reported() {
    let twice = person("[camera.gate]\nurl = \"rtsp://192.0.2.2/0\"\nrate = 60");
    let expected = [
        "8:9 gate: is defined twice; rename or remove one of them",
        "9:1 url: is defined twice; rename or remove one of them",
        "10:8 camera.gate.rate: 60 is above 30",
    ];
    assert_eq!(said(&twice), expected);
    let twice = gate("rate = 1\nrate = 2");
    let line = "6:1 rate: is defined twice; rename or remove one of them";
    assert_eq!(said(&twice), [line]);
    let twice = person("[camera.gate.prompt.person]\ndetect = \"man\"");
    let lines = ["8:21 person", "9:1 detect"];
    let lines =
        lines.map(|place| format!("{place}: is defined twice; rename or remove one of them"));
    assert_eq!(said(&twice), lines);
}

#[test]
fn bad_ids() {
    let file = gate("").replace("camera.gate", "camera.\"Front Door\"");
    let line = "3:9 camera.\"Front Door\": ids use a-z 0-9 _ -; suggestion \"front_door\"";
    assert_eq!(said(&file), [line]);
    let long = "x".repeat(33);
    let file = gate("").replace("prompt.person", &format!("prompt.{long}"));
    assert!(said(&file)[0].contains("33 characters, limit 32; suggestion"));
}

#[test]
fn zones() {
    let range = "9:11 KEY: point 3 is [1.2, 0.5]; values are 0 to 1";
    let few = "9:11 KEY: needs at least 3 points, has 2";
    let crossed = "9:11 KEY: edges cross: the ones that start at points 1 and 3; give the corners in order around the area";
    let three = "9:28 KEY: a point is [x, y], this one has 3 numbers";
    for (polygon, line) in [
        ("[[0, 0], [1, 0], [1.2, 0.5]]", range),
        ("[[0, 0], [1, 0]]", few),
        ("[[0, 0], [1, 1], [1, 0], [0, 1]]", crossed),
        ("[[0, 0], [1, 0], [1, 1, 1]]", three),
    ] {
        let file = person(&format!("[camera.gate.zone.drive]\npolygon = {polygon}"));
        let line = line.replace("KEY", "camera.gate.zone.drive.polygon");
        assert_eq!(said(&file), [line]);
    }
    let unknown =
        "zones = [\"driv\"]\n[camera.gate.zone.drive]\npolygon = [[0, 0], [1, 0], [1, 1]]";
    let line = "8:10 camera.gate.prompt.person.zones: \"driv\" is not a zone of this camera; did you mean \"drive\"?";
    assert_eq!(said(&person(unknown)), [line]);
}

#[test]
fn removed_tile_difference_names_the_key_that_replaces_it() {
    let removed = said(&person("[model]\ntile_difference = 0"));
    let expected = "9:1 model.tile_difference: warning: removed; it is ignored and will be an error; write reuse = \"exact\" for what 0 did";
    assert_eq!(removed, [expected]);
}

#[test]
fn prompts() {
    let prompt = |lines: &str| said(&gate("").replace("detect = \"person\"", lines));
    let line = "6:1 camera.gate.prompt.person: give exactly one of detect, point, query";
    assert_eq!(prompt(""), [line]);
    assert_eq!(prompt("detect = \"a\"\npoint = \"b\""), [line]);
    let line = "7:1 camera.gate.prompt.person.detct: unknown key; did you mean \"detect\"?";
    assert_eq!(prompt("detct = \"a\""), [line]);
    for (words, text) in [
        (" ".to_owned(), "empty"),
        ("x".repeat(240), "240 characters, limit 200"),
        ("a\\tb".to_owned(), "contains a control character"),
    ] {
        let all = prompt(&format!("detect = \"{words}\""));
        let start = format!("7:10 camera.gate.prompt.person.detect: {text}");
        assert!(all.len() == 1 && all[0].starts_with(&start), "{all:?}");
    }
    let longest = format!("detect = \"{}\"", "ä".repeat(200));
    assert_eq!(prompt(&longest), [""; 0]);
    let line = "8:12 camera.gate.prompt.person.min_area: has no effect on an answer without boxes; use it with detect";
    assert_eq!(prompt("query = \"Open?\"\nmin_area = 0.1"), [line]);
}

#[test]
fn frames_are_on_the_host_or_the_gpu() {
    let model = |lines: &str| said(&person(&format!("[model]\n{lines}")));
    assert_eq!(model("frames = \"gpu\""), [""; 0]);
    let unknown = model("frames = \"cuda\"");
    assert!(unknown.len() == 1 && unknown[0].contains("model.frames"));
    let place = |text: &str| loaded(text).config.model.frames;
    assert_eq!(place(&person("")), FramePlace::Host);
    let gpu = person("[model]\nframes = \"gpu\"");
    assert_eq!(place(&gpu), FramePlace::Gpu);
}

#[test]
fn prompt_rate_above_camera_rate() {
    let file = person("rate = 10").replace("[camera.gate]\n", "[camera.gate]\nrate = 2\n");
    let line = "9:8 camera.gate.prompt.person.rate: 10 is above the camera's 2; the camera rate is the ceiling";
    assert_eq!(said(&file), [line]);
}

#[test]
fn load_and_key_frames_are_judged_at_run_time() {
    let other = "[camera.a]\nurl = \"test://\"\n[camera.a.prompt.x]\nquery = \"x\"\n";
    let cameras = loaded(&(gate("rate = 18") + other)).config.cameras;
    assert_eq!(advice::asked_prompt_frames_hz(&cameras), 19.0);
    let line = "2 cameras ask for 19 prompt-frames/s; this GPU measured 12/s at the last start; frames will be dropped";
    let load = advice::impossible_load(&cameras, "GPU", 12.0);
    assert_eq!(load.as_deref(), Some(line));
    assert_eq!(advice::impossible_load(&cameras, "GPU", 19.0), None);
    let line = "rate 0.5 needs a key frame every 2 s, the camera sends one every 10 s";
    let rare = advice::key_frames_too_rare(spotter_core::testing::rate(0.5), 10.0);
    assert_eq!(rare.as_deref(), Some(line));
    assert_eq!(
        advice::key_frames_too_rare(spotter_core::testing::rate(0.5), 2.04),
        None
    );
}

#[test]
fn broker_tls() {
    let mqtt = |lines: &str| said(&gate("").replace("url = \"mqtt://broker\"", lines));
    let line = "3:6 mqtt.ca: file not found: /nowhere/ca.pem";
    assert_eq!(mqtt("url = \"mqtts://broker\"\nca = \"ca.pem\""), [line]);
    let ca = line;
    let line = "2:7 mqtt.url: mqtt:// together with ca; did you mean mqtts://?";
    assert_eq!(mqtt("url = \"mqtt://broker\"\nca = \"ca.pem\""), [line, ca]);
    let line = "1:1 mqtt: no broker; add url = \"mqtt://HOST\"";
    assert_eq!(mqtt(""), [line]);
    let line = "3:8 mqtt.base: \"a/b\" is not one topic level; use letters, digits, _ and -";
    assert_eq!(mqtt("url = \"mqtt://broker\"\nbase = \"a/b\""), [line]);
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
    let line = "4:7 camera.gate.url: rtsp:// together with tls; did you mean rtsps://?";
    let plain = said(&gate("tls = { insecure = true }"));
    assert!(plain.contains(&line.to_owned()), "{plain:?}");
}

#[test]
fn time_zone() {
    let line = "5:12 camera.gate.schedule: unknown zone \"CEST\"; use names such as Europe/Berlin";
    let file = gate("schedule = \"Mon-Fri 18:00-06:00 CEST\"");
    assert_eq!(said(&file), [line]);
}

#[test]
fn each_missing_required_key_is_reported() {
    let expected = [
        "1:1: no broker; add [mqtt] with url = \"mqtt://HOST\"",
        "1:1: no camera; add [camera.NAME] with a url and a prompt",
    ];
    assert_eq!(said(""), expected);
    let line = "3:1 camera.gate: no url; add url = \"rtsp://HOST/PATH\"";
    let file = gate("").replace("url = \"rtsp://192.0.2.1/0\"", "");
    assert_eq!(said(&file), [line]);
    let line = "1:10 schema: 2 is above 1";
    assert_eq!(said(&format!("schema = 2\n{}", gate(""))), [line]);
}

#[test]
fn gpus_are_listed_once_each() {
    let model = |lines: &str| said(&person(&format!("[model]\n{lines}")));
    assert_eq!(model("gpus = [0, 1]"), [""; 0]);
    let line =
        "10:8 model.gpus: empty; name at least one GPU, as in [0], or write device = \"cpu\"";
    assert_eq!(model("device = \"cuda\"\ngpus = []"), [line]);
    let line = "9:15 model.gpus: GPU 0 is listed twice; each GPU runs one engine";
    assert_eq!(model("gpus = [0, 1, 0]"), [line]);
}

#[test]
fn model_memory_is_a_size_in_its_range() {
    let loaded = loaded(&person("[model]\nmemory = \"5.5GiB\""));
    assert_eq!(loaded.config.model.memory, Some(11 << 29));
    let model = |lines: &str| said(&person(&format!("[model]\n{lines}")));
    let line = "9:10 model.memory: \"6GB\" is not a size; write \"6GiB\" or \"5500MiB\"";
    assert_eq!(model("memory = \"6GB\""), [line]);
    let line = "9:10 model.memory: 512MiB is below 1GiB";
    assert_eq!(model("memory = \"512MiB\""), [line]);
}

#[test]
fn syntax_errors_have_places_too() {
    let all = said("[mqtt\nurl = \"mqtt://b\"\nx = = 3\n");
    assert!(all.len() >= 2, "{all:?}");
    assert!(all[0].starts_with("1:") && all[0].contains(": not TOML: "));
    assert!(all.iter().any(|line| line.starts_with("3:")), "{all:?}");
    let bytes = b"x = 1\ny = \"\xff\"";
    let problems = read(bytes, ReadPurpose::Run, &environment(&[])).unwrap_err();
    let first = problems.iter().next().unwrap().to_string();
    let line = "site.toml:2:6: not TOML: contains bytes that are not UTF-8";
    assert_eq!(first, line);
}

#[test]
fn all_problems_of_a_file_are_reported_in_file_order() {
    let file = "[camera.gate]\nurl = \"http://x\"\nrate = 60\nstall = \"5\"\n[camera.gate.prompt.a]\n\
                [mqtt]\nurl = \"mqtt://b\"\ncolour = 1\n";
    let problems = read(file.as_bytes(), ReadPurpose::Run, &environment(&[])).unwrap_err();
    let lines: Vec<_> = problems.iter().map(|p| p.place.unwrap().line).collect();
    assert_eq!(lines, [2, 3, 4, 5, 8]);
    let end = "5 problems; `spotter check site.toml` tests the file and starts nothing";
    assert!(problems.to_string().ends_with(end));
}

#[test]
fn a_file_that_is_not_there() {
    let problems = load(Path::new("/nowhere/a.toml"), &environment(&[])).unwrap_err();
    let start = "/nowhere/a.toml: cannot be read: No such file or directory";
    assert!(problems.to_string().starts_with(start), "{problems}");
}
