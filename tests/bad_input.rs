//! What a bad model, camera, broker or configuration does to the daemon: one clear message, and nothing else breaks.
//!
//! Faults: K4, K13.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
};

use crate::support::{
    DONE, Ended, FAILED, Program,
    broker::{Consumer, broker},
    checkout, command, file, free_address, get, metric, spotter, until,
};
use serde_json::Value;

/// A password that must not be seen anywhere.
const CANARY: &str = "canary-Zq7+/x";

/// A directory with a small model that is good, to be spoiled by `spoil`.
fn model(spoil: impl FnOnce(&Path)) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    for name in ["config.json", "model.safetensors", "tokenizer.json"] {
        let good = checkout("tests/golden/md2-micro").join(name);
        fs::copy(good, directory.path().join(name)).expect("a copy");
    }
    spoil(directory.path());
    directory
}

fn cut_weights(model: &Path) {
    let weights = model.join("model.safetensors");
    let bytes = fs::read(&weights).expect("weights");
    fs::write(weights, &bytes[..bytes.len() / 2]).expect("written");
}

/// Turns a matrix around in the header of the weights; the data stays.
fn transpose(model: &Path, tensor: &str) {
    let weights = model.join("model.safetensors");
    let bytes = fs::read(&weights).expect("weights");
    let (size, rest) = bytes.split_at(8);
    let size = u64::from_le_bytes(size.try_into().expect("8 bytes")) as usize;
    let (header, data) = rest.split_at(size);
    let mut header: Value = serde_json::from_slice(header).expect("JSON");
    let shape = header[tensor]["shape"].as_array_mut().expect("a tensor");
    shape.reverse();
    let header = header.to_string().into_bytes();
    let size = (header.len() as u64).to_le_bytes();
    fs::write(weights, [&size[..], &header, data].concat()).expect("written");
}

/// The engine's own tests have more of what can be wrong with a file.
#[test]
fn a_bad_model_is_named_with_what_is_wrong() {
    const FC1: &str = "text.blocks.0.mlp.fc1.weight";
    type SpoiledModel = (fn(&Path), &'static [&'static str]);
    let cases: [SpoiledModel; 5] = [
        (
            cut_weights,
            &["model.safetensors", "cut off", "948480 bytes", "1896960"],
        ),
        (
            |path| transpose(path, &format!("model.{FC1}")),
            &["model.safetensors", FC1, "[192, 208]", "[208, 192]"],
        ),
        (
            |path| drop(file(path, "tokenizer.json", "{}")),
            &["tokenizer.json"],
        ),
        (
            |path| drop(file(path, "config.json", "{\"text\":")),
            &["config.json"],
        ),
        (
            |path| fs::remove_dir_all(path).expect("removed"),
            &["no model in"],
        ),
    ];
    let picture = checkout("tests/golden/md2-micro/images/small_50x40.png");
    for (spoil, parts) in cases {
        let model = model(spoil);
        let arguments = ["detect".as_ref(), "--model".as_ref(), model.path()];
        let ended = spotter(arguments.into_iter().chain([&*picture, "car".as_ref()]));
        ended.fails_with(FAILED, parts);
    }
}

/// A configuration with one good camera. `top` comes before all tables, `more` behind them.
struct Site {
    directory: tempfile::TempDir,
    broker: SocketAddr,
    http: SocketAddr,
}

impl Site {
    fn new(top: &str, more: &str) -> Self {
        let site = Self {
            directory: tempfile::tempdir().expect("a directory"),
            broker: free_address(),
            http: free_address(),
        };
        site.write(top, more);
        site
    }

    fn write(&self, top: &str, more: &str) -> PathBuf {
        let (broker, http) = (self.broker, self.http);
        let text = format!(
            "node.name = \"edge\"\nhttp.listen = \"{http}\"\nmqtt.url = \"mqtt://{broker}\"\n\
             model.budget = \"20s\"\ndefaults.first_frame = \"60s\"\n{top}\n\
             [camera.good]\nurl = \"test://\"\nrate = 5\nprompt.car.detect = \"car\"\n{more}\n"
        );
        file(self.directory.path(), "site.toml", text)
    }

