//! The commands as a person at a terminal meets them: exit codes, help, answers about pictures, and what they say when
//! they are given something else.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use crate::support::{
    CONFIG, DONE, Ended, FAILED, PATIENCE, Program, broker::broker, checkout, command, file,
    free_address, script, spotter,
};
use gstreamer::prelude::*;
use serde_json::{Value, json};

use spotter_core::{NormBox, NormPoint, Picture, SystemClock, WallTime};
use spotter_pictures::{RgbPixels, jpeg_photo, png_file};
use spotter_scripted::{
    onvif::{OnvifLoginScheme, OnvifLoginScript, OnvifScript, ScriptedOnvifCamera},
    rtsp::{
        script::CameraScript,
        server::Server,
        tape::{CameraTape, Recording, TapeCodec},
    },
};
use spotter_state::StateStore;
use spotter_street::{
    Scene, Street, Truth, draw,
    scene::{Class, Colour},
    truth::SeenObject,
};

#[test]
fn state_backup_copies_the_database_and_replaces_no_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let (state, target) = (
        directory.path().join("state"),
        directory.path().join("copy.db"),
    );
    let backup = || {
        let [state, target] = [&state, &target].map(|path| path.to_str().expect("UTF-8"));
        spotter(["state", "backup", target, "--state-dir", state])
    };
    backup().fails_with(FAILED, &["no database of a daemon here"]);
    let running = StateStore::open(&state, Arc::new(SystemClock::new())).expect("a database");
    backup().expect(DONE);
    assert!(
        fs::read(&target)
            .expect("a copy")
            .starts_with(b"SQLite format 3")
    );
    backup().fails_with(FAILED, &["a backup replaces no file"]);
    drop(running);
}

// Faults: C53.
/// GStreamer would connect to the camera through the proxy, also on loopback.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probe_logs_in_to_the_broker_and_uses_no_proxy() {
    let tape = Arc::new(CameraTape::record(&Recording::of(TapeCodec::H264)));
    let camera = Server::start(move |_| CameraScript::good(&tape)).await;
    let proxy = TcpListener::bind("127.0.0.1:0").expect("a port");
    let proxy_url = format!("http://{}", proxy.local_addr().expect("an address"));
    let directory = tempfile::tempdir().expect("a directory");
    let camera_url = camera.url();
    let probe = async |broker: SocketAddr| {
        let text = format!(
            "[camera.gate]\nurl = \"{camera_url}\"\n[camera.gate.prompt.person]\ndetect = \"person\"\n[mqtt]\nurl = \"mqtt://{broker}\"\n"
        );
        let config = file(directory.path(), "spotter.toml", text);
        let config = config.to_str().expect("UTF-8");
        let mut probe = command(["check", "--probe", config]);
        for name in ["http_proxy", "https_proxy", "all_proxy", "ALL_PROXY"] {
            probe.env(name, &proxy_url);
        }
        probe
            .env_remove("GIO_USE_PROXY_RESOLVER")
            .env_remove("no_proxy");
        let probed = tokio::task::spawn_blocking(move || Program::from_command(&mut probe).end());
        probed.await.expect("the probe")
    };
    let [open, closed, unsure] = [(); 3].map(|()| free_address());
    let _open = broker(open, "allow_anonymous true");
    let _closed = broker(closed, "allow_anonymous false");
    let _unsure = broker(unsure, "allow_anonymous true\nmax_qos 0");
    let probed = probe(open).await.expect(DONE);
    assert!(probed.stdout.contains("h264 320x192"), "{probed:#?}");
    let connected = format!("broker {open}: connected");
    assert!(probed.stdout.contains(&connected), "{probed:#?}");
    let refused = probe(closed).await.expect(FAILED);
    let reason = format!("broker {closed}: ");
    assert!(refused.stdout.contains(&reason), "{refused:#?}");
    assert!(refused.stdout.contains("login"), "{refused:#?}");
    let advised = probe(unsure).await.expect(FAILED);
    assert!(advised.stdout.contains("mqtt.max_qos = 0"), "{advised:#?}");
    proxy.set_nonblocking(true).expect("a socket");
    assert!(proxy.accept().is_err(), "nothing uses the proxy");
}

