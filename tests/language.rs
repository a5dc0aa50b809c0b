//! How the project is written (docs/glossary.md): one type for one name, no hidden parameters, plain words.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use crate::sources::{files, production_code, root};

/// Type names that more than one module defines, with the reason.
const SHARED_NAMES: &[(&str, &str)] = &[];

/// Words that hide the actor or the fact, in texts for users and in comments. Whole words, in lower case.
const AVOIDED: &[&str] = &[
    "told",
    "untold",
    "tells",
    "nobody",
    "somebody",
    "anew",
    "seldom",
    "whoever",
    "whatever",
    "stands",
    "lies",
    "so many",
    "so much",
    "what is there",
    "as it is",
    "of ours",
    "of theirs",
    "goes away",
    "comes back",
];

/// The first of them, which no comment needs; comments may have the phrases ("as it is stored").
const SINGLE_WORDS: usize = 11;

/// Text that is allowed although it has such a word: file, and a part of the line.
const ALLOWED: &[(&str, &str)] = &[];

#[test]
fn type_name_is_defined_once() {
    let mut places: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in production_code() {
        for line in text.lines() {
            if let Some(name) = defined_type(line) {
                let path = path.strip_prefix(root()).unwrap().display().to_string();
                places.entry(name.to_owned()).or_default().insert(path);
            }
        }
    }
    assert!(
        places.len() > 400,
        "the search is broken: {} types",
        places.len()
    );
    let is_shared = |name: &str| SHARED_NAMES.iter().any(|(shared, _)| *shared == name);
    let twice: Vec<_> = places
        .iter()
        .filter(|(name, paths)| paths.len() > 1 && !is_shared(name))
        .collect();
    assert!(twice.is_empty(), "give each its own name: {twice:#?}");
}

/// The name that a line defines as a struct, enum, union, trait or (not in a trait or impl) type.
fn defined_type(line: &str) -> Option<&str> {
    let is_indented = line.starts_with(' ');
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        Some(rest) => rest.trim_start_matches(|c| c != ' ').trim_start(),
        None => line,
    };
    let (keyword, rest) = line.split_once(' ')?;
    let is_definition = match keyword {
        "struct" | "enum" | "union" | "trait" => true,
        "type" => !is_indented,
        _ => false,
    };
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let name = &rest[..end.unwrap_or(rest.len())];
    (is_definition && name.starts_with(|c: char| c.is_ascii_uppercase())).then_some(name)
}

#[test]
fn no_parameter_is_a_tuple_pattern() {
    let mut found = Vec::new();
    for (path, text) in production_code() {
        for (at, _) in text.match_indices("fn ") {
            let Some(parameters) = parameters(&text[at..]) else {
                continue;
            };
            if has_tuple_pattern(parameters) {
                let line = text[..at].lines().count();
                found.push(format!("{}:{line}", path.display()));
            }
        }
    }
    assert!(
        found.is_empty(),
        "a named struct says what the parts are: {found:#?}"
    );
}

