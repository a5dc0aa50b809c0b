//! A headless Chromium that is driven over its debugging pipe (DevTools protocol): screens of any size, keys, and the
//! accessibility tree that a screen reader uses.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

/// How it starts wherever it runs.
const QUIET: [&str; 10] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    // It has questions of its own, and it shall not ask anybody.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
];

/// A browser with one page. Ends with this value.
pub struct Browser {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// Of the page, once there is one.
    session: Option<String>,
    last: u64,
    /// What the page asked for and complained of.
    events: Vec<Value>,
    _profile: tempfile::TempDir,
}

/// A control or a picture of the accessibility tree.
#[derive(Debug)]
pub struct AccessibleNode {
    pub role: String,
    pub name: String,
    pub is_focusable: bool,
}

impl Browser {
    /// Shows an empty page.
    pub fn start() -> Self {
        let profile = tempfile::tempdir().expect("a folder");
        // Chromium hears at descriptor 3 and answers at 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec chromium \"$@\" 3<&0 4>&1 </dev/null >&2", "sh"])
            .args(QUIET)
            .args(["--hide-scrollbars", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            // It leaves files there when it is killed.
            .env("TMPDIR", profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromium starts (package chromium)");
        let orders = child.stdin.take().expect("stdin is piped");
        let answers = child.stdout.take().expect("stdout is piped");
        let mut browser = Self {
            child,
            orders,
            answers: BufReader::new(answers),
            session: None,
            last: 0,
            events: Vec::new(),
            _profile: profile,
        };
        let page = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": page["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        let focus = json!({"enabled": true});
        browser.call("Emulation.setFocusEmulationEnabled", focus);
        for domain in ["Network", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Shows `url` on a screen of that size, drawn and with its pictures.
    pub fn open(&mut self, url: &str, width: u32, height: u32) {
        self.load(url, width, height);
        self.until("document.querySelector('footer') && [...document.images].every((image) => image.complete)");
        // Pictures in view come a moment later.
        self.until("![...document.querySelectorAll('.space')].some((space) => space.getBoundingClientRect().top < innerHeight)");
        self.until("[...document.images].every((image) => image.complete)");
    }

    /// The same with what the server sends alone.
    pub fn load(&mut self, url: &str, width: u32, height: u32) {
        let screen = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600,
        });
        self.call("Emulation.setDeviceMetricsOverride", screen);
        self.call("Page.navigate", json!({"url": url}));
        self.until("document.readyState === 'complete'");
    }

    /// Waits until an expression of the page is true. It is a fault of the page, and not of a busy machine, if that takes minutes.
    pub fn until(&mut self, expression: &str) {
        let waited = format!(
            "new Promise((done) => {{ const end = performance.now() + 180_000; \
             const look = () => {expression} ? done(true) : performance.now() > end ? done(false) : setTimeout(look, 20); look() }})"
        );
        assert_eq!(self.says(&waited), true, "{expression}");
    }

    /// Waits until the page shows the next look of its first camera, which has to be in view for that.
    pub fn follow(&mut self) {
        self.says("document.querySelector('.still').scrollIntoView({ block: 'nearest' })");
        self.until("document.querySelector('.still img')");
        let shown = self.says("document.querySelector('.still img').src");
        self.until(&format!(
            "document.querySelector('.still img').src !== {shown}"
        ));
    }

    /// All addresses that the page asked for.
    pub fn asked(&self) -> Vec<&str> {
        let requests = self.events("Network.requestWillBeSent");
        requests
            .filter_map(|event| event["params"]["request"]["url"].as_str())
            .collect()
    }

    /// What the script, the policy and the network complained of.
    pub fn complaints(&self) -> Vec<&Value> {
        let kinds = [
            "Runtime.consoleAPICalled",
            "Runtime.exceptionThrown",
            "Log.entryAdded",
        ];
        kinds
            .into_iter()
            .flat_map(|kind| self.events(kind))
            .collect()
    }

    fn events(&self, method: &str) -> impl Iterator<Item = &Value> {
        self.events
            .iter()
            .filter(move |event| event["method"] == method)
    }

    /// What an expression of the page gives; a promise is waited for.
    pub fn says(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut said = self.call("Runtime.evaluate", asked);
        assert!(said["exceptionDetails"].is_null(), "{expression}: {said}");
        said["result"]["value"].take()
    }

    /// Runs a script before those of each page that is opened from now on.
    pub fn before_each_page(&mut self, script: &str) {
        self.call("Page.enable", json!({}));
        let source = json!({"source": script});
        self.call("Page.addScriptToEvaluateOnNewDocument", source);
    }

    /// `mousePressed`, `mouseMoved` or `mouseReleased` at a place of the screen, in pixels.
    pub fn mouse(&mut self, kind: &str, [x, y]: [f64; 2]) {
        let is_down = i32::from(kind != "mouseReleased");
        let button = if kind == "mouseMoved" { "none" } else { "left" };
        let event = json!({
            "type": kind, "x": x, "y": y, "button": button, "buttons": is_down, "clickCount": 1,
        });
        self.call("Input.dispatchMouseEvent", event);
    }

    /// `touchStart`, `touchMove` or `touchEnd` with fingers at these places of the screen, in pixels.
    pub fn touch(&mut self, kind: &str, fingers: &[[f64; 2]]) {
        let points = fingers.iter().enumerate();
        let points: Vec<_> = points
            .map(|(id, [x, y])| json!({"x": x, "y": y, "id": id}))
            .collect();
        let event = json!({"type": kind, "touchPoints": points});
        self.call("Input.dispatchTouchEvent", event);
    }

    /// Presses a key and lets it go.
    pub fn press(&mut self, key: &str, code: u32) {
        self.press_with(key, code, 0);
    }

    /// The same with Control (2) and Shift (8).
    pub fn press_with(&mut self, key: &str, code: u32, modifiers: u32) {
        for kind in ["rawKeyDown", "char", "keyUp"] {
            let mut event = json!({
                "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "modifiers": modifiers,
            });
            match (kind, key) {
                ("char", "Enter") => event["text"] = "\r".into(),
                ("char", _) => continue,
                _ => {}
            }
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// A PNG of what is on the screen.
    pub fn screenshot(&mut self) -> Vec<u8> {
        let shot = self.call("Page.captureScreenshot", json!({"format": "png"}));
        let png = shot["data"].as_str().expect("a picture");
        BASE64_STANDARD.decode(png).expect("base64")
    }

    /// Megabytes of the page's process by kind, as the kernel counts them.
    pub fn memory_mb(&mut self) -> BTreeMap<String, u64> {
        self.call("HeapProfiler.collectGarbage", json!({}));
        let renderers = renderers(self.child.id());
        let memory = renderers.into_iter().map(memory_mb);
        memory
            .max_by_key(|memory| memory.get("Rss").copied())
            .expect("a renderer")
    }

    /// The controls and pictures of the page.
    pub fn accessible_nodes(&mut self) -> Vec<AccessibleNode> {
        let tree = self.call("Accessibility.getFullAXTree", json!({}));
        let nodes = tree["nodes"].as_array().expect("nodes").iter();
        let accessible = nodes
            .filter(|node| node["ignored"] == false)
            .map(|node| AccessibleNode {
                role: text(&node["role"]),
                name: text(&node["name"]),
                is_focusable: node["properties"].as_array().is_some_and(|all| {
                    let is_focusable = |p: &Value| p["name"] == "focusable";
                    all.iter()
                        .any(|p| is_focusable(p) && p["value"]["value"] == true)
                }),
            });
        // The page itself takes keys too.
        accessible
            .filter(|node| node.role != "RootWebArea")
            .filter(|node| node.is_focusable || node.role == "image")
            .collect()
    }

    /// Asks for something and waits for the answer.
    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last += 1;
        let mut order = json!({"id": self.last, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            order["sessionId"] = session.as_str().into();
        }
        let order = format!("{order}\0");
        let sent = self.orders.write_all(order.as_bytes());
        sent.expect("chromium takes orders");
        loop {
            let mut answer = Vec::new();
            let read = self.answers.read_until(0, &mut answer);
            read.expect("chromium answers");
            assert_eq!(answer.pop(), Some(0), "chromium ended at {method}");
            let mut answer: Value = serde_json::from_slice(&answer).expect("JSON");
            if answer["id"] == self.last {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].take();
            }
            self.events.push(answer);
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(of: &Value) -> String {
    of["value"].as_str().unwrap_or_default().trim().to_owned()
}

/// The processes below this one that have a page.
fn renderers(process: u32) -> Vec<u32> {
    let path = format!("/proc/{process}/task/{process}/children");
    let children = fs::read_to_string(path).unwrap_or_default();
    let children = children.split_whitespace().filter_map(|id| id.parse().ok());
    children
        .flat_map(|child| {
            let command = fs::read_to_string(format!("/proc/{child}/cmdline")).unwrap_or_default();
            let own = command.contains("--type=renderer").then_some(child);
            own.into_iter().chain(renderers(child))
        })
        .collect()
}

fn memory_mb(process: u32) -> BTreeMap<String, u64> {
    let path = format!("/proc/{process}/smaps_rollup");
    let kinds = fs::read_to_string(path).unwrap_or_default();
    let megabytes = |line: &str| {
        let (kind, rest) = line.split_once(':')?;
        let kib: u64 = rest.trim().strip_suffix(" kB")?.parse().ok()?;
        Some((kind.to_owned(), kib * 1024 / 1_000_000))
    };
    kinds.lines().filter_map(megabytes).collect()
}
