//! The course of a demo: hears the fleet, does to it what the script says, and shows how it is.

mod news;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use tenure::clock::Moment;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc,
    time::{MissedTickBehavior, interval},
};

use super::{
    INSTANCES, TASKS, TTL,
    crew::{Crew, Fate, Heard},
    instance::{Order, Setup, now},
    judge::count,
    record::{Record, RecordKind, State},
    scratch::Scratch,
    screen::Screen,
    script::{Act, Script},
};
use crate::{common::Level, exit::Failure};

/// Time between two pictures, and between two looks at the script.
const FRAME: Duration = Duration::from_millis(200);
const LOOK: Duration = Duration::from_millis(20);
/// Time for the instances to close. Instances that take longer are killed.
const CLOSING: Duration = Duration::from_secs(8);

/// The reason why a demo ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Over,
    /// The user stopped it by a signal.
    Signal(u8),
}

#[derive(Debug)]
pub(crate) struct Stage<'a> {
    crew: Crew,
    hears: mpsc::UnboundedReceiver<Heard>,
    record: Record,
    script: Script,
    screen: &'a mut Screen,
    store: String,
    database: Option<PathBuf>,
    time: Duration,
    /// Times at which processes were killed here.
    killed: BTreeMap<usize, Moment>,
    /// Processes that are gone, or of which all is heard, and not yet both.
    gone: BTreeMap<usize, (Moment, Fate)>,
    silent: Vec<usize>,
    children: Signal,
    stops: [(Signal, u8); 3],
}

impl<'a> Stage<'a> {
    pub(crate) fn new(
        scratch: &Scratch,
        screen: &'a mut Screen,
        log: Level,
        time: Duration,
        even: Duration,
    ) -> Result<Self, Failure> {
        let listen = |kind: SignalKind| {
            signal(kind).map_err(|error| Failure::failed(format!("cannot install signal handlers: {error}")))
        };
        let stops = [
            (listen(SignalKind::interrupt())?, 2),
            (listen(SignalKind::terminate())?, 15),
            (listen(SignalKind::hangup())?, 1),
        ];
        let children = listen(SignalKind::child())?;
        let setup = Setup {
            store: scratch.uri().text.clone(),
            store_file: scratch.uri().file.clone(),
            namespace: scratch.namespace.clone(),
            holder: String::new(),
            tasks: TASKS,
            ttl_ms: u64::try_from(TTL.as_millis()).unwrap_or(u64::MAX),
            log,
        };
        let (crew, hears) = Crew::new(setup, scratch.folder().to_owned());
        let begun = now();
        Ok(Self {
            crew,
            hears,
            record: Record::new(begun, TASKS),
            script: Script::new(begun, time, even),
            screen,
            store: scratch.name(),
            database: scratch.database.clone(),
            time,
            killed: BTreeMap::new(),
            gone: BTreeMap::new(),
            silent: Vec::new(),
            children,
            stops,
        })
    }

