//! Tasks that run nowhere, fail or rest, and members that do not fit together.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
};

use super::{APART, Found, Grade, Limits, NAMED, RECENT, Subject, command, count, listed};
use crate::{Picture, one_line, picture::HOUR, spread::Judged};
use tenure::{
    model::{Holder, Key, Kind, LockId, StoreTime},
    spread::{Member, SpreadStatus, TaskState},
    store::{Ended, LockRecord, Note, Past, SessionRecord},
};

/// Failures that one member has alone before it is blamed, and deaths before a task is.
const BLAMED: usize = 3;
const FULL: &str = "full";
const ROOM: &str = "with room";

impl Judged<'_> {
    fn about(&self) -> Subject {
        Subject::Spread { spread: self.status.spread.clone() }
    }

    /// The command that shows the spread, or that task of it.
    fn show(&self, task: Option<&Key>) -> String {
        let spread = self.status.spread.as_str();
        let show = |task: &Key| command(&["show", &format!("--task={spread}")], task.as_str());
        task.map_or_else(|| command(&["spreads"], spread), show)
    }

    /// Says why a member takes no more tasks.
    fn takes_none(&self, Member { share, drained, tasks, session, .. }: &Member) -> String {
        match share {
            _ if self.looks_dead(*session) => "looking dead".to_owned(),
            _ if share.draining || drained.is_some() => {
                let by = drained.as_ref().map(|one| format!("drained by {}: {}", one.by, one.why));
                let cap = (share.cap < u32::MAX).then(|| format!(" (cap {})", share.cap));
                by.unwrap_or_else(|| "draining".to_owned()) + &cap.unwrap_or_default()
            }
            _ if share.paused => "paused".to_owned(),
            _ if share.weight == 0 || !share.reserved.is_zero() => "taking none".to_owned(),
            _ if *tasks >= share.cap as usize => format!("{FULL} ({tasks} of {})", share.cap),
            _ => ROOM.to_owned(),
        }
    }
}

