//! `frames`: a question about the last frames of a camera, which the model sees in one picture.

use serde_json::Value;
use spotter_core::StripShape;

use super::*;

#[test]
fn question_about_a_strip_is_answered() {
    let test = "app::daemon::testbed::strips::question_about_a_strip_is_answered";
    alone_without_an_error(test, asked());
}

async fn asked() {
    let server = Server::start(|_| good()).await;
    let testbed = Testbed::new(vec![server.url()], PATIENT).await;
    let text = |frames: u8| {
        let scene = format!(
            "prompt.scene = {{ query = \"Is it dark?\", frames = {frames}, over = \"600ms\", rate = 5 }}\n"
        );
        testbed.text() + &scene
    };
    testbed.write(&text(4));
    let scenario = async {
        let mut seen = Vec::new();
        for frames in [4, 9] {
            let answer = answer(&testbed, frames).await;
            let side = |key: &str| answer["frame"][key].as_u64().unwrap() as usize;
            let shape = StripShape {
                frames,
                over: Duration::from_millis(600),
            };
            let size = shape.size((side("w"), side("h")));
            until("a strip", || testbed.scene.picture(size).is_some()).await;
            seen.push((answer, shape, testbed.scene.picture(size).unwrap()));
            // Copies that are still needed are not taken again after a reload.
            testbed.reload(&text(9));
        }
        signal("-TERM");
        seen
    };
    let (report, seen) = testbed.run_while(machine_clock(), scenario).await;
    assert!(report.balanced(), "{report}");
    for (answer, shape, strip) in seen {
        assert_eq!(answer["strip"]["over_s"], 0.6);
        assert!(answer["answer"].is_string() && answer["count"].is_null());
        // The lines between the panels are black, and a panel is not.
        let (width, height) = strip.size();
        let panel = (height + 4) / shape.side() - 4;
        let row = |y: usize| strip.row(0, y)[..width].to_vec();
        for line in 0..4 {
            assert_eq!(row(panel + line), vec![16; width]);
        }
        assert!(row(panel / 2).iter().any(|luma| *luma != 16));
    }
}

/// The first answer of the prompt with so many frames.
async fn answer(testbed: &Testbed, frames: u8) -> Value {
    let search = async {
        loop {
            for message in testbed.broker.consumed() {
                let is_its = message.topic == "spotter/edge1/cam/gate/det/scene";
                let json: Option<Value> = serde_json::from_slice(&message.payload).ok();
                if let Some(json) = json.filter(|json| is_its && json["strip"]["frames"] == frames)
                {
                    return json;
                }
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, search).await.expect("an answer")
}
