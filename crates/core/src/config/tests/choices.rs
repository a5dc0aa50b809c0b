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
    for (choices, wrong) in [
        ("[]", "8:11 KEY: has 0 texts; give 2 to 16"),
        (r#"["yes"]"#, "8:11 KEY: has 1 texts; give 2 to 16"),
        (
            r#"["yes", " "]"#,
            "8:19 KEY: empty; write an answer that the model may give",
        ),
        (
            r#"["a\tb", "c"]"#,
            "8:12 KEY: contains a control character (a tab or a line break); write one plain line",
        ),
        (
            r#"["Open", "shut", " open "]"#,
            "8:28 KEY: \"open\" repeats \"Open\"; upper and lower case count as equal",
        ),
        (
            r#"["yes", 2]"#,
            "8:19 KEY: needs text in quotes, found a value of type integer",
        ),
        (
            "\"yes, no\"",
            "8:11 KEY: needs an array, found a value of type string",
        ),
    ] {
        let line = format!("site.toml:{}", wrong.replace("KEY", KEY));
        assert_eq!(query(choices), [line]);
    }
    let many: Vec<_> = (0..17).map(|n| format!("\"{n}\"")).collect();
    let line = format!("site.toml:8:11 {KEY}: has 17 texts; give 2 to 16");
    assert_eq!(query(&format!("[{}]", many.join(","))), [line]);
    let all = [
        format!("site.toml:8:11 {KEY}: has 1 texts; give 2 to 16"),
        format!("site.toml:8:12 {KEY}: 41 characters, limit 40"),
    ];
    assert_eq!(query(&format!("[\"{}\"]", "x".repeat(41))), all, "both");
}

#[test]
fn choices_are_for_questions() {
    for task in ["detect", "point"] {
        let line = format!(
            "site.toml:8:11 {KEY}: has no effect on an answer that is not text; use it with query"
        );
        let lines = format!("{task} = \"door\"\nchoices = [\"open\", \"closed\"]");
        assert_eq!(prompt(&lines), [line]);
    }
    let line =
        "site.toml:8:1 camera.gate.prompt.person.choice: unknown key; did you mean \"choices\"?";
    assert_eq!(prompt("query = \"Open?\"\nchoice = [\"a\", \"b\"]"), [line]);
    let file = gate("").replace(
        "detect = \"person\"",
        "query = \"Open?\"\nchoices = [\" Open\", \"half open \"]",
    );
    let loaded = read(file.as_bytes(), ReadPurpose::Run, &environment(&[])).unwrap();
    let task = Task::Query {
        question: "Open?".into(),
        choices: vec!["Open".into(), "half open".into()],
    };
    assert_eq!(loaded.config.cameras[0].prompts[0].task, task);
}
