//! Tasks that run nowhere, fail or rest, and members that do not fit together.

use std::collections::{BTreeMap, BTreeSet};

use super::{APART, Found, Grade, Limits, RECENT, Subject, count, listed, word};
use crate::{Picture, SessionStates, one_line, picture::HOUR};
use tenure::{
    model::{Holder, Key, Kind, LockId, SessionId, StoreTime},
    spread::{Member, SpreadStatus, TaskState},
    store::{Ended, LockRecord, Past, SessionRecord, TaskNote},
};

/// Failures that one member has alone before it is blamed, and deaths before a task is.
const BLAMED: usize = 3;
const FULL: &str = "full";
const ROOM: &str = "with room";

/// A spread, its records, and its sessions.
struct Spread<'a> {
    status: SpreadStatus,
    locks: Vec<LockRecord>,
    lives: &'a SessionStates,
    now: StoreTime,
    /// All its tasks were read.
    is_whole: bool,
    /// The name, as a shell takes it.
    shell: String,
}

impl Spread<'_> {
    fn about(&self) -> Subject {
        Subject::Spread { spread: self.status.spread.clone() }
    }

    fn looks_dead(&self, session: SessionId) -> bool {
        self.lives.life(session, self.now).looks_dead()
    }

    /// The command that shows the spread, or that task of it.
    fn show(&self, task: Option<&Key>) -> String {
        let show = |task: &Key| format!("tenure show {} --task {}", word(task.as_str()), self.shell);
        task.map_or_else(|| format!("tenure spreads {}", self.shell), show)
    }

    /// Says why a member takes no more tasks.
    fn takes_none(&self, Member { share, tasks, session, .. }: &Member) -> String {
        match share {
            _ if self.looks_dead(*session) => "looking dead".to_owned(),
            _ if share.draining => {
                let by = share.drained.as_ref().map(|one| format!("drained by {}: {}", one.by, one.why));
                let cap = (share.cap < u32::MAX).then(|| format!(" (cap {})", share.cap));
                by.unwrap_or_else(|| "draining".to_owned()) + &cap.unwrap_or_default()
            }
            _ if share.paused => "paused".to_owned(),
            _ if share.weight == 0 || !share.reserved.is_zero() => "taking none".to_owned(),
            _ if *tasks >= share.cap as usize => format!("{FULL} ({tasks} of {})", share.cap),
            _ => ROOM.to_owned(),
        }
    }

    /// Tasks that a living member knows, and that no instance has ever taken; since its start at the latest. And tasks
    /// beyond those that all living members know alike: they were taken off the list.
    fn beside_known(&self) -> (usize, Option<StoreTime>, usize) {
        let living: Vec<_> =
            self.status.members.iter().filter(|member| !self.looks_dead(member.session)).collect();
        let most = living.iter().max_by_key(|member| member.share.known);
        let started = most.and_then(|member| self.lives.record(member.session)).map(|record| record.started);
        let Some(known) = most.and_then(|member| member.share.known).filter(|_| self.is_whole) else {
            return (0, started, 0);
        };
        let (known, tasks) = (known as usize, self.status.tasks.len());
        let is_alike = living.windows(2).all(|two| two[0].share.digest == two[1].share.digest);
        (known.saturating_sub(tasks), started, if is_alike { tasks.saturating_sub(known) } else { 0 })
    }

    /// Time at which a task lost its holder, if that is on record.
    fn left(&self, record: &LockRecord) -> Option<StoreTime> {
        let Some(held) = &record.holding else {
            let past = record.past.first()?;
            return Some(record.closed.map_or(past.to, |rest| rest.until.max(past.to)));
        };
        let session = self.lives.record(held.by.session)?;
        Some(session.death.as_ref().map_or(session.beat_at, |death| death.at))
    }
}