#[test]
fn wrong_usage_fails_with_a_hint() {
    for arguments in [&["bogus"][..], &["run"], &["detect"], &[]] {
        let ended = spotter(arguments).expect(FAILED);
        assert!(ended.stderr.contains("Usage: spotter"), "{ended:#?}");
    }
}

#[test]
fn segment_names_a_model_that_draws_outlines() {
    let picture = checkout("tests/golden/md2-micro/images/small_50x40.png");
    let model = checkout("tests/golden/md2-micro");
    let paths = [&picture, &model].map(|path| path.to_str().expect("a path in UTF-8"));
    let [picture, model] = paths;
    let segment =
        |place: &str| spotter(["segment", picture, "cat", "--model", model, "--box", place]);
    let hint = ["Moondream 2 draws no outlines", "spotter model list"];
    segment("0.1,0.1,0.6,0.9").fails_with(FAILED, &hint);
    for place in ["0.1,0.1", "0.5,0.1,0.4,0.9", "0,0,1,2"] {
        let ended = segment(place).expect(FAILED);
        assert!(ended.stderr.contains("--box"), "{ended:#?}");
    }
}

#[test]
fn missing_gpu_ends_the_start_with_one_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let text = "mqtt.url = \"mqtt://127.0.0.1:1\"\nhttp.listen = \"off\"\n\
                model = { device = \"cuda\", gpus = [63] }\n\
                [camera.gate]\nurl = \"test://\"\nprompt.person.detect = \"person\"\n";
    let path = file(directory.path(), "site.toml", text);
    let path = path.to_str().expect("a path in UTF-8");
    let ended = spotter(["run", "--config", path]);
    ended.fails_with(FAILED, &["spotter: model: GPU 63 of model.gpus: "]);
}

#[test]
fn all_mistakes_of_a_configuration_are_reported_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let text = "[mqtt]\nurl = \"mqtt://127.0.0.1\"\n\
                [camera.gate]\nurl = \"rtsp://viewer:canary@192.0.2.1/x\"\nrate = 60\npromts = 1\n\
                [camera.gate.prompt.person]\ndetect = \"\"\n";
    let path = file(directory.path(), "site.toml", text);
    let path = path.to_str().expect("a path in UTF-8");
    for arguments in [
        &["check", path][..],
        &["run", "--config", path],
        &["demo", "--config", path],
    ] {
        let ended = spotter(arguments).expect(CONFIG);
        for mistake in [
            "site.toml:4:7 camera.gate.url: contains a user name or password",
            "site.toml:5:8 camera.gate.rate: 60 is not within 0.01 to 30",
            "site.toml:6:1 camera.gate.promts: unknown key; did you mean \"prompt\"?",
            "site.toml:8:10 camera.gate.prompt.person.detect: ",
        ] {
            assert!(ended.stderr.contains(mistake), "{mistake}\n{ended:#?}");
        }
        assert!(!ended.stderr.contains("canary"), "{ended:#?}");
        assert_eq!(ended.stdout, "", "{ended:#?}");
    }
    let missing = spotter(["check", "/nowhere/site.toml"]).expect(CONFIG);
    assert!(
        missing.stderr.contains("/nowhere/site.toml"),
        "{missing:#?}"
    );
}

