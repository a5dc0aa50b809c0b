use std::{
    collections::BTreeMap,
    fs::{self, File, Permissions},
    os::unix::fs::PermissionsExt as _,
    time::Duration,
};

use super::*;
use crate::{catalogue::WantedFile, directory::check_file};
use spotter_scripted::hub::{
    HubFault::{self, CutAfter, Status, WholeFile, WrongByte, WrongRange},
    RecordFault, ScriptedFile, ScriptedHub, ScriptedRepository,
};

const COMMIT: &str = "9a7d4024050840e001defacec2b00727e89149e6";
const WEIGHTS: &str = "model.safetensors";

static MODEL: KnownModel = KnownModel {
    name: "moondream2",
    summary: "",
    repositories: &[
        ModelSourceRepository {
            name: "vikhyatk/moondream2",
            revision: "2025-06-21",
            files: &[
                WantedFile::required(&[&["config.json"]]),
                WantedFile::required(&[&[WEIGHTS]]),
            ],
            has_own_licence: false,
        },
        ModelSourceRepository {
            name: "moondream/starmie-v1",
            revision: "main",
            files: &[WantedFile::required(&[&["tokenizer.json"]])],
            has_own_licence: false,
        },
    ],
};

fn weights() -> Vec<u8> {
    (0..2000_u32).flat_map(u32::to_le_bytes).collect()
}

fn hub() -> ScriptedHub {
    ScriptedHub::start(vec![
        ScriptedRepository {
            name: "vikhyatk/moondream2",
            revision: "2025-06-21",
            commit: COMMIT,
            licence: Some("apache-2.0"),
            files: vec![
                ScriptedFile::small("config.json", "{\"config\": {}}"),
                ScriptedFile::small("tokenizer.json", "of older revisions"),
                ScriptedFile::large(WEIGHTS, weights()),
            ],
        },
        ScriptedRepository {
            name: "moondream/starmie-v1",
            revision: "main",
            commit: "35192e10a54e36eabe0a7cc57a2c1aab371cafc5",
            licence: None,
            files: vec![ScriptedFile::small("tokenizer.json", "the right one")],
        },
    ])
}

fn client(hub: &ScriptedHub, token: Option<&str>) -> HubClient {
    let mut client = HubClient::new(Some(&hub.endpoint()), token.map(str::to_owned)).unwrap();
    client.first_pause = Duration::ZERO;
    client
}

/// The record or the error, and the notes.
fn fetched_by(
    client: &HubClient,
    model: &KnownModel,
    directory: &Path,
    accepted_on: Option<&str>,
) -> (Result<ModelRecord, HubError>, Vec<String>) {
    let mut notes = Vec::new();
    let request = FetchRequest {
        model,
        directory,
        today: accepted_on.unwrap_or_default().to_owned(),
        accept: &mut |_| accepted_on.is_some(),
    };
    let result = fetch(client, request, &mut |news| {
        if let FetchNews::Note(note) = news {
            notes.push(note.clone());
        }
    });
    (result, notes)
}

fn fetched(hub: &ScriptedHub, directory: &Path) -> (Result<ModelRecord, HubError>, Vec<String>) {
    fetched_by(&client(hub, None), &MODEL, directory, None)
}

fn error(hub: &ScriptedHub, directory: &Path) -> String {
    fetched(hub, directory).0.unwrap_err().to_string()
}

fn contents(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, fs::read(path).unwrap())
    });
    entries.collect()
}

fn assert_complete(directory: &Path, record: &ModelRecord) {
    let found = contents(directory);
    let names: Vec<&str> = found.keys().map(String::as_str).collect();
    let expected = ["config.json", WEIGHTS, "model.toml", "tokenizer.json"];
    assert_eq!(names, expected);
    assert_eq!(found[WEIGHTS], weights());
    assert_eq!(found["tokenizer.json"], b"the right one");
    assert_eq!(ModelRecord::read(directory).unwrap().as_ref(), Some(record));
    for file in &record.files {
        assert_eq!(check_file(directory, record, file), Ok(()));
    }
}

