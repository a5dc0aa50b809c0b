//! `[adapter.NAME]` and `model.adapters`.

use super::*;
use spotter_core::AdapterId;

/// A good file with an API and adapters in a folder (from line 9 on), each of which has its path.
fn site(folder: &Path, names: &[&str], extra: &str) -> String {
    let table = |name: &&str| {
        let path = folder.join(name);
        fs::write(&path, "").unwrap();
        format!("[adapter.{name}]\npath = {path:?}\n")
    };
    let tables: String = names.iter().map(table).collect();
    person(&format!("[api]\n{extra}\n{tables}"))
}

#[test]
fn adapters_of_the_model_keep_the_order_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let loaded = loaded(&site(folder.path(), &["plates", "dogs"], ""));
    let expected = ["plates", "dogs"].map(|name| AdapterConfig {
        id: AdapterId::new(name).unwrap(),
        path: folder.path().join(name),
    });
    assert_eq!(loaded.config.model.adapters, expected);
    assert!(loaded.warnings.is_empty());
}

#[test]
fn file_of_an_adapter_must_be_there() {
    let without = person("[api]\n[adapter.plates]");
    let line = "9:1 adapter.plates: no file; add path = \"FILE.safetensors\"";
    assert_eq!(said(&without), [line]);
    let elsewhere = person("[api]\n[adapter.plates]\npath = \"p.pt\"");
    let line = "10:8 adapter.plates.path: file not found: /nowhere/p.pt";
    assert_eq!(said(&elsewhere), [line]);
}

#[test]
fn more_adapters_than_allowed_are_a_mistake() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["a", "b", "c", "d", "e"];
    let found = said(&site(folder.path(), &names, ""));
    assert_eq!(found.len(), 1, "{found:?}");
    let part = "adapter.e: more adapters than model.adapters = 4; remove one, or raise";
    assert!(found[0].contains(part), "{found:?}");
    let raised = site(folder.path(), &names, "[model]\nadapters = 5");
    assert_eq!(said(&raised), [""; 0]);
}
