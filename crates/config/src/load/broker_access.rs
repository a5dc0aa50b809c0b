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

    fn options(url: &str) -> BrokerOptions {
        BrokerOptions {
            url: url.into(),
            ..BrokerOptions::default()
        }
    }

    fn access(options: &BrokerOptions) -> Result<BrokerAccess, String> {
        let variable = |name: &str| (name == PASSWORD_VARIABLE).then(|| "from variable".to_owned());
        BrokerAccess::of_options(options, &Environment::new("box", variable))
    }

    fn password(options: &BrokerOptions) -> Option<String> {
        let password = access(options).unwrap().password;
        password.map(|password| password.reveal().to_owned())
    }

    #[test]
    fn password_comes_from_a_file_or_the_environment() {
        let anonymous = options("mqtts://broker.local");
        assert_eq!(password(&anonymous), None);
        let named = BrokerOptions {
            user: Some("fleet".into()),
            ..anonymous
        };
        assert_eq!(password(&named).as_deref(), Some("from variable"));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("password");
        std::fs::write(&path, "from file\r\n").unwrap();
        let with_file = BrokerOptions {
            password_file: Some(path),
            ..named
        };
        assert_eq!(password(&with_file).as_deref(), Some("from file"));
    }

    #[test]
    fn wrong_options_are_named_without_their_values() {
        let with = |change: fn(&mut BrokerOptions)| {
            let mut options = options("mqtt://broker.local");
            change(&mut options);
            access(&options).unwrap_err()
        };
        for (error, part) in [
            (
                with(|o| o.url = "mqtt://u:canary@host".into()),
                "mqtt.url: contains a user name",
            ),
            (
                with(|o| o.ca = Some("ca.pem".into())),
                "did you mean mqtts://?",
            ),
            (
                with(|o| o.password_file = Some("/p".into())),
                "mqtt.password: requires \"user\"",
            ),
        ] {
            assert!(error.contains(part) && !error.contains("canary"), "{error}");
        }
    }
}