    /// Starts the daemon, which says all it can say.
    fn run(&self) -> Program {
        let config = self.directory.path().join("site.toml");
        let mut command = command(["run", "-vv", "--config"]);
        command.arg(config);
        command
            .env("CANARY", CANARY)
            .env("CREDENTIALS_DIRECTORY", self.directory.path());
        Program::from_command(&mut command)
    }

    fn looked(&self) -> Option<f64> {
        let name = r#"spotter_sampler_frames_total{camera="good",fate="looked"}"#;
        metric(self.http, name)
    }

    /// The good camera goes on being looked at.
    #[track_caller]
    fn keeps_looking(&self) {
        let before = until("a look", || self.looked().filter(|looked| *looked > 0.0));
        until("more looks", || {
            self.looked().filter(|looked| *looked >= before + 3.0)
        });
    }
}

/// No loss is uncounted, and no output contains the password.
#[track_caller]
fn ends_well(daemon: Program) -> Ended {
    let ended = daemon.terminate().expect_balanced();
    for text in [&ended.stderr, &ended.stdout] {
        assert!(!text.contains(CANARY), "{ended:#?}");
    }
    ended
}

/// A server that does `answer` to every connection; it ends with the test's process.
fn server(answer: fn(&mut TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address");
    let serve = move || {
        let mut kept = Vec::new();
        for mut stream in listener.incoming().flatten() {
            answer(&mut stream);
            kept.push(stream);
            kept.truncate(64);
        }
    };
    let thread = std::thread::Builder::new().name("bad-server".into());
    thread.spawn(serve).expect("a thread");
    address
}

fn like_http(stream: &mut TcpStream) {
    // It may have hung up; that is its affair.
    let _ = stream.read(&mut [0; 1024]);
    let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    let _ = stream.shutdown(std::net::Shutdown::Both);
}

fn like_noise(stream: &mut TcpStream) {
    let noise: Vec<u8> = (0..65_536_u32).map(|i| (i * i % 251) as u8).collect();
    let _ = stream.write_all(&noise);
    let _ = stream.shutdown(std::net::Shutdown::Both);
}

#[test]
fn bad_cameras_are_reported_without_effect_on_good_ones() {
    let http = server(like_http);
    let noise = server(like_noise);
    let silent = server(|_| {});
    let cameras = [
        ("http", format!("rtsp://{http}/x"), "protocol: "),
        ("noise", format!("rtsp://{noise}/x"), "protocol: "),
        ("silent", format!("rtsp://{silent}/x"), "no_frame: "),
        (
            "refused",
            format!("rtsp://{}/x", free_address()),
            "unreachable: ",
        ),
        (
            "text",
            format!("file://{}", checkout("Cargo.toml").display()),
            "not_video: ",
        ),
    ];
    let mut more = String::new();
    for (id, url, _) in &cameras {
        more += &format!("[camera.{id}]\nurl = \"{url}\"\nprompt.car.detect = \"car\"\n");
        // The others answer, but on a busy machine not soon.
        if *id == "silent" {
            more += "first_frame = \"2s\"\n";
        }
        if url.starts_with("rtsp") {
            more += "user = \"viewer\"\npassword = { env = \"CANARY\" }\n";
        }
    }
    let site = Site::new("", &more);
    let _broker = broker(site.broker, "");
    let consumer = Consumer::on(site.broker);
    let daemon = site.run();
    for (id, url, code) in &cameras {
        let failed = |payload: &str| payload.contains("\"reason\":\"");
        let health = consumer.wait_for(&format!("/cam/{id}/health"), failed);
        assert_eq!(health.qos, 1);
        let health = health.json();
        let reason = health["reason"].as_str().expect("a reason");
        assert!(reason.starts_with(code), "{id}: {reason}");
        // What does not answer at all is named by the topic alone.
        let place = url.trim_start_matches("file://");
        let is_named = reason.contains(place) || *code == "no_frame: ";
        assert!(is_named, "{id}: {reason}");
        assert_ne!(health["state"], "streaming", "{id}");
    }
    site.keeps_looking();
    consumer.wait_for("/cam/good/det/car", |_| true);
    for path in ["/metrics", "/healthz"] {
        assert!(!get(site.http, path).expect("a page").contains(CANARY));
    }
    ends_well(daemon);
    let heard = consumer.all();
    assert!(!heard.iter().any(|heard| heard.payload.contains(CANARY)));
}

#[test]
fn rejecting_broker_is_logged_and_cameras_are_watched() {
    let login = "mqtt.user = \"edge\"\nmqtt.password = { env = \"CANARY\" }";
    let site = Site::new(login, "");
    let _broker = broker(site.broker, "allow_anonymous false");
    let daemon = site.run();
    let reported = daemon.stderr.wait_for("rejected the connection");
    let is_loud = reported.contains("WARN") || reported.contains("ERROR");
    assert!(is_loud, "{reported}");
    site.keeps_looking();
    let health = get(site.http, "/healthz").expect("a page");
    assert!(health.contains("broker: "), "{health}");
    ends_well(daemon);
}

#[test]
fn stop_ends_the_daemon_while_a_model_is_loaded() {
    // At the start.
    let site = Site::new("", "");
    let daemon = site.run();
    daemon.wait_for_its_signal_handler();
    daemon.terminate().expect(DONE);

    // For another configuration.
    let site = Site::new("", "");
    let daemon = site.run();
    site.keeps_looking();
    site.write("model.max_objects = 7", "prompt.dog.detect = \"dog\"");
    daemon.signal("HUP");
    daemon.stderr.wait_for("configuration changed");
    daemon.terminate().expect(DONE);
}

#[test]
fn valid_configuration_is_applied_and_invalid_one_rejected() {
    let top = "mqtt.user = \"edge\"\nmqtt.password = { cred = \"mqtt\" }";
    let site = Site::new(top, "");
    let _broker = broker(site.broker, "");
    file(site.directory.path(), "mqtt", "old-secret-4711");
    let consumer = Consumer::on(site.broker);
    let daemon = site.run();
    let first = consumer.wait_for("/edge/config", |_| true).json();
    assert_eq!(first["state"], "ok");
    site.keeps_looking();

    // A mistake is reported and changes nothing.
    site.write(top, "rate = 60\npromts = 1");
    let since = consumer.now();
    daemon.signal("HUP");
    let reported = consumer.wait_after(since, "/edge/config", |_| true).json();
    assert_eq!(reported["state"], "rejected", "{reported}");
    assert_eq!(reported["hash"], first["hash"], "{reported}");
    let errors = reported["errors"].to_string();
    assert!(errors.contains("camera.good.promts") && errors.contains("rate: "));
    site.keeps_looking();

    // A good change, with a new password.
    file(site.directory.path(), "mqtt", CANARY);
    site.write(top, "prompt.dog.detect = \"dog\"");
    let since = consumer.now();
    daemon.signal("HUP");
    let ok = |payload: &str| payload.contains("\"ok\"");
    let reported = consumer.wait_after(since, "/edge/config", ok).json();
    assert_ne!(reported["hash"], first["hash"], "{reported}");
    let has_dog = |payload: &str| payload.contains("\"dog\"");
    consumer.wait_after(since, "/edge/info", has_dog);
    consumer.wait_after(since, "/cam/good/det/dog", |_| true);

    // A model whose weights are cut off is reported before anything is stopped.
    let broken = model(cut_weights);
    let path = format!("{top}\nmodel.path = \"{}\"", broken.path().display());
    site.write(&path, "");
    let since = consumer.now();
    daemon.signal("HUP");
    let rejected = |payload: &str| payload.contains("\"rejected\"");
    let reported = consumer.wait_after(since, "/edge/config", rejected).json();
    let errors = reported["errors"].to_string();
    assert!(errors.contains("cut off"), "{errors}");
    consumer.wait_after(since, "/cam/good/det/dog", |_| true);
    site.keeps_looking();
    let ended = ends_well(daemon);
    assert!(!ended.stderr.contains("old-secret-4711"));
    // A journal takes lines: each has to say by itself how bad it is.
    let is_of_refusal =
        |line: &&str| line.contains("new configuration rejected") || line.contains("site.toml:");
    let refused: Vec<_> = ended.stderr.lines().filter(is_of_refusal).collect();
    assert_eq!(refused.len(), 4, "{refused:#?}");
    let is_error = |line: &&str| line.contains("ERROR");
    assert!(refused.iter().all(is_error), "{refused:#?}");
}