impl Found {
    /// Judges the spreads. Returns the number of their tasks.
    pub(super) fn spreads(&mut self, picture: &Picture, limits: &Limits) -> usize {
        let (schedules, lives, now) = (Kind::Schedule.spread(), picture.lives(), self.now);
        let sessions: Vec<_> = lives.records().cloned().collect();
        let names = picture.spread_names();
        let mut tasks = 0;
        for name in names.iter().filter(|name| Some(*name) != schedules.as_ref()) {
            let locks = picture.locks_of(&Kind::of_tasks(name));
            let status = SpreadStatus::of_records(name.clone(), &sessions, &locks, now);
            let is_whole = picture.read.spreads.contains(name);
            let spread = Spread { status, locks, lives: &lives, now, is_whole, shell: word(name.as_str()) };
            tasks += spread.status.tasks.len() + spread.beside_known().0;
            self.nowhere(&spread, limits);
            self.failing(&spread);
            self.blamed(&spread);
            self.deaths(&spread);
            self.differ(&spread, ("tasks_differ", "know different tasks"), |_, member| member.share.digest);
            self.differ(&spread, ("versions_differ", "plan by different versions"), |record, _| {
                record.about.plan_version.into()
            });
        }
        for spread in limits.spreads.difference(&names) {
            let says = format!("no instance takes part in {spread}, and it has no tasks");
            let about = Subject::Spread { spread: spread.clone() };
            self.tell((Grade::Critical, "unknown_spread"), about, None, &says, "tenure spreads".to_owned());
        }
        tasks
    }

    /// Tasks without a living holder, and why no member takes them.
    fn nowhere(&mut self, spread: &Spread<'_>, limits: &Limits) {
        let SpreadStatus { spread: name, members, tasks, .. } = &spread.status;
        let is_nowhere = |record: &&LockRecord| match tasks.get(&record.id.key) {
            Some(TaskState::Moving { from: None, .. } | TaskState::WaitingForRoom { .. }) => true,
            state => state.and_then(TaskState::holder).is_some_and(|(_, session)| spread.looks_dead(session)),
        };
        let mut nowhere: Vec<_> = spread.locks.iter().filter(is_nowhere).collect();
        let (never, started, surplus) = spread.beside_known();
        // The oldest are the ones that were taken off the list: records do not tell them apart.
        nowhere.sort_by_key(|record| spread.left(record));
        nowhere.drain(..surplus.min(nowhere.len()));
        let number = nowhere.len() + never;
        if number == 0 {
            return;
        }
        let mut reasons: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for member in members {
            reasons.entry(spread.takes_none(member)).or_default().push(&member.holder);
        }
        let why: Vec<_> = reasons.iter().map(|(why, who)| format!("{} {why}", listed(who))).collect();
        let drained = members.iter().find(|one| one.share.draining && !spread.looks_dead(one.session));
        let (command, advice) = match drained {
            _ if members.is_empty() => (spread.show(None), "no instance takes part"),
            _ if reasons.contains_key(ROOM) => {
                let explain = |one: &&LockRecord| format!(" --explain {}", word(one.id.key.as_str()));
                (spread.show(None) + &nowhere.first().map(explain).unwrap_or_default(), "")
            }
            Some(member) => (format!("tenure undrain {}", word(member.holder.as_str())), ""),
            None => (spread.show(None), "; start another instance, or raise a cap"),
        };
        let since = nowhere.iter().filter_map(|record| spread.left(record)).min().or(started);
        let ever = if never > 0 { format!(", {never} of them have never run") } else { String::new() };
        let run = if number == 1 { "runs" } else { "run" };
        let says =
            format!("{} of {name} {run} nowhere{ever}: {}{advice}", count(number, "task"), why.join("; "));
        let grade = self.grade(since, number, tasks.len() + never);
        let is_wanted = grade > Grade::Passing && limits.spreads.contains(name);
        let grade = if is_wanted { Grade::Critical } else { grade };
        self.tell((grade, "nowhere"), spread.about(), since, &says, command).number = number;
    }

