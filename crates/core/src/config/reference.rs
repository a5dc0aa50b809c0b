//! `docs/configuration.md`, from the declared keys.

use std::{fmt::Write as _, ops::RangeInclusive};

use super::{
    keys::{Form, ROOT, TableKeys},
    parse::duration_text,
};

const INTRODUCTION: &str = "\
# Configuration

One TOML file. `spotter check FILE` reports every mistake in it with line and column; `spotter check FILE --probe` also connects to the
broker and to each camera. `systemctl reload spotter` applies a changed file. This page is generated from the code.

Times have a unit: `\"250ms\"`, `\"5s\"`, `\"2m\"`, `\"24h\"`. Relative paths start at the file's directory. Tables may be written inline (`motion = { on = true }`), with
dots (`prompt.person.detect = \"person\"`), or with a header.
";

/// The reference of all keys, as Markdown: the text of `docs/configuration.md`.
pub fn reference() -> String {
    let mut text = INTRODUCTION.to_owned();
    let mut shown = Vec::new();
    table(&mut text, &ROOT, &mut shown);
    text
}

/// A table, then the tables in it; each once, though several keys may have it.
fn table(text: &mut String, keys: &'static TableKeys, shown: &mut Vec<&'static str>) {
    if shown.contains(&keys.heading) {
        return;
    }
    shown.push(keys.heading);
    let heading = match keys.heading.starts_with(|c: char| c.is_uppercase()) {
        true => keys.heading.to_owned(),
        false => format!("`{}`", keys.heading),
    };
    let _ = write!(text, "\n## {heading}\n\n{}\n\n", keys.doc);
    let _ = writeln!(
        text,
        "| key | value | default | meaning |\n| --- | --- | --- | --- |"
    );
    for key in keys.keys().filter(|key| !key.doc.is_empty()) {
        let default = match (key.default)() {
            none if none.is_empty() => "–".to_owned(),
            text if text.contains(' ') && !text.starts_with('"') => text,
            literal => format!("`{literal}`"),
        };
        let value = form(&key.form);
        let _ = writeln!(
            text,
            "| `{}` | {value} | {default} | {} |",
            key.name, key.doc
        );
    }
    let _ = write!(text, "\n```toml\n{}\n```\n", keys.example);
    for key in keys.keys() {
        if let Form::Table(inner) | Form::Tables(inner) | Form::Secret(inner) = &key.form {
            table(text, inner, shown);
        }
    }
}

fn form(form: &Form) -> String {
    match form {
        Form::Text => "text".into(),
        Form::Path => "path".into(),
        Form::Secret(keys) => format!("a table ([{0}](#{1}))", keys.heading, anchor(keys.heading)),
        Form::Flag => "`true`, `false`".into(),
        Form::Number { range, unit } => with_unit(numbers(range), unit),
        Form::Whole { range, unit } if *range.end() == u64::MAX => {
            with_unit("whole number".into(), unit)
        }
        Form::Whole { range, unit } => with_unit(
            format!("whole number, {} to {}", range.start(), range.end()),
            unit,
        ),
        Form::Time(range) => format!(
            "time, {} to {}",
            duration_text(*range.start()),
            duration_text(*range.end())
        ),
        Form::Choice(words) => {
            let words: Vec<_> = words.iter().map(|word| format!("`\"{word}\"`")).collect();
            words.join(", ")
        }
        Form::List(elements) => format!("array of {elements}"),
        Form::Table(keys) => format!(
            "a table ([{0}](#{1}))",
            keys.heading.trim_matches(['[', ']']),
            anchor(keys.heading)
        ),
        Form::Tables(keys) => format!(
            "tables ([{0}](#{1}))",
            keys.heading.trim_matches(['[', ']']),
            anchor(keys.heading)
        ),
    }
}

fn numbers(range: &RangeInclusive<f64>) -> String {
    format!("number, {} to {}", range.start(), range.end())
}

fn with_unit(text: String, unit: &str) -> String {
    match unit {
        "" => text,
        unit => format!("{text} {unit}"),
    }
}

/// The anchor that GitHub gives a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().replace(' ', "-")
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use crate::config::tests::{environment, of_example};

    /// `SPOTTER_WRITE_DOCS=1` writes the page.
    #[test]
    fn configuration_page_is_the_generated_one() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
        if std::env::var_os("SPOTTER_WRITE_DOCS").is_some() {
            fs::write(&page, reference()).unwrap();
        }
        let written = fs::read_to_string(&page).unwrap_or_default();
        assert!(
            written == reference(),
            "docs/configuration.md is stale; run: SPOTTER_WRITE_DOCS=1 cargo test -p spotter-core configuration_page"
        );
    }

    #[test]
    fn every_key_has_a_meaning() {
        let mut tables = vec![&ROOT];
        let mut count = 0;
        while let Some(table) = tables.pop() {
            for key in table.keys() {
                let inner = match &key.form {
                    Form::Table(inner) | Form::Tables(inner) | Form::Secret(inner) => Some(*inner),
                    _ => None,
                };
                let has_doc =
                    !key.doc.is_empty() || inner.is_some_and(|inner| !inner.doc.is_empty());
                assert!(has_doc, "{} {}", table.heading, key.name);
                count += 1;
                tables.extend(inner);
            }
        }
        assert!(count > 60, "{count} keys");
    }

    #[test]
    fn every_example_is_valid() {
        let mut tables = vec![&ROOT];
        let mut seen = Vec::new();
        while let Some(table) = tables.pop() {
            if seen.contains(&table.heading) {
                continue;
            }
            seen.push(table.heading);
            of_example(table.example, &environment(&[("MQTT_PASSWORD", "x")]));
            for key in table.keys() {
                if let Form::Table(inner) | Form::Tables(inner) | Form::Secret(inner) = &key.form {
                    tables.push(inner);
                }
            }
        }
    }
}
