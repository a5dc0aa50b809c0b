//! `[adapter.*]`: adapters of the model.

use super::{
    AdapterConfig,
    keys::{self, adapter as adapter_keys},
    load::Scope,
    reader::Reader,
    sections::file,
};
use crate::AdapterId;

/// All adapters in the order of the file. `most`: `model.adapters`.
pub(super) fn adapters(
    scope: &Scope<'_>,
    root: &mut Reader<'_>,
    most: usize,
) -> Vec<AdapterConfig> {
    let tables = root.tables(&keys::root::ADAPTER, AdapterId::new);
    let mut adapters = Vec::new();
    for (index, (id, mut table)) in tables.into_iter().enumerate() {
        if index >= most {
            table.error(format!(
                "more adapters than model.adapters = {most}; remove one, or raise model.adapters: each takes memory"
            ));
        }
        let path = table.get(&adapter_keys::PATH);
        match &path {
            None => table.missing(&["path"], "no file; add path = \"FILE.safetensors\""),
            Some(path) if !scope.has_api => {
                path.warning("has no effect without [api]: only its requests name adapters");
            }
            Some(_) => {}
        }
        let path = path.and_then(|value| file(scope, &value));
        table.finish();
        adapters.extend(path.map(|path| AdapterConfig { id, path }));
    }
    adapters
}
