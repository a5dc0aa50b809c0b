//! `spotter model` against a scripted hub that has files of true names and layout; their content is that of the embedded model.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
};

use crate::support::{DONE, Ended, FAILED, Program, checkout, command, file};
use spotter_core::ModelRecord;
use spotter_pictures::{RgbPixels, png_file};
use spotter_scripted::{
    hub::{HubFault, ScriptedFile, ScriptedHub, ScriptedRepository},
    proxy::ScriptedProxy,
};
use spotter_street::{Street, draw};

const WEIGHTS: &str = "model.safetensors";
const COMMIT: &str = "9a7d4024050840e001defacec2b00727e89149e6";
const TOKENIZER_COMMIT: &str = "35192e10a54e36eabe0a7cc57a2c1aab371cafc5";

/// Both repositories, with a tokenizer of older revisions beside the weights.
fn hub() -> ScriptedHub {
    let embedded = |name: &str| fs::read(checkout("models/embedded").join(name)).expect("a file");
    let tokenizer = ScriptedFile::large("tokenizer.json", embedded("tokenizer.json"));
    let older = "{\"of\": \"older revisions\"}";
    ScriptedHub::start(vec![
        ScriptedRepository {
            name: "vikhyatk/moondream2",
            revision: "2025-06-21",
            commit: COMMIT,
            licence: Some("apache-2.0"),
            files: vec![
                ScriptedFile::small("README.md", "# moondream2"),
                ScriptedFile::small("config.json", embedded("config.json")),
                ScriptedFile::large(WEIGHTS, embedded(WEIGHTS)),
                ScriptedFile::small("tokenizer.json", older),
            ],
        },
        tokenizers(tokenizer),
    ])
}

fn tokenizers(file: ScriptedFile) -> ScriptedRepository {
    ScriptedRepository {
        name: "moondream/starmie-v1",
        revision: TOKENIZER_COMMIT,
        commit: TOKENIZER_COMMIT,
        licence: None,
        files: vec![file],
    }
}

/// A user's machine: a home and a hub.
struct UserMachine {
    home: tempfile::TempDir,
    endpoint: String,
}

impl UserMachine {
    fn with(endpoint: String) -> Self {
        Self {
            home: tempfile::tempdir().expect("a directory"),
            endpoint,
        }
    }

    /// Runs `spotter`; `variables` are added to its environment.
    fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
        let mut command = command(arguments);
        command
            .env("STATE_DIRECTORY", self.home.path().join("state"))
            .env("XDG_DATA_HOME", self.home.path())
            .env("HF_ENDPOINT", &self.endpoint)
            .env_remove("HF_TOKEN")
            .envs(variables.iter().copied());
        for proxy in ["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY"] {
            if variables.iter().all(|(name, _)| *name != proxy) {
                command.env_remove(proxy).env_remove(proxy.to_lowercase());
            }
        }
        Program::from_command(&mut command).end()
    }

    fn get(&self) -> Ended {
        let dir = self.directory();
        let dir = dir.to_str().expect("a path in UTF-8");
        self.run(&["model", "get", "moondream2", "--dir", dir], &[])
    }

    /// Where the configuration looks for the model.
    fn directory(&self) -> PathBuf {
        self.home.path().join("spotter/models/moondream2")
    }
}

fn picture(directory: &Path) -> PathBuf {
    let scene = Street::new(7).at(spotter_core::WallTime::from_unix_millis(40_000));
    let rgb = draw(&scene, 640, 360);
    let path = directory.join("street.png");
    let pixels = RgbPixels {
        rgb: &rgb,
        width: 640,
        height: 360,
    };
    fs::write(&path, png_file(pixels).expect("a PNG")).expect("a file");
    path
}

