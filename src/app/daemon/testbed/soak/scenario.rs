//! The course of a soak: idle, faults, recovery, idle, shutdown.

use serde_json::json;

use super::{
    faults::{break_broker, restore_broker},
    *,
};

/// Consecutive checks in which a camera may stream and still be reported offline.
const OFFLINE_CHECKS: u32 = 5;

pub(super) struct Scenario {
    pub(super) soak: Soak,
    pub(super) testbed: Arc<Testbed>,
    pub(super) servers: Servers,
    pub(super) consumer: Arc<Mutex<Consumer>>,
    pub(super) clock: Arc<dyn Clock>,
}

impl Scenario {
    /// Returns what the process used during the faults.
    pub(super) async fn run(&self, length: Duration) -> Vec<ProcessUse> {
        for camera in CAMERAS {
            self.testbed.scene.show(camera, true);
        }
        self.until("all is well before the faults", RECOVERED_WITHIN, || {
            self.all_is_well()
        })
        .await;
        let before = self.idle_use().await;
        let during = self.faults(length).await;
        let recovered_after = self.recover().await;
        println!("all is well again after {recovered_after:?}");
        self.leaks_nothing(before).await;
        self.settle().await;
        signal("-TERM");
        during
    }

    pub(super) async fn until(
        &self,
        what: &str,
        limit: Duration,
        is_so: impl Fn() -> bool,
    ) -> Duration {
        let began = self.clock.now();
        while !is_so() {
            let waited = self.clock.now().since(began);
            if waited > limit {
                let retained = self.testbed.broker.all_retained();
                panic!("{what}: not within {limit:?}: {retained:#?}");
            }
            sleep(Duration::from_millis(50)).await;
        }
        self.clock.now().since(began)
    }

    /// The minimum over four seconds.
    async fn idle_use(&self) -> ProcessUse {
        let mut least = ProcessUse::now();
        for _ in 0..20 {
            sleep(Duration::from_millis(200)).await;
            least = least.or_less(ProcessUse::now());
        }
        least
    }

    /// What the process needs for the cameras as they are connected now; `before` all were connected over TCP.
    fn needed(&self, before: ProcessUse) -> ProcessUse {
        let is_over_udp = |camera: &&&str| {
            let health = self.testbed.retained(&format!("cam/{camera}/health"));
            health.is_some_and(|health| health.contains("\"transport\":\"udp\""))
        };
        let over_udp = CAMERAS.iter().filter(is_over_udp).count();
        before.with_cameras_over_udp(over_udp as u64)
    }

    /// Measures again while the last pipelines are torn down. What is still in use after that was leaked.
    async fn leaks_nothing(&self, before: ProcessUse) {
        let began = self.clock.now();
        loop {
            let (after, needed) = (self.idle_use().await, self.needed(before));
            if after.is_near(needed) {
                return println!("before: {before}; after: {after}");
            }
            let waited = self.clock.now().since(began);
            assert!(waited < TORN_DOWN_WITHIN, "{needed}; {after}");
        }
    }

    /// The retained states say that every camera streams and sees its object.
    fn all_is_well(&self) -> bool {
        let is =
            |topic: String, wanted: &str| self.testbed.retained(&topic).as_deref() == Some(wanted);
        let streams = |camera: &str| {
            let health = self.testbed.retained(&format!("cam/{camera}/health"));
            health.is_some_and(|health| health.contains("\"state\":\"streaming\""))
        };
        is("status".into(), "online")
            && CAMERAS.iter().all(|camera| {
                is(format!("cam/{camera}/status"), "online")
                    && is(format!("cam/{camera}/present/thing"), "ON")
                    && is(format!("cam/{camera}/count/thing"), "1")
                    && streams(camera)
            })
    }

    async fn faults(&self, length: Duration) -> Vec<ProcessUse> {
        let over = async {
            let mut moments = Vec::new();
            let began = self.clock.now();
            let mut offline_checks = [0; CAMERAS.len()];
            while self.clock.now().since(began) < length {
                sleep(Duration::from_secs(1)).await;
                moments.push(ProcessUse::now());
                self.check_streaming_cameras_are_online(&mut offline_checks)
                    .await;
            }
            self.soak.faults_are_over.store(true, Ordering::Relaxed);
            moments
        };
        let (moments, ..) = tokio::join!(
            over,
            self.cameras_restart(),
            self.broker_fails(),
            self.send_commands(),
            self.change_scene()
        );
        moments
    }

