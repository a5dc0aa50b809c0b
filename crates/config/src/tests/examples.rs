//! The files in `configs/` load, and the three-camera example has the values that configuration.md describes.

use super::*;
use spotter_core::{
    WeeklySchedule,
    testing::{rate, share},
};

fn shipped(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../configs")
        .join(name)
}

#[test]
fn each_shipped_configuration_passes_check() {
    let mut count = 0;
    for entry in fs::read_dir(shipped("")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|kind| kind != "toml") {
            continue;
        }
        let loaded = check(&path, &environment(&[])).unwrap_or_else(|p| panic!("{p}"));
        for warning in &loaded.warnings {
            let about_this_machine = ["did not provide", "not set", "not found"];
            let is_about = |part: &&str| warning.text.contains(part);
            assert!(about_this_machine.iter().any(is_about), "{warning}");
        }
        count += 1;
    }
    assert!(count >= 4, "{count} files");
}

#[test]
fn the_demo_starts_anywhere() {
    let loaded = load(&shipped("demo.toml"), &environment(&[])).unwrap_or_else(|p| panic!("{p}"));
    assert!(loaded.warnings.is_empty());
    let config = loaded.config;
    assert_eq!(config.mqtt.broker.host, "127.0.0.1");
    assert_eq!(config.model.source, ModelSource::Embedded);
    assert_eq!(config.model.budget, Duration::from_secs(1));
    let street = &config.cameras[0];
    let ids: Vec<_> = street.prompts.iter().map(|p| p.id.as_str()).collect();
    assert_eq!(ids, ["person", "car", "red_car", "dog", "how_many_cars"]);
    let rates = (street.rate, street.prompts[4].rate);
    assert_eq!(rates, (rate(2.0), rate(0.2)));
}

/// Beside the defaults that the reference shows.
#[test]
fn minimal_file_has_the_name_and_folder_of_its_machine() {
    let text = gate("");
    let surroundings = environment(&[("HOME", "/home/me")]);
    let config_of = |text: &str| {
        let loaded = read(text.as_bytes(), ReadPurpose::Run, &surroundings);
        loaded.unwrap().config
    };
    let config = config_of(&text);
    assert_eq!(config.node.name.as_str(), "edge-box");
    let state_dir = Path::new("/home/me/.local/state/spotter");
    assert_eq!(config.node.state_dir, state_dir);
    let BrokerAccess { tls, port, .. } = &config.mqtt.broker;
    assert_eq!((tls, *port), (&None, 1883));
    let hashes = [&text, &format!("{text}#")].map(|text| config_of(text).hash);
    assert!(hashes[0].len() == 12 && hashes[0] != hashes[1]);
}

/// The example with all that it names on the machine: credentials, certificates, the model.
#[test]
fn three_camera_example_gives_its_documented_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let files = "mqtt_password mqtt_key gate_password yard_password ca.pem edge1.pem";
    for name in files.split(' ') {
        fs::write(dir.path().join(name), format!("{name}!\n")).unwrap();
    }
    let here = dir.path().to_str().unwrap();
    let text = fs::read_to_string(shipped("three-cameras.toml")).unwrap();
    let text = text.replace("/etc/site", here);
    let text = text.replace("/var/lib/spotter/models/moondream2", here);
    let variables = [
        ("CREDENTIALS_DIRECTORY", here),
        ("DOCK_PASSWORD", "dock!"),
        ("STATE_DIRECTORY", "/state"),
    ];
    let loaded = read(text.as_bytes(), ReadPurpose::Run, &environment(&variables));
    let loaded = loaded.unwrap_or_else(|p| panic!("{p}"));
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    let config = loaded.config;

    assert_eq!(config.node.name.as_str(), "edge1");
    assert_eq!(config.node.state_dir, Path::new("/state"));
    let broker = &config.mqtt.broker;
    assert_eq!(
        (broker.host.as_str(), broker.port),
        ("broker.example.net", 8883)
    );
    let tls = broker.tls.as_ref().unwrap();
    let secrets = [&broker.password, &tls.client_key].map(|key| key.as_ref().unwrap().reveal());
    assert_eq!(secrets, ["mqtt_password!", "mqtt_key!"]);
    assert_eq!(tls.ca.as_deref(), Some(dir.path().join("ca.pem").as_path()));
    assert_eq!(config.model.source, ModelSource::Directory(here.into()));
    assert_eq!(config.model.budget, Duration::from_millis(250));

    let ids: Vec<_> = config.cameras.iter().map(|c| c.id.as_str()).collect();
    assert_eq!(ids, ["gate", "dock", "yard"], "in the order of the file");
    let [gate, dock, yard] = &config.cameras[..] else {
        unreachable!()
    };
    assert!(gate.motion.on && gate.motion.hold == Duration::from_secs(10));
    let SourceConfig::Rtsp(rtsp) = &gate.source else {
        panic!("{:?}", gate.source)
    };
    assert_eq!(rtsp.password.as_ref().unwrap().reveal(), "gate_password!");
    assert!(matches!(&rtsp.tls, CameraTls::Fingerprint(bytes) if bytes[..2] == [0x6f, 0x1e]));
    let [person, parcel] = &gate.prompts[..] else {
        panic!("{:?}", gate.prompts)
    };
    assert_eq!((person.min_score, person.min_area), (share(0.4), 0.002));
    assert!(person.snapshot && person.zones == [gate.zones[0].id.clone()]);
    assert_eq!((person.rate, parcel.rate), (rate(2.0), rate(0.2)));
    let verify = "Is there a parcel on the ground?";
    assert_eq!(parcel.verify.as_deref(), Some(verify));
    let rates = [gate, dock, yard].map(|camera| camera.rate.hz());
    assert_eq!(rates, [2.0, 5.0, 0.5]);
    let top = vec![(0.0, 0.0), (1.0, 0.0), (1.0, 0.2), (0.0, 0.2)];
    assert_eq!(dock.mask, [top]);
    let EventConfig {
        confirm, end_after, ..
    } = dock.prompts[0].events;
    assert_eq!((confirm, end_after), ((3, 4), Duration::from_secs(5)));
    let schedule = WeeklySchedule::new("Mon-Fri 18:00-06:00 Europe/Berlin");
    assert_eq!(yard.schedule, schedule.ok());
}