#[test]
fn fetched_model_is_the_default_of_every_command() {
    let hub = hub();
    let machine = UserMachine::with(hub.endpoint());
    let picture = picture(machine.home.path());
    let detect = [
        "detect",
        picture.to_str().expect("UTF-8"),
        "car",
        "--device",
        "cpu",
    ];
    let before = machine.run(&detect, &[]).expect(DONE);
    assert!(
        before.stderr.contains("run `spotter model get moondream2`"),
        "{before:#?}"
    );

    hub.will([HubFault::None, HubFault::CutAfter(1_000_000)]);
    let fetched = machine.get().expect(DONE);
    let expected = [
        "vikhyatk/moondream2 at 2025-06-21 (commit 9a7d4024050840e001defacec2b00727e89149e6): licence apache-2.0",
        "the hub names no licence; see the page of moondream/starmie-v1",
        "; next attempt in 1 s",
        "model.safetensors: verified",
    ];
    for part in expected {
        assert!(fetched.stderr.contains(part), "{part}: {fetched:#?}");
    }
    assert!(
        fetched.stdout.contains("used by every configuration"),
        "{fetched:#?}"
    );
    let record = ModelRecord::read(&machine.directory())
        .expect("valid")
        .expect("a record");
    let tokenizer = record
        .files
        .iter()
        .find(|file| file.name == "tokenizer.json");
    let tokenizer = tokenizer.expect("recorded");
    assert_eq!(tokenizer.repository, "moondream/starmie-v1");
    assert_eq!(tokenizer.commit, TOKENIZER_COMMIT);

    let after = machine.run(&detect, &[]).expect(DONE);
    assert_eq!(after.stdout, before.stdout);
    assert!(!after.stderr.contains("warning"), "{after:#?}");
    let listed = machine.run(&["model", "list"], &[]).expect(DONE).stdout;
    assert!(listed.contains("the default of model.path"), "{listed}");
    let minimal = checkout("configs/minimal.toml");
    let check = ["check", minimal.to_str().expect("UTF-8")];
    let checked = machine.run(&check, &[]).expect(DONE).stdout;
    assert!(!checked.contains("no model was fetched"), "{checked}");
}

// Faults: M13.
#[test]
fn changed_weights_are_found_by_check_and_at_the_load() {
    let machine = UserMachine::with(hub().endpoint());
    machine.get().expect(DONE);
    let directory = machine.directory();
    let dir = directory.to_str().expect("UTF-8");
    machine.run(&["model", "check", dir], &[]).expect(DONE);
    let path = directory.join(WEIGHTS);
    let mut weights = fs::read(&path).expect("weights");
    let last = weights.len() - 1;
    weights[last] ^= 1;
    fs::write(&path, weights).expect("written");
    let picture = picture(machine.home.path());
    let picture = picture.to_str().expect("UTF-8");
    for arguments in [&["model", "check", dir][..], &["detect", picture, "car"]] {
        let ended = machine.run(arguments, &[]).expect(FAILED);
        let expected = "model.safetensors has the SHA-256";
        assert!(ended.stderr.contains(expected), "{ended:#?}");
        let remedy = format!("`spotter model get moondream2 --dir {dir}`");
        assert!(ended.stderr.contains(&remedy), "{ended:#?}");
    }
    machine.get().expect(DONE);
    machine.run(&["model", "check", dir], &[]).expect(DONE);
}

// Faults: M7, M12.
#[test]
fn failures_name_the_remedy_and_print_no_token() {
    let hub = hub();
    let machine = UserMachine::with(hub.endpoint());
    hub.require_token("hf_right");
    let directory = machine.directory();
    let dir = directory.to_str().expect("UTF-8");
    let get = ["model", "get", "moondream2", "--dir", dir];
    let refused = machine.run(&get, &[]).expect(FAILED);
    assert!(refused.stderr.contains("set HF_TOKEN"), "{refused:#?}");
    let token = [("HF_TOKEN", "hf_canary")];
    let refused = machine.run(&get, &token).expect(FAILED);
    assert!(
        refused
            .stderr
            .contains("the hub does not know the token of HF_TOKEN"),
        "{refused:#?}"
    );
    assert!(!refused.stderr.contains("canary"), "{refused:#?}");

    let nothing = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = nothing.local_addr().expect("an address");
    drop(nothing);
    let alone = UserMachine::with(format!("http://{address}"));
    // Pauses between the attempts: 1, 2, 4 and 8 s.
    let ended = alone.get().expect(FAILED);
    for part in [
        "check the network, HTTPS_PROXY (a proxy) and HF_ENDPOINT",
        "on another machine and copy DIR, with its model.toml",
        "/vikhyatk/moondream2/resolve/2025-06-21/model.safetensors",
        "/moondream/starmie-v1/resolve/35192e10a54e36eabe0a7cc57a2c1aab371cafc5/tokenizer.json",
    ] {
        assert!(ended.stderr.contains(part), "{part}: {ended:#?}");
    }
}

/// With their usual settings, proxies refuse CONNECT to other ports than 443, so
/// what a hub with `http://` has is fetched with whole URLs.
// Faults: M10.
#[test]
fn model_of_an_http_hub_is_fetched_through_a_proxy() {
    let (hub, proxy) = (hub(), ScriptedProxy::start());
    let machine = UserMachine::with(hub.endpoint());
    let directory = machine.directory();
    let dir = directory.to_str().expect("UTF-8");
    let get = ["model", "get", "moondream2", "--dir", dir];
    let address = format!("http://{}", proxy.address());
    machine.run(&get, &[("HTTP_PROXY", &address)]).expect(DONE);
    let requests = proxy.take_requests();
    // Contents come from another host, to which the hub redirects.
    for begin in [&format!("GET {}/", hub.endpoint()), "GET http://localhost:"] {
        assert!(
            requests
                .iter()
                .any(|request| request.line.starts_with(begin))
        );
    }
}

