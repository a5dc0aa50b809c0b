//! Checks prompts as an engine does, without one.
//!
//! Faults: H11.

use super::engine::bounds;
use crate::{
    model::{ModelError, model_config, model_tokenizer},
    scheduler::sequence::Bounds,
    service::{EngineError, EngineModel, sequence},
};
use spotter_config::{ModelSettings, ModelSource};
use spotter_core::Prompt;

/// The words of a model: dimensions and tokenizer.
pub struct PromptCheck {
    model: EngineModel,
    bounds: Bounds,
}

impl PromptCheck {
    /// Blocks on the disk.
    pub fn open(settings: &ModelSettings) -> Result<Self, ModelError> {
        let config = model_config(&settings.source)?;
        let tokenizer = model_tokenizer(&settings.source, &config)?;
        let model = EngineModel {
            config,
            tokenizer,
            explains_strips: settings.source != ModelSource::Embedded,
        };
        let bounds = bounds(settings);
        Ok(Self { model, bounds })
    }

    /// Why the model can never answer this prompt, and what to do.
    pub fn check(&self, prompt: &Prompt) -> Result<(), String> {
        match sequence(&self.model, prompt, None, self.bounds) {
            Ok(_) => Ok(()),
            Err(EngineError::Prompt { reason, .. }) => Err(reason),
            Err(other) => Err(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spotter_config::{Environment, of_text};
    use spotter_core::{PromptId, Task};

    /// What is wrong with a question to the embedded model, whose context has 768 positions: 401 of a picture, 128 of an answer.
    fn wrong(question: &str) -> Option<String> {
        let text = "mqtt.url = \"mqtt://broker\"\nmodel.path = \"embedded\"\n[camera.gate]\nurl = \"test://\"\nprompt.person.detect = \"person\"\n";
        let environment = Environment::new("box", |_| None);
        let config = of_text("site.toml", text, &environment).unwrap().config;
        let prompt = Prompt::new(PromptId::new("scene").unwrap(), 1, Task::question(question));
        let checked = PromptCheck::open(&config.model).unwrap().check(&prompt);
        checked.err()
    }

    #[test]
    fn question_beyond_the_context_names_the_limit_in_tokens() {
        assert_eq!(wrong("How many cars are there?"), None);
        let error = wrong(&"is it a car? ".repeat(150)).unwrap();
        assert!(
            error.starts_with("the text has ")
                && error.ends_with("this model has room for 239: shorten the text"),
            "{error}"
        );
    }
}
