//! The part of MQTT 3.1.1 and 5 that a broker needs for one client. It is written here so that a test does not decode with the
//! library that encoded. Panics on packets that a client must not send.

/// A packet of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientPacket {
    Connect(Connect),
    Publish(Publish),
    PubAck {
        id: u16,
    },
    Subscribe {
        id: u16,
        filters: Vec<SubscribeFilter>,
    },
    Unsubscribe {
        id: u16,
        filters: Vec<String>,
    },
    Ping,
    Disconnect,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connect {
    pub level: u8,
    pub client_id: String,
    pub keep_alive_s: u16,
    pub will_topic: String,
    pub will_retained: bool,
    pub user: Option<String>,
    pub password: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Publish {
    pub topic: String,
    pub payload: Vec<u8>,
    pub qos: u8,
    pub retain: bool,
    /// 0 with QoS 0.
    pub id: u16,
    pub response_topic: Option<String>,
    pub correlation: Option<Vec<u8>>,
    pub content_type: Option<String>,
    pub expiry_s: Option<u32>,
    /// Names and values.
    pub user_properties: Vec<(String, String)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubscribeFilter {
    pub name: String,
    pub qos: u8,
    /// 2 = no retained messages (MQTT 5).
    pub retain_handling: u8,
}

/// A property of CONNACK (MQTT 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Term {
    PacketMax(u32),
    ReceiveMax(u16),
    TopicAliasMax(u16),
    KeepAlive(u16),
    KeepsNothing,
}

/// Removes the first packet from the received bytes; `None` if it is not complete. `v5` is the version of the connection;
/// CONNECT contains its own.
pub fn take(received: &mut Vec<u8>, v5: bool) -> Option<ClientPacket> {
    let (head, rest) = received.split_first()?;
    let (length, bytes) = variable_int(rest)?;
    let packet = decode(*head, rest.get(bytes..bytes + length)?, v5);
    received.drain(..1 + bytes + length);
    Some(packet)
}

/// A variable byte integer, and the number of its bytes.
fn variable_int(bytes: &[u8]) -> Option<(usize, usize)> {
    let last = bytes.iter().position(|byte| byte & 0x80 == 0)?;
    let groups = bytes[..=last].iter().rev();
    let value = groups.fold(0, |value, byte| value << 7 | usize::from(byte & 0x7f));
    Some((value, last + 1))
}

fn decode(head: u8, body: &[u8], v5: bool) -> ClientPacket {
    let mut body = BodyBytes(body);
    match head >> 4 {
        1 => ClientPacket::Connect(connect(&mut body)),
        3 => ClientPacket::Publish(publish(head, &mut body, v5)),
        4 => ClientPacket::PubAck { id: body.u16() },
        8 => {
            let id = body.u16();
            body.properties(v5, |_, _| {});
            let mut filters = Vec::new();
            while !body.0.is_empty() {
                let name = body.text();
                let options = body.u8();
                filters.push(SubscribeFilter {
                    name,
                    qos: options & 3,
                    retain_handling: options >> 4,
                });
            }
            ClientPacket::Subscribe { id, filters }
        }
        10 => {
            let id = body.u16();
            body.properties(v5, |_, _| {});
            let mut filters = Vec::new();
            while !body.0.is_empty() {
                filters.push(body.text());
            }
            ClientPacket::Unsubscribe { id, filters }
        }
        12 => ClientPacket::Ping,
        14 => ClientPacket::Disconnect,
        other => panic!("a client sent packet type {other}"),
    }
}

fn connect(body: &mut BodyBytes<'_>) -> Connect {
    assert_eq!(body.text(), "MQTT");
    let level = body.u8();
    let flags = body.u8();
    let keep_alive_s = body.u16();
    let v5 = level == 5;
    body.properties(v5, |_, _| {});
    let client_id = body.text();
    let mut will_topic = String::new();
    if flags & 4 != 0 {
        body.properties(v5, |_, _| {});
        will_topic = body.text();
        body.data();
    }
    Connect {
        level,
        client_id,
        keep_alive_s,
        will_topic,
        will_retained: flags & 0x20 != 0,
        user: (flags & 0x80 != 0).then(|| body.text()),
        password: (flags & 0x40 != 0).then(|| body.text()),
    }
}

fn publish(head: u8, body: &mut BodyBytes<'_>, v5: bool) -> Publish {
    let qos = head >> 1 & 3;
    let mut message = Publish {
        topic: body.text(),
        qos,
        retain: head & 1 != 0,
        id: if qos > 0 { body.u16() } else { 0 },
        ..Publish::default()
    };
    body.properties(v5, |kind, value| match kind {
        0x02 => message.expiry_s = Some(BodyBytes(value).u32()),
        0x03 => message.content_type = Some(BodyBytes(value).text()),
        0x08 => message.response_topic = Some(BodyBytes(value).text()),
        0x09 => message.correlation = Some(BodyBytes(value).data().to_vec()),
        0x26 => {
            let mut pair = BodyBytes(value);
            message.user_properties.push((pair.text(), pair.text()));
        }
        _ => {}
    });
    message.payload = body.0.to_vec();
    message
}

struct BodyBytes<'a>(&'a [u8]);