/// What is between the parentheses of a function's parameters.
fn parameters(function: &str) -> Option<&str> {
    let open = function.find(['(', '{', ';'])?;
    if !function[open..].starts_with('(') {
        return None;
    }
    let mut depth = 0;
    for (at, character) in function[open..].char_indices() {
        depth += match character {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        if depth == 0 {
            return Some(&function[open + 1..open + at]);
        }
    }
    None
}

/// Does a parameter begin with `(`, and is that its pattern, because `:` follows?
fn has_tuple_pattern(parameters: &str) -> bool {
    let mut depth = 0;
    let mut begins = true;
    for (at, character) in parameters.char_indices() {
        match character {
            '(' if begins => {
                let rest = &parameters[at..];
                let closed = rest.find(')').unwrap_or(0);
                if rest[closed + 1..].trim_start().starts_with(':') {
                    return true;
                }
                depth += 1;
            }
            '(' | '<' | '[' | '{' => depth += 1,
            ')' | '>' | ']' | '}' => depth -= 1,
            _ => {}
        }
        begins = match character {
            ',' => depth == 0,
            c if c.is_whitespace() => begins,
            _ => false,
        };
    }
    false
}

#[test]
fn user_visible_text_has_plain_words() {
    let mut found = Vec::new();
    let mut report = |path: &Path, number: usize, text: &str| {
        let path = path.strip_prefix(root()).unwrap().display().to_string();
        let is_allowed = ALLOWED
            .iter()
            .any(|(file, part)| path == *file && text.contains(part));
        if let Some(word) = avoided(text, AVOIDED)
            && !is_allowed
        {
            found.push(format!("{path}:{number}: {word:?}: {}", text.trim()));
        }
    };
    for (path, text) in production_code() {
        for (number, line) in text.lines().enumerate() {
            for literal in literals(line) {
                report(&path, number + 1, literal);
            }
        }
    }
    let help = ["src/cli/args.rs", "crates/lab/src/args.rs"].map(|path| root().join(path));
    let pages = files(&root(), &["md", "toml"]);
    for path in help.iter().chain(&pages) {
        let text = fs::read_to_string(path).expect("a text file");
        for (number, line) in text.lines().enumerate() {
            let is_help = line.trim_start().starts_with("///");
            if is_help || path.extension().is_none_or(|kind| kind != "rs") {
                report(path, number + 1, line);
            }
        }
    }
    assert!(
        found.is_empty(),
        "{} lines:\n{}",
        found.len(),
        found.join("\n")
    );
}

#[test]
fn comments_have_plain_words() {
    let mut found = Vec::new();
    for path in files(&root(), &["rs", "cu", "cuh"]) {
        let text = fs::read_to_string(&path).expect("a text file");
        for (number, line) in text.lines().enumerate() {
            let comment = line.trim_start();
            if comment.starts_with("//")
                && let Some(word) = avoided(comment, &AVOIDED[..SINGLE_WORDS])
            {
                found.push(format!("{}:{}: {word:?}", path.display(), number + 1));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn test_names_have_at_most_ten_words_all_plain() {
    let mut found = Vec::new();
    let mut tests = 0;
    for path in files(&root(), &["rs"]) {
        let text = fs::read_to_string(&path).expect("a text file");
        for name in test_names(&text) {
            tests += 1;
            let words = name.split('_').count();
            if words > 10 || avoided(&name.replace('_', " "), &AVOIDED[..SINGLE_WORDS]).is_some() {
                found.push(format!("{}: {name}", path.display()));
            }
        }
    }
    assert!(tests > 500, "the search is broken: {tests} tests");
    assert!(found.is_empty(), "{found:#?}");
}

/// Names of the functions that have a `test` attribute.
fn test_names(text: &str) -> impl Iterator<Item = &str> {
    let mut is_test = false;
    text.lines().filter_map(move |line| {
        let line = line.trim_start();
        is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        let function = line.trim_start_matches("async ").strip_prefix("fn ")?;
        let name = function.split('(').next()?;
        std::mem::take(&mut is_test).then_some(name)
    })
}

/// The first avoided word of a text.
fn avoided(text: &str, words: &'static [&'static str]) -> Option<&'static str> {
    let text = text.to_lowercase();
    let is_part = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    words.iter().copied().find(|word| {
        text.match_indices(word).any(|(at, _)| {
            let before = text[..at].chars().next_back();
            let after = text[at + word.len()..].chars().next();
            !is_part(before) && !is_part(after)
        })
    })
}

/// The string literals of a line of code; one that goes over several lines is seen line by line.
fn literals(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut begin = None;
    let mut escaped = false;
    for (at, character) in line.char_indices() {
        match (character, begin) {
            _ if escaped => escaped = false,
            ('\\', Some(_)) => escaped = true,
            ('"', None) => begin = Some(at + 1),
            ('"', Some(from)) => {
                found.push(&line[from..at]);
                begin = None;
            }
            _ => {}
        }
    }
    // A literal that goes on, or the end of one that began before: all words of it count.
    found.extend(begin.map(|from| &line[from..]));
    if found.is_empty() && line.trim_end().ends_with('\\') {
        found.push(line);
    }
    found
}

#[test]
fn checks_find_what_they_are_for() {
    assert_eq!(defined_type("pub(super) struct Held<'a> {"), Some("Held"));
    assert_eq!(defined_type("    type Output = u8;"), None);
    assert_eq!(defined_type("type Short = u8;"), Some("Short"));
    let of = |text| has_tuple_pattern(parameters(text).unwrap());
    assert!(of("fn f(a: u8, (b, c): (u8, u8)) {"));
    assert!(!of("fn f(a: (u8, u8), b: impl Fn(u8) -> u8) {"));
    assert_eq!(avoided("The operator is told", AVOIDED), Some("told"));
    assert_eq!(avoided("untolded standstill", AVOIDED), None);
    assert_eq!(literals(r#"a("x \" y", "z")"#), [r#"x \" y"#, "z"]);
}
