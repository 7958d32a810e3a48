//! A child as a job of the engine: of a tick, or of a task.

use std::{ffi::OsString, path::PathBuf, process::Stdio, time::Duration};

use tenure::{
    elect::Lease,
    model::{Kind, LockId, Why},
};
use tokio::runtime::Handle;

use crate::{
    child::{Input, Program},
    exit::{NOT_FOUND, NOT_STARTED},
    key_lock::KeyFile,
    say,
    tail::Tail,
    under::{self, Ended, Patience, Status},
};

/// Variables by which a service manager talks to tenure alone.
const OF_THE_SERVICE: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"];

/// Time in which a signal to all processes of a service has reached each.
const SOON: Duration = Duration::from_millis(200);

/// Settings that all children of an instance have in common.
#[derive(Clone, Debug)]
pub(crate) struct Jobs {
    pub(crate) patience: Patience,
    pub(crate) holder: String,
    /// Variables that they do not inherit.
    pub(crate) without: Vec<&'static str>,
    /// The store's file, if it is one.
    pub(crate) file: Option<PathBuf>,
    /// Lines of standard error begin with the key.
    pub(crate) prefix: bool,
}

impl Jobs {
    /// Runs a child to its end, on a thread that the engine waits for: its key is not given back before.
    ///
    /// # Errors
    /// The words for the record: how it ended, and the end of what it wrote to standard error.
    pub(crate) fn run(
        &self,
        runtime: &Handle,
        lease: &Lease,
        command: Vec<OsString>,
        mut variables: Vec<(&'static str, OsString)>,
    ) -> Result<(), String> {
        variables.push(("TENURE_HOLDER", self.holder.clone().into()));
        let program = Program {
            command,
            variables,
            without: [&self.without[..], &OF_THE_SERVICE].concat(),
            stdin: Input::Null,
            // A signal to the group of tenure is for tenure, which tells it what it has to hear.
            own_group: true,
            stderr: Stdio::piped(),
        };
        let mut tail = Tail::nothing();
        let ended = runtime.block_on(async {
            let key_file = tokio::select! {
                biased;
                key_file = self.key_file(lease.lock()) => key_file?,
                () = lease.cancelled() => {
                    return Err("the lease ended before a former child of the key had".to_owned());
                }
            };
            let label = self.prefix.then(|| format!("{}: ", lease.lock().key));
            let follow = |stderr| tail = Tail::follow(stderr, label);
            let ended = under::run(lease, program, key_file, self.patience, None, follow).await;
            let mut ended = ended.map_err(|failure| failure.message)?;
            if ended.loss.is_none() && is_told_to_end(ended.status) {
                // By a service manager, perhaps, which tells all processes of a service: this one hears of it soon.
                let _ = tokio::time::timeout(SOON, lease.cancelled()).await;
                ended.loss = lease.loss().map(|loss| loss.to_string());
            }
            if let Some(file) = &self.file {
                KeyFile::remove(file, lease.lock());
            }
            Ok::<_, String>(ended)
        })?;
        told(&ended, &tail.end())
    }

    /// The file of the key, locked; of what may be run on this host only.
    async fn key_file(&self, lock: &LockId) -> Result<Option<KeyFile>, String> {
        let Some(file) = &self.file else { return Ok(None) };
        let mut key_file = KeyFile::open(file, lock).map_err(|failure| failure.message)?;
        if key_file.try_lock().map_err(|failure| failure.message)? {
            return Ok(Some(key_file));
        }
        let kind = if lock.kind == Kind::Schedule { "schedule" } else { "task" };
        say::say(format_args!(
            "waiting: a former child of the {kind} {:?} is still there: pid {:?}",
            lock.key.as_str(),
            key_file.holders()
        ));
        key_file.lock().await.map(Some).map_err(|failure| failure.message)
    }
}

/// Returns whether a program was ended by a signal that tells programs to end.
fn is_told_to_end(status: Status) -> bool {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    matches!(status, Status::Signaled(SIGHUP | SIGINT | SIGQUIT | SIGTERM))
}

fn told(ended: &Ended, tail: &str) -> Result<(), String> {
    let how = match (&ended.loss, ended.status) {
        (Some(loss), _) => format!("ended by tenure: {loss}"),
        (None, Status::Exited(0)) => return Ok(()),
        (None, Status::Exited(code)) => exit_code(code),
        (None, Status::Signaled(signal)) => format!("ended by signal {signal}"),
        (None, Status::Unknown) => "its guardian was killed".to_owned(),
    };
    let most = Why::MAX_BYTES.saturating_sub(how.len() + ": ".len());
    let tail = last(tail, most);
    Err(if tail.is_empty() { how } else { format!("{how}: {tail}") })
}

fn exit_code(code: impl std::fmt::Display) -> String {
    format!("exit code {code}")
}

/// Returns whether the words for the record say that the child's program could not be started.
pub(crate) fn cannot_start(how: &str) -> bool {
    let says = |code| {
        how.strip_prefix(&exit_code(code)).is_some_and(|tail| tail.is_empty() || tail.starts_with(':'))
    };
    says(NOT_STARTED) || says(NOT_FOUND)
}

/// The end of a text, so many bytes at most: what a program says last is why it failed.
fn last(text: &str, most: usize) -> &str {
    let mut begin = text.len().saturating_sub(most);
    while !text.is_char_boundary(begin) {
        begin += 1;
    }
    &text[begin..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_says_how_it_ended() {
        let ended = |status| Ended { status, loss: None };
        assert_eq!(told(&ended(Status::Exited(0)), "words"), Ok(()));
        assert_eq!(told(&ended(Status::Exited(3)), "disk full"), Err("exit code 3: disk full".to_owned()));
        assert_eq!(told(&ended(Status::Signaled(9)), ""), Err("ended by signal 9".to_owned()));
        for (code, is_so) in [(126, true), (127, true), (1, false), (12, false)] {
            let how = told(&ended(Status::Exited(code)), "no such file").unwrap_err();
            assert_eq!(cannot_start(&how), is_so, "{how}");
        }
        assert!(cannot_start(&told(&ended(Status::Exited(127)), "").unwrap_err()));
    }

    #[test]
    fn the_end_of_what_it_said_is_kept_whatever_comes_before_it() {
        let ended = Ended { status: Status::Exited(3), loss: None };
        let said = format!("{}the disk is full", "\u{e9} | ".repeat(1000));
        let record = told(&ended, &said).unwrap_err();
        assert!(record.len() <= Why::MAX_BYTES && record.len() > Why::MAX_BYTES - 4, "{}", record.len());
        assert!(record.starts_with("exit code 3: ") && record.ends_with("the disk is full"), "{record}");
    }
}
