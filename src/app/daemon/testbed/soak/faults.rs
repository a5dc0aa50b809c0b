//! Faults of cameras and of the broker, drawn from a seed so that a run can be repeated.

use std::{collections::BTreeMap, sync::Mutex};

use rand::RngExt as _;
use rand_pcg::Pcg32;

use super::super::*;
use spotter_scripted::{
    broker::Acknowledges,
    rtsp::script::{CameraFault, Damage, Reports, Stamps, StreamEnding},
};

pub(super) struct RandomDraws(Pcg32);

impl RandomDraws {
    /// The `number`-th generator of the stream `kind`.
    pub(super) fn new(seed: u64, kind: u64, number: u64) -> Self {
        Self(Pcg32::new(seed ^ kind << 32, number))
    }

    /// From `least` on, below `most`.
    pub(super) fn between(&mut self, least: u64, most: u64) -> u64 {
        self.0.random_range(least..most)
    }

    pub(super) fn ms(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_millis(self.between(least, most))
    }

    pub(super) fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.between(0, of.len() as u64) as usize]
    }
}

/// Counts of faults and commands by name.
#[derive(Clone, Default)]
pub(super) struct FaultLog(Arc<Mutex<BTreeMap<String, u64>>>);

impl FaultLog {
    pub(super) fn note(&self, what: &str) {
        *self.0.lock().unwrap().entry(what.to_owned()).or_default() += 1;
    }

    pub(super) fn all(&self) -> BTreeMap<String, u64> {
        self.0.lock().unwrap().clone()
    }
}

/// The tapes of cameras, and how long they play.
#[derive(Clone)]
pub(super) struct Tapes {
    usual: Arc<CameraTape>,
    larger: Arc<CameraTape>,
    rare_keys: Arc<CameraTape>,
    /// Pictures until a stream ends.
    length: (u64, u64),
}

impl Tapes {
    /// Streams of seconds, or of a minute when the soak is `long`.
    pub(super) fn record(long: bool) -> Self {
        let usual = Recording::of(TapeCodec::H264);
        let of = |recording: Recording| Arc::new(CameraTape::record(&recording));
        Self {
            usual: tape(),
            larger: of(Recording {
                size: (480, 272),
                ..usual.clone()
            }),
            rare_keys: of(Recording {
                pictures: 120,
                gop: 120,
                ..usual
            }),
            length: if long { (20, 1200) } else { (20, 100) },
        }
    }

    pub(super) fn good(&self) -> CameraScript {
        good()
    }

    /// The script of one connection, and the name of its fault.
    pub(super) fn script(&self, chance: &mut RandomDraws) -> (CameraScript, String) {
        let pictures = chance.between(self.length.0, self.length.1) as usize;
        match chance.between(0, 100) {
            0..45 => self.ends(chance, pictures),
            45..83 => self.damaged(chance, 2 * pictures),
            83..97 => self.refuses(chance),
            97..99 => refused(self.good(), "SETUP", 453),
            _ => refused(self.good(), "DESCRIBE", 401),
        }
    }

    fn ends(&self, chance: &mut RandomDraws, pictures: usize) -> (CameraScript, String) {
        let good = self.good();
        let deed = chance.one(&[CameraFault::Silence, CameraFault::Close, CameraFault::Reset]);
        let (script, place) = match chance.between(0, 5) {
            0 => (good.after(0, deed), "after PLAY"),
            1 | 2 => (good.after(pictures, deed), "in a GOP"),
            _ => (good.within(pictures, deed), "in a packet"),
        };
        (script, format!("{deed:?} {place}"))
    }

