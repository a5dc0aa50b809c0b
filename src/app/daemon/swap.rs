//! Another model, or engines on other devices, while the rest goes on: cameras keep their connection, things their tracks.
//!
//! ```text
//!   the last looks end ─▶ the engines go ─▶ those of the new file open ─┬─▶ that file is in force
//!                                                                       └─▶ the former open again, and `config` says why
//! ```
//!
//! A GPU has no room for two models, so nothing is looked at meanwhile: frames are replaced by newer ones, and counted.
//! Commands are obeyed as ever; only what needs an answer of the model is refused. A second file waits until the first is
//! settled.

use std::{future::pending, pin::Pin, sync::Arc};

use anyhow::Context as _;

use super::{Daemon, LAST_LOOK_LIMIT, OLD_AGAIN, OpenEngines, loss::Losses, reload::Next};
use crate::{
    app::{
        birth,
        engines::{Opened, Plan},
    },
    ops::notify,
};
use spotter_core::{Refusal, RefusalCode, config::Config};

/// Engines are being opened for another configuration.
pub(super) struct Swap {
    next: Next,
    opening: Pin<Box<dyn Future<Output = anyhow::Result<Ready>>>>,
    /// The file is to be read once more afterwards.
    again: bool,
}

/// There are engines again.
pub(super) struct Ready {
    opened: Opened,
    /// Why they are not those of the new configuration.
    refused: Option<anyhow::Error>,
}

/// Ready when there are engines again; never while none are being opened. An error means that there will be none. Dropping
/// the future loses nothing.
pub(super) async fn ready(swap: &mut Option<Swap>) -> anyhow::Result<Ready> {
    match swap {
        Some(swap) => (&mut swap.opening).await,
        None => pending().await,
    }
}

async fn open(engines: Arc<OpenEngines>, new: Plan, former: Plan) -> anyhow::Result<Ready> {
    let error = match engines(new).await {
        Ok(opened) => {
            return Ok(Ready {
                opened,
                refused: None,
            });
        }
        Err(error) => error,
    };
    let opened = engines(former).await;
    let opened = opened.with_context(|| {
        format!("the new configuration cannot be used ({error:#}), nor can the old one any more")
    })?;
    Ok(Ready {
        opened,
        refused: Some(error),
    })
}

impl Daemon {
    /// Ends the engines and begins to open those of another configuration. Waits for the last looks, a moment.
    pub(super) async fn swap(&mut self, next: Next) {
        let last = self.engines.finish(LAST_LOOK_LIMIT).await;
        self.on_outcomes(last);
        let gone = self.engines.let_go();
        let reopening = self.reopening.take();
        self.losses = Losses::default();
        let plan = |file: &Config| Plan {
            config: self.force.over(file, self.clock.now()),
            before: self.engines.seats(),
            sampler: Arc::clone(self.engines.sampler()),
            clock: Arc::clone(&self.clock),
            only: None,
        };
        let (new, former) = (plan(next.config()), plan(&self.file));
        let engines = Arc::clone(&self.around.engines);
        notify::status("opening another model");
        self.swap = Some(Swap {
            next,
            opening: Box::pin(async move {
                if let Some(reopening) = reopening {
                    reopening.give_up().await;
                }
                gone.await;
                open(engines, new, former).await
            }),
            again: false,
        });
    }

    /// There are engines again. True when the file is to be read once more.
    pub(super) async fn on_ready(&mut self, ready: Ready) -> bool {
        let Some(Swap { next, again, .. }) = self.swap.take() else {
            return false;
        };
        let Ready { opened, refused } = ready;
        let Opened { stations, card } = opened;
        self.engines.replace(stations);
        let all: Vec<_> = self.engines.seats().into_keys().collect();
        self.cameras.regain(&all);
        self.answers.answered_by(Arc::clone(&card.name));
        self.board.answered_by(&card, &self.engines.seats());
        self.housekeeping.watch(&self.engines);
        self.info.model = Some(birth::model(&card));
        self.info.gpus = self.engines.gpus();
        match refused {
            None => self.go_on(next).await,
            Some(error) => {
                tracing::error!("{OLD_AGAIN}: {error:#}");
                if let Err(error) = self.housekeeping.move_page(&self.file.http).await {
                    tracing::error!("{error}");
                }
                self.apply().await;
                self.refuse(vec![format!("{error:#}")]);
            }
        }
        again
    }

    /// True when engines are being opened. The file is read again when that is settled.
    pub(super) fn reload_later(&mut self) -> bool {
        if let Some(swap) = &mut self.swap {
            swap.again = true;
            tracing::info!("a model is being opened; the file is read again after that");
        }
        self.swap.is_some()
    }

    /// What needs an answer of the model has to wait for one.
    pub(super) fn has_model(&self) -> Result<(), Refusal> {
        let text = "another model is being opened; ask again when `config` has told of it";
        match self.swap {
            None => Ok(()),
            Some(_) => Err(Refusal::new(RefusalCode::Unavailable, text)),
        }
    }
}
