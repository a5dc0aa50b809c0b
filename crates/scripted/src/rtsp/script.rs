//! What a camera of the tests does, one script for each connection.

use std::{sync::Arc, time::Duration};

use super::{
    conversation::{Login, Takes},
    play::{Damage, Reports, Stamps, media},
    tape::Tape,
};

/// What it does instead of what is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Answers with this status.
    Refuse(u16),
    /// Says nothing any more, and keeps the connection open.
    Silence,
    /// Leaves this request without an answer.
    Ignore,
    /// Closes the connection.
    Close,
    /// Breaks the connection: what is on its way is lost.
    Reset,
    /// Says what is no RTSP.
    Babble,
}

/// When a stream is over, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// After so many pictures.
    pub pictures: usize,
    /// In the middle of the next packet.
    pub torn: bool,
    pub deed: Deed,
}

#[derive(Clone, Debug)]
pub struct Script {
    /// Tapes that are played one after the other, in a loop; the first is what the SDP describes.
    pub reel: Arc<[Arc<Tape>]>,
    /// Sections of the SDP before the video.
    pub before: &'static str,
    /// Sections of the SDP after the video.
    pub after: &'static str,
    pub login: Option<Login>,
    /// The ways in which it sends packets.
    pub takes: Takes,
    /// Requests that are not answered as they should be, by their method.
    pub deeds: Vec<(&'static str, Deed)>,
    /// The session ends without a request for so long, as is announced.
    pub timeout: Duration,
    /// From picture to picture.
    pub every: Duration,
    /// Where numbers and times start.
    pub stamps: Stamps,
    /// What happens on the way.
    pub damage: Damage,
    /// What it says of its clock.
    pub reports: Reports,
    /// From report to report.
    pub report_every: Duration,
    /// After so many pictures it starts anew as another sender.
    pub restart: Option<(usize, Stamps)>,
    /// The end of the stream.
    pub ending: Option<Ending>,
}

impl Script {
    /// A good camera with 20 pictures a second.
    pub fn good(tape: &Arc<Tape>) -> Self {
        Self {
            reel: [Arc::clone(tape)].into(),
            before: "",
            after: "",
            login: None,
            takes: Takes::Both,
            deeds: Vec::new(),
            timeout: Duration::from_secs(60),
            every: Duration::from_millis(50),
            stamps: Stamps {
                sequence: 1000,
                rtp: 90_000,
                ssrc: 0x1234_5678,
            },
            damage: Damage::None,
            reports: Reports::Off(0),
            report_every: Duration::from_secs(1),
            restart: None,
            ending: None,
        }
    }

    /// Which does that when it is asked for this.
    pub fn at(mut self, method: &'static str, deed: Deed) -> Self {
        self.deeds.push((method, deed));
        self
    }

    /// Which does that after so many pictures.
    pub fn after(mut self, pictures: usize, deed: Deed) -> Self {
        self.ending = Some(Ending {
            pictures,
            torn: false,
            deed,
        });
        self
    }

    /// Which does that after so many pictures and the half of a packet.
    pub fn within(mut self, pictures: usize, deed: Deed) -> Self {
        self.ending = Some(Ending {
            pictures,
            torn: true,
            deed,
        });
        self
    }

    /// What is done at a request instead of the answer.
    pub fn deed(&self, method: &str) -> Option<Deed> {
        let found = self.deeds.iter().find(|(known, _)| *known == method);
        found.map(|(_, deed)| *deed)
    }

    /// The description of its stream.
    pub fn sdp(&self) -> String {
        let video = media(&self.reel[0], "video");
        let session = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=camera\r\nc=IN IP4 0.0.0.0\r\nt=0 0\r\na=control:*\r\n";
        format!("{session}{}{video}{}", self.before, self.after)
    }
}
