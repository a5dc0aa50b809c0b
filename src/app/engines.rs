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
    ModelCard, device,
    opening::Home,
    seats::{Seats, deal, join},
    station::{Loss, Station},
};
use crate::{
    config::{Camera, Config},
    domain::{Books, CameraId, Clock, Frame, Outcome},
    ingest::DeviceMap,
    sampler::Sampler,
};

/// The engines with their cameras.
pub struct Engines {
    stations: Vec<Station>,
    /// In the order of the configuration.
    cameras: Vec<CameraId>,
    /// Who is asked first, by turns.
    first: usize,
}

/// What engines have to tell.
pub enum News {
    /// Looks ended, whose frames are in that sampler's books.
    Outcomes(Arc<Sampler>, Vec<Outcome>),
    /// An engine ended by itself.
    Lost(Loss),
}

impl Engines {
    /// Opens an engine on every device, one after the other: the second finds the kernels compiled, each is measured with the
    /// machine for itself, and the host's memory holds the weights of one at a time. Cameras that sat `before` keep their
    /// device where that is even. The card is that of the first.
    pub async fn start(
        config: &Config,
        before: &Seats,
        clock: &Arc<dyn Clock>,
    ) -> anyhow::Result<(Self, ModelCard)> {
        let settings = config.model.clone();
        let chosen = spawn_blocking(move || device::choose(&settings)).await;
        let chosen = chosen.context("model")?.map_err(anyhow::Error::msg);
        let mut devices = chosen.context("model")?;
        // A device without a camera would hold memory for nothing; the configuration's advice tells of it.
        devices.truncate(config.cameras.len());
        let home = Home::of_each(devices.len());
        let labels: Vec<String> = devices.iter().map(device::Device::label).collect();
        let ids: Vec<CameraId> = config.cameras.iter().map(|c| c.id.clone()).collect();
        let dealt = deal(&ids, &labels, before);
        let (mut stations, mut card) = (Vec::new(), None);
        for device in devices {
            let label = device.label();
            let cameras = of_engine(&config.cameras, &dealt, stations.len());
            let opened = Station::open(device, home, &config.model, &cameras, clock).await;
            let (station, its_card) = opened.with_context(|| format!("model on {label}"))?;
            stations.push(station);
            card.get_or_insert(its_card);
        }
        let card = card.context("model: no device; name at least one in model.gpus")?;
        Ok((Self::new(stations, ids), card))
    }

    /// Engines that run already, and all cameras in the order of the configuration.
    pub fn new(stations: Vec<Station>, cameras: Vec<CameraId>) -> Self {
        Self {
            stations,
            cameras,
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
            Ok(outcomes) => News::Outcomes(Arc::clone(station.sampler()), outcomes),
            Err(reason) => match station.lost(&reason) {
                Some(loss) => News::Lost(loss),
                // A lost station is never ready, so this branch is not taken.
                None => std::future::pending().await,
            },
        }
    }

    /// These are the cameras from now on, as they are now. Nobody moves; a new one goes to the engine that has the fewest.
    pub fn change(&mut self, cameras: &[Camera]) {
        let seat = |camera: &Camera| {
            let mut stations = self.stations.iter();
            stations.position(|station| station.cameras().contains(&camera.id))
        };
        let before: Vec<_> = cameras.iter().map(seat).collect();
        let running: Vec<_> = self.stations.iter().map(Station::is_running).collect();
        let dealt = join(&before, &running);
        for (index, station) in self.stations.iter_mut().enumerate() {
            station.change(&of_engine(cameras, &dealt, index));
        }
        self.cameras = cameras.iter().map(|camera| camera.id.clone()).collect();
    }

    /// Who has a camera's frames.
    pub fn sampler(&self, camera: &CameraId) -> Option<&Arc<Sampler>> {
        let mut stations = self.stations.iter();
        let station = stations.find(|station| station.cameras().contains(camera));
        station.map(Station::sampler)
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

    /// Begins no more looks and waits at most so long for those under way. Returns all outcomes that are left, each with
    /// the sampler of its frame.
    pub async fn finish(&mut self, limit: Duration) -> Vec<(Arc<Sampler>, Outcome)> {
        let until = Instant::now() + limit;
        let mut last = Vec::new();
        // One after the other, but what is under way goes on in all of them.
        for station in &mut self.stations {
            let outcomes = station.finish(until).await;
            let sampler = station.sampler();
            last.extend(outcomes.into_iter().map(|o| (Arc::clone(sampler), o)));
        }
        last
    }

    /// Lets all engines go and waits at most so long until their devices are free for those that come next.
    pub async fn end(&mut self, limit: Duration) {
        let until = Instant::now() + limit;
        for station in &mut self.stations {
            station.end(until).await;
        }
    }

    /// Where frames of a camera go; `None` for one that is not ours.
    pub fn sink(&self, camera: &CameraId) -> Option<Arc<dyn Fn(Frame) + Send + Sync>> {
        let sinks = self
            .stations
            .iter()
            .map(|s| s.sampler().camera_sink(camera));
        let sink = sinks.flatten().next()?;
        Some(Arc::new(sink))
    }

    /// How frames of a camera may stay on the GPU, see [`device::frames_on`]; `None` where they have to come to the host.
    pub fn device_map(&self, camera: &CameraId) -> Option<DeviceMap> {
        let mut stations = self.stations.iter();
        stations
            .find(|s| s.cameras().contains(camera))?
            .device_map()
    }

    /// The books of every camera, in the order of the configuration.
    pub fn books(&self) -> Vec<(CameraId, Books)> {
        let stations = self.stations.iter();
        let mut books: Vec<_> = stations.flat_map(|s| s.sampler().books()).collect();
        books.sort_by_key(|(camera, _)| self.cameras.iter().position(|c| c == camera));
        books
    }

    /// The books of all cameras together that were taken away.
    pub fn books_of_gone(&self) -> Books {
        let mut all = Books::default();
        for station in &self.stations {
            all.add(&station.sampler().books_of_gone());
        }
        all
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
        self.stations
            .iter()
            .filter_map(Station::gpu)
            .cloned()
            .collect()
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

#[cfg(test)]
mod tests;
