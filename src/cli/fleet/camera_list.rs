//! `spotter fleet apply` and `spotter fleet get`: the list of cameras that the nodes of a fleet share.

use std::{collections::BTreeMap, fs};

use anyhow::{Context as _, anyhow, bail};
use spotter_config::{
    ConfigProblems, Environment, NatsAccess, NatsLogin, Secret, SharedCamera, check_camera_list,
    store_urls,
};
use spotter_core::CameraId;
use spotter_fleet::store::FleetStore;

use crate::cli::{
    args::{FleetApplyArgs, FleetStoreArgs},
    out::{counted, remark, say},
};

/// The password of the user in `--nats`.
const PASSWORD_VARIABLE: &str = "NATS_PASSWORD";

/// Checks the file, shows the difference to the newest list, and writes it as one revision.
pub async fn apply(args: &FleetApplyArgs) -> anyhow::Result<()> {
    let name = args.file.display().to_string();
    let text = fs::read_to_string(&args.file);
    let text = text.with_context(|| format!("{name} cannot be read; name a list of cameras"))?;
    let environment = Environment::process();
    let list = check_camera_list(&name, &text, &environment);
    let list = list.map_err(|problems| rejected(&problems))?;
    for warning in &list.warnings {
        say(warning)?;
    }
    let store = connect(&args.store).await?;
    let before = store.list().await?;
    let before_text = before.as_ref().map_or("", |list| list.text.as_str());
    if before_text == text {
        let revision = before.map_or(0, |list| list.revision);
        return say(format_args!(
            "revision {revision} is the same; nothing to do"
        ));
    }
    // A list of a newer version may not be readable here: then all cameras are shown as added.
    let known = check_camera_list("the newest list", before_text, &environment);
    let changes = changes(&known.unwrap_or_default().cameras, &list.cameras);
    for (sign, id) in &changes {
        say(format_args!("{sign} {id}"))?;
    }
    let count = |sign| changes.iter().filter(|(of, _)| *of == sign).count();
    let cameras = counted(list.cameras.len(), "camera");
    let summary = format!(
        "{cameras}: {} added, {} changed, {} removed",
        count('+'),
        count('~'),
        count('-')
    );
    if args.dry_run {
        return say(format_args!("{summary}; nothing was written (--dry-run)"));
    }
    let revision = before.map(|list| list.revision);
    let revision = store.put_list(&text, revision).await?;
    say(format_args!("{summary}; written as revision {revision}"))
}

fn rejected(problems: &ConfigProblems) -> anyhow::Error {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let count = counted(problems.errors(), "problem");
    anyhow!("{}\n{count}; nothing was written", lines.join("\n"))
}

/// Prints the newest list as it was applied.
pub async fn get(args: &FleetStoreArgs) -> anyhow::Result<()> {
    let store = connect(args).await?;
    let Some(list) = store.list().await? else {
        bail!(
            "the fleet {} has no list of cameras; write one with `spotter fleet apply FILE`",
            args.fleet
        );
    };
    remark(format_args!("revision {}", list.revision));
    say(list.text.trim_end())
}

/// Connects, and writes nothing.
pub async fn connect(args: &FleetStoreArgs) -> anyhow::Result<FleetStore> {
    let login = match (&args.credentials, &args.user) {
        (Some(path), _) => NatsLogin::Credentials(path.clone()),
        (None, Some(user)) => {
            let password = std::env::var(PASSWORD_VARIABLE);
            let password = password.with_context(|| {
                format!(
                    "--user {user}: the password is read from {PASSWORD_VARIABLE}, which is not set"
                )
            })?;
            NatsLogin::Password {
                user: user.clone(),
                password: Secret::new(password),
            }
        }
        (None, None) => NatsLogin::None,
    };
    let access = NatsAccess {
        urls: store_urls(&args.nats).map_err(|wrong| anyhow!("--nats {wrong}"))?,
        login,
        ca: args.ca.clone(),
        replicas: args.replicas.into(),
    };
    Ok(FleetStore::connect(args.fleet.clone(), access).await?)
}

/// From one list to another, camera by camera, each with its sign; a change of `[defaults]` is one of each camera that uses them.
fn changes(before: &[SharedCamera], after: &[SharedCamera]) -> Vec<(char, CameraId)> {
    let by_id = |cameras: &[SharedCamera]| -> BTreeMap<CameraId, SharedCamera> {
        let cameras = cameras.iter();
        cameras
            .map(|camera| (camera.camera.id.clone(), camera.clone()))
            .collect()
    };
    let (before, after) = (by_id(before), by_id(after));
    let sign = |(id, camera): (&CameraId, &SharedCamera)| match before.get(id) {
        None => Some(('+', id.clone())),
        Some(known) => (known != camera).then(|| ('~', id.clone())),
    };
    let removed = before.keys().filter(|id| !after.contains_key(*id));
    let removed = removed.map(|id| ('-', id.clone()));
    after.iter().filter_map(sign).chain(removed).collect()
}
