//! Troubles of the store, instances that look dead, died, stand still or drain, and queues that stand still.

use std::{collections::BTreeMap, time::Duration};

use super::{Found, Grade, Subject, command, count, others};
use crate::{Instance, Liveness, Picture, ago, length, schedule::patience};
use tenure::{
    model::StoreTime,
    store::{Drained, Refusal, SessionRecord},
};

const INSTANCES: &str = "instances";
/// Deaths of one instance within an hour that are more than bad luck.
const AGAIN: usize = 3;
/// Time after which a drain may have been forgotten.
const LONG_AGO: Duration = Duration::from_secs(60 * 60);

impl Found<'_> {
    /// Judges the store. Returns the parts that were not read whole.
    pub(super) fn store(&mut self, picture: &Picture) -> Vec<String> {
        let mut tell = |grade, sort, since, says: String| {
            let _ = self.tell((grade, sort), Subject::Store, since, &says, "doctor");
        };
        if let Some(why) = picture.trouble() {
            let says = format!("the store does not answer, so all of this is old: {why}");
            tell(Grade::Critical, "store", Some(picture.now), says);
        }
        if let Some(why) = picture.deaf() {
            tell(Grade::Warning, "deaf", None, format!("no hints come, so changes are seen later: {why}"));
        }
        for (part, why) in picture.unreadable() {
            tell(Grade::Warning, "unreadable", None, format!("the {part} cannot be read: {why}"));
        }
        for (source, refused) in &picture.refused {
            let Some((record, refusal)) = refused.first() else { continue };
            let cure = if matches!(refusal, Refusal::Layout { .. }) { ": upgrade this one" } else { "" };
            let says = format!("{record}: {refusal}{cure}{}", others(refused.len() - 1));
            let listing = source.listing();
            let told = self.tell((Grade::Critical, "refused"), Subject::Store, None, &says, &listing);
            (told.number, told.detail) = (refused.len(), listing);
        }
        let (read, names) = (picture.read(), picture.spread_names());
        let tasks = names.is_subset(&read.spreads);
        let parts = [(read.sessions, "instances"), (read.locks, "locks"), (tasks, "tasks")];
        let unread = parts.iter().filter(|(is_whole, _)| !is_whole);
        let mut unread: Vec<_> = unread.map(|(_, what)| format!("not all {what} were read")).collect();
        let (ledgers, schedules) = picture.schedules_read();
        if !read.schedules {
            unread.push(format!("{ledgers} of {schedules} schedules were read"));
        }
        unread
    }

    /// Judges the instances, of which there are so many tasks. Returns how many beat.
    pub(super) fn instances(&mut self, picture: &Picture, tasks: usize) -> usize {
        let (all, now) = (picture.instances(), self.now);
        let of = |life| all.iter().filter(|one| one.life == life).collect::<Vec<_>>();
        let (alive, silent) = (of(Liveness::Alive), of(Liveness::Silent));
        if alive.is_empty() && silent.len() > 1 {
            let since = silent.iter().map(|one| one.record.beat_at).max();
            let age = length(since.map(|since| now.since(since)).unwrap_or_default());
            let says = format!(
                "none of {} instances has beaten for {age}: the store takes no writes, or all of them have stopped",
                silent.len()
            );
            // All else follows from that, or can wait; but no effect is worse than its cause.
            let worst = self.troubles.iter().map(|one| one.grade).max().unwrap_or(Grade::Passing);
            self.troubles.retain(|one| one.about == Subject::Store);
            let is_long = self.grade(since, 0, 1) > Grade::Passing;
            let grade = if is_long { Grade::Critical } else { worst };
            self.tell((grade, "all_silent"), Subject::Store, since, &says, "doctor").number = silent.len();
        } else {
            for one in silent {
                let (since, held) = (Some(one.record.beat_at), count(one.held.all(), "key"));
                let (age, ttl) = (length(now.since(one.record.beat_at)), length(one.record.ttl));
                let says = format!("looks dead, and has {held}: its last beat is {age} old, its ttl {ttl}");
                let grade = self.lasting(since, patience(one.record.ttl));
                self.instance(one, (grade, "silent"), since, &says, INSTANCES);
            }
        }
        for one in &alive {
            let since = one.record.stalled_since;
            if since.is_some() {
                let says = "beats, and stands still: its program runs no task";
                let grade = self.grade(since, one.held.tasks, tasks);
                self.instance(one, (grade, "stalled"), since, says, INSTANCES);
            }
            let holder = one.record.about.holder.as_str();
            if let Some(Drained { by, since, why }) = &one.record.drained {
                let grade = if now.since(*since) > LONG_AGO { Grade::Warning } else { Grade::Passing };
                let says = format!("was drained by {by}: {why}");
                self.instance(one, (grade, "draining"), Some(*since), &says, &command(&["undrain"], holder));
            } else if one.is_draining() || one.is_paused() {
                let says = format!("is {}, and takes no tasks", one.word());
                let command = command(&["ls", &format!("--held-by={holder}")], "");
                self.instance(one, (Grade::Passing, one.word()), None, &says, &command);
            }
        }
        for clock in picture.clock_ahead() {
            let (by, ahead) =
                (clock.ahead_ms.unsigned_abs(), if clock.ahead_ms > 0 { "ahead of" } else { "behind" });
            let (who, cure, about) = if let Some((session, holder)) = clock.instance.clone() {
                (holder.to_string(), "the fleet's: set it right", Subject::Instance { holder, session })
            } else {
                let cure = "the times on record: set it right, or the store's";
                ("this machine".to_owned(), cure, Subject::Store)
            };
            let says = format!("the clock of {who} is {} {ahead} {cure}", length(Duration::from_millis(by)));
            self.tell((Grade::Warning, "clock"), about, None, &says, INSTANCES);
        }
        let mut names: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for one in of(Liveness::Dead) {
            names.entry(lasting_name(&one.record)).or_default().push(one);
        }
        for (name, mut deaths) in names {
            deaths.sort_by_key(|one| one.record.beat_at);
            let mut row: Vec<&Instance> = Vec::new();
            for one in deaths {
                // Started after the death before, it is the same again; else another that died beside it.
                if row.last().is_none_or(|before| one.record.started > before.record.beat_at) {
                    row.push(one);
                } else {
                    self.died(one, 1, (Grade::Passing, "died"));
                }
            }
            let (Some(last), times) = (row.last().copied(), row.len()) else { continue };
            // By then it lives for longer than one that crashes in a loop.
            let is_back = alive.iter().map(|live| &live.record).any(|live| {
                let is_next = lasting_name(live) == name && live.started > last.record.beat_at;
                is_next && now.since(live.started) > patience(live.ttl)
            });
            let dies = times >= AGAIN && !is_back;
            self.died(last, times, if dies { (Grade::Warning, "dies") } else { (Grade::Passing, "died") });
        }
        alive.len()
    }

    fn instance(
        &mut self,
        one: &Instance,
        grade: (Grade, &'static str),
        since: Option<StoreTime>,
        says: &str,
        command: &str,
    ) {
        let (holder, session) = (one.record.about.holder.clone(), one.record.id);
        let says = format!("{holder} {says}");
        let about = Subject::Instance { holder, session };
        self.tell(grade, about, since, &says, command).number = one.held.all().max(1);
    }

    fn died(&mut self, one: &Instance, times: usize, grade: (Grade, &'static str)) {
        let Some(death) = &one.record.death else { return };
        let often = if times == 1 { String::new() } else { format!("{times} times, last ") };
        let says =
            format!("died {often}{}, declared by {}: {}", ago(death.at, self.now), death.by, death.why);
        self.instance(one, grade, Some(death.at), &says, &format!("{INSTANCES} --all"));
    }

    /// Judges the queues: behind a holder that looks dead, or none, they stand still. Returns how many wait.
    pub(super) fn queues(&mut self, picture: &Picture) -> usize {
        let mut all = 0;
        let lives = picture.lives();
        for queue in picture.queues() {
            let (lock, read) = (queue.lock.record, picture.read.sessions);
            let is_there = |session| !read || !lives.life(session, self.now).looks_dead();
            let waiting = queue.queue.waiters.iter().filter(|one| is_there(one.by.session));
            let (number, first) = (waiting.clone().count(), waiting.map(|one| one.since).min());
            all += number;
            let (ttl, left, why) = match &lock.holding {
                _ if number == 0 => continue,
                Some(held) if queue.lock.looks_dead => {
                    let beat = lives.record(held.by.session).map(|record| record.beat_at);
                    (held.by.ttl, beat, format!("{}, which looks dead", held.by.holder))
                }
                None if lock.closed.is_none_or(|closed| closed.left(self.now).is_zero()) => {
                    (self.ttl, lock.past.first().map(|past| past.to), "no holder".to_owned())
                }
                _ => continue,
            };
            let since = first.max(left);
            let grade = self.lasting(since, patience(ttl));
            let says = format!("{}: {number} in line behind {why}", lock.id.key);
            let command = command(&["show", "--lock"], lock.id.key.as_str());
            self.tell((grade, "queue"), Subject::Key { lock: lock.id }, since, &says, &command).number =
                number;
        }
        all
    }
}

/// The name of an instance without the number of its process: started again, it has another number.
fn lasting_name(record: &SessionRecord) -> String {
    let (name, pid) = (record.about.holder.as_str(), record.about.pid.to_string());
    name.strip_suffix(&pid).filter(|name| name.ends_with('-')).unwrap_or(name).to_owned()
}