    fn refuses(&self, chance: &mut RandomDraws) -> (CameraScript, String) {
        let request = chance.one(&["OPTIONS", "DESCRIBE", "SETUP", "PLAY"]);
        let deed = chance.one(&[
            CameraFault::Refuse(404),
            CameraFault::Refuse(500),
            CameraFault::Silence,
            CameraFault::Close,
            CameraFault::Reset,
            CameraFault::Babble,
        ]);
        let name = match deed {
            CameraFault::Refuse(status) => format!("refused {status}"),
            deed => format!("{deed:?} at a request"),
        };
        (self.good().at(request, deed), name)
    }

    /// Damages the stream; ends it in order after some pictures.
    fn damaged(&self, chance: &mut RandomDraws, pictures: usize) -> (CameraScript, String) {
        let damages = [
            (Damage::LoseOneOf(20), "loss of one in 20"),
            (Damage::LoseOneOf(1000), "loss of one in 1000"),
            (Damage::DelayOneOf(20), "reorder"),
            (Damage::FlipOneOf(200), "wrong bytes"),
            (Damage::Renamed, "new SSRC with each key picture"),
            (Damage::Foreign, "another session's packets"),
        ];
        let reports = [
            (Reports::Stepping(-3600), "clock jumps by an hour"),
            (Reports::Stepping(5), "clock jumps by seconds"),
            (Reports::Missing, "clock missing"),
            (Reports::Off(7200), "clock hours off"),
        ];
        let mut script = self.good();
        let mut name = "new size";
        match chance.between(0, 10) {
            0..5 => (script.damage, name) = chance.one(&damages),
            5 => {
                let stamps = Stamps {
                    sequence: 7,
                    rtp: 1,
                    ssrc: chance.between(1, 1 << 32) as u32,
                };
                script.restart = Some((pictures / 2, stamps));
                name = "new SSRC";
            }
            6 => script.reel = [&self.usual, &self.larger].map(Arc::clone).into(),
            7 => {
                script.reel = [Arc::clone(&self.rare_keys)].into();
                script.damage = Damage::LosePicture(50);
                name = "key pictures far apart, one picture of each group lost";
            }
            _ => (script.reports, name) = chance.one(&reports),
        }
        script.ending = Some(StreamEnding {
            pictures,
            torn: false,
            deed: CameraFault::Close,
        });
        (script, name.to_owned())
    }
}

fn refused(good: CameraScript, request: &'static str, status: u16) -> (CameraScript, String) {
    let script = good.at(request, CameraFault::Refuse(status));
    (script, format!("refused {status}"))
}

/// A fault of the broker begins; returns its name.
pub(super) fn break_broker(broker: &ScriptedBroker, chance: &mut RandomDraws) -> String {
    let ms = chance.between(20, 2000);
    // Connections are not cut at the same byte each: the daemon would take it for a size limit of the broker.
    match chance.between(0, 11) {
        0 | 1 => {
            broker.leave();
            "restarts and remembers".into()
        }
        2 | 3 => {
            broker.leave();
            broker.forget();
            "restarts and forgets".into()
        }
        4 => {
            broker.cut();
            "cuts the connection".into()
        }
        5 => {
            broker.script(|script| script.is_half_open = true);
            "silent".into()
        }
        6 => {
            broker.cut();
            broker.script(|script| script.connack = 0x89);
            "refuses: busy".into()
        }
        7 => {
            broker.script(|script| script.acknowledges = Acknowledges::Never);
            "acknowledges nothing".into()
        }
        8 => {
            let late = Acknowledges::Late(Duration::from_millis(ms));
            broker.script(|script| script.acknowledges = late);
            "acknowledges late".into()
        }
        9 => {
            broker.script(|script| script.acknowledges = Acknowledges::With(0x97));
            "refuses messages".into()
        }
        _ => {
            broker.script(|script| script.reads_slowly = Some((512, Duration::from_millis(20))));
            "reads slowly".into()
        }
    }
}

pub(super) async fn restore_broker(broker: &ScriptedBroker) {
    broker.script(|script| *script = spotter_scripted::broker::BrokerScript::default());
    if broker.is_gone() {
        broker.come_back().await;
    }
}
