//! The other ends of connections: a fleet's store, clients of the API, receivers of webhooks.

use super::*;
use spotter_core::EventKind;

const SITE: &str = "[mqtt]\nurl = \"mqtt://broker\"\n[node]\nname = \"edge1\"\n";

/// A good file with these lines at its end, where the variable `S` is this secret.
fn with_secret(lines: &str, secret: &str) -> Result<LoadedConfig, ConfigProblems> {
    let environment = environment(&[("S", secret)]);
    read(person(lines).as_bytes(), ReadPurpose::Run, &environment)
}

#[test]
fn fleet_has_servers_login_and_labels() {
    let fleet = "[fleet]\nname = \"hall\"\nurl = [\"tls://a\", \"tls://b:4223\"]\nuser = \"edge\"\n\
                 password = { env = \"P\" }\nlabels = [\"hall2\"]\nreplicas = 3\n";
    let text = format!("{SITE}{fleet}");
    let loaded = read(
        text.as_bytes(),
        ReadPurpose::Run,
        &environment(&[("P", "x")]),
    );
    let fleet = loaded.unwrap().config.fleet.unwrap();
    assert_eq!(fleet.store.urls, ["tls://a:4222", "tls://b:4223"]);
    assert!(matches!(fleet.store.login, NatsLogin::Password { user, .. } if user == "edge"));
    assert!(fleet.labels.contains("hall2") && fleet.store.replicas == 3);
}

#[test]
fn password_without_tls_is_warned_of_unless_on_loopback() {
    let secret = "user = \"u\"\npassword = { env = \"P\" }\n";
    let both = ["mqtt.url", "fleet.url"].as_slice();
    for (broker, store, login, expected) in [
        ("mqtt://192.0.2.1", "nats://hub", secret, both),
        ("mqtt://localhost", "nats://127.0.0.1", secret, &[]),
        ("mqtt://[::1]", "nats://[::1]", secret, &[]),
        ("mqtts://192.0.2.1", "tls://hub", secret, &[]),
        ("mqtt://192.0.2.1", "nats://hub", "", &[]),
    ] {
        let fleet = format!("[fleet]\nname = \"hall\"\nurl = \"{store}\"\n{login}");
        let site = SITE.replace("mqtt://broker\"\n", &format!("{broker}\"\n{login}"));
        let problems = problems(&(site + &fleet), &environment(&[("P", "hidden")]));
        assert!(
            !problems.iter().any(ConfigProblem::is_error),
            "{problems:?}"
        );
        let warnings = problems
            .iter()
            .filter(|problem| problem.text.contains("not encrypted"));
        let keys: Vec<&str> = warnings.map(|warning| &*warning.key).collect();
        assert_eq!(keys, expected, "{broker} {store}");
    }
}

#[test]
fn history_is_off_without_its_table() {
    assert_eq!(loaded(&person("")).config.history, None);
    let history = |lines: &str| loaded(&person(lines)).config.history;
    let day = Duration::from_hours(24);
    let expected = HistoryConfig {
        keep: 7 * day,
        size: 1 << 30,
        judged: 1 << 30,
        near: 0,
    };
    assert_eq!(history("[history]"), Some(expected));
    let lines = "[history]\nkeep = \"30d\"\nsize = \"4GiB\"\njudged = \"512MiB\"\nnear = 20";
    let expected = HistoryConfig {
        keep: 30 * day,
        size: 4 << 30,
        judged: 512 << 20,
        near: 20,
    };
    assert_eq!(history(lines), Some(expected));
}

#[test]
fn api_is_off_without_its_table_and_local_with_it() {
    assert_eq!(loaded(&person("")).config.api, None);
    let api = loaded(&person("[api]")).config.api.unwrap();
    assert_eq!(api.listen.to_string(), "127.0.0.1:2020");
    assert!(api.tokens.is_empty());
    let open = "[api]\nlisten = \"0.0.0.0:2020\"\ntokens = [{ env = \"S\" }]";
    let api = with_secret(open, "0123456789abcdef").unwrap().config.api;
    assert!(!format!("{api:?}").contains("0123456789abcdef"));
    assert_eq!(api.unwrap().tokens[0].reveal(), "0123456789abcdef");
}

#[test]
fn webhook_has_receiver_secret_filter_and_bounds() {
    let text = "[webhook.door]\nurl = \"https://[::1]/hook?a=1\"\nsecret = { env = \"S\" }\nbearer = { env = \"S\" }\n\
                cameras = [\"gate\"]\nprompts = [\"person\"]\nsteps = [\"new\", \"end\"]\nsnapshot = true\nspool = { max_mb = 7 }";
    let secret = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";
    let webhook = with_secret(text, secret).unwrap().config.webhooks.remove(0);
    let names = (webhook.id.as_str(), webhook.address.as_str());
    assert_eq!(names, ("door", "[::1]:443"));
    assert_eq!(webhook.url.reveal(), "https://[::1]/hook?a=1");
    let key = signing_key(webhook.secret.unwrap().reveal()).unwrap();
    assert_eq!(key, b"01234567890123456789012345678901");
    assert_eq!(webhook.filter.kinds, [EventKind::New, EventKind::End]);
    assert!(webhook.snapshot && webhook.spool.max_mb == 7);
}

#[test]
fn receiver_may_be_a_secret() {
    let text = "[webhook.door]\nurl = { env = \"S\" }";
    let config = with_secret(text, "https://chat.example/canary")
        .unwrap()
        .config;
    assert_eq!(config.webhooks[0].address, "chat.example:443");
    assert!(config.webhooks[0].is_url_secret && !format!("{config:?}").contains("canary"));
    for wrong in ["canary", "ftp://canary", "https://u:canary@host"] {
        let problems = with_secret(text, wrong).unwrap_err().to_string();
        assert!(!problems.contains("canary"), "{problems}");
    }
}