impl Found<'_> {
    /// Judges the spreads. Returns the number of their tasks.
    pub(super) fn spreads(&mut self, picture: &Picture, limits: &Limits) -> usize {
        let (schedules, names) = (Kind::Schedule.spread(), picture.spread_names());
        let tasks = picture.judge_spreads(|spread| {
            if schedules.as_ref() == Some(&spread.status.spread) {
                return 0;
            }
            self.nowhere(spread, limits);
            self.failing(spread);
            self.blamed(spread);
            self.deaths(spread);
            let shows = spread.show(None);
            self.differ(spread, ("tasks_differ", "know different tasks", &shows), |_, member| {
                (member.share.digest, member.share.known_since)
            });
            self.differ(
                spread,
                ("versions_differ", "plan by different versions", "instances"),
                |record, _| (record.about.plan_version.into(), Some(record.started)),
            );
            spread.wanted.unwrap_or(spread.status.tasks.len())
        });
        for spread in limits.spreads.difference(&names) {
            let says = format!("no instance takes part in {spread}, and it has no tasks");
            let about = Subject::Spread { spread: spread.clone() };
            self.tell((Grade::Critical, "unknown_spread"), about, None, &says, "spreads");
        }
        tasks.iter().sum()
    }

    /// Tasks without a living holder, and why no member takes them.
    fn nowhere(&mut self, spread: &Judged<'_>, limits: &Limits) {
        let SpreadStatus { spread: name, members, tasks, .. } = &spread.status;
        let (nowhere, never) = (&spread.orphans, spread.never_ran);
        let number = nowhere.len() + never;
        if number == 0 {
            return;
        }
        let mut reasons: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for member in members {
            reasons.entry(spread.takes_none(member)).or_default().push(&member.holder);
        }
        let mut why: Vec<_> = reasons.iter().map(|(why, who)| format!("{} {why}", listed(who))).collect();
        if why.len() > NAMED {
            let more = why.split_off(NAMED).len();
            why.push(format!("{more} more reasons"));
        }
        let drained = members.iter().find(|one| one.share.draining && !spread.looks_dead(one.session));
        let (mends, advice) = match drained {
            _ if members.is_empty() => (spread.show(None), "no instance takes part"),
            _ if reasons.contains_key(ROOM) => {
                let explain = nowhere.first().map(|one| format!("--explain={}", one.id.key.as_str()));
                let words: Vec<_> = iter::once("spreads").chain(explain.as_deref()).collect();
                (command(&words, name.as_str()), "")
            }
            Some(member) => (command(&["undrain"], member.holder.as_str()), ""),
            None => (spread.show(None), "; start another instance, or raise a cap"),
        };
        // A change of the list is no trouble before a pause is over.
        let left = nowhere.iter().filter_map(|record| spread.left(record)).min().max(spread.listed);
        let since = if never > 0 { spread.listed } else { left };
        let ever = match never {
            0 => String::new(),
            _ if never == number => ", never yet".to_owned(),
            _ => format!(", {never} of them have never run"),
        };
        let run = if number == 1 { "runs" } else { "run" };
        let says =
            format!("{} of {name} {run} nowhere{ever}: {}{advice}", count(number, "task"), why.join("; "));
        let grade = self.grade(left, nowhere.len(), tasks.len() + never).max(self.grade(since, 0, 1));
        let is_wanted = grade > Grade::Passing && limits.spreads.contains(name);
        let grade = if is_wanted { Grade::Critical } else { grade };
        self.tell((grade, "nowhere"), spread.about(), since, &says, &mends).number = number;
    }

    /// Tasks that fail or rest, by their errors.
    fn failing(&mut self, spread: &Judged<'_>) {
        let SpreadStatus { spread: name, tasks, .. } = &spread.status;
        let begun = |past: &Past| match &past.note {
            Some(Note::Failing(row)) => Some(row.since),
            _ => None,
        };
        let mut errors: BTreeMap<(&str, String), Vec<_>> = BTreeMap::new();
        for LockRecord { id, past, .. } in spread.locks {
            let (sort, error, since) = match tasks.get(&id.key) {
                Some(TaskState::Resting { error, since, .. }) => ("resting", error, Some(*since)),
                Some(TaskState::Failing { error, .. }) => ("failing", error, past.iter().find_map(begun)),
                _ => continue,
            };
            errors.entry((sort, one_line(error))).or_default().push((&id.key, since));
        }
        let mut errors: Vec<_> = errors.into_iter().collect();
        errors.sort_by_key(|(_, found)| std::cmp::Reverse(found.len()));
        let is_one = errors.iter().map(|(_, found)| found.len()).sum::<usize>() == 1;
        for ((verb, error), found) in errors {
            let (keys, starts): (Vec<_>, Vec<_>) = found.into_iter().unzip();
            let (number, since) = (keys.len(), starts.into_iter().flatten().min());
            let says = format!("{} of {name} {verb} ({}): {error}", count(number, "task"), listed(&keys));
            // A task that fails alone may have failed once, and run well from now on.
            let (sort, concerned) =
                if verb == "resting" { ("rests", number) } else { ("fails", number - usize::from(is_one)) };
            let sort = (self.grade(since, concerned, tasks.len()), sort);
            let command = spread.show((number == 1).then_some(keys[0]));
            let told = self.tell(sort, spread.about(), since, &says, &command);
            (told.number, told.detail) = (number, name.to_string());
        }
    }

    /// Members that have all the failures, or whose tasks run well elsewhere.
    fn blamed(&mut self, spread: &Judged<'_>) {
        let SpreadStatus { spread: name, members, tasks, .. } = &spread.status;
        let pasts = spread.locks.iter().flat_map(|record| &record.past);
        let given_up = |past: &'_ Past| match &past.note {
            Some(Note::Failing(row)) => Some((past.to, past.holder.clone(), row.error.to_string())),
            _ => None,
        };
        let mut failures: Vec<_> = pasts.filter_map(given_up).collect();
        // An instance that was started again is judged by its failures since then.
        let started = |holder: &Holder| {
            let sessions = members.iter().filter(|one| one.holder == *holder).map(|one| one.session);
            sessions.filter_map(|session| Some(spread.sessions.get(&session)?.started)).min()
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
            let drain = command(&["drain"], holder.as_str());
            let about = Subject::Instance { holder: holder.clone(), session: member.session };
            let sort = (Grade::Warning, "failing");
            self.tell(sort, about, since, &says, &drain).number = failures.len().max(1);
        }
    }

    /// Tasks that were on board whenever a member died.
    fn deaths(&mut self, spread: &Judged<'_>) {
        let (name, now) = (&spread.status.spread, self.now);
        let takes_part = |one: &&SessionRecord| one.shares.iter().any(|share| share.spread == *name);
        let deaths = spread.sessions.values().copied().filter(takes_part).filter_map(|one| {
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
                self.tell(sort, about, since, &says, &spread.show(Some(&first.key))).number = number;
                return;
            }
            deaths.pop();
        }
    }

    /// Members that differ in that.
    fn differ(
        &mut self,
        spread: &Judged<'_>,
        (sort, how, shows): (&'static str, &str, &str),
        of: impl Fn(&SessionRecord, &Member) -> (u64, Option<StoreTime>),
    ) {
        let mut groups: BTreeMap<u64, (Vec<_>, Vec<_>)> = BTreeMap::new();
        for member in spread.living().filter(|one| !one.share.draining) {
            let Some(record) = spread.sessions.get(&member.session) else { continue };
            let (is, since) = of(record, member);
            let (holders, times) = groups.entry(is).or_default();
            holders.push(&member.holder);
            times.extend(since);
        }
        if groups.len() > 1 {
            // They differ since the last of the groups began, if each says when: an earlier version does not.
            let begun: Option<Vec<_>> = groups.values().map(|(_, times)| times.iter().min()).collect();
            let since = begun.and_then(|begun| begun.into_iter().max().copied());
            let grade = since.map_or(Grade::Passing, |_| self.grade(since, 0, 1));
            let groups: Vec<_> = groups.values().map(|(holders, _)| listed(holders)).collect();
            let name = &spread.status.spread;
            let says = format!("members of {name} {how} ({}): finish the deploy", groups.join(" / "));
            self.tell((grade, sort), spread.about(), since, &says, shows).detail = name.to_string();
        }
    }
}

/// Returns when a task was given up last.
pub(super) fn last_failure(picture: &Picture) -> Option<StoreTime> {
    let pasts = picture.locks.values().flat_map(|record| &record.past);
    let failed = |past: &&Past| matches!(past.note, Some(Note::Failing(_) | Note::Dying(_)));
    pasts.filter(failed).map(|past| past.to).max()
}
