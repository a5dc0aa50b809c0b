//! The answers of ONVIF that Spotter reads.

use std::time::Duration;

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use serde::Serialize;

use crate::{
    discovery::DiscoveredCamera,
    message::{OnvifMessage, message_of},
    soap::ReferenceParameter,
    xml::{XmlNode, all, find, plain_text_of, read_xml, text, text_of},
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
    pub(crate) fn of_services(answer: &str) -> Result<Self, String> {
        let document = read_xml(answer)?;
        let mut found = Self::default();
        for service in all(&document, "Service") {
            let address = text_of(service, "XAddr").map(str::to_owned);
            let namespace = text_of(service, "Namespace").unwrap_or_default();
            match namespace.trim_end_matches('/') {
                "http://www.onvif.org/ver10/events/wsdl" => found.events = address,
                "http://www.onvif.org/ver10/media/wsdl" => found.media = address,
                "http://www.onvif.org/ver20/media/wsdl" => found.media2 = address,
                _ => {}
            }
        }
        Ok(found)
    }

    /// Of `GetCapabilities`.
    pub(crate) fn of_capabilities(answer: &str) -> Result<Self, String> {
        let document = read_xml(answer)?;
        let address = |name| {
            let service = find(&document, name)?;
            text_of(service, "XAddr").map(str::to_owned)
        };
        Ok(Self {
            events: address("Events"),
            media: address("Media"),
            media2: None,
        })
    }
}

