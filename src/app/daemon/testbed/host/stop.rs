//! A signal to stop at every moment.

use serde_json::json;

use super::*;
use spotter_scripted::rtsp::script::Deed;

#[test]
fn stop_ends_in_time_at_every_moment() {
    let test = "app::daemon::field::host::stop::stop_ends_in_time_at_every_moment";
    alone_without_an_error(test, stop_everywhere());
}

/// How a stop went.
struct Stopped {
    field: Field,
    servers: Vec<Server>,
}

/// Runs a field of cameras that play `script` until `story` is over; the end has to come in time.
async fn stopped(
    name: &str,
    script: Script,
    broker: impl FnOnce(&mut spotter_scripted::broker::Script),
    story: impl AsyncFnOnce(&Field),
) -> Stopped {
    let mut servers = Vec::new();
    for _ in CAMERAS {
        let script = script.clone();
        servers.push(Server::start(move |_| script.clone()).await);
    }
    let field = Field::new(servers.iter().map(Server::url).collect(), PATIENT).await;
    field.broker.script(broker);
    let clock = machine_clock();
    let asked = async {
        story(&field).await;
        let at = clock.now();
        signal("-TERM");
        at
    };
    let (report, at) = field.run_while(Arc::clone(&clock), asked).await;
    let took = clock.now().since(at);
    println!("{name}: ended after {:.1} s", took.as_secs_f64());
    assert!(took < STOP_LIMIT, "{name}: {took:?}");
    assert!(report.balanced(), "{name}: {report}");
    until("closed", || {
        servers.iter().all(|server| server.memory().open == 0)
    })
    .await;
    for server in &servers {
        let memory = server.memory();
        // One that is being set up has no name yet that it could be ended by.
        assert!(
            memory.count("TEARDOWN") >= memory.count("PLAY"),
            "{name}: {memory:?}"
        );
    }
    Stopped { field, servers }
}

async fn stop_everywhere() {
    let is_online = |field: &Field| field.retained("status").as_deref() == Some("online");
    let told = |stopped: &Stopped, name: &str| {
        let status = stopped.field.retained("status");
        assert_eq!(status.as_deref(), Some("offline"), "{name}");
    };
    while_the_model_loads().await;

    let done = stopped(
        "at once",
        good(),
        |_| {},
        async |_| sleep(Duration::ZERO).await,
    )
    .await;
    drop(done);
    let name = "while cameras connect";
    let done = stopped(
        name,
        good().at("DESCRIBE", Deed::Silence),
        |_| {},
        async |field| {
            until("online", || is_online(field)).await;
        },
    );
    told(&done.await, name);
    let name = "while cameras are refused";
    let done = stopped(
        name,
        good().at("DESCRIBE", Deed::Refuse(404)),
        |_| {},
        async |field| {
            until("refused", || {
                let health = field.retained("cam/gate/health");
                health.is_some_and(|health| health.contains("not_found"))
            })
            .await;
        },
    );
    told(&done.await, name);
    let name = "while everything runs";
    let done = stopped(name, good(), |_| {}, async |field| all_see(field).await).await;
    told(&done, name);
    assert!(
        done.servers
            .iter()
            .all(|server| server.memory().sessions == 1)
    );
    let ends = done
        .field
        .broker
        .consumed()
        .iter()
        .filter(|message| is_end(message))
        .count();
    assert_eq!(ends, CAMERAS.len(), "all stays end with it");

    let sees_pictures = async |field: &Field| {
        until("pictures", || {
            get(field.page, "/metrics").contains("camera_online{camera=\"gate\"} 1")
        })
        .await;
    };
    let refuses = |script: &mut spotter_scripted::broker::Script| script.connack = 0x89;
    stopped("while the broker refuses", good(), refuses, sees_pictures).await;
    stopped(
        "while the broker is away",
        good(),
        |_| {},
        async |field| {
            field.broker.leave();
            sees_pictures(field).await;
        },
    )
    .await;
    stopped(
        "while the broker is silent",
        good(),
        |_| {},
        async |field| {
            all_see(field).await;
            field.broker.script(|script| script.is_half_open = true);
        },
    )
    .await;
    stopped(
        "while the broker acknowledges nothing",
        good(),
        |_| {},
        async |field| {
            until("online", || is_online(field)).await;
            field.broker.script(|script| {
                script.acknowledges = spotter_scripted::broker::Acknowledges::Never
            });
            sees_pictures(field).await;
        },
    )
    .await;

    let edit = |field: &Field, from: &str, to: &str| {
        field.write(&field.text().replace(from, to));
        signal("-HUP");
    };
    let name = "in a reload";
    let done = stopped(
        name,
        good(),
        |_| {},
        async |field| {
            all_see(field).await;
            edit(field, "\"Is it dark?\"", "\"Is it night?\"");
        },
    );
    told(&done.await, name);
    let name = "in a reload that restarts for another model";
    let done = stopped(
        name,
        good(),
        |_| {},
        async |field| {
            all_see(field).await;
            edit(field, "budget = \"5s\"", "budget = \"6s\"");
        },
    );
    told(&done.await, name);
    let name = "in a reload that restarts for another state directory";
    let done = stopped(
        name,
        good(),
        |_| {},
        async |field| {
            all_see(field).await;
            let another = field.directory.path().join("another");
            edit(
                field,
                &format!("{:?}", field.state()),
                &format!("{another:?}"),
            );
            sleep(Duration::from_millis(300)).await;
        },
    );
    told(&done.await, name);
    let name = "while a question waits";
    let done = stopped(
        name,
        good().after(0, Deed::Silence),
        |_| {},
        async |field| {
            until("online", || is_online(field)).await;
            field.say(
                "cmd",
                json!({"op": "ask", "cam": "gate", "text": "Is it night?"}).to_string(),
            );
            sleep(Duration::from_millis(300)).await;
        },
    );
    told(&done.await, name);
}

pub(super) fn is_end(message: &Publish) -> bool {
    let text = String::from_utf8_lossy(&message.payload);
    message.topic.contains("/event/") && text.contains("\"type\":\"end\"")
}

/// Nothing is there yet that could be stopped.
async fn while_the_model_loads() {
    let (servers, field) = field_of_good().await;
    let (loading, is_loading) = tokio::sync::watch::channel(false);
    let engines: Arc<OpenEngines> = Arc::new(move |_| {
        loading.send_replace(true);
        Box::pin(pending())
    });
    let story = async {
        let mut is_loading = is_loading;
        is_loading.wait_for(|is_loading| *is_loading).await.unwrap();
        signal("-TERM");
    };
    field.run_with(machine_clock(), engines, story).await;
    assert!(
        servers
            .iter()
            .all(|server| server.memory().connections == 0)
    );
    assert_eq!(field.retained("status"), None);
}
