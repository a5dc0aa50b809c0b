//! A file of the page as it is sent: compressed, where the client reads that.

use std::io::{self, Write as _};

use axum::{
    body::Bytes,
    http::{HeaderMap, header},
    response::{IntoResponse, Response},
};
use flate2::{Compression, write::GzEncoder};

pub(crate) struct PackedFile {
    media_type: &'static str,
    plain: &'static str,
    gzip: Bytes,
}

impl PackedFile {
    pub fn new(media_type: &'static str, plain: &'static str) -> io::Result<Self> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(plain.as_bytes())?;
        Ok(Self {
            media_type,
            plain,
            gzip: encoder.finish()?.into(),
        })
    }

    pub fn answer(&self, request: &HeaderMap) -> Response {
        let kind = (header::CONTENT_TYPE, self.media_type);
        let varies = (header::VARY, "accept-encoding");
        match reads_gzip(request) {
            true => {
                let packed = (header::CONTENT_ENCODING, "gzip");
                ([kind, varies, packed], self.gzip.clone()).into_response()
            }
            false => ([kind, varies], self.plain).into_response(),
        }
    }

    /// Bytes that a browser gets.
    #[cfg(test)]
    pub fn packed_len(&self) -> usize {
        self.gzip.len()
    }
}

/// As browsers say it; a client with preferences gets the plain file.
fn reads_gzip(request: &HeaderMap) -> bool {
    let codings = request.get_all(header::ACCEPT_ENCODING).iter();
    let codings = codings.filter_map(|codings| codings.to_str().ok());
    codings
        .flat_map(|codings| codings.split(','))
        .any(|coding| coding.trim().eq_ignore_ascii_case("gzip"))
}
