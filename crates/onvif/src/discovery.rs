//! WS-Discovery: asks the local networks which cameras there are. Cameras answer for themselves; routers do not pass the question on.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4},
    time::Duration,
};

use percent_encoding::percent_decode_str;
use tokio::{
    net::UdpSocket,
    task::JoinSet,
    time::{sleep, timeout},
};
use url::Url;

use crate::{
    camera::device_address,
    discovered_camera::DiscoveredCamera,
    soap::message_id,
    xml::{XmlNode, all, find, leaf, read_xml, text, text_of},
};
use spotter_core::plain_line;

/// The group and port of WS-Discovery.
pub const DISCOVERY_GROUP: SocketAddrV4 =
    SocketAddrV4::new(Ipv4Addr::new(239, 255, 255, 250), 3702);
/// Types that cameras have. Some answer only to one of them.
const TYPES: [(&str, &str); 2] = [
    (
        "d:NetworkVideoTransmitter",
        "http://www.onvif.org/ver10/network/wsdl",
    ),
    ("d:Device", "http://www.onvif.org/ver10/device/wsdl"),
];
/// The questions are sent twice: datagrams get lost.
const REPEATS: usize = 2;
const REPEAT_AFTER: Duration = Duration::from_millis(250);
/// More than any answer has.
const MAX_DATAGRAM: usize = 65_535;

/// The answers, and what could not be asked.
#[derive(Debug, Default)]
pub struct FoundCameras {
    /// In the order of their addresses.
    pub cameras: Vec<DiscoveredCamera>,
    /// Interfaces on which the question could not be sent, with the reason.
    pub failures: Vec<(Ipv4Addr, io::Error)>,
}

/// The IPv4 addresses of this machine's interfaces that are up, without loopback.
pub fn interfaces() -> io::Result<Vec<Ipv4Addr>> {
    let interfaces = if_addrs::get_if_addrs()?.into_iter();
    let usable = interfaces.filter(|one| one.is_oper_up() && !one.is_loopback());
    let addresses = usable.filter_map(|one| match one.ip() {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    });
    let addresses: BTreeSet<Ipv4Addr> = addresses.collect();
    Ok(addresses.into_iter().collect())
}

/// Asks `to` ([`DISCOVERY_GROUP`]) on all interfaces at the same time, and collects answers for `wait`.
pub async fn discover(interfaces: &[Ipv4Addr], wait: Duration, to: SocketAddrV4) -> FoundCameras {
    let mut asked = JoinSet::new();
    for &interface in interfaces {
        asked.spawn(async move { (interface, ask_on(interface, to, wait).await) });
    }
    let mut found = BTreeMap::new();
    let mut failures = Vec::new();
    while let Some(asked) = asked.join_next().await {
        match asked {
            Ok((_, Ok(cameras))) => {
                for camera in cameras {
                    found.entry(camera.endpoint.clone()).or_insert(camera);
                }
            }
            Ok((interface, Err(error))) => failures.push((interface, error)),
            Err(_) => {}
        }
    }
    let mut cameras: Vec<DiscoveredCamera> = found.into_values().collect();
    cameras.sort_by_key(|camera| (ip_of(&camera.address), camera.address.to_string()));
    // A camera that has changed its id answers with one address.
    cameras.dedup_by(|one, other| one.address == other.address);
    FoundCameras { cameras, failures }
}

/// Linux sends to a group on the interface that has the socket's address.
async fn ask_on(
    interface: Ipv4Addr,
    to: SocketAddrV4,
    wait: Duration,
) -> io::Result<Vec<DiscoveredCamera>> {
    let socket = UdpSocket::bind((interface, 0)).await?;
    let probes = TYPES.map(|(name, namespace)| probe(name, namespace));
    for repeat in 0..REPEATS {
        if repeat > 0 {
            sleep(REPEAT_AFTER.min(wait / 4)).await;
        }
        for probe in &probes {
            socket.send_to(probe.as_bytes(), to).await?;
        }
    }
    let mut found = Vec::new();
    _ = timeout(wait, receive(&socket, &mut found)).await;
    Ok(found)
}

/// Collects answers until it is ended.
async fn receive(socket: &UdpSocket, found: &mut Vec<DiscoveredCamera>) {
    let mut buffer = vec![0; MAX_DATAGRAM];
    loop {
        match socket.recv_from(&mut buffer).await {
            Ok((length, sender)) => {
                let answer = String::from_utf8_lossy(&buffer[..length]);
                found.extend(matches(&answer, sender));
            }
            // Linux reports here that an earlier datagram found no receiver.
            Err(_) => sleep(Duration::from_millis(50)).await,
        }
    }
}

