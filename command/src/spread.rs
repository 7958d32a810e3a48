//! `tenure spread`: one child per task, on one instance each.

use std::{
    collections::BTreeSet,
    ffi::OsString,
    fs,
    io::Read,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Args;
use tenure::{
    elect::Lease,
    model::{Key, SpreadName},
    spread::{Spread as Share, Task},
};
use tokio::runtime::Handle;

use crate::{
    common::Common,
    exec::without,
    exit::Failure,
    file::{Followed, without_mark},
    job::{Jobs, cannot_start},
    say,
    serve::{Long, Served},
    times,
};

/// Placeholder for the task in a command.
const PLACE: &str = "{}";

/// Run one child per task, spread over the instances
///
/// Each task has its child on one of the instances that take part; tasks move as instances come and go.
///
/// The task's key replaces {} in the command, and is in the variable `TENURE_KEY`.
#[derive(Args, Debug)]
pub(crate) struct Spread {
    /// Name of the spread, the same in all instances
    #[arg(long, value_name = "NAME")]
    name: String,

    /// File with a task per line (# begins a comment), read again when it changes and on SIGHUP; - for standard input
    #[arg(long, value_name = "FILE")]
    tasks: PathBuf,

    /// Maximum tasks on this instance [max and default: 4096]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST)), allow_negative_numbers = true)]
    cap: Option<u32>,

    /// Share of this instance relative to the others
    #[arg(long, default_value_t = 1, value_name = "N")]
    weight: u32,

    /// Rest before a child that ended well is started again [default: the refresh interval]
    #[arg(long, value_name = "TIME", conflicts_with = "once")]
    again_after: Option<String>,

    /// A task whose child ended well is done for good, for all instances
    #[arg(long)]
    once: bool,

    /// Failures of a child in a row until its task rests, and another instance tries [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    tries: Option<u32>,

    /// Begin each line that a child writes to standard error with its task; standard output stays as it is
    #[arg(long)]
    prefix: bool,

    #[command(flatten)]
    long: Long,

    /// Program and its arguments, with {} for the task
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

pub(crate) async fn run(common: &Common, spread: Spread) -> Result<u8, Failure> {
    let name = SpreadName::new(&spread.name).map_err(|error| Failure::usage(format!("--name: {error}")))?;
    let mut file = Followed::of((!spread.is_stdin()).then_some(spread.tasks.as_path()));
    let tasks = spread.read()?;
    let mut served = Served::start(common, &spread.long, "spread").await?;
    let jobs = Jobs {
        patience: served.patience,
        holder: served.elect.config().holder().to_string(),
        without: without(&served.settings),
        file: served.file().map(ToOwned::to_owned),
        prefix: spread.prefix,
    };
    let cap = allowed(spread.cap, open_files())?;
    let mut builder = served.elect.spread(&name).tasks(tasks).weight(spread.weight).cap(cap);
    builder = builder.give_up_on(cannot_start);
    if let Some(tries) = spread.tries {
        builder = builder.tries(tries);
    }
    if let Some(rest) = &spread.again_after {
        builder = builder.again_after(times::duration("--again-after", rest)?);
    }
    if spread.once {
        builder = builder.done_for_good();
    }
    let (runtime, command) = (Handle::current(), spread.command.clone());
    let share = builder.run_blocking(move |task: Task, lease: Lease| {
        let command = with_task(&command, task.key());
        jobs.run(&runtime, &lease, command, vec![("TENURE_SPREAD", name.as_str().into())])
    });
    let share = share.map_err(Failure::from)?;
    served.ready();
    serve(&spread, &mut file, &mut served, &share).await;
    share.stop().await;
    served.stop().await
}

/// Reads the file again whenever it is told to, until this is to end.
async fn serve(spread: &Spread, file: &mut Followed, served: &mut Served, share: &Share) {
    while served.reload(file).await {
        match spread.read() {
            Ok(tasks) => {
                let tasks = tasks.into_iter().filter_map(|key| Task::new(key, ()).ok());
                share.replace(tasks);
                say::say("the tasks are read anew");
            }
            // A file with a slip in it, or none for a moment, changes nothing.
            Err(failure) => say::say(format_args!("the tasks stay as they are: {failure}")),
        }
    }
}

impl Spread {
    fn is_stdin(&self) -> bool {
        self.tasks == Path::new("-")
    }

    fn read(&self) -> Result<BTreeSet<Key>, Failure> {
        let name =
            if self.is_stdin() { "standard input".to_owned() } else { self.tasks.display().to_string() };
        let text = if self.is_stdin() {
            let mut text = Vec::new();
            std::io::stdin().read_to_end(&mut text).map(|_| text)
        } else {
            fs::read(&self.tasks)
        };
        let text =
            text.map_err(|error| Failure::usage(format!("the tasks in {name} cannot be read: {error}")))?;
        let tasks = tasks(&text).map_err(|(line, rule)| Failure::usage(format!("{name}:{line}: {rule}")))?;
        if tasks.is_empty() {
            say::say(format_args!("{name} lists no task, so nothing is run: write one per line"));
        }
        Ok(tasks)
    }
}

/// Parses one task per line, or returns the first invalid line and the rule that it breaks.
fn tasks(text: &[u8]) -> Result<BTreeSet<Key>, (usize, String)> {
    let text = std::str::from_utf8(text).map_err(|error| {
        let number = text[..error.valid_up_to()].split(|byte| *byte == b'\n').count();
        (number, "the line is not UTF-8: save the file in that encoding".to_owned())
    })?;
    let mut found = BTreeSet::new();
    for (number, line) in without_mark(text).lines().enumerate().map(|(at, line)| (at + 1, line.trim())) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let key = Key::new(line).map_err(|error| (number, error.to_string()))?;
        if !found.insert(key) {
            return Err((number, format!("the task {line:?} is listed twice")));
        }
    }
    Ok(found)
}

/// The command for a task.
fn with_task(command: &[OsString], task: &Key) -> Vec<OsString> {
    let replaced = |part: &OsString| match part.to_str() {
        Some(text) => text.replace(PLACE, task.as_str()).into(),
        // A part that is no text has no place for a task.
        None => part.clone(),
    };
    command.iter().map(replaced).collect()
}

/// The most children at once: each has a thread that waits for it.
const MOST: u32 = 4096;

/// The files that this process may have open.
fn open_files() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// The cap, which the limit of open files allows: each child takes some.
fn allowed(cap: Option<u32>, open_files: u64) -> Result<u32, Failure> {
    let room = open_files.saturating_sub(FILES_BESIDE) / FILES_OF_A_CHILD;
    let room = u32::try_from(room).unwrap_or(u32::MAX).min(MOST);
    match cap {
        Some(cap) if cap > room => Err(Failure::usage(format!(
            "--cap {cap} needs more open files than the limit of {open_files} allows, which is enough for {room}: raise \
             it (ulimit -n, LimitNOFILE=)"
        ))),
        cap => Ok(cap.unwrap_or(room)),
    }
}

/// Descriptors that a child takes of this process, and those that it has beside them.
const FILES_OF_A_CHILD: u64 = 4;
const FILES_BESIDE: u64 = 128;

/// Threads for all of them, and for those that end meanwhile.
pub(crate) const THREADS: usize = MOST as usize + 256;

/// Time for which an idle thread is kept.
pub(crate) const IDLE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cap_fits_the_open_files() {
        assert_eq!(allowed(None, 1024).unwrap(), 224);
        assert_eq!(allowed(None, u64::MAX).unwrap(), MOST);
        assert_eq!(allowed(Some(100), 1024).unwrap(), 100);
        assert!(allowed(Some(1000), 1024).unwrap_err().message.contains("is enough for 224"));
    }

    #[test]
    fn tasks_are_lines() {
        let read = tasks(b"# orders\n eu \n\nus\n").unwrap();
        assert_eq!(read.iter().map(Key::as_str).collect::<Vec<_>>(), ["eu", "us"]);
        assert_eq!(tasks(b"a\nb\na"), Err((3, "the task \"a\" is listed twice".to_owned())));
        assert_eq!(tasks("x".repeat(5000).as_bytes()).unwrap_err().0, 1);
        assert_eq!(tasks(b"a\nb\nM\xfcnchen\n").unwrap_err().0, 3);
    }

    #[test]
    fn the_task_stands_where_the_braces_are() {
        let command: Vec<OsString> = ["work", "--topic={}", "{}{}"].map(Into::into).into();
        let key = Key::new("eu").unwrap();
        assert_eq!(with_task(&command, &key), ["work", "--topic=eu", "eueu"]);
    }
}
