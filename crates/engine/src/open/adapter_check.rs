//! Checks the files of adapters as an engine does, without one.
//!
//! Faults: E10.

use crate::{
    model::{check_adapter, model_config},
    service::BrokenAdapter,
};
use spotter_config::{AdapterConfig, ModelSource};

/// The adapters whose headers do not fit the model, each with all that is wrong with it. What is wrong with the model itself is not said
/// here. Blocks on the disk.
pub fn check_adapters(model: &ModelSource, adapters: &[AdapterConfig]) -> Vec<BrokenAdapter> {
    if adapters.is_empty() {
        return Vec::new();
    }
    let Ok(config) = model_config(model) else {
        return Vec::new();
    };
    let broken = |adapter: &AdapterConfig| {
        let error = check_adapter(&adapter.path, &config).err()?;
        Some(BrokenAdapter {
            id: adapter.id.clone(),
            reason: error.to_string(),
        })
    };
    adapters.iter().filter_map(broken).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::golden_set;
    use spotter_core::AdapterId;

    #[test]
    fn adapters_that_do_not_fit_are_named_together() {
        let adapter = |name: &str, path: &str| AdapterConfig {
            id: AdapterId::new(name).unwrap(),
            path: golden_set("md3-lora-tiny").join("..").join(path),
        };
        let model = ModelSource::Directory(golden_set("md2-micro"));
        let mut adapters = vec![adapter("fits", "md2-lora-micro/final.pt")];
        assert_eq!(check_adapters(&model, &adapters), []);
        adapters.push(adapter("other", "md3-lora-tiny/adapters/a.pt"));
        adapters.push(adapter("none", "README.md"));
        let broken = check_adapters(&model, &adapters);
        let names: Vec<&str> = broken.iter().map(|one| one.id.as_str()).collect();
        assert_eq!(names, ["other", "none"]);
        let part = "is an adapter for Moondream 3, the model is a Moondream 2";
        assert!(broken[0].reason.contains(part), "{broken:?}");
    }
}
