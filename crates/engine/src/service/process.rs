//! A child process with a connection to it: its standard input is the other end of a socket pair.
//!
//! Belongs here: how it is started, and that it certainly ends. Not here: messages to it (`outside`).

use std::{
    io,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{net::UnixStream, process::ExitStatusExt as _},
    },
    process::{Child, Command, ExitStatus},
    thread,
    time::Duration,
};

/// A process that is to end by itself, because its connection is closed, may take so long.
const GRACE: Duration = Duration::from_secs(4);
const POLL: Duration = Duration::from_millis(10);

/// The kernel's signal when memory runs out; it cannot be handled.
const SIGKILL: i32 = 9;

/// A child process. It is ended, and nothing is left of it, when this value is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts the program and gives our end of the connection. The other end is its standard input, and no other process has
    /// one: each side sees that the other is gone, however it went.
    pub fn start(mut program: Command) -> io::Result<(UnixStream, Self)> {
        let (ours, theirs) = UnixStream::pair()?;
        let child = program.stdin(OwnedFd::from(theirs)).spawn()?;
        Ok((ours, Self { child }))
    }

    /// Waits until it has ended and returns how, as the rest of a sentence that begins with "the engine". Our end of the
    /// connection is closed by then, so it is about to end by itself; one that does not is ended. Blocks for some seconds at most.
    pub fn ended(&mut self) -> String {
        self.ended_within(GRACE)
    }

    fn ended_within(&mut self, grace: Duration) -> String {
        for _ in 0..=grace.as_millis() / POLL.as_millis() {
            match self.child.try_wait() {
                Ok(Some(status)) => return how(status),
                Ok(None) => thread::sleep(POLL),
                Err(error) => return format!("its process cannot be waited for: {error}"),
            }
        }
        // It may have ended by itself just now.
        let _ = self.child.kill();
        match self.child.wait() {
            Ok(_) => "its process broke off the connection and had to be ended".into(),
            Err(error) => format!("its process cannot be waited for: {error}"),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has ended in most cases; there is nothing else to do about a child that cannot be ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn how(status: ExitStatus) -> String {
    let end = match (status.signal(), status.code()) {
        (Some(SIGKILL), _) => {
            return "engine process was killed by signal 9; `journalctl -k` shows whether memory ran out".into();
        }
        (Some(signal), _) => format!("was killed by signal {signal}"),
        (None, code) => format!("ended with exit code {}", code.unwrap_or_default()),
    };
    format!("engine process {end}; its last message is in the log above")
}

/// The connection that is this process's standard input. An error when it is none, because the daemon did not start it.
pub fn connection() -> io::Result<UnixStream> {
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    socket.peer_addr()?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn shell(script: &str) -> (UnixStream, Process) {
        let mut program = Command::new("sh");
        program.args(["-c", script]);
        Process::start(program).unwrap()
    }

    #[test]
    fn process_exit_is_described() {
        for (script, expected) in [
            ("exit 3", "ended with exit code 3;"),
            ("kill -SEGV $$", "was killed by signal 11;"),
            ("kill -KILL $$", "was killed by signal 9;"),
            // It ends with its input, as an engine's process does.
            ("cat; exit 5", "ended with exit code 5;"),
        ] {
            let (socket, mut process) = shell(script);
            drop(socket);
            let how = process.ended();
            assert!(how.contains(expected), "{script}: {how}");
            assert_eq!(process.ended(), how, "it is remembered");
        }
    }

    #[test]
    fn one_that_does_not_end_is_ended() {
        let (_socket, mut process) = shell("cat");
        let how = process.ended_within(POLL);
        assert!(how.contains("had to be ended"), "{how}");
    }

    #[test]
    fn dropped_process_leaves_no_child() {
        let (_socket, process) = shell("cat");
        let id = process.child.id();
        drop(process);
        assert!(!Path::new(&format!("/proc/{id}")).exists());
    }
}
