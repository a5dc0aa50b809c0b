//! What a camera is, and which streams it has: for `spotter discover`. Blocks.

use std::{sync::Arc, time::Duration};

use crate::{
    answer::{add_device_information, profiles},
    camera::{OnvifCamera, reachable, reachable_stream},
    client::OnvifClient,
    discovered_camera::{DiscoveredCamera, OnvifStream},
    error::{OnvifError, OnvifProblem},
    request::{DEVICE, MEDIA, MEDIA2, OnvifRequest, OnvifService},
    soap::Endpoint,
    watch::services,
    xml::{leaf, text_of},
};
use spotter_core::Clock;

/// The first media service needs it in a request for an address.
const STREAM_SETUP: &str = "<trt:StreamSetup><tt:Stream>RTP-Unicast</tt:Stream><tt:Transport><tt:Protocol>RTSP</tt:Protocol></tt:Transport></trt:StreamSetup>";

/// Adds what a camera answers about itself and its streams. `within`: for each of the requests.
pub fn describe_camera(
    found: &mut DiscoveredCamera,
    camera: &OnvifCamera,
    clock: Arc<dyn Clock>,
    within: Duration,
) -> Result<(), OnvifError> {
    let mut client = OnvifClient::new(camera.clone(), clock);
    let services = services(&mut client, within)?;
    let request = OnvifRequest::new(&DEVICE, "GetDeviceInformation", "");
    let device = client.ask_device(&request, within)?;
    add_device_information(found, &device);
    let mut streams = |service, named: Option<String>| {
        let endpoint = Endpoint::new(reachable(&camera.address, &named?));
        Some(streams(&mut client, service, &endpoint, within))
    };
    // The second service knows H.265; some cameras have it and do not carry it out.
    let streams = match streams(&MEDIA2, services.media2) {
        Some(Ok(second)) if !second.is_empty() => second,
        second => match streams(&MEDIA, services.media).or(second) {
            Some(found) => found?,
            None => return Err(client.error(OnvifProblem::NoService("media"))),
        },
    };
    (found.streams, found.events) = (Some(streams), Some(services.events.is_some()));
    Ok(())
}

/// By one of the two media services.
fn streams(
    client: &mut OnvifClient,
    service: &'static OnvifService,
    at: &Endpoint,
    within: Duration,
) -> Result<Vec<OnvifStream>, OnvifError> {
    let is_second = *service == MEDIA2;
    let content = is_second.then(|| leaf("tr2:Type", "VideoEncoder"));
    let request = OnvifRequest::new(service, "GetProfiles", content.unwrap_or_default());
    let answer = client.ask(at, &request, within)?;
    let mut streams = Vec::new();
    for profile in profiles(&answer) {
        let content = match is_second {
            true => leaf("tr2:Protocol", "RTSP") + &leaf("tr2:ProfileToken", &profile.token),
            false => STREAM_SETUP.to_owned() + &leaf("trt:ProfileToken", &profile.token),
        };
        let request = OnvifRequest::new(service, "GetStreamUri", content);
        let answer = match client.ask(at, &request, within) {
            // It refuses this profile alone.
            Err(error) if error.problem.is_refusal() => continue,
            answer => answer?,
        };
        let named = client.read(&request, text_of(&answer, "Uri"))?;
        // Others are not RTSP.
        if let Some(url) = reachable_stream(&client.camera().address, named) {
            streams.push(OnvifStream { profile, url });
        }
    }
    Ok(streams)
}
