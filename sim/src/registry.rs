//! Sessions, locks and leases as the history shows them, for its judges.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    time::Duration,
};

use super::{Entry, EventKind, Habits, Life, Reported, WorkKind, invariants::SLACK};
use tenure::{
    ElectConfig,
    clock::Moment,
    model::{SessionId, Term},
    store::Ticket,
};

/// The durations one instance runs by.
#[derive(Clone, Copy, Debug)]
pub struct Durations {
    /// Time for which a beat keeps its session alive.
    pub ttl: Duration,
    /// Time taken off the end here.
    pub margin: Duration,
    /// Time for which a job may drain.
    pub stop_grace: Duration,
    /// Lateness allowed for what is due.
    pub slack: Duration,
}

impl Durations {
    /// Returns the durations of an engine in simulated time, where nothing comes later than timers do.
    #[must_use]
    pub fn of(config: &ElectConfig) -> Self {
        let (ttl, margin, stop_grace) = (config.ttl(), config.margin(), config.stop_grace());
        Self { ttl, margin, stop_grace, slack: SLACK }
    }
}

/// An instance.
#[derive(Clone, Debug)]
pub struct Member {
    /// Durations it runs by.
    pub durations: Durations,
    /// True while it is not polled.
    pub frozen: bool,
    /// Time since which all of it has been polled without a break.
    pub undisturbed_since: Duration,
}

/// A session, as the store and its instance know it.
#[derive(Clone, Debug)]
pub struct Session {
    /// Run of the instance that it belongs to.
    pub life: Option<Life>,
    /// Time for which it lives after a beat.
    pub ttl: Duration,
    /// Time at which its last beat was applied.
    pub beaten: Duration,
    /// Local end, as far as confirmed beats carry it.
    pub end: Option<Moment>,
    /// Time since which it is dead.
    pub died: Option<Duration>,
    /// True if the engine reported its end, or its record was deleted by hand.
    pub over: bool,
    /// True if it ended because the engine was closed.
    pub closed: bool,
}

/// A grant of a lock, as the store has it.
#[derive(Clone, Debug)]
pub struct Grant {
    /// Session that it was made to.
    pub session: SessionId,
    /// Ticket that it was made for.
    pub ticket: Ticket,
    /// Tag of its ticket.
    pub tag: String,
    /// True if it does not count: its record was deleted by hand.
    pub void: bool,
    /// True if the lock is free since, or has another holder.
    pub over: bool,
    /// A primary has applied its release; perhaps no majority ever did.
    pub given_back: bool,
}

/// Something that runs, or ran, under a lock.
#[derive(Clone, Debug)]
pub struct Lease {
    /// Sort of work.
    pub sort: WorkKind,
    /// Beginning, by its instance's clock.
    pub began: Moment,
    /// Moment at which its token fired, by its instance's clock.
    pub cancelled: Option<Moment>,
    /// Number that run under it.
    pub running: u32,
}

/// Facts known from the history.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    members: Vec<Member>,
    schedules: Vec<Habits>,
    sessions: BTreeMap<SessionId, Session>,
    grants: BTreeMap<(usize, Term), Grant>,
    current: BTreeMap<usize, Term>,
    leases: BTreeMap<(Life, usize, Term), Lease>,
    /// Moment at which each instance first learned of a grant of its own, by its clock.
    noticed: BTreeMap<(Life, usize, Term), Moment>,
    /// Runs of instances whose program closes them, or has closed them.
    closing: BTreeSet<Life>,
    calm: Option<Duration>,
    counts: Counts,
}

/// Counts of events that a run worth its time should have.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) grants: u64,
    pub(super) hand_overs: u64,
    pub(super) takeovers: u64,
    pub(super) losses: u64,
}

impl Registry {
    pub(super) fn new(members: Vec<Durations>) -> Self {
        let member = |durations| Member { durations, frozen: false, undisturbed_since: Duration::ZERO };
        Self { members: members.into_iter().map(member).collect(), ..Self::default() }
    }

    pub(super) fn with_schedules(self, schedules: Vec<Habits>) -> Self {
        Self { schedules, ..self }
    }

