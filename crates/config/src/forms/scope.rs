//! For what and on which machine a configuration is read.

use std::path::{Path, PathBuf};

use super::{environment::Environment, form::Form, rights::ListRights, text::not_empty};
use crate::read::{problem::Severity, value::ConfigValue};
use spotter_core::AdapterId;

/// What the configuration is read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadPurpose {
    Run,
    Check,
    /// To check it where its secrets are not expected.
    CheckElsewhere,
}

/// What every section needs to know beside its table.
pub(crate) struct Scope<'a> {
    pub(crate) environment: &'a Environment,
    /// Directory of the file: relative paths in it start there.
    pub(crate) dir: PathBuf,
    pub(crate) purpose: ReadPurpose,
    /// `allow_plain_secrets`, off by default: passwords may stand in the file.
    pub(crate) allow_plain_secrets: bool,
    /// Below which the topics of this node are; `None`: not known here.
    pub(crate) own_topics: Option<String>,
    /// There is a local API; also where that is not known.
    pub(crate) has_api: bool,
    /// The adapters of the box; `None`: not known here.
    pub(crate) adapters: Option<Vec<AdapterId>>,
    /// What the text may name; `None`: it is the box's own file.
    pub(crate) list: Option<&'a ListRights>,
}

impl<'a> Scope<'a> {
    pub(crate) fn new(environment: &'a Environment, dir: &Path, purpose: ReadPurpose) -> Self {
        Self {
            environment,
            dir: dir.to_owned(),
            purpose,
            allow_plain_secrets: false,
            own_topics: None,
            has_api: true,
            adapters: None,
            list: None,
        }
    }

    /// A path of the file, relative ones seen from the file's directory.
    pub(crate) fn path(&self, text: &str) -> PathBuf {
        self.dir.join(text)
    }

    /// Notes that a fleet's list has no right to `value`. The boxes refuse the camera; an operator who applies the list does not know their files.
    pub(crate) fn forbidden(&self, value: &ConfigValue<'_>, text: &str) {
        let severity = match self.purpose == ReadPurpose::Run {
            true => Severity::Error,
            false => Severity::Warning,
        };
        value.add(severity, text);
    }

    /// Notes that something which `value` names is not on this machine.
    pub(crate) fn absent(&self, value: &ConfigValue<'_>, text: String) {
        let severity = match self.purpose {
            ReadPurpose::Run => Severity::Error,
            ReadPurpose::Check => Severity::Warning,
            ReadPurpose::CheckElsewhere => return,
        };
        value.add(severity, text);
    }

    /// Notes that something is not on this machine without which the daemon runs.
    pub(crate) fn absent_at_check(&self, value: &ConfigValue<'_>, text: String) {
        if self.purpose == ReadPurpose::Check {
            value.add(Severity::Warning, text);
        }
    }

    /// Checks that a fleet's list may name the host of `url`, which is in `value`.
    pub(crate) fn check_host(&self, value: &ConfigValue<'_>, url: &str) {
        if self.list.is_some_and(|rights| !rights.allows_host(url)) {
            let text = "is not an address in networks in [fleet] of this box; the list cannot name other hosts";
            self.forbidden(value, text);
        }
    }
}

/// The default of a key with certificate authorities.
pub(crate) const AUTHORITIES: &str = "the certificate authorities that this machine trusts";

/// The path of a file that must be on the machine that runs.
pub(crate) fn file<'s>(scope: &'s Scope<'_>, text: &str) -> Form<'s, PathBuf> {
    Form::new(text, |value| {
        let path = scope.path(&value.parsed(not_empty)?);
        if !path.is_file() {
            scope.absent(value, format!("file not found: {}", path.display()));
        }
        Some(path)
    })
}