    /// A camera that streams without a fault for [`ONLINE_WITHIN`] is online. A single check may come between the loss of a
    /// connection and its server's notice of it, so consecutive failures count.
    async fn check_streaming_cameras_are_online(&self, offline_checks: &mut [u32; CAMERAS.len()]) {
        let testbed = Arc::clone(&self.testbed);
        let metrics = spawn_blocking(move || testbed.metrics()).await;
        let metrics = metrics.unwrap();
        let servers = self.servers.lock().unwrap();
        for ((camera, server), checks) in CAMERAS.iter().zip(&*servers).zip(offline_checks) {
            let since = server
                .as_ref()
                .and_then(|server| server.memory().streams_since);
            let long = since.is_some_and(|since| since.elapsed() > ONLINE_WITHIN);
            let online = format!("camera_online{{camera=\"{camera}\"}} 1");
            let well = !long || metrics.is_empty() || metrics.contains(&online);
            *checks = if well { 0 } else { *checks + 1 };
            assert!(
                *checks < OFFLINE_CHECKS,
                "{camera} has streamed for {:?} and is not online",
                since.map(|since| since.elapsed())
            );
        }
    }

    /// Cameras are switched off and on again; their ports refuse connections meanwhile.
    async fn cameras_restart(&self) {
        let mut chance = RandomDraws::new(self.soak.seed, OF_SERVERS, 0);
        let mut restart = 0;
        while !self.soak.faults_are_over() {
            // Each camera once at the beginning, before the random order.
            let mut camera = restart as usize;
            if camera >= CAMERAS.len() {
                let longest_ms = 4 * self.soak.pause_ms();
                self.soak.pause(&mut chance, 4000, longest_ms).await;
                camera = chance.between(0, CAMERAS.len() as u64) as usize;
            }
            let gone = self.servers.lock().unwrap()[camera].take();
            let Some(gone) = gone else { continue };
            let at = gone.address();
            drop(gone);
            self.soak.fault_log.note("camera: switched off and on");
            self.soak.pause(&mut chance, 500, 4000).await;
            sleep(Duration::from_millis(200)).await;
            restart += 1;
            let server = serve(&self.soak, camera, restart, Some(at)).await;
            self.servers.lock().unwrap()[camera] = Some(server);
        }
    }

    async fn broker_fails(&self) {
        let mut chance = RandomDraws::new(self.soak.seed, OF_BROKER, 0);
        let longest_ms = if self.soak.long { 30_000 } else { 4_000 };
        while !self.soak.faults_are_over() {
            self.soak
                .pause(&mut chance, 500, self.soak.pause_ms())
                .await;
            let name = break_broker(&self.testbed.broker, &mut chance);
            self.soak.fault_log.note(&format!("broker: {name}"));
            self.soak.pause(&mut chance, 300, longest_ms).await;
            restore_broker(&self.testbed.broker).await;
        }
    }

    async fn send_commands(&self) {
        let mut chance = RandomDraws::new(self.soak.seed, OF_COMMANDS, 0);
        let mut number = 0;
        while !self.soak.faults_are_over() {
            self.soak
                .pause(&mut chance, 200, self.soak.pause_ms())
                .await;
            number += 1;
            let what = match chance.between(0, 8) {
                0 => commands::edit(&self.testbed, &mut chance),
                _ => commands::send_command(&self.testbed, &mut chance, number),
            };
            self.soak.fault_log.note(&format!("command: {what}"));
        }
        self.testbed.reload(&self.testbed.text());
    }

    async fn change_scene(&self) {
        let mut chance = RandomDraws::new(self.soak.seed, OF_SCENE, 0);
        while !self.soak.faults_are_over() {
            self.soak.pause(&mut chance, 300, 2500).await;
            let camera = chance.one(&CAMERAS);
            let is_there = self.testbed.scene.shows(camera);
            self.testbed.scene.show(camera, !is_there);
        }
        for camera in CAMERAS {
            self.testbed.scene.show(camera, true);
        }
    }

    /// Removes the overrides of earlier commands and waits until all is well. A long soak sends nothing else.
    async fn recover(&self) -> Duration {
        let began = self.clock.now();
        for camera in CAMERAS {
            let hat = json!({"op": "prompt_del", "cam": camera, "prompt": "hat"});
            self.ask(&format!("last-hat-{camera}"), hat).await;
        }
        let reply = self
            .ask("last-reset", json!({"op": "reset_overrides"}))
            .await;
        assert_eq!(reply["ok"], true, "{reply}");
        let commanded = async {
            sleep(RECONNECT_COMMAND_AFTER).await;
            for camera in CAMERAS {
                let status = self.testbed.retained(&format!("cam/{camera}/status"));
                if status.as_deref() != Some("online") {
                    let request = json!({"op": "reconnect", "cam": camera});
                    self.ask(&format!("last-reconnect-{camera}"), request).await;
                }
            }
            pending().await
        };
        let back = self.until("all is well again", RECOVERED_WITHIN, || self.all_is_well());
        tokio::select! {
            _ = back => {}
            () = commanded, if !self.soak.long => {}
        }
        self.clock.now().since(began)
    }

