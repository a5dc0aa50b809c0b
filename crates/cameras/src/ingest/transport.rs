//! Which way RTP travels to us from a camera with `transport = "auto"`: decided before each connection by the end of the one
//! before it. Pure.

use std::fmt;

use super::health::Failure;
use spotter_config::Transport;
use spotter_core::StreamFault;

/// A way for RTP packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RtpTransport {
    /// Inside of the RTSP connection.
    Tcp,
    /// In datagrams to sockets of their own.
    Udp,
}

impl RtpTransport {
    /// The value of `transport` in health, and of rtspsrc's `protocols`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Tcp => Self::Udp,
            Self::Udp => Self::Tcp,
        }
    }
}

impl fmt::Display for RtpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.as_str().to_uppercase())
    }
}

/// How far the latest connection came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ConnectionReached {
    /// The camera did not agree to any transport: it is away, rejects the login, or has no such stream.
    #[default]
    Nothing,
    /// The camera agreed to the transport.
    SetUp,
    /// The camera refused the transport.
    Refused,
}

/// Remembers over reconnects which transport works. TCP is the first.
#[derive(Clone, Copy, Debug)]
pub struct TransportChoice {
    configured: Transport,
    current: RtpTransport,
    reached: ConnectionReached,
    /// Frames came by the current transport, in this connection or an earlier one.
    works: bool,
    /// The current transport follows the other one.
    is_second: bool,
}

impl TransportChoice {
    /// Before the first connection.
    pub fn new(configured: Transport) -> Self {
        Self {
            configured,
            current: match configured {
                Transport::Tcp | Transport::Auto => RtpTransport::Tcp,
                Transport::Udp => RtpTransport::Udp,
            },
            reached: ConnectionReached::Nothing,
            works: false,
            is_second: false,
        }
    }

    /// The transport of a new connection.
    pub fn connect(&mut self) -> RtpTransport {
        let next = self.next();
        self.is_second = next != self.current;
        self.works &= !self.is_second;
        (self.current, self.reached) = (next, ConnectionReached::Nothing);
        next
    }

    /// The transport that [`TransportChoice::connect`] would give now. A transport that was refused, or that never gave a frame
    /// although the camera agreed to it, is followed by the other one. A camera that is away changes nothing.
    fn next(&self) -> RtpTransport {
        let gives_way = match self.reached {
            ConnectionReached::Refused => true,
            ConnectionReached::SetUp => !self.works,
            ConnectionReached::Nothing => false,
        };
        match self.configured == Transport::Auto && gives_way {
            true => self.current.other(),
            false => self.current,
        }
    }

    /// The next connection uses another transport than the latest one.
    pub fn will_change(&self) -> bool {
        self.next() != self.current
    }

    /// The camera agreed to the transport.
    pub fn set_up(&mut self) {
        if self.reached == ConnectionReached::Nothing {
            self.reached = ConnectionReached::SetUp;
        }
    }

    /// The camera refused the transport.
    pub fn refuse(&mut self) -> Failure {
        self.reached = ConnectionReached::Refused;
        let text = format!("camera refused RTP over {} (RTSP 461)", self.current);
        let next = self.next();
        let (fault, remedy) = match (next == self.current, self.is_second) {
            (true, _) => (
                StreamFault::Unsupported,
                "; set transport = \"auto\"".to_owned(),
            ),
            (false, false) => (StreamFault::Protocol, format!("; retrying over {next}")),
            (false, true) => (StreamFault::Protocol, String::new()),
        };
        Failure {
            is_second_refusal: self.is_second,
            ..Failure::new(fault, text + &remedy)
        }
    }

    /// Frames came, or packets that show that frames would come by no other transport.
    pub fn works(&mut self) {
        self.works = true;
    }
}

#[cfg(test)]
mod tests {
    use super::{RtpTransport::*, *};

    #[test]
    fn refused_tcp_gives_way_to_udp_which_stays_over_reconnects() {
        let mut choice = TransportChoice::new(Transport::Auto);
        assert_eq!(choice.connect(), Tcp);
        let refusal = choice.refuse();
        assert!(
            refusal
                .text
                .contains("over TCP (RTSP 461); retrying over UDP")
        );
        assert!(!refusal.is_second_refusal && choice.will_change());
        assert_eq!(choice.connect(), Udp);
        choice.set_up();
        choice.works();
        assert!(!choice.will_change());
        // The camera is away, then agrees and sends nothing yet: what worked is kept.
        assert_eq!(choice.connect(), Udp);
        assert_eq!(choice.connect(), Udp);
        choice.set_up();
        assert_eq!(choice.connect(), Udp);
        // The camera was configured differently.
        assert!(choice.refuse().text.ends_with("retrying over TCP"));
        assert_eq!(choice.connect(), Tcp);
        choice.set_up();
        assert_eq!(choice.connect(), Udp, "TCP has not worked since");
    }

    #[test]
    fn absent_camera_is_tried_over_tcp_again() {
        let mut choice = TransportChoice::new(Transport::Auto);
        assert_eq!([(); 5].map(|()| choice.connect()), [Tcp; 5]);
    }

    #[test]
    fn transport_without_frames_gives_way_until_one_works() {
        let mut choice = TransportChoice::new(Transport::Auto);
        for transport in [Tcp, Udp, Tcp, Udp] {
            assert_eq!(choice.connect(), transport);
            choice.set_up();
        }
        assert_eq!(choice.connect(), Tcp);
        assert!(choice.refuse().is_second_refusal);
    }

    #[test]
    fn configured_transport_never_changes() {
        for (configured, transport) in [(Transport::Tcp, Tcp), (Transport::Udp, Udp)] {
            let mut choice = TransportChoice::new(configured);
            assert_eq!(choice.connect(), transport);
            assert_eq!(choice.refuse().fault, StreamFault::Unsupported);
            assert_eq!(choice.connect(), transport);
        }
    }
}
