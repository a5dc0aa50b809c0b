//! `docs/configuration.md`: what the readers of the tables describe when they read no file.

use std::path::Path;

use super::{camera_list::read_cameras, file::read_root};
use crate::{
    forms::{environment::Environment, prelude::*, scope::ReadPurpose, secret::read_places},
    read::{key::*, prelude::*, problem::Notes},
};

const INTRODUCTION: &str = "\
# Configuration

<!-- Generated from crates/config/src/tables. To update it: SPOTTER_WRITE_DOCS=1 cargo test -p spotter-config reference -->

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
    for section in sections() {
        let SectionReference {
            title,
            doc,
            example,
            keys,
        } = section;
        page += &format!("\n## {title}\n\n{doc}\n\n```toml\n{example}\n```\n");
        page +=
            "\n| key | value | default | meaning | example |\n| --- | --- | --- | --- | --- |\n";
        for (Key { name, example, doc }, form, default) in keys {
            page += &format!("| `{name}` | {form} | {default} | {doc} | `{example}` |\n");
        }
    }
    page
}

/// All sections in the order in which the readers come to them.
fn sections() -> Vec<SectionReference> {
    let notes = Notes::describing();
    let environment = Environment::new("", |_| None);
    let scope = || Scope::new(&environment, Path::new(""), ReadPurpose::Check);
    let nothing = || Reader::new(&notes, "", 0..0, None);
    read_root(nothing(), scope(), String::new());
    read_cameras(&scope(), nothing());
    read_places(&mut nothing());
    notes.into_sections()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn documentation_page_equals_generated_reference() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
        if std::env::var_os("SPOTTER_WRITE_DOCS").is_some() {
            fs::write(&path, reference()).unwrap();
        }
        let page = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            page == reference(),
            "docs/configuration.md is stale; run SPOTTER_WRITE_DOCS=1 cargo test -p spotter-config reference"
        );
    }

    #[test]
    fn each_key_has_documentation_and_a_valid_example() {
        for section in sections() {
            let title = section.title;
            assert!(section.example.parse::<toml::Table>().is_ok(), "{title}");
            assert!(!section.keys.is_empty(), "{title}");
            for (key, form, default) in section.keys {
                let name = format!("{title} {}", key.name);
                assert!(key.doc.ends_with('.') && !form.is_empty(), "{name}");
                assert!(!default.is_empty() && default != "``", "{name}");
                assert!(key.example.contains(key.name), "{name}");
                assert!(key.example.parse::<toml::Table>().is_ok(), "{name}");
            }
        }
    }
}
