//! Keeps GStreamer from the machine's web proxy.

use std::{env, os::unix::process::CommandExt as _, process::Command};

use super::out;
use crate::ops::process::name_process;

/// Which resolver GIO asks for the proxy of a connection. The one that knows none is `dummy`.
const RESOLVER: &str = "GIO_USE_PROXY_RESOLVER";
const NO_PROXY: &str = "dummy";

/// Replaces this process by the same program with GIO's proxies off, unless they are. rtspsrc asks GIO for the proxy of each
/// connection, also on loopback, and GIO finds it in `http_proxy` and in a desktop's settings: cameras would be contacted through
/// it. No setting of rtspsrc prevents that, and a process cannot safely change its own environment. Process id, arguments and
/// descriptors stay; models and webhooks use the proxy as before.
pub fn leave_out() {
    if env::var_os(RESOLVER).is_some_and(|resolver| resolver == NO_PROXY) {
        return name_process("spotter");
    }
    let mut arguments = env::args_os();
    let name = arguments.next().unwrap_or_else(|| "spotter".into());
    // The file may have been replaced since; this name is that of the running program.
    let mut again = Command::new("/proc/self/exe");
    let error = again
        .arg0(name)
        .args(arguments)
        .env(RESOLVER, NO_PROXY)
        .exec();
    out::remark(format_args!(
        "spotter: cannot start again without a proxy: {error}; if cameras are unreachable, unset http_proxy"
    ));
}
