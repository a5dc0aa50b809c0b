//! Who may ask, and how often. Pure: takes `now`.

use std::{collections::HashMap, net::IpAddr, time::Duration};

use sha2::{Digest, Sha256};

use spotter_core::{Mono, config::Secret};

/// Clients whose rate is remembered; of those beyond, none may ask until one is forgotten.
const CLIENTS_MAX: usize = 4096;

/// Whose rate is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ApiClient {
    /// By the token's index in the configuration.
    Token(usize),
    /// No token is needed, or none that is known was sent.
    Address(IpAddr),
}

/// The tokens by their hashes: comparing these takes a time that says nothing about a token.
#[derive(Debug)]
pub struct ApiTokens(Vec<[u8; 32]>);

impl ApiTokens {
    pub fn new(tokens: &[Secret]) -> Self {
        let hashes = tokens.iter().map(|token| hash(token.reveal()));
        Self(hashes.collect())
    }

    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Who has sent this token from this address; an error is a token that is missing or unknown.
    pub fn client(&self, token: Option<&str>, address: IpAddr) -> Result<ApiClient, ApiClient> {
        let by_address = ApiClient::Address(address);
        if self.0.is_empty() {
            return Ok(by_address);
        }
        let sent = token.map(hash).ok_or(by_address)?;
        let known = self.0.iter().position(|known| *known == sent);
        known.map(ApiClient::Token).ok_or(by_address)
    }
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

/// How often each client has asked.
#[derive(Debug)]
pub struct RequestRates {
    rate_hz: f64,
    clients: HashMap<ApiClient, RequestAllowance>,
}

/// Requests that a client may send at once; it grows with time.
#[derive(Clone, Copy, Debug)]
struct RequestAllowance {
    requests: f64,
    at: Mono,
}

impl RequestRates {
    /// `rate_hz` requests a second of each client, those of one second at once.
    pub fn new(rate_hz: f64) -> Self {
        Self {
            rate_hz,
            clients: HashMap::new(),
        }
    }

    /// Counts a request, or says after which time it would be allowed.
    pub fn admit(&mut self, client: ApiClient, now: Mono) -> Result<(), Duration> {
        if self.clients.len() >= CLIENTS_MAX {
            let full = self.most();
            let rate_hz = self.rate_hz;
            self.clients
                .retain(|_, allowance| allowance.grown(rate_hz, now) < full);
        }
        let is_known = self.clients.contains_key(&client);
        if !is_known && self.clients.len() >= CLIENTS_MAX {
            return Err(Duration::from_secs(1));
        }
        let most = self.most();
        let full = RequestAllowance {
            requests: most,
            at: now,
        };
        let allowance = self.clients.entry(client).or_insert(full);
        let grown = allowance.grown(self.rate_hz, now).min(most);
        if grown < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - grown) / self.rate_hz));
        }
        *allowance = RequestAllowance {
            requests: grown - 1.0,
            at: now,
        };
        Ok(())
    }

    fn most(&self) -> f64 {
        self.rate_hz.max(1.0)
    }
}

impl RequestAllowance {
    fn grown(&self, rate_hz: f64, now: Mono) -> f64 {
        self.requests + now.since(self.at).as_secs_f64() * rate_hz
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn at(ms: u64) -> Mono {
        Mono::default().after(Duration::from_millis(ms))
    }

    #[test]
    fn only_known_tokens_are_accepted_once_there_are_some() {
        let none = ApiTokens::new(&[]);
        assert_eq!(none.client(Some("x"), HERE), Ok(ApiClient::Address(HERE)));
        let tokens = ["first-token-of-two", "second-token-of-two"];
        let tokens = ApiTokens::new(&tokens.map(|token| Secret::new(token.into())));
        let second = tokens.client(Some("second-token-of-two"), HERE);
        assert_eq!(second, Ok(ApiClient::Token(1)));
        for wrong in [None, Some(""), Some("first"), Some("first-token-of-twoo")] {
            assert_eq!(tokens.client(wrong, HERE), Err(ApiClient::Address(HERE)));
        }
    }

    #[test]
    fn client_that_asks_too_often_waits_for_its_turn() {
        let mut rates = RequestRates::new(2.0);
        let (one, other) = (ApiClient::Token(0), ApiClient::Token(1));
        assert!(rates.admit(one, at(0)).is_ok() && rates.admit(one, at(0)).is_ok());
        assert_eq!(rates.admit(one, at(0)), Err(Duration::from_millis(500)));
        assert!(rates.admit(other, at(0)).is_ok(), "another client");
        assert_eq!(rates.admit(one, at(400)), Err(Duration::from_millis(100)));
        assert!(rates.admit(one, at(500)).is_ok());
        // A long pause allows the requests of one second.
        let allowed = (0..5).filter(|_| rates.admit(one, at(60_000)).is_ok());
        assert_eq!(allowed.count(), 2);
    }

    #[test]
    fn slow_rate_allows_one_request_at_once() {
        let mut rates = RequestRates::new(0.1);
        assert!(rates.admit(ApiClient::Token(0), at(0)).is_ok());
        let refused = rates.admit(ApiClient::Token(0), at(4_000)).unwrap_err();
        assert_eq!(refused.as_secs_f64().round(), 6.0);
    }

    #[test]
    fn many_clients_do_not_fill_the_memory() {
        let mut rates = RequestRates::new(1.0);
        let client = |n: u32| ApiClient::Address(IpAddr::V4(Ipv4Addr::from_bits(n)));
        let admitted = (0..5000).filter(|&n| rates.admit(client(n), at(0)).is_ok());
        assert_eq!(admitted.count(), CLIENTS_MAX);
        assert!(rates.admit(client(9_999), at(2_000)).is_ok());
        assert_eq!(rates.clients.len(), 1);
    }
}
