//! What the configuration reads from the environment of the process, so that tests can replace it.

use std::path::{Path, PathBuf};

use spotter_core::ModelRecord;

/// Where root keeps fetched models: the state directory of the service, which systemd names to it in `STATE_DIRECTORY`.
const SYSTEM_MODELS: &str = "/var/lib/spotter/models";

/// The model that is used when no path is set, by its name for `spotter model get`.
pub const DEFAULT_MODEL: &str = "moondream2";

/// Gives the value of a named variable.
type LookUp = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// True for a directory with the files of a model, fetched or copied by hand. They are in it only when all of them are complete.
pub fn has_model(directory: &Path) -> bool {
    let is_there = |name: &&str| directory.join(name).is_file();
    [ModelRecord::FILE, "model.safetensors"]
        .iter()
        .any(is_there)
}

/// Environment variables and the host name. It has no `Debug`: variables may be secrets.
pub struct Environment {
    host_name: String,
    variable: LookUp,
}

impl Environment {
    /// For tests: a host name and a look-up of variables.
    pub fn new(
        host_name: &str,
        variable: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            host_name: host_name.to_owned(),
            variable: Box::new(variable),
        }
    }

    /// That of this process.
    pub fn process() -> Self {
        let host_name = gethostname::gethostname();
        Self::new(&host_name.to_string_lossy(), |name| {
            std::env::var(name).ok()
        })
    }

    pub fn host_name(&self) -> &str {
        &self.host_name
    }

    /// A variable that is set and not empty.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        (self.variable)(name).filter(|value| !value.is_empty())
    }

    /// Where state is kept: systemd's `StateDirectory` (the first, when there are several), else the user's, else `/var/lib`.
    pub(crate) fn state_dir(&self) -> PathBuf {
        if let Some(given) = self.variable("STATE_DIRECTORY") {
            return given.split(':').next().unwrap_or_default().into();
        }
        let user_state = self.variable("XDG_STATE_HOME").map(PathBuf::from);
        let in_home = |home: String| PathBuf::from(home).join(".local/state");
        user_state
            .or_else(|| self.variable("HOME").map(in_home))
            .unwrap_or_else(|| "/var/lib".into())
            .join("spotter")
    }

    /// Directories that may contain fetched models, each in a directory of its name; the first that has a model counts. In a
    /// service: that of the service, that of its user; elsewhere: that of the user, that of root.
    pub fn model_dirs(&self) -> Vec<PathBuf> {
        let user = self.user_models().into_iter();
        match self.variable("STATE_DIRECTORY") {
            Some(_) => [self.state_dir().join("models")]
                .into_iter()
                .chain(user)
                .collect(),
            None => user.chain([SYSTEM_MODELS.into()]).collect(),
        }
    }

    /// Where a user's fetched models belong; root's belong to the service.
    pub fn models_destination(&self, is_root: bool) -> PathBuf {
        let of_user = self.user_models().filter(|_| !is_root);
        of_user.unwrap_or_else(|| SYSTEM_MODELS.into())
    }

    fn user_models(&self) -> Option<PathBuf> {
        let in_home = |home: String| Path::new(&home).join(".local/share");
        let data = self.variable("XDG_DATA_HOME").map(PathBuf::from);
        let data = data.or_else(|| self.variable("HOME").map(in_home))?;
        Some(data.join("spotter/models"))
    }

    /// The directory of the model that is used when no path is set, if it was fetched. Blocks on the disk.
    pub fn fetched_model(&self) -> Option<PathBuf> {
        let dirs = self.model_dirs().into_iter();
        let mut models = dirs.map(|dir| dir.join(DEFAULT_MODEL));
        models.find(|model| has_model(model))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn with(variables: &[(&str, &str)]) -> Environment {
        let owned = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let variables: std::collections::BTreeMap<String, String> = owned.collect();
        Environment::new("edge1", move |name| variables.get(name).cloned())
    }

    #[test]
    fn state_dir_is_systemds_then_the_users() {
        let systemd = ("STATE_DIRECTORY", "/var/lib/spotter:/x");
        let (home, xdg) = (("HOME", "/h"), ("XDG_STATE_HOME", "/s"));
        for (variables, expected) in [
            (&[systemd, home][..], "/var/lib/spotter"),
            (&[xdg, home], "/s/spotter"),
            (&[home, ("XDG_STATE_HOME", "")], "/h/.local/state/spotter"),
            (&[], "/var/lib/spotter"),
        ] {
            assert_eq!(with(variables).state_dir(), Path::new(expected));
        }
    }

    #[test]
    fn models_are_those_of_the_service_or_the_user() {
        let service = with(&[("STATE_DIRECTORY", "/var/lib/spotter"), ("HOME", "/h")]);
        let dirs = ["/var/lib/spotter/models", "/h/.local/share/spotter/models"];
        assert_eq!(service.model_dirs(), dirs.map(PathBuf::from));
        let user = with(&[("HOME", "/h"), ("XDG_DATA_HOME", "/d")]);
        let dirs = ["/d/spotter/models", "/var/lib/spotter/models"].map(PathBuf::from);
        assert_eq!(user.model_dirs(), dirs);
        let destinations = [false, true].map(|is_root| user.models_destination(is_root));
        assert_eq!(destinations, dirs);
        let none = with(&[]).models_destination(false);
        assert_eq!(none, Path::new(SYSTEM_MODELS));
    }

    #[test]
    fn fetched_model_is_one_with_a_record_or_weights() {
        let data = tempfile::tempdir().unwrap();
        let user = with(&[("XDG_DATA_HOME", data.path().to_str().unwrap())]);
        let model = data.path().join("spotter/models/moondream2");
        fs::create_dir_all(&model).unwrap();
        assert_ne!(user.fetched_model().as_ref(), Some(&model));
        fs::write(model.join("model.safetensors.part"), "").unwrap();
        assert_ne!(user.fetched_model().as_ref(), Some(&model));
        for name in ["model.toml", "model.safetensors"] {
            fs::write(model.join(name), "").unwrap();
            assert_eq!(user.fetched_model().as_ref(), Some(&model));
            fs::remove_file(model.join(name)).unwrap();
        }
    }
}
