//! A command from its JSON to the answers of an engine.

use std::sync::{Arc, Mutex};

use super::*;
use crate::app::{config_store::open_config, test_support};
use spotter_cameras::sampler::Sampler;
use spotter_core::{AnswerBody, Clock as _, Frame, ManualClock, NormBox, Picture};
use spotter_engine::{
    scheduler::backend::Step,
    testing::simulated::{self, BeforeLaunch},
};
use spotter_mqtt::Topics;

const CONFIG: &str = r#"
mqtt.url = "mqtt://127.0.0.1:1"
[camera.gate]
url = "test://"
prompt.person.detect = "person"
"#;

fn command(config: &ConfigStore, json: &str) -> Command {
    let topics = Topics::new("spotter", &config.file().node.name);
    let message = Inbound {
        topic: topics.command(),
        payload: json.into(),
        retained: false,
        reply_to: None,
    };
    match publish::parse_inbound(&topics, None, &message) {
        InboundKind::Request(request) => request.command.unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn added_prompt_with_region_sees_its_part_of_the_picture() {
    let clock = ManualClock::default();
    clock.advance(Duration::from_secs(1000));
    let file = test_support::config(CONFIG);
    let mut config = open_config(file, &test_support::state(), &clock);
    let sampler = Sampler::new(config.cameras(), Arc::new(clock.clone()));
    let share = sampler.share(test_support::no_limits());
    let gate = config.cameras()[0].id.clone();
    sampler.assign(&share, std::slice::from_ref(&gate));

    // The same object, so that the simulated model finds the same in the part as in the whole picture.
    let add = r#"{"op": "prompt_add", "cam": "gate", "prompt":
                  {"id": "near", "detect": "person", "region": [0.25, 0.5, 0.75, 1]}}"#;
    let add = command(&config, add);
    config.execute(&add, clock.now(), clock.wall()).unwrap();
    sampler.change(config.cameras());
    sampler.assign(&share, std::slice::from_ref(&gate));
    sampler.camera_sink(&gate).unwrap()(Frame {
        camera_size: (400, 300),
        picture: Picture::from_rgb(400, 300, vec![0; 400 * 300 * 3]).unwrap(),
        ..test_support::frame(&gate, 1, clock.now())
    });
    let look = test_support::look(&share).unwrap();

    let encoded = Arc::new(Mutex::new(Vec::new()));
    let sizes = Arc::clone(&encoded);
    let record = move |step: &Step| {
        let sizes = step.images.iter().map(|image| image.picture.size());
        encoded.lock().unwrap().extend(sizes);
    };
    let device = BeforeLaunch::new(simulated::device(3), record);
    let mut engine = simulated::engine(device, Arc::new(clock.clone()));
    let answers = engine.look(look).unwrap().into_answers().unwrap();
    let mut sizes = sizes.lock().unwrap().clone();
    sizes.sort_unstable();
    assert_eq!(sizes, [(200, 150), (400, 300)]);
    let boxes_of = |id: &str| -> (Option<NormBox>, Vec<NormBox>) {
        let answer = answers
            .iter()
            .find(|answer| answer.prompt.id.as_str() == id);
        let answer = answer.unwrap();
        match &answer.body {
            AnswerBody::Boxes(found) => (answer.region, found.iter().map(|f| f.place).collect()),
            other => panic!("{other:?}"),
        }
    };
    let part = NormBox::from_corners(0.25, 0.5, 0.75, 1.0);
    let (whole, in_whole) = boxes_of("person");
    let (region, in_part) = boxes_of("near");
    assert_eq!((whole, region), (None, Some(part)));
    assert!(!in_part.is_empty(), "the model finds nothing");
    let expected: Vec<NormBox> = in_whole.iter().map(|b| part.box_in_picture(b)).collect();
    assert_eq!(in_part, expected);
}

// Faults: B22.
#[test]
fn same_id_of_two_clients_is_two_requests() {
    let key = |op: &str, topic: Option<&str>| {
        let head = publish::RequestHead {
            id: Some("1".into()),
            op: op.into(),
            ..publish::RequestHead::default()
        };
        let reply_to = topic.map(|topic| ReplyTo {
            topic: topic.into(),
            correlation: None,
        });
        RequestKey::of(&Requester { head, reply_to }).unwrap()
    };
    let mut recent = RequestHistory::default();
    let (now, desk) = (Mono::default(), Some("spotter/desk"));
    let requests = [("ask", desk), ("ask", None), ("get", desk), ("get", None)];
    for (number, (op, topic)) in requests.into_iter().enumerate() {
        assert_eq!(recent.register(key(op, topic), now), RequestStatus::New);
        recent.answer(&key(op, topic), number);
    }
    for (number, (op, topic)) in requests.into_iter().enumerate() {
        let again = recent.register(key(op, topic), now);
        assert_eq!(again, RequestStatus::Answered(number));
    }
}
