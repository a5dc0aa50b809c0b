//! Which prompts the model of a configuration can answer.

use std::path::Path;

use tokio::task::spawn_blocking;

use spotter_config::{Config, ConfigProblem, ConfigProblems, ModelSettings, Severity};
use spotter_control::PromptRule;
use spotter_engine::open::PromptCheck;

/// The rule of a model. Where its files cannot be read, everything is allowed: who opens the model says what is wrong with them. Blocks on the disk.
pub fn prompt_rule(model: &ModelSettings) -> PromptRule {
    match PromptCheck::open(model) {
        Ok(check) => PromptRule::new(move |prompt| check.check(prompt)),
        Err(error) => {
            tracing::debug!(%error, "prompts are not compared with the model");
            PromptRule::default()
        }
    }
}

/// As [`prompt_rule`], beside the loop.
pub async fn read_prompt_rule(model: &ModelSettings) -> anyhow::Result<PromptRule> {
    let model = model.clone();
    Ok(spawn_blocking(move || prompt_rule(&model)).await?)
}

/// A prompt that the model cannot answer is a mistake of the file; in a fleet, the cameras are those of its list.
pub fn prompts_fit(file: &Path, config: &Config, rule: &PromptRule) -> Result<(), ConfigProblems> {
    let file = file.display().to_string();
    let is_own = config.fleet.is_none();
    let unfit = is_own.then(|| rule.unfit(config)).into_iter().flatten();
    let problems = unfit.map(|unfit| ConfigProblem {
        file: file.clone(),
        place: None,
        key: unfit.key,
        text: unfit.reason,
        severity: Severity::Error,
    });
    match Vec::from_iter(problems) {
        none if none.is_empty() => Ok(()),
        problems => Err(ConfigProblems::new(&file, problems)),
    }
}