    /// Settings of the schedule of that number.
    #[must_use]
    pub fn schedule(&self, schedule: usize) -> Option<&Habits> {
        self.schedules.get(schedule)
    }

    /// Number of schedules.
    #[must_use]
    pub const fn schedules(&self) -> usize {
        self.schedules.len()
    }

    /// An instance.
    #[must_use]
    pub fn member(&self, life: Life) -> &Member {
        &self.members[life.member]
    }

    /// A session.
    #[must_use]
    pub fn session(&self, session: SessionId) -> Option<&Session> {
        self.sessions.get(&session)
    }

    /// All sessions.
    pub fn sessions(&self) -> impl Iterator<Item = (SessionId, &Session)> {
        self.sessions.iter().map(|(id, session)| (*id, session))
    }

    /// A grant of a key under a term.
    #[must_use]
    pub fn grant(&self, key: usize, term: Term) -> Option<&Grant> {
        self.grants.get(&(key, term))
    }

    /// The term under which a key is held now, or was last.
    #[must_use]
    pub fn current(&self, key: usize) -> Option<Term> {
        self.current.get(&key).copied()
    }

    /// Lease under a lock.
    #[must_use]
    pub fn lease(&self, life: Life, key: usize, term: Term) -> Option<&Lease> {
        self.leases.get(&(life, key, term))
    }

    /// Everything that runs in one life of an instance.
    pub fn leases_of(&self, life: Life) -> impl Iterator<Item = (usize, Term, &Lease)> {
        self.leases.range(all_of(life)).map(|((_, key, term), lease)| (*key, *term, lease))
    }

    /// Moment at which an instance first learned that it holds a key under a term, by its own clock.
    #[must_use]
    pub fn noticed(&self, life: Life, key: usize, term: Term) -> Option<Moment> {
        self.noticed.get(&(life, key, term)).copied()
    }

    /// Returns whether its program closes it, or has closed it.
    #[must_use]
    pub fn is_closing(&self, life: Life) -> bool {
        self.closing.contains(&life)
    }

    /// The local end of the session that holds, or held, a key under a term.
    #[must_use]
    pub fn end(&self, key: usize, term: Term) -> Option<Moment> {
        self.session(self.grant(key, term)?.session)?.end
    }

    /// Number of instances.
    #[must_use]
    pub const fn members(&self) -> usize {
        self.members.len()
    }

    /// The longest time for which one of them may have stopped beating unnoticed.
    #[must_use]
    pub fn longest_ttl(&self) -> Duration {
        self.members.iter().map(|member| member.durations.ttl).max().unwrap_or_default()
    }

    /// Time since which there are no faults.
    #[must_use]
    pub const fn calm(&self) -> Option<Duration> {
        self.calm
    }

    pub(super) const fn counts(&self) -> Counts {
        self.counts
    }

    /// The sessions that held a key last.
    pub(super) fn last_holders(&self, key: usize, most: usize) -> Vec<SessionId> {
        let of_key = self.grants.range((key, Term::new(0))..(key + 1, Term::new(0)));
        of_key.rev().take(most).map(|(_, grant)| grant.session).collect()
    }

    /// Takes in the next entry of the history.
    pub(super) fn enter(&mut self, entry: &Entry) {
        self.store(entry);
        if let Some(life) = entry.life {
            self.instance(life, entry);
        }
        match entry.what {
            EventKind::Calm => self.calm = Some(entry.at),
            EventKind::Stirred => self.calm = None,
            _ => {}
        }
    }