#[test]
fn discover_lists_streams_and_writes_a_valid_configuration() {
    let directory = tempfile::tempdir().expect("a directory");
    let camera = ScriptedOnvifCamera::start(OnvifScript {
        login: Some(OnvifLoginScript {
            scheme: OnvifLoginScheme::Sha256(100),
            user: "viewer",
            password: "canary",
        }),
        ..OnvifScript::default()
    });
    let address = camera.address();
    let site = directory.path().join("site.toml");
    let site = site.to_str().expect("a path in UTF-8");
    let discover = || {
        let login = ["--user=viewer", "--json", "--write", site];
        let arguments = ["discover", "--address", &address];
        let mut discover = command(arguments.iter().chain(&login));
        Program::from_command(discover.env("ONVIF_PASSWORD", "canary")).end()
    };
    let written = discover().expect(DONE);
    let json: Value = serde_json::from_str(&written.stdout).expect("JSON");
    let stream = &json["cameras"][0]["streams"][1];
    assert_eq!(stream["url"], "rtsp://127.0.0.1:554/sub?a=1&b=2", "{json}");
    let text = fs::read_to_string(site).expect("a file");
    assert!(
        !text.contains("canary") && text.contains("sub?a=1"),
        "{text}"
    );
    let checked = spotter(["check", site]).expect(DONE);
    assert!(
        checked.stdout.contains("1 camera with 1 prompt"),
        "{checked:#?}"
    );
    discover().fails_with(FAILED, &["site.toml exists and is not overwritten"]);
    // Options of earlier versions.
    let password = file(directory.path(), "password", "canary\n");
    let arguments = [
        "discover",
        "--address",
        &address,
        "--user=viewer",
        "--password-file",
    ];
    let mut former = command(arguments);
    former
        .arg(password)
        .args(["--interface=127.0.0.1", "--ask=127.0.0.1:3702"]);
    let former = Program::from_command(&mut former).end().expect(DONE);
    assert!(former.stdout.contains("3 streams"), "{former:#?}");
    for replacement in [
        "--interface was removed and will be an error; the search uses all interfaces",
        "use --address http://127.0.0.1/",
        "set ONVIF_PASSWORD",
    ] {
        assert!(
            former.stderr.contains(replacement),
            "{replacement}: {former:#?}"
        );
    }
    assert_eq!(camera.wrong_logins(), 0);
    let refused = spotter(["discover", "--address", &address]).expect(FAILED);
    assert!(refused.stdout.contains("demands a login"), "{refused:#?}");
}

/// A moment of the street with exactly one red car and one dog, in full view.
struct Moment {
    _directory: tempfile::TempDir,
    png: PathBuf,
    red_car: NormBox,
    dog: NormBox,
}

const SIZE: (u32, u32) = (640, 360);

impl Moment {
    fn drawn() -> Self {
        let street = Street::new(7);
        let seconds = 1_780_318_235..;
        let (scene, red_car, dog) = seconds
            .map(|second| street.at(WallTime::from_unix_millis(second * 1000)))
            .take(1000)
            .find_map(|scene| {
                let truth = spotter_street::truth(&scene);
                let red_car = only(&truth, Class::Car, |seen| seen.colour == Some(Colour::Red))?;
                let dog = only(&truth, Class::Dog, |_| true)?;
                Some((scene, red_car, dog))
            })
            .expect("red cars and dogs are common");
        let directory = tempfile::tempdir().expect("a directory");
        let png = directory.path().join("street.png");
        save(&scene, &png);
        Self {
            _directory: directory,
            png,
            red_car,
            dog,
        }
    }

    fn png(&self) -> &str {
        self.png.to_str().expect("a path in UTF-8")
    }

    fn ask(&self, command: &str, more: &[&str]) -> String {
        let arguments = [&[command, self.png()], more].concat();
        spotter(arguments).expect(DONE).stdout
    }

    fn ask_json(&self, command: &str, prompt: &[&str]) -> Value {
        let text = self.ask(command, &[prompt, &["--json"]].concat());
        serde_json::from_str(&text).expect("JSON")
    }
}

/// The only one of its kind, when nothing hides it and it is the only thing of its class that may be taken for it.
fn only(truth: &Truth, class: Class, which: impl Fn(&SeenObject) -> bool) -> Option<NormBox> {
    let all: Vec<_> = truth
        .seen
        .iter()
        .filter(|seen| seen.class == class)
        .collect();
    let [seen] = all[..] else { return None };
    (which(seen) && seen.visible > 0.9).then_some(seen.box_in_frame)
}

fn save(scene: &Scene, path: &Path) {
    let (width, height) = SIZE;
    let rgb = draw(scene, width, height);
    let pixels = RgbPixels {
        rgb: &rgb,
        width: width as usize,
        height: height as usize,
    };
    fs::write(path, png_file(pixels).expect("a PNG")).expect("a file");
}