#[test]
fn model_is_fetched_with_its_record_and_kept_afterwards() {
    let (hub, folder) = (hub(), tempfile::tempdir().unwrap());
    let directory = folder.path().join("new/moondream2");
    let (record, notes) = fetched(&hub, &directory);
    let record = record.unwrap();
    assert_complete(&directory, &record);
    assert!(notes[0].ends_with(": licence apache-2.0"), "{notes:?}");
    assert_eq!(notes[3], "config.json: verified", "{notes:?}");
    let [config, weights, _] = &record.files[..] else {
        panic!("{record:?}");
    };
    assert_eq!([&config.revision, &config.commit], ["2025-06-21", COMMIT]);
    assert_eq!(weights.licence.as_deref(), Some("apache-2.0"));
    let requests = hub.take_requests();
    let by_commit = format!("/resolve/{COMMIT}/");
    let by_commit = requests.iter().filter(|r| r.path.contains(&by_commit));
    assert_eq!(by_commit.count(), 3, "config, weights and their contents");
    for path in ["", "model.toml", WEIGHTS].map(|name| directory.join(name)) {
        let mode = fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o044, 0o044, "another user can read it");
    }

    let (again, notes) = fetched(&hub, &directory);
    assert_eq!(again.unwrap(), record);
    assert!(notes[2..].iter().all(|note| note.contains("here already")));
    let requests = hub.take_requests();
    assert!(requests.iter().all(|r| r.path.starts_with("/api/")));
}

// Faults: M12.
#[test]
fn token_goes_to_the_hub_and_never_to_another_host() {
    let (hub, folder) = (hub(), tempfile::tempdir().unwrap());
    hub.require_token("hf_canary");
    let client = client(&hub, Some("hf_canary"));
    fetched_by(&client, &MODEL, folder.path(), None).0.unwrap();
    let requests = hub.take_requests();
    for request in &requests {
        let has_token = request.authorization.is_some();
        assert_eq!(has_token, !request.is_content_host, "{request:?}");
    }
    assert!(requests.iter().any(|request| request.is_content_host));
}

// Faults: M1.
#[test]
fn download_that_is_cut_anywhere_continues_there() {
    let (hub, folder) = (hub(), tempfile::tempdir().unwrap());
    let size = weights().len();
    for cut in [0, 1, 2, 511, 512, 4096, size - 1] {
        let directory = folder.path().join(cut.to_string());
        // The first content is that of config.json.
        hub.will([HubFault::None, CutAfter(cut)]);
        let (record, news) = fetched(&hub, &directory);
        assert_complete(&directory, &record.unwrap());
        let repeated = |note: &String| note.starts_with(WEIGHTS) && note.contains("next attempt");
        assert!(news.iter().any(repeated), "{news:?}");
        let requests = hub.take_requests();
        let ranges = requests.iter().filter(|r| r.is_content_host);
        let ranges: Vec<_> = ranges.map(|request| request.range.clone()).collect();
        let rest = (cut > 0).then(|| format!("bytes={cut}-"));
        assert_eq!(ranges, [None, rest]);
    }
}

// Faults: M1, M3, M4.
#[test]
fn transfer_with_a_fault_arrives() {
    for (fault, times) in [
        (CutAfter(1), 300),
        (WholeFile, 1),
        (WrongRange, 1),
        (WrongByte, 1),
    ] {
        let (hub, folder) = (hub(), tempfile::tempdir().unwrap());
        let begins = [HubFault::None, CutAfter(10)];
        hub.will(begins.into_iter().chain(vec![fault; times]));
        let (record, _) = fetched(&hub, folder.path());
        assert_complete(folder.path(), &record.unwrap());
    }
}

// Faults: M2.
/// The next run begins where the last one ended.
#[test]
fn next_run_continues_what_an_earlier_one_left() {
    let (hub, folder) = (hub(), tempfile::tempdir().unwrap());
    let cuts = [CutAfter(1000)].into_iter().chain(vec![Status(503); 5]);
    hub.will([HubFault::None].into_iter().chain(cuts));
    let error = error(&hub, folder.path());
    assert!(
        error.contains("localhost answered with HTTP 503"),
        "{error}"
    );
    assert!(error.contains("it continues where it ended"), "{error}");
    let part = folder.path().join("model.safetensors.part");
    assert_eq!(fs::metadata(part).unwrap().len(), 1000);
    assert!(!folder.path().join("config.json").exists());
    hub.take_requests();
    let (record, _) = fetched(&hub, folder.path());
    assert_complete(folder.path(), &record.unwrap());
    let requests = hub.take_requests();
    let mut ranges = requests
        .iter()
        .filter_map(|request| request.range.as_deref());
    assert_eq!(ranges.next(), Some("bytes=1000-"));
}

// Faults: M4.
#[test]
fn part_of_another_revision_is_replaced() {
    let right = weights();
    let mut longer = right.clone();
    longer.push(0);
    for part in [vec![7; 100], vec![7; right.len()], longer, right] {
        let (hub, folder) = (hub(), tempfile::tempdir().unwrap());
        let path = folder.path().join("model.safetensors.part");
        fs::write(&path, part).unwrap();
        // Another process is fetching it.
        let other = File::open(&path).unwrap();
        other.lock().unwrap();
        let error = error(&hub, folder.path());
        assert!(error.starts_with("another process is fetching"), "{error}");
        drop(other);
        let (record, _) = fetched(&hub, folder.path());
        assert_complete(folder.path(), &record.unwrap());
    }
}

