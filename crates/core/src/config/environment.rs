//! What the configuration reads from the environment of the process, so that tests can replace it.

use std::path::PathBuf;

/// Gives the value of a named variable.
type LookUp = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

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
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        (self.variable)(name).filter(|value| !value.is_empty())
    }

    /// Where systemd put the unit's credentials.
    pub(super) fn credentials_dir(&self) -> Option<PathBuf> {
        self.variable("CREDENTIALS_DIRECTORY").map(PathBuf::from)
    }

    /// Where state is kept: systemd's `StateDirectory` (the first, when there are several), else the user's, else `/var/lib`.
    pub(super) fn state_dir(&self) -> PathBuf {
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
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn with(variables: &'static [(&str, &str)]) -> Environment {
        Environment::new("edge1", move |name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn state_dir_is_systemds_then_the_users() {
        let systemd = with(&[("STATE_DIRECTORY", "/var/lib/spotter:/x"), ("HOME", "/h")]);
        assert_eq!(systemd.state_dir(), Path::new("/var/lib/spotter"));
        let xdg = with(&[("XDG_STATE_HOME", "/s"), ("HOME", "/h")]);
        assert_eq!(xdg.state_dir(), Path::new("/s/spotter"));
        let home = with(&[("HOME", "/h"), ("XDG_STATE_HOME", "")]);
        assert_eq!(home.state_dir(), Path::new("/h/.local/state/spotter"));
        assert_eq!(with(&[]).state_dir(), Path::new("/var/lib/spotter"));
    }
}
