//! `choices` of a question: what is wrong with them, and where they are read.

use super::*;

const KEY: &str = "camera.gate.prompt.person.choices";

/// The errors and warnings about a prompt of these lines; the first is line 7.
fn prompt(lines: &str) -> Vec<String> {
    said(&gate("").replace("detect = \"person\"", lines))
}

#[test]
fn choices_are_for_questions() {
    for task in ["detect", "point"] {
        let line =
            format!("8:11 {KEY}: has no effect on an answer that is not text; use it with query");
        let lines = format!("{task} = \"door\"\nchoices = [\"open\", \"closed\"]");
        assert_eq!(prompt(&lines), [line]);
    }
    let line = "8:1 camera.gate.prompt.person.choice: unknown key; did you mean \"choices\"?";
    assert_eq!(prompt("query = \"Open?\"\nchoice = [\"a\", \"b\"]"), [line]);
    let choices = "query = \"Open?\"\nchoices = [\" Open\", \"half open \"]";
    let file = gate("").replace("detect = \"person\"", choices);
    let loaded = loaded(&file);
    let task = Task::Query {
        question: "Open?".into(),
        choices: vec!["Open".into(), "half open".into()],
        options: Default::default(),
    };
    assert_eq!(loaded.config.cameras[0].prompts[0].task, task);
}