    /// Plays it to its end.
    pub(crate) async fn play(&mut self) -> Result<Ended, Failure> {
        for _ in 0..INSTANCES {
            self.start()?;
        }
        self.record.changed(self.record.begun, RecordKind::Started, 0);
        self.say(&format!("{INSTANCES} instances start: pids {}", self.pids()));
        let mut frames = interval(FRAME);
        frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let [interrupt, terminate, hangup] = &mut self.stops;
            tokio::select! {
                _ = interrupt.0.recv() => return Ok(Ended::Signal(interrupt.1)),
                _ = terminate.0.recv() => return Ok(Ended::Signal(terminate.1)),
                _ = hangup.0.recv() => return Ok(Ended::Signal(hangup.1)),
                _ = self.children.recv() => {
                    for (index, fate) in self.crew.fates() {
                        self.fate(index, fate)?;
                    }
                }
                heard = self.hears.recv() => {
                    if let Some(heard) = heard {
                        self.hear(heard)?;
                    }
                }
                _ = looks.tick() => {
                    if let Some(act) = self.script.next(&self.record, now()) {
                        self.act(act)?;
                    }
                    if self.is_over() {
                        self.draw();
                        return Ok(Ended::Over);
                    }
                }
                _ = frames.tick() => {
                    self.draw();
                    if self.screen.is_gone() {
                        // As if it had been killed by a pipe without a reader.
                        return Ok(Ended::Signal(13));
                    }
                }
            }
        }
    }

    /// Ends all processes. Returns what is known.
    pub(crate) fn end(mut self) -> Record {
        self.crew.end();
        self.record
    }

    fn draw(&mut self) {
        self.screen.draw(&self.record, now().since(self.record.begun), self.time, &self.store);
    }

    fn say(&mut self, text: &str) {
        self.say_of(now(), text);
    }

    fn say_of(&mut self, at: Moment, text: &str) {
        self.screen.event(at.since(self.record.begun), text);
    }

    fn pids(&self) -> String {
        let all = self.record.instances.iter().map(|instance| instance.pid.to_string());
        all.collect::<Vec<_>>().join(", ")
    }

    fn who(&self, index: usize) -> String {
        let instance = &self.record.instances[index];
        format!("{} (pid {})", instance.name, instance.pid)
    }

    fn start(&mut self) -> Result<usize, Failure> {
        let index = self.record.instances.len();
        let name = format!("demo-{}", index + 1);
        let pid = self.crew.start(&name)?;
        self.record.add(name, pid);
        Ok(index)
    }

    // ----- what is done

    fn act(&mut self, act: Act) -> Result<(), Failure> {
        match act {
            Act::Kill(index) => {
                let at = self.crew.kill(index);
                self.killed.insert(index, at);
                let text = format!("{} is killed (SIGKILL), with {}", self.who(index), self.tasks_of(index));
                self.say_of(at, &text);
            }
            Act::Freeze(index) => {
                let at = self.crew.freeze(index, self.database.as_deref());
                self.record.freeze(index, at);
                let text = format!("{} is frozen (SIGSTOP), with {}", self.who(index), self.tasks_of(index));
                self.say_of(at, &text);
            }
            Act::Thaw(index) => {
                // Before it runs: what it says then is of a process that is not frozen.
                let at = now();
                self.record.thaw(index, at);
                self.crew.thaw(index);
                let text = format!("{} resumed (SIGCONT); its tasks moved to others", self.who(index));
                self.say_of(at, &text);
            }
            Act::Drain(index) => {
                self.record.drain(index, now());
                self.crew.order(index, Order::Drain);
                let text =
                    format!("{} is drained: it gives its {} away", self.who(index), self.tasks_of(index));
                self.say(&text);
            }
            Act::Join | Act::Replace => {
                let at = now();
                let index = self.start()?;
                self.record.changed(at, RecordKind::Joined, index);
                let text = format!("{} joins", self.who(index));
                self.say_of(at, &text);
            }
            Act::Close => {
                self.record.closing = Some(now());
                self.say("all instances are asked to close");
                for index in 0..self.record.instances.len() {
                    let state = self.record.instances[index].state;
                    if state == State::Frozen {
                        // It cannot hear that.
                        let at = self.crew.kill(index);
                        self.killed.insert(index, at);
                    } else if !state.is_over() {
                        self.record.instances[index].state = State::Closes;
                        self.crew.order(index, Order::Close);
                    }
                }
            }
        }
        Ok(())
    }

    fn tasks_of(&self, index: usize) -> String {
        count(self.record.counts()[index], "task")
    }

    /// All have closed, or have had time enough.
    fn is_over(&self) -> bool {
        self.record.closing.is_some_and(|closing| {
            self.record.instances.iter().all(|instance| instance.state.is_over())
                || now().since(closing) > CLOSING
        })
    }
}
