//! What happens in a soak.

use std::fmt::Write as _;

use serde_json::json;

use super::{
    faults::{heal, hurt},
    *,
};

/// So many looks in a row at a camera that is sent pictures and shows none.
const DARK_LOOKS: u32 = 5;

/// What happens in a soak, from the first picture to the signal that ends it.
pub(super) struct Story {
    pub(super) soak: Soak,
    pub(super) field: Arc<Field>,
    pub(super) servers: Servers,
    pub(super) judge: Arc<Mutex<Judge>>,
    pub(super) clock: Arc<dyn Clock>,
}

/// What was held: when all was quiet before the faults, during them, and when all was quiet again.
pub(super) struct Quiet {
    pub(super) before: Holds,
    pub(super) during: Vec<Holds>,
    pub(super) after: Holds,
    pub(super) back_after: Duration,
    pub(super) last: [(String, String); 2],
}

impl Story {
    pub(super) async fn told(&self, length: Duration) -> Quiet {
        for camera in CAMERAS {
            self.field.stage.show(camera, true);
        }
        self.until("a quiet start", BACK_WITHIN, || self.all_is_well())
            .await;
        let before = self.quiet().await;
        println!("quiet before the faults: {before}");
        let during = self.faults(length).await;
        self.soak.peace.store(true, Ordering::Relaxed);
        let back_after = self.comes_back().await;
        let after = self.quiet().await;
        let settings = self.settles().await;
        signal("-TERM");
        Quiet {
            before,
            during,
            after,
            back_after,
            last: settings,
        }
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
                let retained = self.field.broker.all_retained();
                panic!("{what}: not within {limit:?}: {retained:#?}");
            }
            sleep(Duration::from_millis(50)).await;
        }
        self.clock.now().since(began)
    }

    /// The least of what is held within some seconds.
    async fn quiet(&self) -> Holds {
        let mut moments = Vec::new();
        for _ in 0..20 {
            sleep(Duration::from_millis(200)).await;
            moments.push(Holds::now());
        }
        Holds::least(&moments)
    }

    /// All that a consumer is told is what is.
    fn all_is_well(&self) -> bool {
        let is =
            |topic: String, wanted: &str| self.field.retained(&topic).as_deref() == Some(wanted);
        let streams = |camera: &str| {
            let health = self.field.retained(&format!("cam/{camera}/health"));
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

    /// For that long everything goes wrong.
    async fn faults(&self, length: Duration) -> Vec<Holds> {
        let over = async {
            let mut moments = Vec::new();
            let (began, mut minute) = (self.clock.now(), 0);
            let mut dark = [0; CAMERAS.len()];
            while self.clock.now().since(began) < length {
                sleep(Duration::from_secs(1)).await;
                moments.push(Holds::now());
                self.who_is_sent_pictures_shows_them(&mut dark).await;
                let passed = self.clock.now().since(began).as_secs() / 60;
                if passed > minute {
                    minute = passed;
                    self.progress(minute, moments[moments.len() - 1]);
                }
            }
            self.soak.peace.store(true, Ordering::Relaxed);
            moments
        };
        // What is seen at the beginning may be gone until the end.
        let (moments, ..) = tokio::join!(
            over,
            self.cameras_restart(),
            self.broker_fails(),
            self.people_speak(),
            self.things_come_and_go()
        );
        moments
    }

    fn progress(&self, minute: u64, holds: Holds) {
        let judge = self.judge.lock().unwrap();
        let told = self.soak.diary.total();
        println!(
            "minute {minute}: {told} faults and commands, {} event messages of {} stays, {} connections of ours; {holds}",
            judge.events(),
            judge.stays(),
            self.field.broker.connections()
        );
    }

    /// A camera that has sent its pictures without a fault for long enough is online. One look may fall between its loss and its
    /// server's hearing of that; `dark` counts them in a row.
    async fn who_is_sent_pictures_shows_them(&self, dark: &mut [u32; CAMERAS.len()]) {
        let page = self.field.page;
        let metrics = spawn_blocking(move || get(page, "/metrics")).await;
        let metrics = metrics.unwrap();
        let servers = self.servers.lock().unwrap();
        for ((camera, server), dark) in CAMERAS.iter().zip(&*servers).zip(dark) {
            let since = server
                .as_ref()
                .and_then(|server| server.memory().streams_since);
            let long = since.is_some_and(|since| since.elapsed() > ONLINE_WITHIN);
            let online = format!("camera_online{{camera=\"{camera}\"}} 1");
            let well = !long || metrics.is_empty() || metrics.contains(&online);
            *dark = if well { 0 } else { *dark + 1 };
            assert!(
                *dark < DARK_LOOKS,
                "{camera} has been sent pictures for {:?}, and is not online",
                since.map(|since| since.elapsed())
            );
        }
    }

    /// A camera is switched off and on: nobody listens for a while.
    async fn cameras_restart(&self) {
        let mut chance = Chance::new(self.soak.seed, OF_SERVERS, 0);
        let mut life = 0;
        while !self.soak.peace() {
            // Each once at the beginning, when they are good.
            let camera = match usize::try_from(life)
                .ok()
                .filter(|life| *life < CAMERAS.len())
            {
                Some(camera) => camera,
                None => {
                    let longest_ms = 4 * self.soak.pause_ms();
                    self.soak.pause(&mut chance, 4000, longest_ms).await;
                    chance.between(0, CAMERAS.len() as u64) as usize
                }
            };
            let gone = self.servers.lock().unwrap()[camera].take();
            let Some(gone) = gone else { continue };
            let at = gone.address();
            drop(gone);
            self.soak.diary.note("camera: switched off and on");
            self.soak.pause(&mut chance, 500, 4000).await;
            sleep(Duration::from_millis(200)).await;
            life += 1;
            let server = serve(&self.soak, camera, life, Some(at)).await;
            self.servers.lock().unwrap()[camera] = Some(server);
        }
    }

    async fn broker_fails(&self) {
        let mut chance = Chance::new(self.soak.seed, OF_BROKER, 0);
        let longest_ms = if self.soak.long { 30_000 } else { 4_000 };
        while !self.soak.peace() {
            self.soak
                .pause(&mut chance, 500, self.soak.pause_ms())
                .await;
            let name = hurt(&self.field.broker, &mut chance);
            self.soak.diary.note(&format!("broker: {name}"));
            self.soak.pause(&mut chance, 300, longest_ms).await;
            heal(&self.field.broker).await;
        }
    }

    async fn people_speak(&self) {
        let mut chance = Chance::new(self.soak.seed, OF_PEOPLE, 0);
        let mut number = 0;
        while !self.soak.peace() {
            self.soak
                .pause(&mut chance, 200, self.soak.pause_ms())
                .await;
            number += 1;
            let what = match chance.between(0, 8) {
                0 => commands::edit(&self.field, &mut chance),
                _ => commands::say_something(&self.field, &mut chance, number),
            };
            self.soak.diary.note(&format!("command: {what}"));
        }
        self.field.write(&self.field.text());
        signal("-HUP");
    }

    async fn things_come_and_go(&self) {
        let mut chance = Chance::new(self.soak.seed, OF_STAGE, 0);
        while !self.soak.peace() {
            self.soak.pause(&mut chance, 300, 2500).await;
            let camera = chance.one(&CAMERAS);
            let is_there = self.field.stage.shows(camera);
            self.field.stage.show(camera, !is_there);
        }
        for camera in CAMERAS {
            self.field.stage.show(camera, true);
        }
    }

    /// After the last fault. Commands of before are taken back; else nothing is done for it in a long soak.
    async fn comes_back(&self) -> Duration {
        let began = self.clock.now();
        for camera in CAMERAS {
            let hat = json!({"op": "prompt_del", "cam": camera, "prompt": "hat"});
            self.ask(&format!("last-hat-{camera}"), hat).await;
        }
        let reply = self
            .ask("last-reset", json!({"op": "reset_overrides"}))
            .await;
        assert_eq!(reply["ok"], true, "{reply}");
        let hurried = async {
            sleep(HURRIED_AFTER).await;
            for camera in CAMERAS {
                if self
                    .field
                    .retained(&format!("cam/{camera}/status"))
                    .as_deref()
                    != Some("online")
                {
                    let request = json!({"op": "reconnect", "cam": camera});
                    self.ask(&format!("last-reconnect-{camera}"), request).await;
                }
            }
            pending().await
        };
        let back = self.until("all is well again", BACK_WITHIN, || self.all_is_well());
        tokio::select! {
            _ = back => {}
            () = hurried, if !self.soak.long => {}
        }
        self.clock.now().since(began)
    }

    /// Asks until there is an answer: a request may be lost while we connect.
    async fn ask(&self, id: &str, mut request: serde_json::Value) -> serde_json::Value {
        request["id"] = json!(id);
        for _ in 0..BACK_WITHIN.as_secs() {
            self.field.say("cmd", request.to_string());
            for _ in 0..20 {
                sleep(Duration::from_millis(50)).await;
                if let Some(reply) = self.judge.lock().unwrap().replies.remove(id) {
                    return reply;
                }
            }
        }
        panic!("no answer to {request}");
    }

    /// What was promised while everything went wrong has arrived. Gives settings, as retained and as the daemon says.
    async fn settles(&self) -> [(String, String); 2] {
        let wanted: Vec<(&str, &str)> = {
            let mut cameras = CAMERAS;
            cameras.sort_unstable();
            cameras.map(|camera| (camera, "thing")).into()
        };
        let is_settled = || {
            let judge = self.judge.lock().unwrap();
            let waiting = judge
                .stats
                .as_ref()
                .map(|stats| stats["spool_msgs"].clone());
            judge.open() == wanted && waiting == Some(json!(0))
        };
        let settled = timeout(Duration::from_secs(60), async {
            while !is_settled() {
                sleep(Duration::from_millis(100)).await;
            }
        });
        let settled = settled.await.is_ok();
        let judge = self.judge.lock().unwrap();
        assert!(settled, "open: {:?}, {:?}", judge.open(), judge.stats);
        drop(judge);
        let reply = self
            .ask("last-settings", json!({"op": "get", "what": "settings"}))
            .await;
        let retained = self.field.broker.all_retained();
        let extra: Vec<&String> = retained
            .keys()
            .filter(|topic| topic.contains("/cam/extra/"))
            .collect();
        assert!(extra.is_empty(), "of a camera that is gone: {extra:?}");
        let mut told = String::new();
        let mut same = String::new();
        for (topic, value) in settings(&reply["value"]) {
            let kept = retained.get(&format!("spotter/edge1/cam/{topic}"));
            _ = writeln!(told, "{topic} = {value}");
            _ = writeln!(same, "{topic} = {}", kept.map_or("nothing", String::as_str));
        }
        [("daemon".into(), told), ("broker".into(), same)]
    }
}

/// The settings of a reply as they are told as states: topic below `cam/`, and payload.
fn settings(value: &serde_json::Value) -> Vec<(String, String)> {
    fn flatten(topic: &str, value: &serde_json::Value, into: &mut Vec<(String, String)>) {
        match value {
            serde_json::Value::Object(fields) => {
                for (name, value) in fields {
                    let name = if name == "prompts" { "prompt" } else { name };
                    flatten(
                        format!("{topic}/{name}").trim_start_matches('/'),
                        value,
                        into,
                    );
                }
            }
            serde_json::Value::Bool(on) => {
                into.push((topic.into(), if *on { "ON" } else { "OFF" }.into()))
            }
            serde_json::Value::String(text) => into.push((topic.into(), text.clone())),
            other => into.push((
                topic.into(),
                other.to_string().trim_end_matches(".0").into(),
            )),
        }
    }
    let mut flat = Vec::new();
    flatten("", value, &mut flat);
    flat
}
