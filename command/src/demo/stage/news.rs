//! Events of the fleet, whatever their cause: recorded and printed.

use tenure::clock::Moment;

use super::Stage;
use crate::{
    demo::{
        TASKS,
        crew::{Fate, Heard},
        instance::now,
        judge::seconds,
        message::InstanceMessage,
        record::{Change, RecordKind, State},
    },
    exit::{FAILED, Failure},
};

impl Stage<'_> {
    pub(super) fn hear(&mut self, heard: Heard) -> Result<(), Failure> {
        let (index, at, said) = match heard {
            Heard::Message(index, at, said) => (index, at, said),
            Heard::Ended(index) => {
                self.silent.push(index);
                return self.settle(index);
            }
        };
        let told = self.tell_of(index, &said);
        let may_settle = matches!(
            said,
            InstanceMessage::Began(_)
                | InstanceMessage::Ended { .. }
                | InstanceMessage::Ready
                | InstanceMessage::Drained
        );
        self.record.hear(index, at, said);
        if let Some(text) = told {
            self.say_of(at, &text);
        }
        if may_settle && self.record.closing.is_none() {
            self.note_even(at);
        }
        Ok(())
    }

    fn note_even(&mut self, at: Moment) {
        let Some(Change { at: since, .. }) = self.record.note_even(at).cloned() else { return };
        let counts = self.record.counts();
        let all = self.record.instances.iter().zip(&counts).filter(|(instance, _)| !instance.state.is_over());
        let shares = all.map(|(_, tasks)| tasks.to_string()).collect::<Vec<_>>().join(" ");
        let text = format!("all {TASKS} run, evenly, after {}: {shares}", seconds(at.since(since)));
        self.say_of(at, &text);
    }

    /// Returns the text for a message of an instance, if people want to know it.
    fn tell_of(&self, index: usize, said: &InstanceMessage) -> Option<String> {
        let who = &self.record.instances[index].name;
        match said {
            InstanceMessage::Lost { why } => Some(format!("{who} notices: {why}")),
            InstanceMessage::Drained => Some(format!("{who} has given all its tasks away")),
            InstanceMessage::TickBegan { instant, attempt } if *attempt > 1 => {
                let second = instant.div_euclid(1000).rem_euclid(60);
                Some(format!("{who} begins the tick of second {second:02} again: its runner did not end it"))
            }
            InstanceMessage::NotRun { count, why } => {
                Some(format!("{who} does not run {count} ticks: {why}"))
            }
            InstanceMessage::Rests { task } => {
                Some(format!("{who} lets task-{task:02} rest: its last three holders died"))
            }
            InstanceMessage::Failed { why } => Some(format!("{who} cannot continue: {why}")),
            _ => None,
        }
    }

    pub(super) fn fate(&mut self, index: usize, fate: Fate) -> Result<(), Failure> {
        let at = now();
        match fate {
            Fate::Exited(_) | Fate::Killed(_) => {
                self.gone.insert(index, (at, fate));
                self.settle(index)?;
            }
            Fate::Stopped if self.record.instances[index].state != State::Frozen => {
                let heard = self.record.instances[index].heard.unwrap_or(at);
                self.record.freeze(index, heard);
                let text = format!("{} was frozen from outside", self.who(index));
                self.say_of(at, &text);
            }
            Fate::Continued if self.record.instances[index].state == State::Frozen => {
                self.record.thaw(index, at);
                let text = format!("{} continues: it was thawed from outside", self.who(index));
                self.say_of(at, &text);
            }
            Fate::Stopped | Fate::Continued => {}
        }
        Ok(())
    }

    /// Takes note of the end of a process, once it is gone and all is heard that it had said.
    fn settle(&mut self, index: usize) -> Result<(), Failure> {
        let Some((at, fate)) = self.gone.get(&index).copied().filter(|_| self.silent.contains(&index)) else {
            return Ok(());
        };
        let was_ready = self.record.instances[index].ready.is_some();
        let is_closing = self.record.closing.is_some();
        let instance = &mut self.record.instances[index];
        match fate {
            Fate::Killed(_) => {
                let by_us = self.killed.get(&index).copied();
                self.record.die(index, by_us, at);
                if by_us.is_none() {
                    let text = format!("{} was killed from outside", self.who(index));
                    self.say_of(at, &text);
                }
                self.note_even(at);
            }
            Fate::Exited(0) if is_closing => instance.state = State::Left,
            Fate::Exited(code) => {
                instance.state = State::Failed;
                let (name, said) = (instance.name.clone(), instance.failure.clone());
                let why = said.unwrap_or_else(|| format!("it ended with code {code}{}", self.log_of(&name)));
                self.record.instances[index].failure = Some(why.clone());
                if !was_ready {
                    let code = u8::try_from(code).ok().filter(|code| *code > 0).unwrap_or(FAILED);
                    return Err(Failure::new(code, format!("{name} cannot start: {why}")));
                }
                self.record.changed(at, RecordKind::Killed, index);
                self.say_of(at, &format!("{name} has ended by itself: {why}"));
            }
            Fate::Stopped | Fate::Continued => {}
        }
        Ok(())
    }

    /// The last line of what an instance wrote to stderr, which may say why it ended.
    fn log_of(&self, name: &str) -> String {
        let log = std::fs::read_to_string(self.crew.log(name)).unwrap_or_default();
        log.lines().last().map(|line| format!(" ({line})")).unwrap_or_default()
    }
}
