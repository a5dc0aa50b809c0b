//! Checks the files of adapters as an engine does, without one.
//!
//! Faults: E10.

use crate::{
    model::{check_adapter, model_config},
    service::BrokenAdapter,
};
use spotter_config::{AdapterConfig, ModelSettings};

/// The adapters whose headers do not fit the model, each with all that is wrong with it. What is wrong with the model itself is not said
/// here. Blocks on the disk.
pub fn check_adapters(settings: &ModelSettings) -> Vec<BrokenAdapter> {
    if settings.adapters.is_empty() {
        return Vec::new();
    }
    let Ok(config) = model_config(&settings.source) else {
        return Vec::new();
    };
    let broken = |adapter: &AdapterConfig| {
        let error = check_adapter(&adapter.path, &config).err()?;
        Some(BrokenAdapter {
            id: adapter.id.clone(),
            reason: error.to_string(),
        })
    };
    settings.adapters.iter().filter_map(broken).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::golden_set;
    use spotter_config::ModelSource;
    use spotter_core::AdapterId;

    #[test]
    fn adapters_that_do_not_fit_are_named_together() {
        let adapter = |name: &str, path: &str| AdapterConfig {
            id: AdapterId::new(name).unwrap(),
            path: golden_set("md3-lora-tiny").join("..").join(path),
        };
        let mut settings = ModelSettings {
            adapters: vec![adapter("fits", "md2-lora-micro/final.pt")],
            ..ModelSettings::of(ModelSource::Directory(golden_set("md2-micro")))
        };
        assert_eq!(check_adapters(&settings), []);
        settings
            .adapters
            .push(adapter("other", "md3-lora-tiny/adapters/a.pt"));
        settings.adapters.push(adapter("none", "README.md"));
        let broken = check_adapters(&settings);
        let names: Vec<&str> = broken.iter().map(|one| one.id.as_str()).collect();
        assert_eq!(names, ["other", "none"]);
        let part = "is an adapter for Moondream 3, the model is a Moondream 2";
        assert!(broken[0].reason.contains(part), "{broken:?}");
    }
}