// Faults: M4.
#[test]
fn wrong_hash_changes_no_file_that_was_good() {
    let (hub, folder) = (hub(), tempfile::tempdir().unwrap());
    fetched(&hub, folder.path()).0.unwrap();
    let before = contents(folder.path());
    for name in [WEIGHTS, "config.json"] {
        hub.misrecord(Some((name, RecordFault::WrongHash)));
        let error = error(&hub, folder.path());
        assert!(error.contains("has the wrong content"), "{error}");
        assert!(error.contains("nothing in the directory was changed"));
        let mut after = contents(folder.path());
        after.retain(|name, _| !name.ends_with(".part"));
        assert_eq!(after, before);
    }
    hub.misrecord(None);
    let (record, _) = fetched(&hub, folder.path());
    assert_eq!(contents(folder.path())[WEIGHTS], before[WEIGHTS]);
    assert_eq!(record.unwrap().files.len(), 3);
}

// Faults: M5.
#[test]
fn refusals_have_their_own_messages_and_are_not_repeated() {
    let (hub, folder) = (hub(), tempfile::tempdir().unwrap());
    hub.require_token("hf_canary");
    hub.refuse_access("hf_gated");
    for (token, expected) in [
        (None, "without a login (HTTP 401); log in at http"),
        (
            Some("hf_other"),
            "the hub does not know the token of HF_TOKEN (HTTP 401",
        ),
        (Some("hf_gated"), "the account of HF_TOKEN has no access to"),
    ] {
        let client = client(&hub, token);
        let (error, _) = fetched_by(&client, &MODEL, folder.path(), None);
        let error = error.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains("hf_"), "{error}");
        // The page whose conditions have to be accepted.
        let names_page = error.contains(&format!("at {}/vikhyatk/moondream2", hub.endpoint()));
        assert_eq!(names_page, token != Some("hf_other"), "{error}");
        assert_eq!(hub.take_requests().len(), 1);
    }
    let other = ScriptedHub::start(Vec::new());
    let error = error(&other, folder.path());
    assert!(error.contains("(HTTP 404)"), "{error}");
    assert_eq!(other.take_requests().len(), 1);
    assert!(contents(folder.path()).is_empty());
}

// Faults: M6.
#[test]
fn passing_errors_of_the_hub_are_waited_for() {
    let (hub, folder) = (hub(), tempfile::tempdir().unwrap());
    hub.api_will([500, 429, 503, 504].map(Status));
    hub.will([HubFault::None, Status(502), Status(403), Status(416)]);
    let (record, _) = fetched(&hub, folder.path());
    assert_complete(folder.path(), &record.unwrap());
    hub.api_will(vec![Status(500); 5]);
    let error = error(&hub, folder.path());
    assert!(error.contains("answered with HTTP 500"), "{error}");
    fetched(&hub, folder.path()).0.unwrap();
}

// Faults: M8.
#[test]
fn file_that_does_not_fit_is_not_begun() {
    let (hub, folder) = (hub(), tempfile::tempdir().unwrap());
    hub.misrecord(Some((WEIGHTS, RecordFault::Huge)));
    let error = error(&hub, folder.path());
    assert!(error.contains("more bytes are needed and"), "{error}");
    assert!(contents(folder.path()).is_empty());
}