/// A red car that is right, on a picture with all of them, and one of the dogs that is wrong, beside a dog that no one judged.
#[test]
fn judged_events_are_evaluated_beside_the_daemon() {
    let moment = Moment::drawn();
    let directory = tempfile::tempdir().expect("a directory");
    let state = directory.path().to_str().expect("UTF-8");
    let eval = |more: &[&str]| {
        let of_history = ["eval", "--history", "--json", "--state-dir", state];
        let with = ["--model", "embedded", "--device", "cpu"];
        spotter([&of_history[..], &with, more].concat())
    };
    eval(&[]).fails_with(FAILED, &["no database of a daemon here"]);
    let running = StateStore::open(directory.path(), Arc::new(SystemClock::new()));
    let running = running.expect("a database");
    eval(&[]).fails_with(FAILED, &["no judged events with pictures; judge some"]);
    let pictures = directory.path().join("history");
    fs::create_dir(&pictures).expect("a folder");
    let frame = spotter_pictures::read(&moment.png).expect("a picture");
    let rgb = Vec::from_iter((0..frame.height()).flat_map(|row| frame.row(0, row).to_vec()));
    let pixels = RgbPixels {
        rgb: &rgb,
        width: frame.width(),
        height: frame.height(),
    };
    let jpeg = jpeg_photo(pixels, 95).expect("a JPEG");
    let NormBox { x0, y0, x1, y1 } = moment.red_car;
    let place = json!([x0, y0, x1, y1]);
    for (id, words, mark, all_found) in [("a-1", "red car", "right", 1), ("a-2", "dog", "wrong", 0)]
    {
        fs::write(pictures.join(format!("{id}.1.jpg")), &jpeg).expect("a file");
        let row = format!(
            "INSERT INTO history (id, place, camera, prompt, revision, words, start_ms, end_ms, last_seen_ms, score, top_score, location, width, height,
             zones, looks, picture, picture_bytes, bytes, written, mark, all_found)
             VALUES ('{id}', 1, 'gate', 'thing', 1, '{words}', 1, 1, 1, 0.5, 0.5, '{place}', 2560, 1440, '', 2, 1, 9, 9, 9, '{mark}', {all_found})"
        );
        running
            .execute(move |transaction| transaction.execute(&row, []))
            .expect("a row");
    }
    eval(&["--camera", "yard"]).fails_with(FAILED, &["of the camera \"yard\""]);
    for other in [&[][..], &["--against=bf16", "--precision=int8"]] {
        eval(&[&["--write"], other].concat()).fails_with(
            FAILED,
            &["--write needs pictures on which all objects are labelled"],
        );
    }
    let report: Value = serde_json::from_str(&eval(&[]).expect(DONE).stdout).expect("JSON");
    let counts = |prompt: usize| {
        let prompt = &report["prompts"][prompt];
        let counts = [
            "prompt",
            "found",
            "missed",
            "wrong",
            "found_share",
            "sample",
        ];
        json!(counts.map(|key| &prompt[key]))
    };
    let sample = json!({"pictures": 1, "complete": 0, "right": 0, "right_found": 0, "wrong": 1, "wrong_found": 0});
    assert_eq!(counts(0), json!(["detect dog", 0, 0, 0, null, sample]));
    assert_eq!(counts(1), json!(["detect red car", 1, 0, 0, 1.0, null]));
    assert_eq!(report["scores"], json!([]));
    drop(running);
}

