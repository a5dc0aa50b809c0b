//! What a child process writes, line by line, as it comes.

use std::{
    io::{BufRead as _, BufReader, Read},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use super::PATIENCE;

#[derive(Default)]
struct Written {
    lines: Vec<String>,
    closed: bool,
}

/// The lines so far; clones share them.
#[derive(Clone)]
pub struct Lines(Arc<(Mutex<Written>, Condvar)>);

impl Lines {
    /// Reads until the other side closes.
    pub fn follow(from: impl Read + Send + 'static) -> Self {
        let lines = Self(Arc::default());
        let to = lines.clone();
        let read = move || {
            for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                to.change(|written| written.lines.push(line));
            }
            to.change(|written| written.closed = true);
        };
        let thread = std::thread::Builder::new().name("lines".into());
        thread.spawn(read).expect("a thread");
        lines
    }

    fn change(&self, change: impl FnOnce(&mut Written)) {
        change(&mut self.lock());
        self.0.1.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Written> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many there are, to wait for later ones.
    pub fn count(&self) -> usize {
        self.lock().lines.len()
    }

    pub fn all(&self) -> Vec<String> {
        self.lock().lines.clone()
    }

    /// All of them in one text.
    pub fn text(&self) -> String {
        self.lock().lines.join("\n")
    }

    /// All of them, once the other side has closed.
    pub fn to_end(&self) -> String {
        self.wait(
            |written| written.closed.then_some(()),
            "an end of the output",
        );
        self.text()
    }

    /// Waits for a line that holds `part`.
    #[track_caller]
    pub fn wait_for(&self, part: &str) -> String {
        self.wait_after(0, part, |line| line.contains(part).then(|| line.to_owned()))
    }

    /// Waits for the first line from number `from` on of which `pick` makes something; `what` names it when it does
    /// not come.
    #[track_caller]
    pub fn wait_after<T>(
        &self,
        from: usize,
        what: &str,
        mut pick: impl FnMut(&str) -> Option<T>,
    ) -> T {
        let mut next = from;
        let found = |written: &mut Written| {
            let lines = written.lines.get(next..).unwrap_or_default();
            next += lines.len();
            lines.iter().find_map(|line| pick(line))
        };
        self.wait(found, what)
    }

    #[track_caller]
    fn wait<T>(&self, mut found: impl FnMut(&mut Written) -> Option<T>, what: &str) -> T {
        let mut result = None;
        let missing = |written: &mut Written| {
            result = found(written);
            result.is_none() && !written.closed
        };
        let waited = self.0.1.wait_timeout_while(self.lock(), PATIENCE, missing);
        let (written, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let text = written.lines.join("\n");
        drop(written);
        result.unwrap_or_else(|| panic!("{what} did not come in {PATIENCE:?}, but:\n{text}"))
    }
}
