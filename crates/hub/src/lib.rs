//! Published models: which ones Spotter knows, how they are fetched from the Hugging Face hub, and how they are checked.
//!
//! ```text
//!  KnownModel ──▶ HubClient ──record of each repository──▶ fetch ──▶ NAME.part ──hash──▶ NAME, model.toml
//! ```
//!
//! [`fetch()`] changes nothing in the directory before every file is complete and has the hash of the hub's record: what was
//! good stays. A cut download continues where it ended, also in the next run.
//!
//! Belongs here: the catalogue, HTTP, downloads, hashes of whole directories. Does not belong here: the form of `model.toml`
//! (`spotter_core::ModelRecord`, which the loader reads too) and what a model is made of (`spotter_engine::model`).

mod catalogue;
mod client;
mod directory;
mod error;
mod fetch;
mod hash;

pub use catalogue::{KNOWN_MODELS, KnownModel, ModelSourceRepository, WantedFile};
pub use client::{FetchNews, HubClient, amount};
pub use directory::{check_file, is_root, model_files, remove_files};
pub use error::HubError;
pub use fetch::{FetchRequest, LicenceText, fetch};