    /// Repeats a request until it has a reply: a request may be lost while the daemon connects.
    async fn ask(&self, id: &str, mut request: Value) -> Value {
        request["id"] = json!(id);
        for _ in 0..RECOVERED_WITHIN.as_secs() {
            self.testbed.say("cmd", request.to_string());
            for _ in 0..20 {
                sleep(Duration::from_millis(50)).await;
                if let Some(reply) = self.consumer.lock().unwrap().replies.remove(id) {
                    return reply;
                }
            }
        }
        panic!("no answer to {request}");
    }

    /// Waits until all events of the faults have arrived. Then the broker retains the settings with which the daemon replies.
    async fn settle(&self) {
        let mut wanted = CAMERAS.map(|camera| (camera, "thing"));
        wanted.sort_unstable();
        let is_settled = || {
            let consumer = self.consumer.lock().unwrap();
            let waiting = consumer.stats.as_ref().map(|stats| &stats["spool_msgs"]);
            consumer.open() == wanted && waiting == Some(&json!(0))
        };
        self.until("settled", Duration::from_secs(60), is_settled)
            .await;
        let reply = self
            .ask("last-settings", json!({"op": "get", "what": "settings"}))
            .await;
        let retained = self.testbed.broker.all_retained();
        let extra: Vec<&String> = retained
            .keys()
            .filter(|topic| topic.contains("/cam/extra/"))
            .collect();
        assert!(extra.is_empty(), "topics of a removed camera: {extra:?}");
        let settings = flat_settings(&reply["value"]);
        assert!(settings.len() > CAMERAS.len(), "{settings:?}");
        for (topic, value) in settings {
            let kept = retained.get(&format!("spotter/edge1/cam/{topic}"));
            assert_eq!(kept, Some(&value), "{topic}");
        }
    }

    /// `during` the faults.
    pub(super) fn check_end(&self, report: &RunReport, during: &[ProcessUse]) {
        let consumer = self.consumer.lock().unwrap();
        let fault_log = self.soak.fault_log.all();
        println!("seed {}: {fault_log:#?}\n{report}", self.soak.seed);
        assert!(report.balanced(), "{report}");
        let faults = consumer.faults();
        assert!(faults.is_empty(), "{faults:#?}");
        assert!(consumer.open().is_empty(), "{:?}", consumer.open());
        let messages = &report.messages;
        assert_eq!(messages.events_over_bound, 0, "{messages:?}");
        // A restart inside the process begins the daemon's counters again. A lost message would leave an event without its begin
        // or its end, which is asserted above.
        let has_restarted = fault_log.keys().any(|what| what.contains("another model"));
        let (received, acked) = (consumer.message_count(), messages.events_acked);
        let is_whole = received == acked || has_restarted && received > acked;
        assert!(is_whole, "{received} received: {messages:?}");
        assert_eq!(self.testbed.retained("status").as_deref(), Some("offline"));
        // In a short soak, pools and caches are filled for the first time.
        let grown = growth_mib(during);
        let is_bounded = !self.soak.long || grown < MORE_MIB;
        assert!(is_bounded, "{grown:.1} MiB more in the last quarter");
    }
}

/// The settings of a reply as they are published as states: topic below `cam/`, and payload.
fn flat_settings(value: &Value) -> Vec<(String, String)> {
    let payload = match value {
        Value::Object(fields) => {
            // Shapes have no topic.
            let fields = fields.iter().filter(|(name, _)| *name != "shapes");
            let flat = fields.flat_map(|(name, value)| {
                let name = if name == "prompts" { "prompt" } else { name };
                let below = flat_settings(value).into_iter();
                below.map(move |(topic, payload)| {
                    let topic = format!("{name}/{topic}");
                    (topic.trim_end_matches('/').to_owned(), payload)
                })
            });
            return flat.collect();
        }
        Value::Bool(true) => "ON".to_owned(),
        Value::Bool(false) => "OFF".to_owned(),
        Value::String(text) => text.clone(),
        number => number.to_string().trim_end_matches(".0").to_owned(),
    };
    vec![(String::new(), payload)]
}