/// A question for one type.
fn probe(name: &str, namespace: &str) -> String {
    format!(
        r#"<?xml version="1.0" encoding="utf-8"?>
<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope" xmlns:a="http://schemas.xmlsoap.org/ws/2004/08/addressing"
    xmlns:w="http://schemas.xmlsoap.org/ws/2005/04/discovery" xmlns:d="{namespace}">
<s:Header>{}<a:To>urn:schemas-xmlsoap-org:ws:2005:04:discovery</a:To>
<a:Action>http://schemas.xmlsoap.org/ws/2005/04/discovery/Probe</a:Action></s:Header>
<s:Body><w:Probe><w:Types>{name}</w:Types></w:Probe></s:Body></s:Envelope>"#,
        leaf("a:MessageID", &message_id())
    )
}

/// The cameras of an answer; none in what is no answer.
pub(crate) fn matches(answer: &str, sender: SocketAddr) -> Vec<DiscoveredCamera> {
    let Ok(document) = read_xml(answer) else {
        return Vec::new();
    };
    let matches = all(&document, "ProbeMatch").into_iter();
    matches
        .filter_map(|node| discovered(node, sender))
        .collect()
}

fn discovered(node: &XmlNode, sender: SocketAddr) -> Option<DiscoveredCamera> {
    let address = best_address(text_of(node, "XAddrs")?, sender)?;
    let scopes = text_of(node, "Scopes").unwrap_or_default();
    let scope = |name: &str| {
        let start = format!("onvif://www.onvif.org/{name}/");
        let values = scopes.split_whitespace();
        let mut values = values.filter_map(|scope| scope.strip_prefix(&start));
        let value = values.find(|value| !value.is_empty())?;
        Some(plain_line(&percent_decode_str(value).decode_utf8_lossy()))
    };
    let endpoint = find(node, "EndpointReference").and_then(|node| text(find(node, "Address")?));
    Some(DiscoveredCamera {
        endpoint: plain_line(endpoint.unwrap_or(address.as_str())),
        name: scope("name"),
        model: scope("hardware"),
        location: scope("location"),
        ..DiscoveredCamera::at(address)
    })
}

/// Of several addresses of a camera, the one that it answered from; else one that other machines can use.
fn best_address(addresses: &str, sender: SocketAddr) -> Option<Url> {
    let urls = addresses.split_whitespace();
    let urls = urls.filter(|text| text.starts_with("http"));
    let urls = urls.filter_map(|text| device_address(text).ok());
    let rank = |url: &Url| match ip_of(url) {
        Some(ip) if IpAddr::V4(ip) == sender.ip() => 0,
        Some(ip) if !ip.is_link_local() => 1,
        _ => 2,
    };
    urls.min_by_key(rank)
}

fn ip_of(url: &Url) -> Option<Ipv4Addr> {
    url.host_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(addresses: &str, scopes: &str) -> String {
        format!(
            "<S:Envelope xmlns:S='http://www.w3.org/2003/05/soap-envelope' xmlns:x='a' xmlns:y='d'><S:Body><y:ProbeMatches><y:ProbeMatch>\
             <x:EndpointReference><x:Address>urn:uuid:1</x:Address></x:EndpointReference>\
             <y:Scopes>{scopes}</y:Scopes><y:XAddrs>{addresses}</y:XAddrs></y:ProbeMatch></y:ProbeMatches></S:Body></S:Envelope>"
        )
    }

    fn sender() -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 7], 3702))
    }

    #[test]
    fn address_that_others_can_use_is_preferred() {
        for (addresses, expected) in [
            (
                "http://169.254.1.1/o http://10.0.0.3/o",
                Some("http://10.0.0.3/o"),
            ),
            ("http://169.254.1.1/o", Some("http://169.254.1.1/o")),
            ("ftp://10.0.0.3 urn:x", None),
        ] {
            let found = matches(&answer(addresses, ""), sender());
            let found = found.first().map(|camera| camera.address.as_str());
            assert_eq!(found, expected);
        }
        assert_eq!(matches("no XML", sender()), []);
        assert_eq!(matches("<a/>", sender()), []);
    }
}
