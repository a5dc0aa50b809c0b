//! The answers of ONVIF that Spotter reads.

use std::time::Duration;

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};

use crate::{
    discovered_camera::{DiscoveredCamera, MediaProfile},
    message::{OnvifMessage, message_of},
    soap::ReferenceParameter,
    xml::{XmlNode, all, find, plain_text_of, text, text_of},
};
use spotter_core::plain_line;

/// Where the services of a camera are, as it names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServiceAddresses {
    pub(crate) events: Option<String>,
    pub(crate) media: Option<String>,
    pub(crate) media2: Option<String>,
}

impl ServiceAddresses {
    /// Of `GetServices`.
    pub(crate) fn of_services(answer: &XmlNode) -> Self {
        let mut found = Self::default();
        for service in all(answer, "Service") {
            let address = text_of(service, "XAddr").map(str::to_owned);
            let namespace = text_of(service, "Namespace").unwrap_or_default();
            match namespace.trim_end_matches('/') {
                "http://www.onvif.org/ver10/events/wsdl" => found.events = address,
                "http://www.onvif.org/ver10/media/wsdl" => found.media = address,
                "http://www.onvif.org/ver20/media/wsdl" => found.media2 = address,
                _ => {}
            }
        }
        found
    }

    /// Of `GetCapabilities`.
    pub(crate) fn of_capabilities(answer: &XmlNode) -> Self {
        let address = |name| {
            let service = find(answer, name)?;
            text_of(service, "XAddr").map(str::to_owned)
        };
        Self {
            events: address("Events"),
            media: address("Media"),
            media2: None,
        }
    }
}

/// What the camera's clock shows, in Unix milliseconds. Some cameras have no `UTCDateTime`; their local time is taken for UTC, as they do
/// with the times of tokens.
pub(crate) fn camera_time_ms(answer: &XmlNode) -> Option<i64> {
    let shown = |name| time_ms(find(answer, name)?);
    shown("UTCDateTime").or_else(|| shown("LocalDateTime"))
}

fn time_ms(shown: &XmlNode) -> Option<i64> {
    let number = |name| text_of(shown, name).and_then(|text| text.parse::<i16>().ok());
    let small = |name| number(name).and_then(|number| i8::try_from(number).ok());
    let (year, month, day) = (number("Year")?, small("Month")?, small("Day")?);
    let (hour, minute, second) = (small("Hour")?, small("Minute")?, small("Second")?);
    let time = DateTime::new(year, month, day, hour, minute, second.min(59), 0).ok()?;
    Some(TimeZone::UTC.to_timestamp(time).ok()?.as_millisecond())
}

/// A subscription that the camera has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CreatedSubscription {
    /// As the camera names it.
    pub(crate) address: String,
    pub(crate) parameters: Vec<ReferenceParameter>,
    pub(crate) lasts: Option<Duration>,
}

impl CreatedSubscription {
    pub(crate) fn of(answer: &XmlNode) -> Option<Self> {
        let reference = find(answer, "SubscriptionReference")?;
        let parameters = find(reference, "ReferenceParameters");
        let parameters = parameters.into_iter().flat_map(|node| &node.children);
        Some(Self {
            address: text_of(reference, "Address").unwrap_or_default().to_owned(),
            parameters: parameters.map(parameter).collect(),
            lasts: lasts(answer),
        })
    }
}

fn parameter(node: &XmlNode) -> ReferenceParameter {
    ReferenceParameter {
        namespace: node.namespace.clone(),
        name: node.name.clone(),
        value: text(node).unwrap_or_default().to_owned(),
    }
}

fn lasts(answer: &XmlNode) -> Option<Duration> {
    let now = instant_ms(text_of(answer, "CurrentTime")?)?;
    let end = instant_ms(text_of(answer, "TerminationTime")?)?;
    let left = u64::try_from(end - now).ok().filter(|left| *left > 0)?;
    Some(Duration::from_millis(left))
}

/// Some cameras leave out that the time is UTC.
fn instant_ms(text: &str) -> Option<i64> {
    let with_zone = text.parse::<Timestamp>().ok();
    let as_utc = || {
        let time = text.parse::<DateTime>().ok()?;
        TimeZone::UTC.to_timestamp(time).ok()
    };
    Some(with_zone.or_else(as_utc)?.as_millisecond())
}

/// What a camera answered to a request of a subscription.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SubscriptionAnswer {
    pub(crate) messages: Vec<OnvifMessage>,
    /// Messages without a topic or without content.
    pub(crate) ignored: u64,
    /// How long the subscription lasts by the camera's own clock, which may show any time.
    pub(crate) lasts: Option<Duration>,
}

impl SubscriptionAnswer {
    /// Of `PullMessages` and `Renew`.
    pub(crate) fn of(answer: &XmlNode) -> Self {
        let mut pulled = Self {
            lasts: lasts(answer),
            ..Self::default()
        };
        for notification in all(answer, "NotificationMessage") {
            match message_of(notification) {
                Some(message) => pulled.messages.push(message),
                None => pulled.ignored += 1,
            }
        }
        pulled
    }
}