    /// Tasks that fail or rest, by their errors.
    fn failing(&mut self, spread: &Spread<'_>) {
        let SpreadStatus { spread: name, tasks, .. } = &spread.status;
        let mut errors: BTreeMap<(&str, String), Vec<_>> = BTreeMap::new();
        for LockRecord { id, past, .. } in &spread.locks {
            let (sort, error, since) = match tasks.get(&id.key) {
                Some(TaskState::Resting { error, since, .. }) => ("resting", error, Some(*since)),
                Some(TaskState::Failing { error, .. }) => {
                    ("failing", error, past.first().map(|past| past.to))
                }
                _ => continue,
            };
            errors.entry((sort, one_line(error))).or_default().push((&id.key, since));
        }
        let mut errors: Vec<_> = errors.into_iter().collect();
        errors.sort_by_key(|(_, found)| std::cmp::Reverse(found.len()));
        for ((verb, error), found) in errors {
            let (keys, starts): (Vec<_>, Vec<_>) = found.into_iter().unzip();
            let (number, since) = (keys.len(), starts.into_iter().flatten().min());
            let says = format!("{} of {name} {verb} ({}): {error}", count(number, "task"), listed(&keys));
            let sort =
                (self.grade(since, number, tasks.len()), if verb == "resting" { "rests" } else { "fails" });
            let command = spread.show((number == 1).then_some(keys[0]));
            let told = self.tell(sort, spread.about(), since, &says, command);
            (told.number, told.detail) = (number, name.to_string());
        }
    }

