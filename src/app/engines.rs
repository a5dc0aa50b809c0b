//! All engines of the daemon, one for each device, and which of them looks at which camera.
//!
//! ```text
//!   gate, dock ─▶ sampler ─▶ engine on cuda 0 ─▶ outcomes ─┐
//!   yard       ─▶ sampler ─▶ engine on cuda 1 ─▶ outcomes ─┴─▶ desk        an engine that fails takes its own cameras along
//! ```
//!
//! One engine is a thread of the daemon. Of several each is a process, because the driver fails all that a process has on any
//! GPU together, see `opening`.

use std::{future::poll_fn, sync::Arc, task::Poll, time::Duration};

use anyhow::Context as _;
use tokio::{task::spawn_blocking, time::Instant};

use super::{
    opening::Home,
    seats::{Seats, deal, join},
    station::{Loss, Station},
};
use spotter_cameras::{ingest::DeviceMap, sampler::Sampler};
use spotter_core::{
    CameraId, Clock, Frame, Outcome,
    config::{Camera, Config},
};
use spotter_engine::open::{self, Device, ModelCard};
use spotter_engine::service::handle::EngineStopped;

/// Grace for devices to let go of what they hold.
const ENDS_LIMIT: Duration = Duration::from_secs(5);

/// The engines with their cameras.
pub struct Engines {
    sampler: Arc<Sampler>,
    stations: Vec<Station>,
    /// Who is asked first, by turns.
    first: usize,
}

/// What engines have to tell.
pub enum News {
    /// Looks ended, in the order of each camera.
    Outcomes(Vec<Outcome>),
    /// An engine ended by itself.
    Lost(Loss),
}

/// What engines are to be opened for.
#[derive(Clone)]
pub struct Plan {
    /// What is in force.
    pub config: Config,
    /// Where cameras sat until now: they keep their device where that is even.
    pub before: Seats,
    /// All cameras.
    pub sampler: Arc<Sampler>,
    /// The daemon's.
    pub clock: Arc<dyn Clock>,
    /// Only this device, for the cameras of `config`, beside engines that run; `None`: those that `config` names.
    pub only: Option<Device>,
}

/// Engines that run, each with the cameras that it is to have, and what is told of the first.
pub struct Opened {
    /// One for each device.
    pub stations: Vec<Station>,
    /// The model on the first.
    pub card: ModelCard,
}

impl Plan {
    /// Opens an engine on every device, one after the other: the second finds the kernels compiled, each is measured with the
    /// machine for itself, and the host's memory holds the weights of one at a time.
    pub async fn open(self) -> anyhow::Result<Opened> {
        let config = &self.config;
        let (devices, home) = match &self.only {
            Some(device) => (vec![device.clone()], Home::Process),
            None => devices(config).await.context("model")?,
        };
        let labels: Vec<String> = devices.iter().map(Device::label).collect();
        let dealt = deal(&ids(&config.cameras), &labels, &self.before);
        let (mut stations, mut card) = (Vec::new(), None);
        for device in devices {
            let label = device.label();
            let cameras = of_engine(&config.cameras, &dealt, stations.len());
            let stage = (&*self.sampler, &self.clock);
            let opened = Station::open(device, home, &config.model, &cameras, stage).await;
            let (station, its_card) = opened.with_context(|| format!("model on {label}"))?;
            stations.push(station);
            card.get_or_insert(its_card);
        }
        let card = card.context("model: no device; name at least one in model.gpus")?;
        Ok(Opened { stations, card })
    }
}

impl Opened {
    /// Nobody wants them. Waits until their devices are free, or do not let go in time.
    pub async fn let_go(mut self) {
        let_go(&mut self.stations).await;
    }
}

/// Lets all of them go at once. The future is ready when their devices are free, or do not let go in time.
fn let_go(stations: &mut [Station]) -> impl Future<Output = ()> + use<> {
    let until = Instant::now() + ENDS_LIMIT;
    let gone = stations.iter_mut().map(|s| s.let_go(until));
    let gone: Vec<_> = gone.collect();
    async move {
        for station in gone {
            station.await;
        }
    }
}

/// What the configuration names, and where the engines live.
async fn devices(config: &Config) -> anyhow::Result<(Vec<Device>, Home)> {
    let settings = config.model.clone();
    let chosen = spawn_blocking(move || open::choose(&settings)).await?;
    let mut devices = chosen.map_err(anyhow::Error::msg)?;
    // A device without a camera would hold memory for nothing; the configuration's advice tells of it.
    devices.truncate(config.cameras.len());
    let home = Home::of_each(devices.len());
    Ok((devices, home))
}

impl Engines {
    /// Engines that run already. Each gets the frames of its cameras from now on.
    pub fn new(sampler: Arc<Sampler>, stations: Vec<Station>) -> Self {
        stations.iter().for_each(|station| station.seat(&sampler));
        Self {
            sampler,
            stations,
            first: 0,
        }
    }

    /// Begins looks on all engines as permits and frames come, until one has something to tell. Dropping the future loses
    /// nothing. Never ready when all engines have ended.
    pub async fn next(&mut self) -> News {
        let (index, told) = {
            let stations = self.stations.iter_mut().enumerate();
            let mut waiting: Vec<_> = stations
                .map(|(index, station)| (index, Box::pin(station.next())))
                .collect();
            // None is always asked first, so that a busy engine does not keep the others waiting.
            let turn = self.first % waiting.len().max(1);
            waiting.rotate_left(turn);
            poll_fn(|context| {
                for (index, next) in &mut waiting {
                    if let Poll::Ready(told) = next.as_mut().poll(context) {
                        return Poll::Ready((*index, told));
                    }
                }
                Poll::Pending
            })
            .await
        };
        self.first = index + 1;
        let station = &mut self.stations[index];
        match told {
            Ok(outcomes) => News::Outcomes(outcomes),
            Err(reason) => match station.lost(&reason) {
                Some(loss) => News::Lost(loss),
                // A lost station is never ready, so this branch is not taken.
                None => std::future::pending().await,
            },
        }
    }

