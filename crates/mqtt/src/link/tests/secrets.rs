//! No state and no log message contains the login, for any behaviour of the broker.
//!
//! Faults: B26.

use std::sync::Arc;

use tokio::{net::TcpListener, task::JoinSet};

use super::{
    mqtt, publish_states, reach,
    scripted::{broker, script},
    start_quick,
};
use crate::BrokerState;
use spotter_config::{MqttConfig, MqttTls, Secret};
use spotter_core::SystemClock;
use spotter_scripted::broker::{Acknowledges, Instead, ScriptedBroker, codec};

const USER: &str = "edge";
const PASSWORD: &str = "c4nary/Sw0rd fish";
/// The password in plain text, percent-encoded, and as base64 alone and with the user's name (`edge:…`).
const FORMS: [&str; 4] = [
    PASSWORD,
    "c4nary%2FSw0rd%20fish",
    "YzRuYXJ5L1N3MHJkIGZpc2g",
    "ZWRnZTpjNG5hcnkvU3cwcmQgZmlzaA",
];

fn with_login(port: u16) -> MqttConfig {
    let mut mqtt = mqtt(port);
    mqtt.broker.user = Some(USER.into());
    mqtt.broker.password = Some(Secret::new(PASSWORD.into()));
    mqtt
}

/// An MQTT 5 reason string that contains the password.
fn in_words() -> Vec<u8> {
    let words = FORMS.join(" ");
    let text = [&[0x1f, 0, words.len() as u8], words.as_bytes()].concat();
    [&[text.len() as u8], text.as_slice()].concat()
}

/// Returns the state of a publisher whose connection failed, as text.
async fn trouble(settings: MqttConfig) -> String {
    let (publisher, _task) = start_quick(&settings, Arc::new(SystemClock::new()));
    publish_states(&publisher);
    let is_over = |state: &BrokerState| state.trouble().is_some();
    let state = reach(&publisher, is_over).await;
    format!("{state:?} {:?}", state.trouble())
}

#[tokio::test]
async fn no_error_repeats_the_login() {
    let log = tempfile::NamedTempFile::new().unwrap();
    let writer = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(Arc::new(log.reopen().unwrap()))
        .finish();
    let _guard = tracing::subscriber::set_default(writer);

    let refusal = [&[0, 0x86], in_words().as_slice()].concat();
    let farewell = [&[0x97], in_words().as_slice()].concat();
    let say = |bytes| Some(Instead::Say(bytes));
    let password = || PASSWORD.as_bytes().to_vec();
    let scripts = [
        // A server that is no broker returns our CONNECT, with the login.
        script(|script| script.instead = Some(Instead::Echo)),
        script(|script| script.instead = say(codec::packet(0x20, refusal))),
        script(|script| script.instead = say(password())),
        script(|script| script.connack = 0x86),
        script(|script| script.greeting = codec::packet(0xe0, farewell)),
        script(|script| script.greeting = password()),
        script(|script| script.cut_after_read = Some(100)),
        script(|script| {
            script.cut_after_written = Some(2);
            script.acknowledges = Acknowledges::With(0x87);
        }),
    ];
    let mut texts = JoinSet::new();
    let mut brokers = Vec::new();
    for script in scripts {
        let broker = ScriptedBroker::start(script).await;
        texts.spawn(trouble(with_login(broker.port)));
        brokers.push(broker);
    }
    // No server listens on the first port; the server on the second one has no TLS.
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = gone.local_addr().unwrap().port();
    drop(gone);
    texts.spawn(trouble(with_login(port)));
    let plain = broker(|script| script.instead = Some(Instead::Echo)).await;
    let tls = MqttTls {
        ca: None,
        client_cert: None,
        client_key: None,
        insecure: true,
    };
    let mut over_tls = with_login(plain.port);
    over_tls.broker.tls = Some(tls);
    texts.spawn(trouble(over_tls));
    let shown = texts.join_all().await.join("\n");
    let logged = std::fs::read_to_string(log.path()).unwrap();
    // The log has the same reasons. Tests that run at the same time may make it miss some lines.
    assert!(logged.contains("broker"), "{logged}");
    for form in FORMS {
        assert!(!shown.contains(form), "{form}: {shown}");
        assert!(!logged.contains(form), "{form}: {logged}");
    }
}
