//! Who may ask, and how often. Pure: takes `now`.
//!
//! Faults: H6.

use std::{collections::HashMap, time::Duration};

use axum::http::{HeaderMap, header};
use sha2::{Digest, Sha256};

use super::network::ClientNetwork;
use spotter_config::Secret;
use spotter_core::{Mono, duration_from_secs};

/// Clients whose rate is remembered; of networks beyond, none may ask until one is forgotten. Clients with a token always may.
const CLIENTS_MAX: usize = 4096;
/// When to ask again where no more are remembered.
const FULL_PAUSE: Duration = Duration::from_secs(1);

/// Whose rate is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TokenClient {
    /// By the token's index in the configuration.
    Token(usize),
    /// No token is needed, or none that is known was sent.
    Network(ClientNetwork),
}

/// The tokens by their hashes: comparing these takes a time that says nothing about a token.
#[derive(Debug)]
pub struct AccessTokens(Vec<[u8; 32]>);

impl AccessTokens {
    pub fn new(tokens: &[Secret]) -> Self {
        let hashes = tokens.iter().map(|token| hash(token.reveal()));
        Self(hashes.collect())
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Who has sent this token from this network; an error is a token that is missing or unknown.
    pub fn client(
        &self,
        token: Option<&str>,
        network: ClientNetwork,
    ) -> Result<TokenClient, TokenClient> {
        let by_network = TokenClient::Network(network);
        if self.0.is_empty() {
            return Ok(by_network);
        }
        let sent = token.map(hash).ok_or(by_network)?;
        let known = self.0.iter().position(|known| *known == sent);
        known.map(TokenClient::Token).ok_or(by_network)
    }
}

/// The token of `Authorization: Bearer …`.
pub fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?;
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

/// How often each client may ask.
#[derive(Debug)]
pub struct RequestRates {
    /// Between two requests, on average.
    interval: Duration,
    /// Of requests that are sent at once.
    allowed: Duration,
    /// When each client may ask as if it never had.
    rested: HashMap<TokenClient, Mono>,
}

impl RequestRates {
    /// `rate_hz` requests a second of each client.
    pub fn new(rate_hz: f64) -> Self {
        Self::at_once(duration_from_secs(1.0 / rate_hz), rate_hz.max(1.0) as u32)
    }

    /// One in each `interval` of each client, and so many at once after a pause.
    pub fn at_once(interval: Duration, at_once: u32) -> Self {
        Self {
            interval,
            allowed: interval * at_once,
            rested: HashMap::new(),
        }
    }

    /// Tokens are as many as the configuration has: strangers take none of their places.
    fn has_room(&mut self, client: TokenClient, now: Mono) -> bool {
        let is_known = self.rested.contains_key(&client);
        if matches!(client, TokenClient::Token(_)) || is_known || self.rested.len() < CLIENTS_MAX {
            return true;
        }
        self.rested.retain(|_, rested| *rested > now);
        self.rested.len() < CLIENTS_MAX
    }

    /// For how long the next request of the client would be refused.
    pub fn pause(&mut self, client: TokenClient, now: Mono) -> Option<Duration> {
        if !self.has_room(client, now) {
            return Some(FULL_PAUSE);
        }
        let owed = self.rested.get(&client)?.since(now) + self.interval;
        owed.checked_sub(self.allowed)
            .filter(|pause| !pause.is_zero())
    }

    /// Counts a request, or says after which time it would be allowed.
    pub fn admit(&mut self, client: TokenClient, now: Mono) -> Result<(), Duration> {
        if !self.has_room(client, now) {
            return Err(FULL_PAUSE);
        }
        let rested = self.rested.entry(client).or_insert(now);
        let owed = rested.since(now) + self.interval;
        if owed > self.allowed {
            return Err(owed - self.allowed);
        }
        *rested = now.after(owed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    const HERE: ClientNetwork = ClientNetwork::Loopback;

    fn at(ms: u64) -> Mono {
        Mono::default().after(Duration::from_millis(ms))
    }

    #[test]
    fn only_known_tokens_are_accepted_once_there_are_some() {
        let none = AccessTokens::new(&[]);
        assert_eq!(none.client(Some("x"), HERE), Ok(TokenClient::Network(HERE)));
        let tokens = ["first-token-of-two", "second-token-of-two"];
        let tokens = AccessTokens::new(&tokens.map(|token| Secret::new(token.into())));
        let second = tokens.client(Some("second-token-of-two"), HERE);
        assert_eq!(second, Ok(TokenClient::Token(1)));
        for wrong in [None, Some(""), Some("first"), Some("first-token-of-twoo")] {
            assert_eq!(tokens.client(wrong, HERE), Err(TokenClient::Network(HERE)));
        }
    }

    #[test]
    fn client_that_asks_too_often_waits_for_its_turn() {
        let mut rates = RequestRates::new(2.0);
        let (one, other) = (TokenClient::Token(0), TokenClient::Token(1));
        assert!(rates.admit(one, at(0)).is_ok() && rates.admit(one, at(0)).is_ok());
        assert_eq!(rates.admit(one, at(0)), Err(Duration::from_millis(500)));
        assert!(rates.admit(other, at(0)).is_ok(), "another client");
        assert_eq!(rates.admit(one, at(400)), Err(Duration::from_millis(100)));
        assert!(rates.admit(one, at(500)).is_ok());
        // A long pause allows the requests of one second.
        let allowed = (0..5).filter(|_| rates.admit(one, at(60_000)).is_ok());
        assert_eq!(allowed.count(), 2);
        let mut slow = RequestRates::new(0.1);
        assert!(slow.admit(one, at(0)).is_ok());
        assert_eq!(slow.admit(one, at(4_000)), Err(Duration::from_secs(6)));
    }

    fn stranger(n: u32) -> TokenClient {
        let address = IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + n));
        TokenClient::Network(ClientNetwork::of(address))
    }

    #[test]
    fn many_strangers_fill_no_memory_and_lock_no_token_out() {
        let mut rates = RequestRates::new(1.0);
        let admitted = (0..5000).filter(|&n| rates.admit(stranger(n), at(0)).is_ok());
        assert_eq!(admitted.count(), CLIENTS_MAX);
        // They lock no valid token out.
        assert!(rates.admit(TokenClient::Token(0), at(0)).is_ok());
        assert!(rates.admit(stranger(9_999), at(2_000)).is_ok());
        assert_eq!(rates.rested.len(), 1);
    }
}
