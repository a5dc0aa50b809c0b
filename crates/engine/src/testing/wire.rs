//! What a process reads of the connection between the daemon and an engine, as a function of the bytes: for properties and fuzzing.

use std::sync::Arc;

use crate::service::wire::{
    self, Hello, OpenReply, WireError, WireLookNews, WireNews, WireRequest,
};
use spotter_core::{Look, Prompt};

/// Reads requests as the engine's process does, until the bytes end or one of them is none. Returns the looks.
pub fn engine_reads(mut bytes: &[u8]) -> Vec<Look> {
    let mut looks = Vec::new();
    let mut read = || -> Result<(), WireError> {
        loop {
            let (request, body) = wire::read_request(&mut bytes)?;
            if let WireRequest::Look(look) = request {
                looks.push(look.look(body)?);
            }
        }
    };
    let _: Result<(), WireError> = read();
    looks
}

/// Reads news as the daemon does, until the bytes end or one message is none: of a look with `prompts`, after the process has opened its
/// engine. Returns how many messages were read.
pub fn daemon_reads(mut bytes: &[u8], prompts: &[Arc<Prompt>]) -> usize {
    let mut messages = 0;
    let mut read = || -> Result<(), WireError> {
        let Hello::Hello = wire::read(&mut bytes)?;
        let _: OpenReply<String> = wire::read(&mut bytes)?;
        loop {
            let news: WireNews = wire::read(&mut bytes)?;
            if let WireNews::Look { news, .. } = news {
                check(news, prompts)?;
            }
            messages += 1;
        }
    };
    let _: Result<(), WireError> = read();
    messages
}

/// Makes of news what the daemon passes on.
fn check(news: WireLookNews, prompts: &[Arc<Prompt>]) -> Result<(), WireError> {
    match news {
        WireLookNews::Piece { prompt, piece } => {
            if let Some(prompt) = prompts.get(prompt) {
                wire::checked_piece(prompt, piece)?;
            }
        }
        WireLookNews::Answer { prompt, answer, .. } => {
            if let Some(prompt) = prompts.get(prompt) {
                answer.answer(Arc::clone(prompt), None)?;
            }
        }
        _ => {}
    }
    Ok(())
}
