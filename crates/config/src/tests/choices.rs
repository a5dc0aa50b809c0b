//! `choices` of a question: what is wrong with them, and where they are read.

use super::*;

const KEY: &str = "camera.gate.prompt.person.choices";

/// The errors and warnings about a prompt of these lines; the first is line 7.
fn prompt(lines: &str) -> Vec<String> {
    said(&gate("").replace("detect = \"person\"", lines))
}

#[test]
fn each_invalid_list_of_choices_has_its_message() {
    let query = |choices: &str| prompt(&format!("query = \"Open?\"\nchoices = {choices}"));
    assert_eq!(query(r#"["open", "closed"]"#), [""; 0]);
    assert_eq!(query(&format!("[\"a\", \"{}\"]", "ä".repeat(40))), [""; 0]);
    let empty = "8:19 KEY: empty; write an answer that the model may give";
    let control =
        "8:12 KEY: contains a control character (a tab or a line break); write one plain line";
    let repeats = "8:28 KEY: \"open\" repeats \"Open\"; upper and lower case count as equal";
    let no_answer = "8:20 KEY: \"NONE\" is the state of a question that has no answer; write another word, such as \"nothing\"";
    let integer = "8:19 KEY: needs text in quotes, found a value of type integer";
    let string = "8:11 KEY: needs an array, found a value of type string";
    for (choices, wrong) in [
        ("[]", "8:11 KEY: has 0 texts; give 2 to 16"),
        (r#"["yes"]"#, "8:11 KEY: has 1 texts; give 2 to 16"),
        (r#"["yes", " "]"#, empty),
        (r#"["a\tb", "c"]"#, control),
        (r#"["Open", "shut", " open "]"#, repeats),
        (r#"["open", " NONE"]"#, no_answer),
        (r#"["yes", 2]"#, integer),
        ("\"yes, no\"", string),
    ] {
        assert_eq!(query(choices), [wrong.replace("KEY", KEY)]);
    }
    let many: Vec<_> = (0..17).map(|n| format!("\"{n}\"")).collect();
    let line = format!("8:11 {KEY}: has 17 texts; give 2 to 16");
    assert_eq!(query(&format!("[{}]", many.join(","))), [line]);
    let all = [
        format!("8:11 {KEY}: has 1 texts; give 2 to 16"),
        format!("8:12 {KEY}: 41 characters, limit 40"),
    ];
    assert_eq!(query(&format!("[\"{}\"]", "x".repeat(41))), all, "both");
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