impl<'a> BodyBytes<'a> {
    fn take(&mut self, bytes: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(bytes);
        self.0 = rest;
        taken
    }

    fn u8(&mut self) -> u8 {
        self.take(1)[0]
    }

    fn u16(&mut self) -> u16 {
        u16::from_be_bytes([self.u8(), self.u8()])
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes([self.u8(), self.u8(), self.u8(), self.u8()])
    }

    fn data(&mut self) -> &'a [u8] {
        let bytes = self.u16();
        self.take(bytes.into())
    }

    fn text(&mut self) -> String {
        String::from_utf8(self.data().to_vec()).expect("UTF-8")
    }

    /// Calls `each` with the kind and the bytes of every property. MQTT 3.1.1 has none.
    fn properties(&mut self, v5: bool, mut each: impl FnMut(u8, &'a [u8])) {
        if !v5 {
            return;
        }
        let (length, bytes) = variable_int(self.0).expect("a length");
        self.take(bytes);
        let mut left = BodyBytes(self.take(length));
        while !left.0.is_empty() {
            let kind = left.u8();
            let length = match kind {
                0x01 | 0x17 | 0x19 | 0x24 | 0x25 | 0x28..=0x2a => 1,
                0x13 | 0x21..=0x23 => 2,
                0x02 | 0x11 | 0x18 | 0x27 => 4,
                0x03 | 0x08 | 0x09 | 0x12 | 0x15 | 0x16 | 0x1a | 0x1c | 0x1f => {
                    2 + usize::from(BodyBytes(left.0).u16())
                }
                0x26 => {
                    let name = 2 + usize::from(BodyBytes(left.0).u16());
                    name + 2 + usize::from(BodyBytes(&left.0[name..]).u16())
                }
                other => panic!("property {other:#x} is not known here"),
            };
            each(kind, left.take(length));
        }
    }
}

/// The answer to CONNECT.
pub fn connack(v5: bool, code: u8, terms: &[Term]) -> Vec<u8> {
    let mut body = vec![0, code];
    if v5 {
        let property = |kind: u8, value: &[u8]| [&[kind], value].concat();
        let properties = terms.iter().flat_map(|term| match term {
            Term::PacketMax(bytes) => property(0x27, &bytes.to_be_bytes()),
            Term::ReceiveMax(count) => property(0x21, &count.to_be_bytes()),
            Term::TopicAliasMax(count) => property(0x22, &count.to_be_bytes()),
            Term::KeepAlive(seconds) => property(0x13, &seconds.to_be_bytes()),
            Term::KeepsNothing => property(0x25, &[0]),
        });
        let properties: Vec<u8> = properties.collect();
        body.push(properties.len() as u8);
        body.extend(properties);
    }
    packet(0x20, body)
}

pub fn puback(v5: bool, id: u16, code: u8) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    if v5 {
        body.extend([code, 0]);
    }
    packet(0x40, body)
}

/// `codes` has one for each filter. For UNSUBACK `head` is 0xb0.
pub fn suback(head: u8, v5: bool, id: u16, codes: &[u8]) -> Vec<u8> {
    let mut body = id.to_be_bytes().to_vec();
    if v5 {
        body.push(0);
    }
    if v5 || head == 0x90 {
        body.extend(codes);
    }
    packet(head, body)
}

/// DISCONNECT of a broker (MQTT 5).
pub fn disconnect(code: u8) -> Vec<u8> {
    packet(0xe0, vec![code, 0])
}

/// A message to the client.
pub fn message(v5: bool, message: &Publish) -> Vec<u8> {
    let text = |text: &[u8]| [&(text.len() as u16).to_be_bytes(), text].concat();
    let mut body = text(message.topic.as_bytes());
    if message.qos > 0 {
        body.extend(message.id.to_be_bytes());
    }
    if v5 {
        let mut properties = Vec::new();
        if let Some(topic) = &message.response_topic {
            properties.push(0x08);
            properties.extend(text(topic.as_bytes()));
        }
        if let Some(data) = &message.correlation {
            properties.push(0x09);
            properties.extend(text(data));
        }
        body.push(properties.len() as u8);
        body.extend(properties);
    }
    body.extend(&message.payload);
    packet(0x30 | message.qos << 1 | u8::from(message.retain), body)
}

/// Head, length, body.
pub fn packet(head: u8, body: Vec<u8>) -> Vec<u8> {
    let mut bytes = vec![head];
    let mut length = body.len();
    loop {
        let more = length >= 0x80;
        bytes.push((length & 0x7f) as u8 | if more { 0x80 } else { 0 });
        length >>= 7;
        if !more {
            break;
        }
    }
    bytes.extend(body);
    bytes
}