    /// Members that have all the failures, or whose tasks run well elsewhere.
    fn blamed(&mut self, spread: &Spread<'_>) {
        let SpreadStatus { spread: name, members, tasks, .. } = &spread.status;
        let pasts = spread.locks.iter().flat_map(|record| &record.past);
        let given_up = |past: &'_ Past| match past.note.as_ref().and_then(TaskNote::read)? {
            TaskNote::GivenUp { error, .. } => Some((past.to, past.holder.clone(), error)),
            _ => None,
        };
        let mut failures: Vec<_> = pasts.filter_map(given_up).collect();
        // An instance that was started again is judged by its failures since then.
        let started = |holder: &Holder| {
            let sessions = members.iter().filter(|one| one.holder == *holder).map(|one| one.session);
            sessions.filter_map(|session| Some(spread.lives.record(session)?.started)).min()
        };
        failures.retain(|(at, holder, _)| {
            self.now.since(*at) < HOUR && started(holder).is_none_or(|then| *at >= then)
        });
        failures.sort();
        let (since, last) = (failures.first().map(|(at, ..)| *at), failures.last());
        let is_on = last.is_some_and(|(at, ..)| self.now.since(*at) < RECENT)
            || tasks.values().any(|state| matches!(state, TaskState::Resting { .. }));
        let names: BTreeSet<_> = failures.iter().map(|(_, holder, _)| holder).collect();
        let takes = |member: &&Member| !member.share.draining && !spread.looks_dead(member.session);
        let is_bad = |member: &&Member| names.contains(&member.holder);
        let (bad, well): (Vec<_>, Vec<_>) = members.iter().filter(takes).partition(is_bad);
        let hosts: BTreeSet<_> = bad.iter().map(|member| &member.host).collect();
        let is_one = bad.len() == 1 || hosts.len() == 1 && !well.iter().any(|one| hosts.contains(&one.host));
        let is_all = bad.len() == names.len() && is_one && !well.is_empty() && failures.len() >= BLAMED;
        for member in members.iter().filter(|one| is_all && is_on && is_bad(one) || one.failing && takes(one))
        {
            let (holder, error) =
                (&member.holder, last.map(|(.., error)| error.as_str()).unwrap_or_default());
            let on = if bad.len() == 1 { String::new() } else { format!(" and others on {}", member.host) };
            let says = if is_all {
                format!("{holder}{on}: all {} failures of {name}, the others none: {error}", failures.len())
            } else {
                format!("{holder} is failing: tasks of {name} that it gave up run well elsewhere")
            };
            let command = format!("tenure drain {}", word(holder.as_str()));
            let about = Subject::Instance { holder: holder.clone(), session: member.session };
            let sort = (Grade::Warning, "failing");
            self.tell(sort, about, since, &says, command).number = failures.len().max(1);
        }
    }

    /// Tasks that were on board whenever a member died.
    fn deaths(&mut self, spread: &Spread<'_>) {
        let (name, now) = (&spread.status.spread, self.now);
        let takes_part = |one: &&SessionRecord| one.shares.iter().any(|share| share.spread == *name);
        let deaths = spread.lives.records().filter(takes_part).filter_map(|one| {
            let death = one.death.as_ref().filter(|death| !death.is_own() && now.since(death.at) < HOUR)?;
            Some((death.at, one))
        });
        let mut deaths: Vec<_> = deaths.collect();
        deaths.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        // A record remembers five holders.
        deaths.truncate(tenure::store::PAST_HOLDERS);
        if deaths.first().is_none_or(|(at, _)| now.since(*at) > RECENT) {
            return;
        }
        let was_on_board = |record: &LockRecord, (at, session): &(StoreTime, &SessionRecord)| {
            let has_died = |past: &Past| past.how == Ended::Died && past.holder == session.about.holder;
            let mut pasts = record.past.iter().filter(|past| has_died(past));
            record.is_held_by(session.id) || pasts.any(|past| past.from <= *at && *at <= past.to)
        };
        while deaths.len() >= BLAMED {
            let on_board = |record: &&LockRecord| deaths.iter().all(|death| was_on_board(record, death));
            let common: Vec<_> = spread.locks.iter().filter(on_board).map(|record| &record.id).collect();
            if let Some(first) = common.first().filter(|_| common.len() <= APART.min(spread.locks.len() / 3))
            {
                let keys: Vec<_> = common.iter().map(|lock| &lock.key).collect();
                let who: BTreeSet<_> = deaths.iter().map(|(_, session)| &session.about.holder).collect();
                let (who, number) = (listed(&who.into_iter().collect::<Vec<_>>()), deaths.len());
                let says = format!(
                    "{} of {name} on board at each of the last {number} deaths ({who}), no other task was",
                    listed(&keys)
                );
                let about = Subject::Key { lock: LockId::clone(first) };
                let since = deaths.last().map(|(at, _)| *at);
                let sort = (Grade::Warning, "deaths");
                self.tell(sort, about, since, &says, spread.show(Some(&first.key))).number = number;
                return;
            }
            deaths.pop();
        }
    }

    /// Members that differ in that.
    fn differ(
        &mut self,
        spread: &Spread<'_>,
        (sort, how): (&'static str, &str),
        of: impl Fn(&SessionRecord, &Member) -> u64,
    ) {
        let mut groups: BTreeMap<u64, Vec<_>> = BTreeMap::new();
        // Each has been so since its start at the latest.
        let mut since = None;
        for member in spread.status.members.iter().filter(|one| !spread.looks_dead(one.session)) {
            let Some(record) = spread.lives.record(member.session) else { continue };
            groups.entry(of(record, member)).or_default().push(&member.holder);
            since = since.max(Some(record.started));
        }
        if groups.len() > 1 {
            let groups: Vec<_> = groups.values().map(|holders| listed(holders)).collect();
            let name = &spread.status.spread;
            let says = format!("members of {name} {how} ({}): finish the deploy", groups.join(" / "));
            let sort = (self.grade(since, 0, 1), sort);
            self.tell(sort, spread.about(), since, &says, spread.show(None)).detail = name.to_string();
        }
    }
}

/// Returns when a task was given up last.
pub(super) fn last_failure(picture: &Picture) -> Option<StoreTime> {
    let pasts = picture.locks.values().flat_map(|record| &record.past);
    pasts.filter(|past| past.note.as_ref().and_then(TaskNote::read).is_some()).map(|past| past.to).max()
}
