//! `[node]`: this machine.

use std::path::PathBuf;

use crate::{forms::prelude::*, read::prelude::*};
use spotter_core::NodeId;

#[derive(Clone, Debug, PartialEq)]
pub struct NodeConfig {
    /// Level of the topics; the host name by default.
    pub name: NodeId,
    /// Where state is kept; `auto` is systemd's `STATE_DIRECTORY`, else `$XDG_STATE_HOME/spotter` or `~/.local/state/spotter`.
    pub state_dir: PathBuf,
}

pub(crate) fn node(scope: &Scope<'_>, mut table: Reader<'_>) -> NodeConfig {
    keys! { table in "`[node]`", "This machine.", "[node]\nname = \"edge1\"";
        /// Name of this machine. It is one level of all MQTT topics.
        name = node_name().optional("the host name"), r#"name = "edge1""#;
        /// Directory for state that survives a restart. `auto` uses systemd's `STATE_DIRECTORY`, then `$XDG_STATE_HOME/spotter`, then `~/.local/state/spotter`, then `/var/lib/spotter`.
        state_dir = text("path, or `\"auto\"`", not_empty).written(quoted).or("auto".to_owned()), r#"state_dir = "/var/lib/spotter""#;
    }
    table.finish();
    let environment = scope.environment;
    NodeConfig {
        name: name.unwrap_or_else(|| NodeId::from_host_name(environment.host_name())),
        state_dir: match state_dir.as_str() {
            "auto" => environment.state_dir(),
            dir => scope.path(dir),
        },
    }
}
