//! How a command that has no configuration file reaches a broker: options, and a password that is never among them.

use std::path::{Path, PathBuf};

use super::prompt_keys::read_keys;
use crate::{
    forms::{environment::Environment, prelude::*, scope::ReadPurpose},
    tables::mqtt::*,
};

/// The environment variable with the password when no file has it.
pub const PASSWORD_VARIABLE: &str = "MQTT_PASSWORD";

/// Options of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BrokerOptions {
    /// `mqtt://HOST[:PORT]` or `mqtts://HOST[:PORT]`, without a login.
    pub url: String,
    pub user: Option<String>,
    /// Else the environment variable [`PASSWORD_VARIABLE`] has the password.
    pub password_file: Option<PathBuf>,
    /// PEM file of the authority; `None` = the machine's own list.
    pub ca: Option<PathBuf>,
}

impl BrokerAccess {
    /// As if `[mqtt]` of a file had these keys. An error never shows the URL or a secret. Blocks on the disk.
    pub fn of_options(options: &BrokerOptions, environment: &Environment) -> Result<Self, String> {
        let path = |path: &PathBuf| path.display().to_string();
        let place =
            |key: &str, name: String| toml::Table::from_iter([(key.to_owned(), name.into())]);
        let is_set = environment.variable(PASSWORD_VARIABLE).is_some() && options.user.is_some();
        let variable = is_set.then(|| place("env", PASSWORD_VARIABLE.to_owned()));
        let password = options
            .password_file
            .as_ref()
            .map(|file| place("file", path(file)));
        let keys: [(&str, Option<toml::Value>); 4] = [
            ("url", Some(options.url.as_str().into())),
            ("user", options.user.as_deref().map(Into::into)),
            ("password", password.or(variable).map(Into::into)),
            ("ca", options.ca.as_ref().map(|ca| path(ca).into())),
        ];
        let given = keys
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value?)));
        let scope = Scope::new(environment, Path::new(""), ReadPurpose::Run);
        let mqtt = read_keys("mqtt", &given.collect(), |table| mqtt(&scope, table))?;
        Ok(mqtt.broker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With these values of `url`, `user`, `password_file` and `ca`.
    fn access(
        url: &str,
        [user, password_file, ca]: [Option<&str>; 3],
    ) -> Result<BrokerAccess, String> {
        let options = BrokerOptions {
            url: url.into(),
            user: user.map(Into::into),
            password_file: password_file.map(Into::into),
            ca: ca.map(Into::into),
        };
        let variable = |name: &str| (name == PASSWORD_VARIABLE).then(|| "from variable".to_owned());
        BrokerAccess::of_options(&options, &Environment::new("box", variable))
    }

    #[test]
    fn password_comes_from_a_file_or_the_environment() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("password");
        std::fs::write(&path, "from file\r\n").unwrap();
        for (user, file, expected) in [
            (None, None, None),
            (Some("fleet"), None, Some("from variable")),
            (Some("fleet"), path.to_str(), Some("from file")),
        ] {
            let access = access("mqtts://broker.local", [user, file, None]).unwrap();
            assert_eq!(access.password.as_ref().map(Secret::reveal), expected);
        }
    }

    #[test]
    fn wrong_options_are_named_without_their_values() {
        let plain = "mqtt://broker.local";
        let login = "mqtt.url: contains a user";
        for (url, file, ca, part) in [
            ("mqtt://u:canary@host", None, None, login),
            (plain, None, Some("ca.pem"), "did you mean mqtts://?"),
            (plain, Some("/p"), None, "password: requires \"user\""),
        ] {
            let error = access(url, [None, file, ca]).unwrap_err();
            assert!(error.contains(part) && !error.contains("canary"), "{error}");
        }
    }
}
