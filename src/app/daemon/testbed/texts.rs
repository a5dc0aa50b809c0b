//! `stream = true`: the parts of a text while a real model on the CPU writes it, beside the detection and the state that have it whole.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// The parts of a text, as a consumer reads them.
#[derive(Debug, Default)]
pub(super) struct ReadText {
    pub(super) text: String,
    /// Its next part.
    n: u64,
    has_gap: bool,
    is_done: bool,
}

impl ReadText {
    pub(super) fn is_whole(&self) -> bool {
        self.is_done && !self.has_gap
    }
}

/// The texts on the topic of parts of a prompt, by id.
pub(super) fn texts_of(received: &ReceivedJson, prompt: &str) -> BTreeMap<String, ReadText> {
    let topic = format!("cam/{prompt}/part");
    let mut texts = BTreeMap::<String, ReadText>::new();
    for part in received.of(&topic) {
        let of = texts.entry(part["id"].as_str().unwrap().to_owned());
        let text = of.or_default();
        assert!(!text.is_done, "nothing follows the last part: {part}");
        let n = part["n"].as_u64().unwrap();
        assert!(n >= text.n, "{part}");
        text.has_gap |= n > text.n;
        text.n = n + 1;
        text.text += part["text"].as_str().unwrap();
        text.is_done = part["done"] == true;
    }
    texts
}

#[test]
fn texts_come_in_parts_and_broker_outage_drops_parts_alone() {
    let test =
        "app::daemon::testbed::texts::texts_come_in_parts_and_broker_outage_drops_parts_alone";
    alone_without_an_error(test, scenario());
}

const TOPICS: [&str; 2] = ["gate/answer/scene", "gate/answer/words"];

fn count_whole(received: &ReceivedJson, topic: &str) -> usize {
    let texts = texts_of(received, topic).into_values();
    texts.filter(ReadText::is_whole).count()
}

async fn until_whole(received: &mut ReceivedJson, testbed: &Testbed) {
    for topic in TOPICS {
        let wanted = count_whole(received, topic) + 3;
        let is_so = |all: &ReceivedJson| count_whole(all, topic) >= wanted;
        received.until(testbed, is_so).await;
    }
}

async fn scenario() {
    let server = Server::start(|_| good()).await;
    let testbed = Testbed::new(vec![server.url()], PATIENT).await;
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/md2-micro");
    let text = testbed.text();
    testbed.write(&format!(
        "model.path = {model:?}\nmodel.device = \"cpu\"\n{text}\
         prompt.scene = {{ query = \"What is going on?\", stream = true }}\n\
         prompt.words = {{ caption = \"normal\", stream = true }}\n"
    ));
    let engines: Arc<OpenEngines> = Arc::new(|plan| Box::pin(plan.open()));
    let writing = async {
        let mut received = ReceivedJson::default();
        until_whole(&mut received, &testbed).await;
        let earlier: BTreeSet<String> = TOPICS
            .iter()
            .flat_map(|topic| texts_of(&received, topic).into_keys())
            .collect();
        testbed.broker.leave();
        let dropped = || {
            let status = testbed.status();
            let reasons = status["broker"]["dropped"].as_array().into_iter().flatten();
            reasons.filter_map(|reason| reason[1].as_u64()).sum::<u64>()
        };
        let before = dropped();
        until("messages are dropped", || dropped() > before + 20).await;
        testbed.broker.come_back().await;
        until_whole(&mut received, &testbed).await;
        // The states have texts of after the outage.
        for topic in TOPICS {
            let has_new = |all: &ReceivedJson| {
                let state = testbed.retained(&format!("cam/{topic}"));
                let mut texts = texts_of(all, topic).into_iter();
                texts.any(|(id, text)| {
                    !earlier.contains(&id) && text.is_whole() && state.as_ref() == Some(&text.text)
                })
            };
            received.until(&testbed, has_new).await;
        }
        signal("-TERM");
        received
    };
    let (report, received) = testbed.run_with(machine_clock(), engines, writing).await;
    assert!(report.balanced(), "{report}");
    for topic in TOPICS {
        let detections = format!("cam/{}", topic.replace("answer", "det"));
        let texts = texts_of(&received, topic);
        for detection in received.of(&detections) {
            let id = format!(
                "{}-{}",
                detection["boot"].as_str().unwrap(),
                detection["frame"]["n"]
            );
            let of = texts.get(&id).filter(|text| text.is_whole());
            if let Some(text) = of {
                assert_eq!(detection["answer"], text.text, "{detection}");
            }
        }
        // Those that were being written when the broker left and when it came back, and at the end.
        let cut = texts.values().filter(|text| !text.is_whole());
        assert!(cut.count() <= 3, "{texts:?}");
    }
}
