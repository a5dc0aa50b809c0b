//! `choices` of a question.

use super::*;

#[test]
fn choices_are_trimmed_texts_of_a_question() {
    let choices = "query = \"Open?\"\nchoices = [\" Open\", \"half open \"]";
    let loaded = loaded(&gate("").replace("detect = \"person\"", choices));
    let task = Task::Query {
        question: "Open?".into(),
        choices: vec!["Open".into(), "half open".into()],
        options: Default::default(),
    };
    assert_eq!(loaded.config.cameras[0].prompts[0].task, task);
}
