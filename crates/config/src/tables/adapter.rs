//! `[adapter.*]`: files with which the model answers the prompts and requests that name them.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{forms::prelude::*, read::prelude::*};
use spotter_core::AdapterId;

/// The adapters of the model. They change while engines run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdapterSettings {
    /// `model.adapters`: the most that there may be.
    pub limit: usize,
    /// In the order of the file.
    pub all: Vec<AdapterConfig>,
}

/// A file that the model answers some looks with. Its serde form goes to the processes of engines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdapterConfig {
    pub id: AdapterId,
    pub path: PathBuf,
}

impl AdapterSettings {
    /// For how many an engine takes memory of its GPU when it is opened: none without any adapter.
    pub fn slots(&self) -> usize {
        match self.all.is_empty() {
            true => 0,
            false => self.limit,
        }
    }

    pub fn ids(&self) -> impl Iterator<Item = &AdapterId> {
        self.all.iter().map(|adapter| &adapter.id)
    }
}

/// Reads the adapters in the order of the file; `limit` of them are allowed.
pub(crate) fn adapters(
    scope: &Scope<'_>,
    tables: Vec<(AdapterId, Reader<'_>)>,
    limit: usize,
) -> AdapterSettings {
    let mut all = Vec::new();
    for (index, (id, mut table)) in tables.into_iter().enumerate() {
        keys! { table in "`[adapter.NAME]`", "An adapter (LoRA) of the model: a file from a training, with which the model answers the prompts and requests that name it. See [moondream.md](moondream.md#11-adapters).",
                "[adapter.plates]\npath = \"/var/lib/spotter/adapters/plates.safetensors\"";
            /// The adapter: for Moondream 3 a file with `lora_state_dict`, for Moondream 2 a variant; `.pt` or `.safetensors`, of rank 32 at most. A new file that does not fit the model is a mistake of the configuration; one that breaks later disables what names it.
            path = adapter_file(scope).required("no file; add path = \"FILE.safetensors\""), r#"path = "plates.safetensors""#;
        }
        if index >= limit {
            table.error(format!(
                "more adapters than model.adapters = {limit}; remove one, or raise model.adapters: each takes memory"
            ));
        }
        table.finish();
        all.extend(path.map(|path| AdapterConfig { id, path }));
    }
    AdapterSettings { limit, all }
}

/// The daemon runs without it.
fn adapter_file<'s>(scope: &'s Scope<'_>) -> Form<'s, PathBuf> {
    Form::new("path of a file", |value| {
        let path = scope.path(&value.parsed(not_empty)?);
        if !path.is_file() {
            scope.absent_at_check(value, format!("file not found: {}", path.display()));
        }
        Some(path)
    })
}
