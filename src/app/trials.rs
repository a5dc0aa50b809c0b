//! What the page's trials need of the daemon: frames of cameras, what the model can answer, what a prompt costs.

use std::sync::Arc;

use tokio::task::spawn_blocking;

use super::{costs::CostBasis, snapshot};
use spotter_cameras::sampler::Sampler;
use spotter_config::{CameraConfig, PromptConfig};
use spotter_control::PromptRule;
use spotter_core::{CameraId, Picture};
use spotter_page::{Board, CameraPicture, NextPicture, PromptCost, ShownAreas, TrialSource};

pub struct DaemonTrials {
    pub board: Board,
    pub sampler: Arc<Sampler>,
    pub rule: PromptRule,
    pub costs: CostBasis,
}

impl TrialSource for DaemonTrials {
    fn camera(&self, camera: &str) -> Option<CameraConfig> {
        self.board.camera(camera)
    }

    fn next_picture(&self, camera: &CameraId, areas: ShownAreas) -> NextPicture {
        let next = self.sampler.next_frame(camera);
        Box::pin(async move {
            let next = next?.await.ok()?;
            let camera_size = next.camera_size();
            let copying = spawn_blocking(move || match areas {
                ShownAreas::Masked => next.masked(),
                ShownAreas::Whole => next.unmasked(),
            });
            let picture = copying.await.ok()??;
            Some(CameraPicture {
                picture,
                camera_size,
            })
        })
    }

    fn unfit(&self, camera: &CameraConfig, prompt: &PromptConfig) -> Option<String> {
        let unfit = self.rule.unfit_keys(camera, prompt).into_iter().next();
        unfit.map(|(key, reason)| format!("{key}: {reason}"))
    }

    fn cost(&self, camera: &CameraConfig, size: (usize, usize)) -> Option<PromptCost> {
        self.costs.prompts(camera, size).pop()
    }

    fn jpeg(&self, picture: &Picture) -> anyhow::Result<Vec<u8>> {
        snapshot::picture_now(picture)
    }
}