    /// These are the cameras from now on, as they are now. Nobody moves; a new one goes to the engine that has the fewest.
    pub fn change(&mut self, cameras: &[Camera]) {
        self.sampler.change(cameras);
        let seat = |camera: &Camera| {
            let mut stations = self.stations.iter();
            stations.position(|station| station.cameras().contains(&camera.id))
        };
        let before: Vec<_> = cameras.iter().map(seat).collect();
        let running: Vec<_> = self.stations.iter().map(Station::is_running).collect();
        let dealt = join(&before, &running);
        for (index, station) in self.stations.iter_mut().enumerate() {
            let its = of_engine(cameras, &dealt, index);
            station.change(ids(&its), &self.sampler);
        }
    }

    /// All cameras, whichever engine has them.
    pub fn sampler(&self) -> &Arc<Sampler> {
        &self.sampler
    }

    /// How many engines there are, those that have ended too.
    pub fn count(&self) -> usize {
        self.stations.len()
    }

    /// True when no engine is left.
    pub fn all_lost(&self) -> bool {
        self.stations
            .iter()
            .all(|station| station.beats().is_none())
    }

    /// Begins no more looks and waits at most so long for those under way. Returns all outcomes that are left.
    pub async fn finish(&mut self, limit: Duration) -> Vec<Outcome> {
        let until = Instant::now() + limit;
        let mut last = Vec::new();
        // One after the other, but what is under way goes on in all of them.
        for station in &mut self.stations {
            last.extend(station.finish(until).await);
        }
        last
    }

    /// Lets all engines go; looks under way have failed. The future is ready when their devices are free for those that come
    /// next, or do not let go in time.
    pub fn let_go(&mut self) -> impl Future<Output = ()> + use<> {
        let gone = let_go(&mut self.stations);
        self.sampler.abandon();
        gone
    }

    /// An engine that shows no progress is waited for no longer. `None` when it is lost already.
    pub fn give_up(&mut self, label: &str, reason: &EngineStopped) -> Option<Loss> {
        let mut stations = self.stations.iter_mut();
        stations.find(|s| s.label() == label)?.lost(reason)
    }

    /// What a lost engine ran on; `None` where it cannot be opened again.
    pub fn device(&self, label: &str) -> Option<&Device> {
        let mut stations = self.stations.iter();
        stations.find(|s| s.label() == label)?.device()
    }

    /// An engine is there again that was lost. It gets the cameras that belong to it by now, whose ids are returned.
    pub fn put_back(&mut self, mut station: Station) -> &[CameraId] {
        let mut places = self.stations.iter_mut();
        let Some(place) = places.find(|place| place.label() == station.label()) else {
            return &[];
        };
        station.change(place.cameras().to_vec(), &self.sampler);
        *place = station;
        place.cameras()
    }

    /// Other engines are there instead, which have cameras already.
    pub fn replace(&mut self, stations: Vec<Station>) {
        *self = Self::new(Arc::clone(&self.sampler), stations);
    }

    /// Where frames of a camera go; `None` for one that is not ours.
    pub fn sink(&self, camera: &CameraId) -> Option<Arc<dyn Fn(Frame) + Send + Sync>> {
        Some(Arc::new(self.sampler.camera_sink(camera)?))
    }

    /// How frames of a camera may stay on the GPU, see [`device::frames_on`]; `None` where they have to come to the host.
    pub fn device_map(&self, camera: &CameraId) -> Option<DeviceMap> {
        let mut stations = self.stations.iter();
        stations
            .find(|s| s.cameras().contains(camera))?
            .device_map()
    }

    /// Who looks at what.
    pub fn seats(&self) -> Seats {
        let seat = |station: &Station| {
            let label = station.label().to_owned();
            let cameras = station.cameras().iter().cloned();
            cameras
                .map(move |camera| (camera, label.clone()))
                .collect::<Vec<_>>()
        };
        self.stations.iter().flat_map(seat).collect()
    }

    /// Names of the GPUs in use.
    pub fn gpus(&self) -> Vec<String> {
        let gpus = self.stations.iter().filter_map(Station::gpu);
        gpus.map(|gpu| gpu.name.clone()).collect()
    }

    /// The first GPU in use, as its driver knows it.
    pub fn first_gpu(&self) -> Option<&str> {
        let mut gpus = self.stations.iter().filter_map(Station::gpu);
        gpus.next().map(|gpu| gpu.uuid.as_str())
    }

    /// All engines with their progress, those that have ended without one.
    pub fn beats(&self) -> impl Iterator<Item = (&str, Option<u64>)> {
        self.stations.iter().map(|s| (s.label(), s.beats()))
    }

    /// The longest look of the devices, as measured at the start.
    pub fn look(&self) -> Option<Duration> {
        self.stations.iter().filter_map(Station::look).max()
    }
}

/// The cameras that were dealt to one of the engines.
fn of_engine(cameras: &[Camera], dealt: &[usize], engine: usize) -> Vec<Camera> {
    let all = cameras.iter().zip(dealt);
    let its = all.filter(|(_, of)| **of == engine);
    its.map(|(camera, _)| camera.clone()).collect()
}

fn ids(cameras: &[Camera]) -> Vec<CameraId> {
    cameras.iter().map(|camera| camera.id.clone()).collect()
}

#[cfg(test)]
mod tests;
