//! The kinds of prompts: each has a file, and its place in the table.

mod caption;
mod detect;
mod point;
mod query;
mod segment;

use std::collections::{BTreeMap, BTreeSet};

use super::kind::{PromptKind, PromptScope, TaskConfig};
use crate::read::prelude::*;

/// All of them, in the order of the reference.
const KINDS: &[PromptKind] = &[
    detect::DETECT,
    point::POINT,
    segment::SEGMENT,
    query::QUERY,
    caption::CAPTION,
];
/// Keys that have an effect on the question of `describe`, for all kinds.
const DESCRIBE_KEYS: &[&str] = &["frames", "stream"];

/// The key makes a prompt one of a kind.
pub(super) fn is_kind(key: &str) -> bool {
    KINDS.iter().any(|kind| kind.key == key)
}

/// The keys of all kinds, as in "a, b or c".
pub(crate) fn kinds_in_words() -> String {
    alternatives(KINDS.iter().map(|kind| kind.key))
}

/// Reads what a prompt asks of the model, which is of exactly one kind; `None` after noting what is wrong.
pub(super) fn task(table: &mut Reader<'_>, camera: PromptScope<'_>) -> Option<TaskConfig> {
    table.section(
        "`[camera.NAME.prompt.NAME]`",
        doc(),
        "[camera.gate.prompt.person]\ndetect = \"person\"\nzones = [\"drive\"]\nmin_score = 0.4",
    );
    let tasks: Vec<_> = KINDS
        .iter()
        .map(|kind| (kind.read)(table, camera))
        .collect();
    if kind_of(table).is_none() {
        let names: Vec<&str> = KINDS.iter().map(|kind| kind.key).collect();
        table.error(format!("give exactly one of {}", names.join(", ")));
        return None;
    }
    tasks.into_iter().flatten().next()
}

/// The explanation in the reference, with the keys that some kinds do not have.
fn doc() -> String {
    let kinds = alternatives(KINDS.iter().map(|kind| format!("`{}`", kind.key)));
    let mut keys_of_users: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for key in keys_of_kinds() {
        let users = alternatives(users(key).map(|user| format!("`{user}`")));
        keys_of_users
            .entry(users)
            .or_default()
            .push(format!("`{key}`"));
    }
    let keys = keys_of_users
        .iter()
        .map(|(users, keys)| format!("{} with {users}", keys.join(", ")));
    let keys = keys.collect::<Vec<_>>().join("; ");
    format!(
        "What the model looks for. Exactly one of {kinds} is required. Keys for some of them alone: {keys}."
    )
}

/// The kind whose key a table has; `None` if it has none or several.
fn kind_of(table: &Reader<'_>) -> Option<&'static PromptKind> {
    let mut given = KINDS.iter().filter(|kind| table.given(kind.key).is_some());
    given.next().filter(|_| given.next().is_none())
}

/// A key that cannot have an effect would only seem to work.
pub(super) fn check_effects(table: &Reader<'_>) {
    let Some(kind) = kind_of(table) else { return };
    let is_described = kind.has("describe") && table.given("describe").is_some();
    for key in keys_of_kinds() {
        let has_effect = kind.has(key) || is_described && DESCRIBE_KEYS.contains(&key);
        if let (false, Some(value)) = (has_effect, table.given(key)) {
            let (kind, users) = (kind.key, alternatives(users(key)));
            value.error(format!("has no effect with {kind}; use it with {users}"));
        }
    }
}

/// The keys that not every prompt has.
fn keys_of_kinds() -> BTreeSet<&'static str> {
    KINDS.iter().flat_map(|kind| kind.keys.concat()).collect()
}

/// The keys with which `key` has an effect.
fn users(key: &str) -> impl Iterator<Item = &'static str> {
    let kinds = KINDS
        .iter()
        .filter(|kind| kind.has(key))
        .map(|kind| kind.key);
    kinds.chain(DESCRIBE_KEYS.contains(&key).then_some("describe"))
}

/// As in "a, b or c".
fn alternatives(names: impl Iterator<Item: ToString>) -> String {
    let mut names: Vec<String> = names.map(|name| name.to_string()).collect();
    match names.pop() {
        Some(last) if !names.is_empty() => format!("{} or {last}", names.join(", ")),
        last => last.unwrap_or_default(),
    }
}