#[test]
fn pictures_are_answered() {
    let moment = Moment::drawn();
    let number = |value: &Value| value.as_f64().expect("a number");

    let found = moment.ask_json("detect", &["red car"]);
    assert_eq!(
        (&found["kind"], &found["prompt"]),
        (&"detect".into(), &"red car".into())
    );
    let objects = found["objects"].as_array().expect("objects");
    assert_eq!(objects.len(), 1, "{found}");
    let [x0, y0, x1, y1] = ["x_min", "y_min", "x_max", "y_max"].map(|key| {
        let value = number(&objects[0][key]);
        assert!((0.0..=1.0).contains(&value), "{found}");
        value
    });
    let place = NormBox::from_corners(x0, y0, x1, y1);
    assert!(place.iou(&moment.red_car) >= 0.5, "{found}");
    for key in ["score", "sharpness"] {
        assert!((0.0..=1.0).contains(&number(&objects[0][key])), "{found}");
    }

    let found = moment.ask_json("point", &["dog"]);
    let point = &found["points"][0];
    let point = NormPoint::new(number(&point["x"]), number(&point["y"]));
    assert!(moment.dog.contains(point), "{found}");

    let answer = moment.ask_json("query", &["Is there a dog?"]);
    assert_eq!(answer["answer"], "Yes", "{answer}");
    let caption = moment.ask_json("caption", &["--length", "short"]);
    assert!(!caption["answer"].as_str().unwrap_or_default().is_empty());

    // The same for people.
    let found = moment.ask("detect", &["red car"]);
    assert!(found.contains("1 found: red car"), "{found}");
    assert!(moment.ask("query", &["Is there a dog?"]).contains("Yes"));

    // Of a video, the first frame.
    let video = video(moment._directory.path());
    let video = video.to_str().expect("a path in UTF-8");
    let ended = spotter(["detect", video, "car", "--json"]).expect(DONE);
    let answer: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert!(answer["objects"].is_array(), "{answer}");
}

/// `spotter … | head -0`.
#[test]
fn closed_stdout_is_no_failure() {
    let moment = Moment::drawn();
    let png = moment.png();
    let commands: [&[&str]; 3] = [
        &["check", "configs/minimal.toml"],
        &["detect", png, "car"],
        &["caption", png, "--json"],
    ];
    for arguments in commands {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let ended = command(arguments).stdout(writer).output();
        let ended = ended.expect("the program starts");
        let stderr = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(DONE), "{arguments:?}: {stderr}");
        assert!(!stderr.contains("spotter: "), "{arguments:?}: {stderr}");
    }
    // A closed stderr causes no panic.
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let ended = command(["detect", "missing.png", "car"])
        .stderr(writer)
        .output();
    assert_eq!(ended.expect("it starts").status.code(), Some(FAILED));
}

#[test]
fn uninstall_calls_systemctl_except_for_a_package() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path();
    // Found first, because the Makefile looks into ~/.cargo/bin first.
    let tools = root.join(".cargo/bin");
    let calls = root.join("calls");
    fs::create_dir_all(&tools).expect("a directory");
    let recorder = format!("#!/bin/sh\necho \"$@\" >> '{}'\n", calls.display());
    script(&tools, "systemctl", &recorder);
    let uninstall = |more: &[String]| {
        for part in ["usr/bin/spotter", "units/spotter.service"] {
            let path = root.join(part);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a directory");
            fs::write(path, "").expect("a file");
        }
        let done = Command::new("make")
            .args(["--silent", "uninstall"])
            .args(more)
            .current_dir(checkout(""))
            .env("HOME", root)
            .output();
        let done = done.expect("make is there");
        assert!(done.status.success(), "{done:?}");
        for part in ["usr/bin/spotter", "units/spotter.service"] {
            assert!(!root.join(part).exists(), "{part}");
        }
    };
    let place = |name: &str, path: &str| format!("{name}={}{path}", root.display());
    uninstall(&[place("PREFIX", "/usr"), place("UNITS", "/units")]);
    let by_hand = fs::read_to_string(&calls).expect("systemctl was called");
    assert_eq!(by_hand, "disable --now spotter\ndaemon-reload\n");
    // A package is built on a machine whose systemd does not have the service.
    fs::remove_file(&calls).expect("removed");
    let staged = ["PREFIX=/usr", "UNITS=/units"].map(str::to_owned);
    uninstall(&[staged.as_slice(), &[place("DESTDIR", "")]].concat());
    assert!(!calls.exists());
}

