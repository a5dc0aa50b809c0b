//! What a camera is, and which streams it has: for `spotter discover`. Blocks.

use std::{sync::Arc, time::Duration};

use url::Url;

use crate::{
    answer::{DeviceInformation, MediaProfile, profiles, stream_uri},
    camera::{OnvifCamera, reachable, reachable_stream},
    client::OnvifClient,
    error::OnvifError,
    request::{MediaVersion, OnvifRequest},
    soap::Endpoint,
    watch::services,
};
use spotter_core::Clock;

/// A camera that was asked.
#[derive(Clone, Debug, PartialEq)]
pub struct CameraDescription {
    pub device: DeviceInformation,
    /// In the camera's order.
    pub streams: Vec<OnvifStream>,
    pub has_events: bool,
}

/// A stream that a camera offers.
#[derive(Clone, Debug, PartialEq)]
pub struct OnvifStream {
    /// The name of the profile.
    pub profile: String,
    pub encoding: Option<String>,
    /// Width and height.
    pub size: Option<(u32, u32)>,
    pub rate_hz: Option<f64>,
    /// Without a login.
    pub url: Url,
}

/// Asks a camera for its streams. `within`: for each of the requests.
pub fn describe_camera(
    camera: &OnvifCamera,
    clock: Arc<dyn Clock>,
    within: Duration,
) -> Result<CameraDescription, OnvifError> {
    let mut client = OnvifClient::new(camera.clone(), clock);
    let services = services(&mut client, within)?;
    let has_events = services.events.is_some();
    let request = OnvifRequest::GetDeviceInformation;
    let device = client.ask_device(&request, within)?;
    let device = client.read(&request, DeviceInformation::of(&device))?;
    let endpoint = |named: String| Endpoint::new(reachable(&camera.address, &named));
    let mut media = MediaClient {
        client: &mut client,
        within,
    };
    // The second service knows H.265; some cameras have it and do not carry it out.
    let second = services.media2.map(endpoint);
    let second = second.map(|media2| media.streams(&media2, MediaVersion::Two));
    let first = services.media.map(endpoint);
    let streams = match (second, first) {
        (Some(Ok(streams)), _) if !streams.is_empty() => streams,
        (_, Some(first)) => media.streams(&first, MediaVersion::One)?,
        (Some(second), None) => second?,
        (None, None) => {
            let address = client.shown();
            let service = "media";
            return Err(OnvifError::NoService { address, service });
        }
    };
    Ok(CameraDescription {
        device,
        streams,
        has_events,
    })
}

struct MediaClient<'a> {
    client: &'a mut OnvifClient,
    within: Duration,
}

impl MediaClient<'_> {
    fn streams(
        &mut self,
        service: &Endpoint,
        version: MediaVersion,
    ) -> Result<Vec<OnvifStream>, OnvifError> {
        let request = OnvifRequest::GetProfiles(version);
        let answer = self.client.ask(service, &request, self.within)?;
        let profiles = self.client.read(&request, profiles(&answer))?;
        let streams = profiles
            .into_iter()
            .map(|profile| self.stream(service, version, profile));
        let streams: Result<Vec<_>, _> = streams.collect();
        Ok(streams?.into_iter().flatten().collect())
    }

    /// `None` for a stream that is not RTSP, and for a profile that the camera refuses.
    fn stream(
        &mut self,
        service: &Endpoint,
        version: MediaVersion,
        profile: MediaProfile,
    ) -> Result<Option<OnvifStream>, OnvifError> {
        let request = OnvifRequest::GetStreamUri {
            version,
            profile: &profile.token,
        };
        let answer = match self.client.ask(service, &request, self.within) {
            Err(error) if error.is_refusal() => return Ok(None),
            answer => answer?,
        };
        let named = self.client.read(&request, stream_uri(&answer))?;
        let url = reachable_stream(&self.client.camera().address, &named);
        Ok(url.map(|url| OnvifStream {
            profile: profile.name.clone(),
            encoding: profile.encoding.clone(),
            size: profile.size,
            rate_hz: profile.rate_hz,
            url,
        }))
    }
}