/// What the camera's clock shows, in Unix milliseconds. Some cameras have no `UTCDateTime`; their local time is taken for UTC, as they do
/// with the times of tokens.
pub(crate) fn camera_time_ms(answer: &str) -> Result<i64, String> {
    let document = read_xml(answer)?;
    let shown = |name| time_ms(find(&document, name)?);
    let time = shown("UTCDateTime").or_else(|| shown("LocalDateTime"));
    time.ok_or_else(|| "no usable UTCDateTime or LocalDateTime".to_owned())
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
    pub(crate) fn of(answer: &str) -> Result<Self, String> {
        let document = read_xml(answer)?;
        let reference = find(&document, "SubscriptionReference");
        let reference = reference.ok_or("no SubscriptionReference")?;
        let parameters = find(reference, "ReferenceParameters");
        let parameters = parameters.into_iter().flat_map(|node| &node.children);
        Ok(Self {
            address: text_of(reference, "Address").unwrap_or_default().to_owned(),
            parameters: parameters.map(parameter).collect(),
            lasts: lasts(&document),
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
    pub(crate) fn of(answer: &str) -> Result<Self, String> {
        let document = read_xml(answer)?;
        let mut pulled = Self {
            lasts: lasts(&document),
            ..Self::default()
        };
        for notification in all(&document, "NotificationMessage") {
            match message_of(notification) {
                Some(message) => pulled.messages.push(message),
                None => pulled.ignored += 1,
            }
        }
        Ok(pulled)
    }
}

/// Adds what a camera is, of `GetDeviceInformation`. The camera's own model counts more than that of the search.
pub(crate) fn add_device_information(
    camera: &mut DiscoveredCamera,
    answer: &str,
) -> Result<(), String> {
    let document = read_xml(answer)?;
    let text = |name| plain_text_of(&document, name);
    camera.manufacturer = text("Manufacturer");
    camera.model = text("Model").or(camera.model.take());
    camera.firmware = text("FirmwareVersion");
    Ok(())
}

/// What a camera says of a stream that it offers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MediaProfile {
    #[serde(skip)]
    pub token: String,
    #[serde(rename = "profile")]
    pub name: String,
    pub encoding: Option<String>,
    pub width: Option<u32>,
    pub height: Option<u32>,
    #[serde(rename = "fps")]
    pub rate_hz: Option<f64>,
}

impl MediaProfile {
    /// For people: `640x360`.
    pub fn size(&self) -> Option<String> {
        Some(format!("{}x{}", self.width?, self.height?))
    }
}

/// The profiles that have video, in the camera's order.
pub(crate) fn profiles(answer: &str) -> Result<Vec<MediaProfile>, String> {
    let document = read_xml(answer)?;
    let profiles = all(&document, "Profiles").into_iter();
    Ok(profiles.filter_map(profile).collect())
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

/// The address of a stream, as the camera names it.
pub(crate) fn stream_uri(answer: &str) -> Result<String, String> {
    let document = read_xml(answer)?;
    let uri = text_of(&document, "Uri").map(str::to_owned);
    uri.ok_or_else(|| "no Uri".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let found = SubscriptionAnswer::of(&answer(now, end)).unwrap().lasts;
            assert_eq!(found, seconds.map(Duration::from_secs), "{now}");
        }
        assert_eq!(SubscriptionAnswer::of("<r/>").unwrap().lasts, None);
    }

    // Faults: O3.
    #[test]
    fn time_of_the_camera_is_utc_with_leap_second() {
        let answer = "<r><UTCDateTime><Time><Hour>7</Hour><Minute>50</Minute><Second>60</Second></Time>\
             <Date><Year>2010</Year><Month>9</Month><Day>16</Day></Date></UTCDateTime></r>";
        assert_eq!(camera_time_ms(answer), Ok(1_284_623_459_000));
        let local = answer.replace("UTCDateTime", "LocalDateTime");
        assert_eq!(camera_time_ms(&local), Ok(1_284_623_459_000));
        let without_utc = local.replace("<r>", "<r><UTCDateTime/>");
        assert_eq!(camera_time_ms(&without_utc), Ok(1_284_623_459_000));
        for wrong in ["<r/>", "<r><UTCDateTime/></r>", "<r>"] {
            assert!(camera_time_ms(wrong).is_err());
        }
    }

    // Faults: O6.
    #[test]
    fn names_of_a_camera_are_one_line() {
        let answer = "<r><Manufacturer>A&#10;ok</Manufacturer><Model>x\u{202e}y</Model></r>";
        let mut device = DiscoveredCamera::at("http://cam/".parse().unwrap());
        add_device_information(&mut device, answer).unwrap();
        assert_eq!(device.manufacturer.as_deref(), Some("A\u{fffd}ok"));
        assert_eq!(device.model.as_deref(), Some("x\u{fffd}y"));
        let answer = "<r><Profiles token='a&#10;b'><VideoEncoder><Encoding>H\u{85}264</Encoding></VideoEncoder></Profiles></r>";
        let profile = &profiles(answer).unwrap()[0];
        assert_eq!(profile.name, "a\u{fffd}b");
        assert_eq!(profile.encoding.as_deref(), Some("H\u{fffd}264"));
        assert_eq!(profile.token, "a\nb", "it is sent back");
    }

    #[test]
    fn profiles_of_both_media_services_are_read() {
        let one = "<a:r xmlns:a='m' xmlns:b='t'><a:Profiles token='p1'><b:Name>main</b:Name>\
            <b:VideoEncoderConfiguration token='e'><b:Name>enc</b:Name><b:Encoding>H264</b:Encoding>\
            <b:Resolution><b:Width>2560</b:Width><b:Height>1440</b:Height></b:Resolution>\
            <b:RateControl><b:FrameRateLimit>20</b:FrameRateLimit></b:RateControl></b:VideoEncoderConfiguration></a:Profiles>\
            <a:Profiles token='audio'/></a:r>";
        let two = "<r><Profiles token='p1'><Name>main</Name><Configurations><VideoEncoder><Encoding>H265</Encoding>\
            <Resolution><Width>640</Width><Height>360</Height></Resolution></VideoEncoder></Configurations></Profiles></r>";
        let found = profiles(one).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(
            (&*found[0].name, found[0].width, found[0].rate_hz),
            ("main", Some(2560), Some(20.0))
        );
        let found = &profiles(two).unwrap()[0];
        assert_eq!(
            (found.encoding.as_deref(), found.height, found.rate_hz),
            (Some("H265"), Some(360), None)
        );
    }
}
