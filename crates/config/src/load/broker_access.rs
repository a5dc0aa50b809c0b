//! How a command that has no configuration file reaches a broker: options, and a password that is never among them.

use std::path::{Path, PathBuf};

use crate::{
    forms::{address, environment::Environment, secret},
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
    /// Says what is wrong with the options and never shows the URL or a secret. Blocks on the disk.
    pub fn of_options(options: &BrokerOptions, environment: &Environment) -> Result<Self, String> {
        let broker = address::broker(&options.url).map_err(|wrong| format!("the URL {wrong}"))?;
        if options.ca.is_some() && !broker.secure {
            return Err(
                "a certificate authority together with mqtt://; did you mean mqtts://?".to_owned(),
            );
        }
        let password = match (&options.user, &options.password_file) {
            (None, Some(_)) => return Err("a password needs a user".to_owned()),
            (None, None) => None,
            (Some(_), Some(path)) => Some(password_of(path)?),
            (Some(_), None) => environment
                .variable(PASSWORD_VARIABLE)
                .map(secret::Secret::new),
        };
        let ca = options.ca.clone();
        let tls = || MqttTls {
            ca,
            ..MqttTls::default()
        };
        Ok(Self {
            host: broker.host,
            port: broker.port,
            tls: broker.secure.then(tls),
            user: options.user.clone(),
            password,
            version: MqttVersion::Auto,
            max_qos: 1,
        })
    }
}

fn password_of(path: &Path) -> Result<secret::Secret, String> {
    let text = secret::read(path)
        .map_err(|error| format!("cannot read the password from {}: {error}", path.display()))?;
    match secret::without_line_break(&text) {
        "" => Err(format!("the password in {} is empty", path.display())),
        password => Ok(secret::Secret::new(password.to_owned())),
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
                "the URL contains a user name",
            ),
            (
                with(|o| o.ca = Some("ca.pem".into())),
                "did you mean mqtts://?",
            ),
            (
                with(|o| o.password_file = Some("/p".into())),
                "a password needs a user",
            ),
        ] {
            assert!(error.contains(part) && !error.contains("canary"), "{error}");
        }
    }
}