/// Two pictures in a folder of their own.
fn pictures(directory: &Path) -> PathBuf {
    let folder = directory.join("pictures");
    fs::create_dir(&folder).expect("a directory");
    let first = picture(&folder);
    fs::copy(first, folder.join("again.PNG")).expect("a copy");
    folder
}

#[test]
fn calibration_decides_which_layers_are_in_int8() {
    let machine = UserMachine::with(String::new());
    let home = machine.home.path();
    let model = copied_model(home, of_embedded);
    let (folder, drawn) = (pictures(home), home.join("drawn"));
    let [folder, model_dir, drawn] =
        [&folder, &model, &drawn].map(|path| path.to_str().expect("UTF-8"));
    let compare = compare_on_cpu(folder, model_dir, drawn, "int8");
    let before = machine.run(&compare, &[]).expect(DONE);
    assert!(
        before.stderr.contains("their errors were not measured"),
        "{before:#?}"
    );

    let homeless = machine.run(&["model", "calibrate", folder], &[]);
    homeless.fails_with(FAILED, &["name a model directory with --model"]);
    let calibrate = ["model", "calibrate", folder, "--model", model_dir];
    let calibrated = machine.run(&calibrate, &[]).expect(DONE);
    let expected = "int8: all 28 large layers; the largest error on 2 pictures is that of ";
    assert!(calibrated.stdout.starts_with(expected), "{calibrated:#?}");
    let after = machine.run(&compare, &[]).expect(DONE);
    assert!(after.stderr.contains(expected), "{after:#?}");

    let path = model.join("calibration.toml");
    let measured = fs::read_to_string(&path).expect("a calibration");
    let large = measured.replacen("int8_error = 0.", "int8_error = 1.", 1);
    fs::write(&path, large).expect("written");
    let kept = machine.run(&compare, &[]).expect(DONE);
    let expected = "int8: 1 of 28 large layers stay in f32, because their error on 2 pictures is above 4 %: \
                    vision.blocks.0.attn.qkv (100.";
    assert!(kept.stderr.contains(expected), "{kept:#?}");
}

#[test]
fn moondream_3_is_calibrated_and_compared_like_moondream_2() {
    let machine = UserMachine::with(String::new());
    let home = machine.home.path();
    let model = copied_model(home, of_small_moondream3);
    let (folder, drawn) = (pictures(home), home.join("drawn"));
    let [folder, model, drawn] =
        [&folder, &model, &drawn].map(|path| path.to_str().expect("UTF-8"));
    let calibrate = ["model", "calibrate", folder, "--model", model];
    let calibrated = machine.run(&calibrate, &[]).expect(DONE);
    let measured = "int8: all 10 large layers; the largest error on 2 pictures is that of ";
    assert!(calibrated.stdout.starts_with(measured), "{calibrated:#?}");
    // On a CPU, int4 is int8.
    let compare = compare_on_cpu(folder, model, drawn, "int4");
    let compared = machine.run(&compare, &[]).expect(DONE);
    assert!(compared.stderr.contains(measured), "{compared:#?}");
    let against = "in int8 against f32, 2 pictures";
    assert!(compared.stdout.contains(against), "{compared:#?}");
}

/// A directory with a model of these files.
fn copied_model(home: &Path, content: impl Fn(&str) -> Vec<u8>) -> PathBuf {
    let model = home.join("copied");
    fs::create_dir(&model).expect("a directory");
    for name in ["config.json", "tokenizer.json", WEIGHTS] {
        file(&model, name, content(name));
    }
    model
}

fn compare_on_cpu<'a>(
    folder: &'a str,
    model: &'a str,
    drawn: &'a str,
    precision: &'a str,
) -> [&'a str; 14] {
    [
        "eval",
        folder,
        "--against",
        "bf16",
        "--detect",
        "car",
        "--model",
        model,
        "--draw",
        drawn,
        "--device",
        "cpu",
        "--precision",
        precision,
    ]
}

fn of_embedded(name: &str) -> Vec<u8> {
    fs::read(checkout("models/embedded").join(name)).expect("a file")
}

/// A file of a Moondream 3 with small random weights.
fn of_small_moondream3(name: &str) -> Vec<u8> {
    let set = checkout("tests/golden/md3-ln-tiny");
    fs::read(set.join(name)).expect("a golden file")
}