#[test]
fn question_has_choices_and_places() {
    let moment = Moment::drawn();
    let question = |more: &[&'static str]| [&["Is there a dog?"], more].concat();
    let one_of = ["--choice", "a teapot", "--choice", "teapots"];
    for (more, answers) in [
        (&["--choice", "no", "--choice", " Yes "][..], &["Yes"][..]),
        (&one_of, &["a teapot", "teapots"]),
        (&["--ref", "0.5,0.25"], &["Yes", "No"]),
    ] {
        let found = moment.ask_json("query", &question(more));
        let answer = found["answer"].as_str().expect("a text");
        assert!(answers.contains(&answer), "{found}");
    }
    let refused: [(&[&str], &str); 7] = [
        (&["--choice", "yes"], "--choice: has 1 texts; give 2 to 16"),
        (
            &["--choice", "yes", "--choice", "Yes"],
            "--choice: \"Yes\" repeats \"yes\"",
        ),
        (
            &["--choice", "yes", "--choice", "<|endoftext|>"],
            "the model can write the choice",
        ),
        (&["--ref", "0.5"], "a place has 2 numbers"),
        (&["--ref", "0.5,1.5"], "each number must be between 0 and 1"),
        (&["--ref", "0.5,0.5,0.4,0.9"], "x0 < x1"),
        (&["--ref", "left"], "write 0.4,0.5 for a point"),
    ];
    for (more, part) in refused {
        let arguments = [&["query", moment.png(), "Is there a dog?"], more].concat();
        let refused = spotter(arguments).expect(FAILED);
        assert!(refused.stderr.contains(part), "{part}: {refused:#?}");
    }
}

#[test]
fn found_objects_are_drawn_into_the_picture() {
    let moment = Moment::drawn();
    let drawn = moment.png.with_file_name("drawn.png");
    moment.ask(
        "detect",
        &["red car", "--draw", drawn.to_str().expect("UTF-8")],
    );
    let [before, after] =
        [&moment.png, &drawn].map(|path| spotter_pictures::read(path).expect("a picture"));
    assert_eq!(before.size(), after.size());
    let pixel = |of: &Picture, x, y| [0, 1, 2].map(|at| of.row(0, y)[x * 3 + at]);
    let places = (0..before.height()).flat_map(|y| (0..before.width()).map(move |x| (x, y)));
    let changed = places.filter(|&(x, y)| pixel(&before, x, y) != pixel(&after, x, y));
    let (w, h) = (f64::from(SIZE.0), f64::from(SIZE.1));
    // All changed pixels are within a twentieth of the picture of the car's edges.
    let car = moment.red_car;
    let around = NormBox::from_corners(car.x0 - 0.05, car.y0 - 0.05, car.x1 + 0.05, car.y1 + 0.05);
    let mut count = 0;
    for (x, y) in changed {
        let place = NormPoint::new(x as f64 / w, y as f64 / h);
        assert!(around.contains(place), "{x} {y}");
        count += 1;
    }
    assert!(count > 100, "{count} pixels");
}

// Faults: P1.
#[test]
fn unreadable_picture_gives_one_message() {
    let directory = tempfile::tempdir().expect("a directory");
    let inside = directory.path();
    let moment = Moment::drawn();
    let png = fs::read(&moment.png).expect("the picture");
    let mp4 = fs::read(video(inside)).expect("the video");
    file(inside, "text.txt", "This is no picture.\n");
    file(inside, "cut.png", &png[..png.len() / 2]);
    file(inside, "photo.webp", b"RIFF\x10\x00\x00\x00WEBPVP8 ");
    // The index of the frames is at the end of the file.
    file(inside, "cut.mp4", &mp4[..mp4.len() / 2]);
    for (name, part) in [
        ("missing.png", "No such file"),
        ("text.txt", "is neither PNG, JPEG nor a video"),
        ("cut.png", "ends early"),
        ("photo.webp", "is WebP, which Spotter does not read"),
        ("cut.mp4", "cut.mp4: "),
    ] {
        let path = inside.join(name);
        let ended = spotter([Path::new("detect"), &path, Path::new("car")]);
        ended.fails_with(FAILED, &[name, part]);
    }
    let prompt = spotter([Path::new("detect"), &moment.png, Path::new(" ")]);
    prompt.fails_with(FAILED, &["the prompt is empty"]);
}

/// Two seconds of a test picture as MP4.
fn video(directory: &Path) -> PathBuf {
    gstreamer::init().expect("GStreamer");
    let path = directory.join("video.mp4");
    let launch = format!(
        "videotestsrc num-buffers=30 ! video/x-raw,width=320,height=240,framerate=15/1 ! x264enc tune=zerolatency \
         ! mp4mux ! filesink location={}",
        path.display()
    );
    let pipeline = gstreamer::parse::launch(&launch).expect("a pipeline");
    pipeline
        .set_state(gstreamer::State::Playing)
        .expect("plays");
    let limit = gstreamer::ClockTime::from_seconds(PATIENCE.as_secs());
    let ends = [gstreamer::MessageType::Eos, gstreamer::MessageType::Error];
    let bus = pipeline.bus().expect("a bus");
    let end = bus.timed_pop_filtered(limit, &ends).expect("an end");
    assert_eq!(end.type_(), gstreamer::MessageType::Eos);
    pipeline.set_state(gstreamer::State::Null).expect("stops");
    path
}

/// The files of a model in a directory, as a user has another model. Its name says nothing of the family.
fn copied(from: &str) -> tempfile::TempDir {
    let directory = tempfile::TempDir::with_prefix("moondream3").expect("a directory");
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        let of_project = checkout(from).join(name);
        fs::copy(of_project, directory.path().join(name)).expect("a copy");
    }
    directory
}

