//! The broker's limits, from its answer to CONNECT. Pure.

use super::{
    client::{EPOCH, content_type},
    policy::Protocol,
};
use crate::delivery::DeliveryOptions;

/// The limits of one connection. MQTT 3.1.1 has none, which is the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BrokerLimits {
    /// The broker closes the connection on a larger packet.
    pub(super) packet_max_bytes: Option<usize>,
    /// Messages without an acknowledgement.
    pub(super) in_flight_max: usize,
    /// The broker supports retained messages.
    pub(super) retains: bool,
}

impl Default for BrokerLimits {
    fn default() -> Self {
        Self {
            packet_max_bytes: None,
            in_flight_max: usize::MAX,
            retains: true,
        }
    }
}

impl BrokerLimits {
    pub(super) fn allows(&self, bytes: usize) -> bool {
        self.packet_max_bytes.is_none_or(|max| bytes <= max)
    }
}

/// Size of a PUBLISH packet.
pub(super) fn publish_bytes(
    protocol: Protocol,
    topic: &str,
    payload: &[u8],
    delivery: &DeliveryOptions,
) -> usize {
    let mut rest = 2 + topic.len() + payload.len();
    if delivery.ticket.is_some() {
        rest += 2;
    }
    if protocol == Protocol::V5 {
        // Each property has an identifier of one byte; texts have a length of two bytes.
        let properties = 2
            + delivery.expiry.map_or(0, |_| 5)
            + content_type(payload).map_or(0, |mime| 3 + mime.len())
            + delivery
                .correlation
                .as_ref()
                .map_or(0, |data| 3 + data.len())
            + delivery
                .epoch
                .map_or(0, |epoch| 5 + EPOCH.len() + epoch.to_string().len());
        rest += length_bytes(properties) + properties;
    }
    1 + length_bytes(rest) + rest
}

/// Size of SUBSCRIBE with one filter.
pub(super) fn subscribe_bytes(protocol: Protocol, filter: &str) -> usize {
    let properties = usize::from(protocol == Protocol::V5);
    let rest = 2 + properties + 2 + filter.len() + 1;
    1 + length_bytes(rest) + rest
}

/// Bytes of an encoded length: seven bits in each.
fn length_bytes(length: usize) -> usize {
    match length {
        0..0x80 => 1,
        0x80..0x4000 => 2,
        0x4000..0x20_0000 => 3,
        _ => 4,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rumqttc::{Packet, Publish, PublishProperties, QoS, Subscribe, SubscribeFilter};

    use super::*;
    use crate::delivery::Ticket;

    #[test]
    fn sizes_are_those_on_the_wire() {
        for bytes in [0, 80, 200, 20_000, 3_000_000] {
            let mut payload = vec![b'x'; bytes + 1];
            payload[0] = b'{';
            let stream = DeliveryOptions {
                expiry: Some(Duration::from_secs(5)),
                correlation: Some([1; 130].into()),
                epoch: Some(spotter_core::Epoch(1234)),
                ..DeliveryOptions::default()
            };
            let properties = PublishProperties {
                payload_format_indicator: Some(1),
                message_expiry_interval: Some(5),
                content_type: Some("application/json".into()),
                correlation_data: Some(vec![1; 130].into()),
                user_properties: vec![("epoch".into(), "1234".into())],
                ..PublishProperties::default()
            };
            let packet = Publish::new("a/b", QoS::AtMostOnce, payload.clone(), Some(properties));
            let counted = publish_bytes(Protocol::V5, "a/b", &payload, &stream);
            assert_eq!(counted, Packet::Publish(packet).size());

            let state = DeliveryOptions {
                ticket: Some(Ticket(1)),
                ..DeliveryOptions::default()
            };
            let mut packet = rumqttc_v4::Publish::new("a/b", QoS::AtLeastOnce, payload.clone());
            packet.pkid = 1;
            let counted = publish_bytes(Protocol::V311, "a/b", &payload, &state);
            assert_eq!(counted, rumqttc_v4::Packet::Publish(packet).size());
        }
        let filter = "spotter/edge1/cam/+/+/set";
        let packet = Subscribe::new(SubscribeFilter::new(filter, QoS::AtLeastOnce), None);
        let counted = subscribe_bytes(Protocol::V5, filter);
        assert_eq!(counted, Packet::Subscribe(packet).size());
    }
}
