//! `docs/configuration.md`, generated from the declarations that the parser uses.

use super::keys;

const INTRODUCTION: &str = "\
# Configuration

<!-- Generated from crates/core/src/config/keys.rs. To update it: SPOTTER_WRITE_DOCS=1 cargo test -p spotter-core reference -->

The configuration is one TOML file. `spotter check FILE` reports every mistake with its line and column and starts nothing. An
unknown key is an error. While Spotter runs, an invalid file is rejected and the running configuration stays active.

A time is written with its unit: `\"500ms\"`, `\"5s\"`, `\"1m\"`, `\"24h\"`. A size is written with its unit: `\"6GiB\"`, `\"900MiB\"`. A relative path starts at the directory of the file.
Positions in a picture are shares of its width and height, 0 to 1, from the top left corner.

The smallest file names a broker, a camera and a prompt. Its model is the one that `spotter model get moondream2` fetched:

```toml
[mqtt]
url = \"mqtt://broker.local\"

[camera.front]
url = \"rtsp://192.0.2.10/stream2\"

[camera.front.prompt.person]
detect = \"person\"
```
";

/// The reference of all keys, in Markdown.
pub fn reference() -> String {
    let mut page = INTRODUCTION.to_owned();
    for section in keys::SECTIONS {
        page += &format!(
            "\n## {}\n\n{}\n\n```toml\n{}\n```\n",
            section.title, section.doc, section.example
        );
        page +=
            "\n| key | value | default | meaning | example |\n| --- | --- | --- | --- | --- |\n";
        for key in section.keys() {
            page += &format!(
                "| `{}` | {} | {} | {} | `{}` |\n",
                key.name, key.form, key.default, key.doc, key.example
            );
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use crate::{
        ID_MAX_CHARS,
        config::defaults::{
            BUDGET_RANGE, CHOICE_MAX_CHARS, CHOICES_RANGE, CONFIRM_LOOKS_MAX, CROPS_RANGE, EVENTS,
            GPU_RANGE, MEMORY_RANGE, PROMPT_TEXT_MAX_CHARS, RATE_HZ_RANGE,
        },
        config::parse::{duration_text, size_text},
    };

    #[test]
    fn documentation_page_equals_generated_reference() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
        if std::env::var_os("SPOTTER_WRITE_DOCS").is_some() {
            fs::write(&path, reference()).unwrap();
        }
        let page = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            page == reference(),
            "docs/configuration.md is stale; run SPOTTER_WRITE_DOCS=1 cargo test -p spotter-core reference"
        );
    }

    #[test]
    fn each_key_has_documentation_and_a_valid_example() {
        for section in keys::SECTIONS {
            let mut names = Vec::new();
            assert!(
                section.example.parse::<toml::Table>().is_ok(),
                "{}",
                section.title
            );
            for key in section.keys() {
                let name = format!("{} {}", section.title, key.name);
                assert!(key.doc.ends_with('.') && !key.form.is_empty(), "{name}");
                assert!(!key.default.is_empty(), "{name}");
                assert!(key.example.contains(key.name), "{name}");
                assert!(key.example.parse::<toml::Table>().is_ok(), "{name}");
                assert!(!names.contains(&key.name), "{name} is declared twice");
                names.push(key.name);
            }
        }
    }

    #[test]
    fn limits_in_words_equal_the_parser_limits() {
        let key = |section: &str, name: &str| {
            let sections = keys::SECTIONS.iter();
            let mut keys = sections
                .filter(|s| s.title == section)
                .flat_map(|s| s.keys());
            keys.find(|key| key.name == name).unwrap()
        };
        let form = |section: &str, name: &str| key(section, name).form;
        let prompt = "`[camera.NAME.prompt.NAME]`";
        let text = format!("at most {PROMPT_TEXT_MAX_CHARS} characters");
        for name in ["detect", "point", "query", "verify", "describe"] {
            assert!(form(prompt, name).contains(&text), "{name}");
        }
        let (fewest, most) = (CHOICES_RANGE.start(), CHOICES_RANGE.end());
        let choices =
            format!("{fewest} to {most} texts, each at most {CHOICE_MAX_CHARS} characters");
        assert!(form(prompt, "choices").contains(&choices));
        let gpus = format!("{} to {}", GPU_RANGE.start(), GPU_RANGE.end());
        assert!(form("`[model]`", "gpus").contains(&gpus));
        let crops = format!("{} to {}", CROPS_RANGE.start(), CROPS_RANGE.end());
        assert!(form("`[defaults]` and `[camera.NAME]`", "crops").contains(&crops));
        assert!(form(prompt, "crops").contains(&crops));
        let (low, high) = (RATE_HZ_RANGE.start(), RATE_HZ_RANGE.end());
        assert!(form(prompt, "rate").contains(&format!("{low} to {high}")));
        let [low, high] = [BUDGET_RANGE.start(), BUDGET_RANGE.end()].map(|d| duration_text(*d));
        assert!(form("`[model]`", "budget").contains(&format!("{low} to {high}")));
        let [low, high] = [MEMORY_RANGE.start(), MEMORY_RANGE.end()].map(|bytes| size_text(*bytes));
        assert!(form("`[model]`", "memory").contains(&format!("{low} to {high}")));
        let confirm = format!("{} of {}", EVENTS.confirm.0, EVENTS.confirm.1);
        assert!(key("`events`", "confirm").default.contains(&confirm));
        let looks = format!("at most {CONFIRM_LOOKS_MAX} looks");
        assert!(form("`events`", "confirm").contains(&looks));
        let id = format!("at most {ID_MAX_CHARS} characters");
        assert!(form("`[node]`", "name").contains(&id));
    }
}