    fn store(&mut self, entry: &Entry) {
        match &entry.what {
            EventKind::Opened { session, ttl } => {
                let opened = self.sessions.entry(*session).or_insert_with(Session::new);
                (opened.ttl, opened.beaten) = (*ttl, entry.at);
            }
            EventKind::Beaten { session } => {
                self.sessions.entry(*session).or_insert_with(Session::new).beaten = entry.at;
            }
            EventKind::Died { session, .. } => {
                self.sessions.entry(*session).or_insert_with(Session::new).died = Some(entry.at);
            }
            EventKind::SessionDeleted { session } => {
                self.sessions.entry(*session).or_insert_with(Session::new).over = true;
            }
            EventKind::Granted { key, term, session, ticket, tag } => {
                self.count_grant(*key);
                self.end_grant(*key);
                let (session, ticket, tag) = (*session, *ticket, tag.clone());
                let grant = Grant { session, ticket, tag, void: false, over: false, given_back: false };
                self.grants.insert((*key, *term), grant);
                self.current.insert(*key, *term);
            }
            EventKind::Freed { key, .. } => self.end_grant(*key),
            EventKind::GivenBack { key, term } => {
                if let Some(grant) = self.grants.get_mut(&(*key, *term)) {
                    grant.given_back = true;
                }
            }
            EventKind::LockDeleted { key } | EventKind::Forced { key } => {
                self.end_grant(*key);
                for (_, grant) in self.grants.range_mut((*key, Term::new(0))..(*key + 1, Term::new(0))) {
                    grant.void = true;
                }
            }
            _ => {}
        }
    }

    fn count_grant(&mut self, key: usize) {
        self.counts.grants += 1;
        let before = self.current(key).and_then(|term| self.grant(key, term));
        let Some(before) = before.filter(|before| !before.over && !before.void) else { return };
        if self.session(before.session).is_some_and(|session| session.died.is_some()) {
            self.counts.takeovers += 1;
        } else {
            self.counts.hand_overs += 1;
        }
    }

    fn end_grant(&mut self, key: usize) {
        if let Some(term) = self.current(key)
            && let Some(grant) = self.grants.get_mut(&(key, term))
        {
            grant.over = true;
        }
    }

    fn instance(&mut self, life: Life, entry: &Entry) {
        match &entry.what {
            EventKind::Opens { session } => {
                self.sessions.entry(*session).or_insert_with(Session::new).life = Some(life);
            }
            EventKind::Confirmed { session, sent } => {
                let Durations { ttl, margin, .. } = self.member(life).durations;
                let session = self.sessions.entry(*session).or_insert_with(Session::new);
                let end = *sent + ttl.saturating_sub(margin);
                // A session that has run out stays so.
                if session.end.is_none_or(|before| entry.local < before) {
                    session.end = Some(session.end.map_or(end, |before| before.max(end)));
                }
            }
            EventKind::Noticed { key, term, .. } => {
                self.noticed.entry((life, *key, *term)).or_insert(entry.local);
            }
            EventKind::Began { key, term, sort, .. } => {
                let lease = self.leases.entry((life, *key, *term));
                lease
                    .or_insert(Lease { sort: *sort, began: entry.local, cancelled: None, running: 0 })
                    .running += 1;
            }
            EventKind::Ended { key, term } => {
                if let Some(lease) = self.leases.get_mut(&(life, *key, *term)) {
                    lease.running = lease.running.saturating_sub(1);
                }
            }
            EventKind::Cancelled { key, term } => {
                if let Some(lease) = self.leases.get_mut(&(life, *key, *term)) {
                    lease.cancelled.get_or_insert(entry.local);
                }
            }
            EventKind::Reported(Reported::Lost { .. }) => self.counts.losses += 1,
            EventKind::Reported(Reported::SessionLost { session, why }) => {
                let session = self.sessions.entry(*session).or_insert_with(Session::new);
                (session.over, session.closed) = (true, *why == "closed");
            }
            EventKind::Froze => self.members[life.member].frozen = true,
            EventKind::Closes => {
                self.closing.insert(life);
            }
            EventKind::Thawed | EventKind::Fed | EventKind::Started => {
                let member = &mut self.members[life.member];
                (member.frozen, member.undisturbed_since) = (false, entry.at);
            }
            EventKind::Crashed => {
                for (_, lease) in self.leases.range_mut(all_of(life)) {
                    lease.running = 0;
                }
            }
            _ => {}
        }
    }
}

fn all_of(life: Life) -> Range<(Life, usize, Term)> {
    let next = Life { number: life.number + 1, ..life };
    (life, 0, Term::new(0))..(next, 0, Term::new(0))
}

impl Session {
    const fn new() -> Self {
        Self {
            life: None,
            ttl: Duration::ZERO,
            beaten: Duration::ZERO,
            end: None,
            died: None,
            over: false,
            closed: false,
        }
    }
}