// Faults: M11.
/// Runs as root alone: another user's directory cannot be made by anyone else.
#[test]
fn links_planted_in_the_directory_of_the_service_are_refused() {
    if !crate::is_root() {
        return;
    }
    for name in [
        "model.safetensors.part",
        WEIGHTS,
        "config.json",
        "tokenizer.json.part",
        "model.toml.tmp",
    ] {
        let (hub, root) = (hub(), tempfile::tempdir().unwrap());
        let (directory, target) = (root.path().join("moondream2"), root.path().join("shadow"));
        fs::create_dir(&directory).unwrap();
        std::os::unix::fs::chown(&directory, Some(61_234), None).unwrap();
        fs::write(&target, "secret").unwrap();
        fs::set_permissions(&target, Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(&target, directory.join(name)).unwrap();
        let error = error(&hub, &directory);
        assert!(error.contains("it is a link"), "{name}: {error}");
        assert_eq!(fs::read(&target).unwrap(), b"secret", "{name}");
        let mode = target.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

// Faults: M9.
#[test]
fn mirror_without_sizes_or_hashes_is_named() {
    let (hub, folder) = (hub(), tempfile::tempdir().unwrap());
    for name in ["config.json", WEIGHTS] {
        hub.misrecord(Some((name, RecordFault::NameAlone)));
        let error = error(&hub, folder.path());
        let expected = format!("names no size and hash of {name}");
        assert!(error.contains(&expected), "{error}");
    }
}

static LICENSED: KnownModel = KnownModel {
    name: "licensed",
    summary: "",
    repositories: &[ModelSourceRepository {
        name: "some/licensed",
        revision: "main",
        files: &[
            WantedFile::optional(&[&["config.json"]]),
            WantedFile::required(&[&[WEIGHTS]]),
        ],
        has_own_licence: true,
    }],
};

/// A hub where the repository of [`LICENSED`] has this licence.
fn hub_with_licence(licence: Option<&str>) -> ScriptedHub {
    let licence = licence.map(|text| ScriptedFile::small("LICENSE.md", text));
    let weights = ScriptedFile::large(WEIGHTS, weights());
    ScriptedHub::start(vec![ScriptedRepository {
        name: "some/licensed",
        revision: "main",
        commit: COMMIT,
        licence: Some("other"),
        files: licence.into_iter().chain([weights]).collect(),
    }])
}

fn fetched_licensed(
    hub: &ScriptedHub,
    directory: &Path,
    accepted_on: Option<&str>,
) -> (Result<ModelRecord, HubError>, Vec<String>) {
    fetched_by(&client(hub, None), &LICENSED, directory, accepted_on)
}

#[test]
fn licence_is_accepted_before_the_first_byte_and_after_changes() {
    let folder = tempfile::tempdir().unwrap();
    let first = hub_with_licence(Some("Terms 1"));
    let changed = hub_with_licence(Some("Terms 2"));
    let (refused, _) = fetched_licensed(&first, folder.path(), None);
    let refused = refused.unwrap_err().to_string();
    let expected = "(LICENSE.md) is not accepted, so nothing was fetched; read it at http";
    assert!(refused.contains(expected), "{refused}");
    assert!(contents(folder.path()).is_empty());

    let (record, notes) = fetched_licensed(&first, folder.path(), Some("2026-11-27"));
    let record = record.unwrap();
    assert!(notes[1].contains(" to fetch, "), "{notes:?}");
    assert!(notes[2].starts_with("licence of some/licensed (LICENSE.md) accepted"));
    let [licence] = &record.licences[..] else {
        panic!("{record:?}");
    };
    let of_file = record.files.iter().find(|file| file.name == "LICENSE.md");
    assert_eq!(licence.sha256, of_file.unwrap().sha256);
    assert_eq!(licence.accepted, "2026-11-27");

    let (again, _) = fetched_licensed(&first, folder.path(), None);
    assert_eq!(again.unwrap(), record);
    let (refused, _) = fetched_licensed(&changed, folder.path(), None);
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("has changed since"), "{refused}");
    let (record, _) = fetched_licensed(&changed, folder.path(), Some("2026-12-24"));
    assert_eq!(record.unwrap().licences[0].accepted, "2026-12-24");
}

#[test]
fn repository_without_its_licence_file_is_not_fetched() {
    let folder = tempfile::tempdir().unwrap();
    let hub = hub_with_licence(None);
    let (result, _) = fetched_licensed(&hub, folder.path(), Some("2026-11-27"));
    let error = result.unwrap_err().to_string();
    assert!(
        error.starts_with("some/licensed has no licence file"),
        "{error}"
    );
    assert!(contents(folder.path()).is_empty());
}

#[test]
fn removed_model_leaves_only_files_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("licensed");
    let hub = hub_with_licence(Some("Terms"));
    for other in [None, Some("notes.txt")] {
        let (fetched, _) = fetched_licensed(&hub, &directory, Some("2026-11-27"));
        fetched.unwrap();
        for name in ["model.safetensors.part", "calibration.toml"] {
            fs::write(directory.join(name), "").unwrap();
        }
        if let Some(other) = other {
            fs::write(directory.join(other), "mine").unwrap();
        }
        let record = fs::metadata(directory.join("model.toml")).unwrap().len();
        let bytes = weights().len() as u64 + 5 + record;
        let files = crate::model_files(&LICENSED, &directory).unwrap();
        assert_eq!(crate::remove_files(&directory, &files).unwrap(), bytes);
        assert_eq!(directory.exists(), other.is_some());
    }
    assert_eq!(
        contents(&directory).keys().collect::<Vec<_>>(),
        ["notes.txt"]
    );
}