/// A hub that has a small Moondream 3.1 with the vendor's own licence.
fn hub_with_moondream3() -> ScriptedHub {
    let small = |name| ScriptedFile::small(name, of_small_moondream3(name));
    ScriptedHub::start(vec![
        ScriptedRepository {
            name: "moondream/moondream3.1-9B-A2B",
            revision: "main",
            commit: COMMIT,
            licence: Some("other"),
            files: vec![
                ScriptedFile::small("LICENSE.md", "Terms of use"),
                small("config.json"),
                ScriptedFile::large(WEIGHTS, of_small_moondream3(WEIGHTS)),
            ],
        },
        tokenizers(small("tokenizer.json")),
    ])
}

#[test]
fn moondream_3_is_fetched_run_listed_and_removed() {
    let machine = UserMachine::with(hub_with_moondream3().endpoint());
    let directory = machine.home.path().join("spotter/models/moondream3.1");
    let dir = directory.to_str().expect("UTF-8");
    let get = ["model", "get", "moondream3.1", "--dir", dir];
    let asked = machine.run(&get, &[]).expect(FAILED);
    let page = format!("/moondream/moondream3.1-9B-A2B/blob/{COMMIT}/LICENSE.md");
    for part in [
        &format!("moondream/moondream3.1-9B-A2B at main (commit {COMMIT})"),
        "kB to fetch, ",
        "is not accepted, so nothing was fetched; read it at http",
        &page,
        "--accept-licence",
    ] {
        assert!(asked.stderr.contains(part), "{part}: {asked:#?}");
    }

    let accepted = [&get[..], &["--accept-licence"]].concat();
    let fetched = machine.run(&accepted, &[]).expect(DONE);
    let line = format!("to use it, set model.path = {dir:?}");
    assert!(fetched.stdout.contains(&line), "{fetched:#?}");
    let checked = machine.run(&["model", "check", dir], &[]).expect(DONE);
    assert!(
        checked.stdout.contains("model.safetensors: good"),
        "{checked:#?}"
    );
    // Noise, but of the whole network.
    let picture = checkout("tests/golden/md3-ln-tiny/images/wide_240x135.png");
    let picture = picture.to_str().expect("UTF-8");
    let detect = [
        "detect", picture, "cat", "--model", dir, "--device", "cpu", "--json",
    ];
    let ended = machine.run(&detect, &[]).expect(DONE);
    assert!(ended.stdout.contains("\"objects\""), "{ended:#?}");
    let listed = machine.run(&["model", "list"], &[]).expect(DONE).stdout;
    assert!(listed.contains(&format!("here: {dir}: ")), "{listed}");
    assert!(
        listed.contains("LICENSE.md of moondream/moondream3.1-9B-A2B accepted on 2"),
        "{listed}"
    );

    for verb in ["get", "remove"] {
        let other = machine.run(&["model", verb, "moondream2", "--dir", dir], &[]);
        let refused = other.expect(FAILED).stderr;
        let expected = format!("{dir} has moondream3.1, not moondream2; nothing was changed");
        assert!(refused.contains(&expected), "{refused}");
    }
    let foreign = machine.home.path().join("foreign");
    let unknown = foreign.to_str().expect("UTF-8");
    fs::create_dir(&foreign).expect("created");
    fs::write(foreign.join("config.json"), "{}").expect("written");
    let kept = machine.run(&["model", "remove", "moondream2", "--dir", unknown], &[]);
    let kept = kept.expect(FAILED).stderr;
    assert!(kept.contains("may be of another program"), "{kept}");

    let config = machine.home.path().join("site.toml");
    let config = config.to_str().expect("UTF-8");
    let remove = [
        "model",
        "remove",
        "moondream3.1",
        "--dir",
        dir,
        "--config",
        config,
    ];
    fs::write(config, format!("[model]\npath = {dir:?}\n")).expect("written");
    let used = machine.run(&remove, &[]).expect(FAILED);
    let expected = format!("{config} uses the model in {dir}, so nothing was deleted");
    assert!(used.stderr.contains(&expected), "{used:#?}");
    assert!(directory.join(WEIGHTS).exists());
    fs::write(config, "").expect("written");
    let removed = machine.run(&remove, &[]).expect(DONE);
    assert!(
        removed.stdout.contains("moondream3.1 removed, "),
        "{removed:#?}"
    );
    assert!(!directory.exists());
    let missing = machine.run(&remove, &[]).expect(FAILED);
    assert!(
        missing.stderr.contains("has no files of moondream3.1"),
        "{missing:#?}"
    );
}