/// Adds what a camera is, of `GetDeviceInformation`. The camera's own model counts more than that of the search.
pub(crate) fn add_device_information(camera: &mut DiscoveredCamera, answer: &XmlNode) {
    let text = |name| plain_text_of(answer, name);
    camera.manufacturer = text("Manufacturer");
    camera.model = text("Model").or(camera.model.take());
    camera.firmware = text("FirmwareVersion");
}

/// The profiles that have video, in the camera's order.
pub(crate) fn profiles(answer: &XmlNode) -> Vec<MediaProfile> {
    let profiles = all(answer, "Profiles").into_iter();
    profiles.filter_map(profile).collect()
}

fn profile(node: &XmlNode) -> Option<MediaProfile> {
    // The name is that of the first or of the second media service.
    let encoder = find(node, "VideoEncoderConfiguration").or_else(|| find(node, "VideoEncoder"))?;
    let token = node.attribute("token")?.to_owned();
    let number =
        |name| find(encoder, "Resolution").and_then(|size| text_of(size, name)?.parse().ok());
    let rate = text_of(encoder, "FrameRateLimit").and_then(|text| text.parse::<f64>().ok());
    let mut names = node.children.iter().filter(|child| child.name == "Name");
    Some(MediaProfile {
        name: plain_line(names.find_map(text).unwrap_or(&token)),
        encoding: plain_text_of(encoder, "Encoding"),
        width: number("Width"),
        height: number("Height"),
        rate_hz: rate.filter(|rate| *rate > 0.0),
        token,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xml::read_xml;

    // Faults: O2.
    #[test]
    fn subscription_lasts_by_the_clock_of_the_camera() {
        let answer = |now: &str, end: &str| {
            format!(
                "<x:r xmlns:x='u'><x:CurrentTime>{now}</x:CurrentTime><x:TerminationTime>{end}</x:TerminationTime></x:r>"
            )
        };
        for (now, end, seconds) in [
            ("1970-01-01T00:00:10Z", "1970-01-01T00:02:10Z", Some(120)),
            (
                "2030-06-01T12:00:00+02:00",
                "2030-06-01T10:01:00.000Z",
                Some(60),
            ),
            ("2030-06-01T12:00:00", "2030-06-01T12:00:30", Some(30)),
            ("2030-06-01T12:00:30Z", "2030-06-01T12:00:30Z", None),
            ("2030-06-01T12:00:30Z", "2030-06-01T12:00:00Z", None),
            ("soon", "later", None),
        ] {
            let answer = read_xml(&answer(now, end)).unwrap();
            let found = SubscriptionAnswer::of(&answer).lasts;
            assert_eq!(found, seconds.map(Duration::from_secs), "{now}");
        }
        let nothing = read_xml("<r/>").unwrap();
        assert_eq!(SubscriptionAnswer::of(&nothing).lasts, None);
    }

    // Faults: O3.
    #[test]
    fn time_of_the_camera_is_utc_with_leap_second() {
        let answer = "<r><UTCDateTime><Time><Hour>7</Hour><Minute>50</Minute><Second>60</Second></Time>\
             <Date><Year>2010</Year><Month>9</Month><Day>16</Day></Date></UTCDateTime></r>";
        let local = answer.replace("UTCDateTime", "LocalDateTime");
        let without_utc = local.replace("<r>", "<r><UTCDateTime/>");
        let right = Some(1_284_623_459_000);
        for (answer, time_ms) in [
            (answer, right),
            (&local, right),
            (&without_utc, right),
            ("<r/>", None),
            ("<r><UTCDateTime/></r>", None),
        ] {
            assert_eq!(camera_time_ms(&read_xml(answer).unwrap()), time_ms);
        }
    }

    // Faults: O6.
    #[test]
    fn names_of_a_camera_are_one_line() {
        let answer = "<r><Manufacturer>A&#10;ok</Manufacturer><Model>x\u{202e}y</Model></r>";
        let mut device = DiscoveredCamera::at("http://cam/".parse().unwrap());
        add_device_information(&mut device, &read_xml(answer).unwrap());
        assert_eq!(device.manufacturer.as_deref(), Some("A\u{fffd}ok"));
        assert_eq!(device.model.as_deref(), Some("x\u{fffd}y"));
        let answer = "<r><Profiles token='a&#10;b'><VideoEncoder><Encoding>H\u{85}264</Encoding></VideoEncoder></Profiles></r>";
        let profile = &profiles(&read_xml(answer).unwrap())[0];
        assert_eq!(profile.name, "a\u{fffd}b");
        assert_eq!(profile.encoding.as_deref(), Some("H\u{fffd}264"));
        assert_eq!(profile.token, "a\nb", "it is sent back");
    }
}