fn model_directory() -> tempfile::TempDir {
    copied("models/embedded")
}

/// The same as a Moondream 3 whose layers are those of a Moondream 2: asked, decoded and read like the released ones, and trained.
fn moondream3_directory() -> tempfile::TempDir {
    let directory = model_directory();
    let path = directory.path().join("config.json");
    let text = fs::read(&path).expect("a configuration");
    let mut config: Value = serde_json::from_slice(&text).expect("JSON");
    config["model_type"] = json!("moondream3");
    config["text"]["moe"] = Value::Null;
    config["text"]["tau_attn"] = json!(false);
    config["text"]["rope_theta"] = json!(10_000);
    config["region"]["decoder_arch"] = json!("mlp");
    config["region"]["use_ln"] = json!(false);
    fs::write(&path, config.to_string()).expect("written");
    directory
}

/// Three in four labels are a yes. Random weights of each family answer always the same.
#[test]
fn calibrated_score_is_the_share_that_is_right() {
    let moment = Moment::drawn();
    for set in ["md2-micro", "md3-ln-tiny"] {
        let model = copied(&format!("tests/golden/{set}"));
        let (picture, question) = (moment.png(), "Is there a dog?");
        let labels = (0..120).map(|nth: usize| {
            let answer = if nth.is_multiple_of(4) { "No" } else { "Yes" };
            let choices = ["Yes", "No"];
            let label = json!({"picture": picture, "question": question, "answer": answer, "choices": choices});
            format!("{label}\n")
        });
        let labels = file(model.path(), "questions.jsonl", labels.collect::<String>());
        let [labels, dir] = [&labels, model.path()].map(|path| path.to_str().expect("UTF-8"));
        let with_model = |arguments: &[&str]| {
            let of_model = ["--json", "--device", "cpu", "--model", dir];
            let ended = spotter([arguments, &of_model].concat()).expect(DONE);
            let json: Value = serde_json::from_str(&ended.stdout).expect("JSON");
            (json, ended.stderr)
        };
        let (_, written) = with_model(&["eval", labels, "--write"]);
        assert!(written.contains("model.toml: written"), "{written}");
        let choices = ["--choice", "Yes", "--choice", "No"];
        let (answer, _) = with_model(&[&["query", picture, question], &choices[..]].concat());
        let score = answer["score"].as_f64().expect("a score");
        let right = if answer["answer"] == "Yes" {
            0.75
        } else {
            0.25
        };
        assert!((score - right).abs() < 0.01, "{answer}");
        assert_eq!(answer["score_src"], "calibrated");
        let (report, _) = with_model(&["eval", labels]);
        let error = &report["scores"][0]["error_recorded"];
        assert!(error.as_f64().expect("an error") < 0.01, "{report}");
    }
}

fn self_test(model: &Path) -> Ended {
    let model = model.to_str().expect("UTF-8");
    spotter(["self-test", "--device=cpu", "--model", model])
}

