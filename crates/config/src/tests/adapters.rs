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