#[test]
fn self_test_of_a_good_directory_finds_the_drawn_cars() {
    for model in [model_directory(), moondream3_directory()] {
        let ended = self_test(model.path()).expect(DONE);
        for part in ["640x360", "found ", "self-test passed"] {
            assert!(ended.stdout.contains(part), "{ended:#?}");
        }
        assert!(!ended.stdout.contains("found 0 of"), "{ended:#?}");
    }
}

#[test]
fn self_test_of_a_bad_model_says_what_is_wrong() {
    let nonsense = model_directory();
    let words = nonsense.path().join("tokenizer.json");
    let other = checkout("tests/golden/md2-micro/tokenizer.json");
    fs::copy(other, words).expect("a tokenizer of another model");
    let broken = model_directory();
    file(broken.path(), "config.json", "{\"text\": {\"n_heads\": 5}}");
    for (model, part) in [
        (nonsense.path(), "probably nonsense"),
        (&checkout("tests/golden/md3-ln-tiny"), "probably nonsense"),
        (broken.path(), "text.n_heads = 5"),
        (&broken.path().join("absent"), "no model in"),
    ] {
        let ended = self_test(model);
        assert!(!ended.stdout.contains("passed"), "{ended:#?}");
        ended.fails_with(FAILED, &["the test of the model failed", part]);
    }
}

// Faults: E10.
#[test]
fn check_rejects_an_adapter_that_does_not_fit() {
    let directory = tempfile::tempdir().expect("a directory");
    let golden = |set: &str| checkout("tests/golden").join(set);
    let config = |name: &str, adapters: &[(&str, &str)]| {
        let tables = adapters.iter().map(|(adapter, path)| {
            let path = golden(path);
            format!("[adapter.{adapter}]\npath = {path:?}\n")
        });
        let text = format!(
            "mqtt.url = \"mqtt://127.0.0.1:1\"\nhttp.listen = \"off\"\nmodel = {{ path = {:?}, device = \"cpu\" }}\n[api]\n\
             [camera.gate]\nurl = \"test://\"\nprompt.person.detect = \"person\"\n{}",
            golden("md2-micro"),
            tables.collect::<String>()
        );
        let path = file(directory.path(), name, text);
        path.to_str().expect("UTF-8").to_owned()
    };
    let plates = ("plates", "md2-lora-micro/final.pt");
    spotter(["check", &config("good.toml", &[plates])]).expect(DONE);
    let other = ("other", "md3-lora-tiny/adapters/a.safetensors");
    let none = ("none", "md2-micro/config.json");
    let missing = ("missing", "md2-lora-micro/missing.pt");
    let config = config("site.toml", &[plates, other, none, missing]);
    let ended = spotter(["check", &config]).expect(CONFIG);
    for part in [
        "site.toml: adapter.other.path: ",
        "is an adapter for Moondream 3, the model is a Moondream 2",
        "adapter.none.path: ",
        "adapter.missing.path: cannot read ",
    ] {
        assert!(ended.stderr.contains(part), "{part}: {ended:#?}");
    }
    assert!(!ended.stderr.contains("adapter.plates"), "{ended:#?}");
}

#[test]
fn picture_commands_answer_with_an_adapter() {
    let path = |name: &str| checkout("tests/golden").join(name).display().to_string();
    let picture = path("md2-micro/images/gray_200x200.png");
    let model = path("md2-micro");
    let variant = path("md2-lora-micro/variant.safetensors");
    let ask = |adapter: &[&str]| {
        let arguments = ["detect", &picture, "red square", "--model", &model];
        let arguments = [&arguments, &["--device", "cpu", "--json"][..], adapter].concat();
        let ended = spotter(arguments).expect(DONE);
        let mut found: Value = serde_json::from_str(&ended.stdout).expect("JSON");
        found["ms"] = Value::Null;
        found
    };
    let final_file = path("md2-lora-micro/final.pt");
    let by_variant = ask(&["--adapter", &variant]);
    assert_eq!(by_variant, ask(&["--adapter", &final_file]));
    // The reference finds one object with the variant.
    assert_eq!(by_variant["objects"].as_array().expect("objects").len(), 1);
    assert_ne!(by_variant, ask(&[]));
    let caption = ["caption", &picture, "--model", &model, "--adapter", "dogs"];
    spotter(caption).fails_with(FAILED, &["adapter file: "]);
}
