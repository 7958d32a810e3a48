//! Each trouble of a fleet is told, with its cause and the command that mends or explains it. The fleet is made of
//! records alone, and its clock is turned by hand.

use std::{sync::Arc, time::Duration};

use tenure::{
    Clock,
    model::{Entry, Kind, Outcome, Rules, RunId, ScheduleId, SessionId, SpreadName, StoreTime, Term, Why},
    store::{
        About, Beat, BeatWrite, Candidate, Claim, Define, FOR_GOOD, FailureRow, FinishRun, Instruction,
        MemoryStore, Nonce, Note, Open, Release, ReleaseTo, Revocation, RunNow, ScheduleSeen, Share, Store,
        StoreExt, Take, TakeAnswer, Ticket, Topic, Wait,
    },
    testing::TestClock,
};
use tenure_look::{Grade, Group, Limits, Picture, Reader, Severity, Trouble, Verdict};
use tokio::time::advance;

use crate::looking::{LIMIT, NAMESPACE, World, lock};

const TTL: Duration = Duration::from_secs(5);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// A fleet of records.
struct Fleet {
    world: World,
    clock: Arc<TestClock>,
    /// Sessions that beat.
    alive: Vec<(SessionId, Vec<Share>)>,
    number: u64,
}

impl Fleet {
    fn new() -> Self {
        let clock = Arc::new(TestClock::new());
        let store = Arc::new(MemoryStore::new(clock.clone()));
        Self { world: World::on(store, ""), clock, alive: Vec::new(), number: 0 }
    }

    fn store(&self) -> &dyn Store {
        &*self.world.store
    }

    fn number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    /// An instance that beats, on a host of its own.
    async fn join(&mut self, holder: &str, share: Share) -> Candidate {
        self.join_with(holder, share, 1, TTL).await
    }

    async fn join_with(&mut self, holder: &str, share: Share, version: u32, ttl: Duration) -> Candidate {
        let mut about = About::new(NAMESPACE.parse().unwrap(), holder.parse().unwrap());
        about.host = format!("{holder}.local");
        // A large number at the end of a name is that of its process.
        let number = holder.rsplit('-').next().and_then(|number| number.parse().ok());
        about.pid = number.filter(|pid| *pid > 1000).unwrap_or_default();
        about.plan_version = version;
        let (session, nonce) = (SessionId::from_u128(self.number().into()), Nonce::new(self.number()));
        let open = Open { session, nonce, about, ttl, shares: vec![share.clone()], drained: None };
        self.store().open(open, LIMIT).await.unwrap();
        self.alive.push((session, vec![share]));
        Candidate::new(session, Ticket::new(1), ttl, holder.parse().unwrap())
    }

    /// Stops the beats of an instance.
    fn stop(&mut self, one: &Candidate) {
        self.alive.retain(|(session, _)| *session != one.session);
    }

    /// Lets time pass; who is alive beats at its end.
    async fn pass(&mut self, time: Duration) {
        advance(time).await;
        for (session, shares) in self.alive.clone() {
            let number = self.number();
            let mut beat = BeatWrite::new(session, Beat::new(number), Nonce::new(number));
            beat.shares = Some(shares);
            self.store().beat(beat, LIMIT).await.unwrap();
        }
    }

    async fn take(&self, kind: &Kind, key: &str, by: &Candidate, dead: &[SessionId]) -> Term {
        let take = Take { lock: lock(kind.clone(), key), by: by.clone() };
        match self.store().take(vec![take], dead.to_vec(), LIMIT).await.unwrap().remove(0) {
            TakeAnswer::Taken(record) => record.term,
            other => panic!("{key} is not taken: {other:?}"),
        }
    }

    async fn leave(
        &self,
        kind: &Kind,
        key: &str,
        by: &Candidate,
        term: Term,
        note: Option<Note>,
        then: ReleaseTo,
    ) {
        let lock = lock(kind.clone(), key);
        let release = Release { lock, session: by.session, term, note, then };
        self.store().release(vec![release], LIMIT).await.unwrap();
    }

    async fn schedule(&self, name: &str, timing: &str, by: &Candidate) -> Term {
        let term = self.take(&Kind::Schedule, name, by, &[]).await;
        let (timing, policies) = (Rules::new(timing).unwrap(), Rules::new("p").unwrap());
        let define = Define { schedule: id(name), term, timing, policies, instead_of: None };
        self.store().define(define, LIMIT).await.unwrap();
        term
    }

    async fn run(&self, name: &str, by: &Candidate, term: Term) -> RunId {
        let run = RunId { entry: Entry::Order, ..RunId::tick(id(name), self.clock.wall()) };
        let (session, holder) = (by.session, by.holder.clone());
        let claim =
            Claim { run: run.clone(), session, holder, term, attempt: 1, instead_of: None, skipped: None };
        self.store().claim(claim, LIMIT).await.unwrap();
        run
    }

    async fn fail(&self, name: &str, by: &Candidate, term: Term) {
        let (run, session, outcome) = (self.run(name, by, term).await, by.session, Outcome::Failed);
        let error = Some(Why::shortened("disk full"));
        let finish = FinishRun { run, session, term, attempt: 1, outcome, error, last: true };
        self.store().finish(finish, LIMIT).await.unwrap();
    }

    fn reader(&self) -> Reader {
        let reader = Reader::new(self.world.store.clone(), NAMESPACE.parse().unwrap());
        reader.clock(self.clock.clone())
    }

    async fn picture(&self) -> Picture {
        self.reader().picture().await.unwrap()
    }

    async fn verdict(&self) -> Verdict {
        self.picture().await.verdict().clone()
    }

    /// The trouble of that sort: its grade, its sentence, and its command.
    async fn told(&self, sort: &str) -> (Grade, String, String) {
        let verdict = self.verdict().await;
        let mut found = verdict.troubles.iter().filter(|one| one.sort == sort);
        let (Some(one), None) = (found.next(), found.next()) else { panic!("not one {sort}: {verdict:#?}") };
        (one.grade, one.says.clone(), one.command.clone())
    }

    /// The troubles of a schedule that is asked for by its name.
    async fn told_by_name(&self, name: &str) -> Vec<(&'static str, Grade)> {
        let reader = self.reader();
        let seen = reader.seen_schedules(&[id(name)]).await.unwrap().remove(0);
        let ScheduleSeen::Found(record) = seen else { panic!("there is no {name}") };
        let (views, now) = reader.schedules_of(vec![record]).await.unwrap();
        let troubles = Trouble::of_schedule(&views[0], &Limits::default(), TTL, now);
        troubles.iter().map(|one| (one.sort, one.grade)).collect()
    }

    async fn sorts(&self) -> Vec<&'static str> {
        self.verdict().await.troubles.iter().map(|one| one.sort).collect()
    }
}

fn id(name: &str) -> ScheduleId {
    ScheduleId { namespace: NAMESPACE.parse().unwrap(), name: name.parse().unwrap() }
}

fn topics() -> (SpreadName, Kind) {
    let topics: SpreadName = "topics".parse().unwrap();
    (topics.clone(), Kind::of_tasks(&topics))
}

fn share(cap: u32) -> Share {
    let mut share = Share::new(topics().0);
    share.cap = cap;
    share
}

/// A share that is changed.
fn with(mut share: Share, change: impl FnOnce(&mut Share)) -> Share {
    change(&mut share);
    share
}

/// The share of a member that knows so many tasks since then.
fn list(digest: u64, known: u32, since: StoreTime) -> Share {
    with(share(99), |share| {
        (share.digest, share.known, share.known_since) = (digest, Some(known), Some(since));
    })
}

fn given_up(since: StoreTime, by: &str, error: &str) -> Note {
    Note::Failing(FailureRow::begun(since, &by.parse().unwrap(), error))
}

fn told(grade: Grade, says: &str, command: &str) -> (Grade, String, String) {
    (grade, says.to_owned(), command.to_owned())
}

#[tokio::test(start_paused = true)]
async fn tasks_that_run_nowhere_are_told_with_the_reason_of_each_member() {
    let (mut fleet, tasks) = (Fleet::new(), topics().1);
    let (one, two) = (fleet.join("worker-1", share(2)).await, fleet.join("worker-2", share(2)).await);
    let mut drained = share(20);
    drained.draining = true;
    let three = fleet.join("worker-3", drained).await;
    let drain = async |fleet: &Fleet, order| {
        let (session, tell) = (three.session, Topic::Session(three.session));
        fleet.store().revoke(Revocation::Drain { session, order, tell }, LIMIT).await.unwrap();
    };
    drain(&fleet, Some(("anna".parse().unwrap(), Why::shortened("new kernel")))).await;
    for (key, by) in [("t1", &one), ("t2", &one), ("t3", &two), ("t4", &two)] {
        fleet.take(&tasks, key, by, &[]).await;
    }
    for key in ["t5", "t6", "t7"] {
        let term = fleet.take(&tasks, key, &three, &[]).await;
        fleet.leave(&tasks, key, &three, term, None, ReleaseTo::Free).await;
    }
    assert_eq!(fleet.told("nowhere").await.0, Grade::Passing, "a hand-over may be under way");
    fleet.pass(10 * SECOND).await;
    let says = "3 tasks of topics run nowhere: worker-3 drained by anna: new kernel (cap 20); worker-1, worker-2 full (2 of 2)";
    assert_eq!(fleet.told("nowhere").await, told(Grade::Warning, says, "tenure undrain worker-3"));
    let limits = Limits { spreads: [topics().0].into(), ..Limits::default() };
    assert_eq!(fleet.picture().await.verdict_by(&limits).worst(), Some(Grade::Critical));
    let says = "worker-3 was drained by anna: new kernel";
    assert_eq!(fleet.told("draining").await, told(Grade::Passing, says, "tenure undrain worker-3"));
    // Without a drained member, more room is what helps.
    drain(&fleet, None).await;
    let session = fleet.alive.pop().unwrap().0;
    fleet.alive.push((session, vec![share(0)]));
    fleet.pass(SECOND).await;
    let (_, says, command) = fleet.told("nowhere").await;
    assert!(says.ends_with("full (2 of 2); start another instance, or raise a cap"), "{says}");
    assert_eq!(command, "tenure spreads topics");
    fleet.take(&tasks, "t5", &three, &[]).await;
    fleet.take(&tasks, "t6", &three, &[]).await;
    fleet.take(&tasks, "t7", &three, &[]).await;
    assert_eq!(fleet.sorts().await, [""; 0], "it was mended");
    // What has never begun for want of room.
    for (at, cap) in [2, 2, 3].into_iter().enumerate() {
        fleet.alive[at].1[0].cap = cap;
        fleet.alive[at].1[0].known = Some(9);
    }
    fleet.pass(SECOND).await;
    let (grade, says, _) = fleet.told("nowhere").await;
    let wanted = "2 tasks of topics run nowhere, never yet: worker-1, worker-2 full (2 of 2); \
                  worker-3 full (3 of 3); start another instance, or raise a cap";
    assert_eq!((grade, says.as_str()), (Grade::Warning, wanted));
    assert_eq!(fleet.verdict().await.tasks, 9);
    let limits = Limits { spreads: ["mail".parse().unwrap()].into(), ..Limits::default() };
    let verdict = fleet.picture().await.verdict_by(&limits);
    assert_eq!((verdict.worst(), verdict.troubles[0].sort), (Some(Grade::Critical), "unknown_spread"));
}

#[tokio::test(start_paused = true)]
async fn tasks_that_were_taken_off_the_list_are_no_orphans_on_any_screen_also_while_a_deploy_goes_on() {
    let (mut fleet, tasks) = (Fleet::new(), topics().1);
    let begun = fleet.clock.wall();
    let old = fleet.join("old-1", list(1, 4, begun)).await;
    let mut terms = Vec::new();
    for key in ["a", "b", "c", "d"] {
        terms.push((key, fleet.take(&tasks, key, &old, &[]).await));
    }
    // The new list has two tasks less, and the old instance is drained.
    let new = fleet.join("new-1", list(2, 2, begun)).await;
    fleet.alive[0].1[0].draining = true;
    for (key, term) in terms {
        fleet.leave(&tasks, key, &old, term, None, ReleaseTo::Free).await;
        fleet.pass(SECOND).await;
    }
    let orphans = async |fleet: &Fleet| {
        let (picture, name) = (fleet.picture().await, topics().0);
        let spread = picture.spread(&name, 0, 9).unwrap();
        let told = picture.verdict().troubles.iter().find(|one| one.sort == "nowhere").map(|one| one.number);
        let named: Vec<_> = spread.orphans.iter().map(ToString::to_string).collect();
        assert_eq!(picture.spreads()[0].orphans, named.len(), "the numbers are those of the names");
        assert_eq!(told.unwrap_or(0), named.len(), "the verdict counts the same");
        (named, picture.verdict().tasks)
    };
    fleet.pass(MINUTE).await;
    assert_eq!(
        orphans(&fleet).await,
        (vec!["c".to_owned(), "d".to_owned()], 2),
        "the last that had a holder"
    );
    for key in ["c", "d"] {
        fleet.take(&tasks, key, &new, &[]).await;
    }
    assert_eq!(orphans(&fleet).await, (vec![], 2));
    fleet.pass(10 * MINUTE).await;
    assert_eq!(orphans(&fleet).await, (vec![], 2));
    // Tasks that are done for good stay on record, and hide none that lost its holder since.
    for key in ["e", "f"] {
        let term = fleet.take(&tasks, key, &new, &[]).await;
        fleet.leave(&tasks, key, &new, term, None, ReleaseTo::ClosedFor(FOR_GOOD)).await;
    }
    fleet.alive[1].1[0].known = Some(3);
    fleet.pass(SECOND).await;
    let term = fleet.take(&tasks, "g", &new, &[]).await;
    fleet.leave(&tasks, "g", &new, term, None, ReleaseTo::Free).await;
    assert_eq!(orphans(&fleet).await, (vec!["g".to_owned()], 3));
}

#[tokio::test(start_paused = true)]
async fn a_member_that_has_all_the_failures_is_blamed_and_tasks_that_rest_are_told_by_their_error() {
    let (mut fleet, tasks) = (Fleet::new(), topics().1);
    let (one, bad) = (fleet.join("host-1", share(9)).await, fleet.join("host-3", share(9)).await);
    let keys: Vec<_> = (0..12).map(|number| format!("t{number:02}")).collect();
    for key in &keys[..6] {
        fleet.take(&tasks, key, &one, &[]).await;
    }
    let since = fleet.clock.wall();
    for key in &keys[6..] {
        let term = fleet.take(&tasks, key, &bad, &[]).await;
        let note = given_up(since, "host-3", "consume cannot be started");
        let then = ReleaseTo::ClosedFor(10 * MINUTE);
        fleet.leave(&tasks, key, &bad, term, Some(note), then).await;
    }
    fleet.pass(10 * SECOND).await;
    let says = "host-3: all 6 failures of topics, the others none: consume cannot be started";
    assert_eq!(fleet.told("failing").await, told(Grade::Warning, says, "tenure drain host-3"));
    let says = "6 tasks of topics resting (t06, t07, t08, t09, t10, 1 more): consume cannot be started";
    assert_eq!(fleet.told("rests").await, told(Grade::Warning, says, "tenure spreads topics"));
    assert!(fleet.verdict().await.sums().starts_with("2 instances, 12 tasks, 0 schedules, last failure "));
    // Drained, it is blamed no more.
    let mut drained = share(9);
    drained.draining = true;
    fleet.alive[1].1 = vec![drained];
    fleet.pass(SECOND).await;
    assert_eq!(fleet.sorts().await, ["rests", "draining"]);
}

#[tokio::test(start_paused = true)]
async fn tasks_that_rest_with_errors_of_their_own_are_counted_and_their_spread_is_named_once() {
    let (mut fleet, tasks) = (Fleet::new(), topics().1);
    let (one, _) = (fleet.join("host-1", share(9)).await, fleet.join("host-2", share(9)).await);
    let since = fleet.clock.wall();
    for number in 1..=6 {
        let (key, died) = (format!("t{number}"), format!("its holders died: pid {number}"));
        let term = fleet.take(&tasks, &key, &one, &[]).await;
        let note = given_up(since, "host-1", &died);
        fleet.leave(&tasks, &key, &one, term, Some(note), ReleaseTo::ClosedFor(10 * MINUTE)).await;
    }
    fleet.pass(10 * SECOND).await;
    let told = fleet.told("rests").await;
    assert!(told.1.ends_with("pid 1; so with 5 more"), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_was_on_board_at_each_death_is_named() {
    let (mut fleet, tasks) = (Fleet::new(), topics().1);
    let stable = fleet.join("worker-1", share(9)).await;
    for key in ["t1", "t2", "t3"] {
        fleet.take(&tasks, key, &stable, &[]).await;
    }
    let mut dead = Vec::new();
    for (round, holder) in ["worker-2", "worker-3", "worker-2"].into_iter().enumerate() {
        let one = fleet.join(holder, share(9)).await;
        fleet.take(&tasks, "t7", &one, &dead).await;
        fleet.take(&tasks, &format!("other-{round}"), &one, &[]).await;
        fleet.pass(10 * SECOND).await;
        fleet.stop(&one);
        fleet.world.declare_dead(one.session, "no beat").await;
        dead = vec![one.session];
    }
    let says = "t7 of topics on board at each of the last 3 deaths (worker-2, worker-3), no other task was";
    assert_eq!(fleet.told("deaths").await, told(Grade::Warning, says, "tenure show --task=topics t7"));
    assert_eq!(fleet.told("nowhere").await.2, "tenure spreads --explain=other-0 topics");
    fleet.pass(11 * MINUTE).await;
    assert!(!fleet.sorts().await.contains(&"deaths"), "it has ceased");
}

#[tokio::test(start_paused = true)]
async fn members_that_do_not_fit_together_are_told_once_a_deploy_should_be_over() {
    let mut fleet = Fleet::new();
    for (holder, digest, version) in [("worker-1", 7, 2), ("worker-2", 8, 2), ("worker-3", 7, 1)] {
        let share = list(digest, 9, fleet.clock.wall());
        fleet.join_with(holder, share, version, TTL).await;
    }
    assert_eq!(fleet.told("tasks_differ").await.0, Grade::Passing);
    fleet.pass(2 * MINUTE).await;
    let says = "members of topics know different tasks (worker-1, worker-3 / worker-2): finish the deploy";
    assert_eq!(fleet.told("tasks_differ").await, told(Grade::Warning, says, "tenure spreads topics"));
    let says =
        "members of topics plan by different versions (worker-3 / worker-1, worker-2): finish the deploy";
    assert_eq!(fleet.told("versions_differ").await.1, says);
    // A member that drains is on its way out.
    fleet.alive[1].1[0].draining = true;
    fleet.pass(SECOND).await;
    assert!(!fleet.sorts().await.contains(&"tasks_differ"));
    fleet.alive[2].1[0].draining = true;
    fleet.pass(SECOND).await;
    assert!(!fleet.sorts().await.contains(&"versions_differ"));
}

#[tokio::test(start_paused = true)]
async fn a_list_that_changes_is_no_trouble_until_it_has_lasted_longer_than_a_pause() {
    let mut fleet = Fleet::new();
    let begun = fleet.clock.wall();
    let one = fleet.join("worker-1", list(7, 40, begun)).await;
    fleet.join("worker-2", list(7, 40, begun)).await;
    for key in 0..40 {
        fleet.take(&topics().1, &format!("t{key:02}"), &one, &[]).await;
    }
    // Members that started an hour ago learn another list, one after the other.
    fleet.pass(60 * MINUTE).await;
    fleet.alive[0].1 = vec![list(8, 43, fleet.clock.wall())];
    fleet.pass(10 * SECOND).await;
    assert_eq!(fleet.told("tasks_differ").await.0, Grade::Passing);
    let (grade, says, _) = fleet.told("nowhere").await;
    assert_eq!((grade, says.contains(", never yet: ")), (Grade::Passing, true), "{says}");
    fleet.pass(2 * MINUTE).await;
    assert_eq!(fleet.told("tasks_differ").await.0, Grade::Warning);
    assert_eq!(fleet.told("nowhere").await.0, Grade::Warning);
    // Another start with the old list makes the difference no younger.
    fleet.join("worker-3", list(7, 40, fleet.clock.wall())).await;
    assert_eq!(fleet.told("tasks_differ").await.0, Grade::Warning);
    // An earlier version does not say since when its list is as it is.
    fleet.alive[0].1[0].known_since = None;
    fleet.pass(SECOND).await;
    assert_eq!(fleet.told("tasks_differ").await.0, Grade::Passing);
}

#[tokio::test(start_paused = true)]
async fn one_task_that_fails_once_is_passing_and_several_are_a_warning() {
    let (mut fleet, tasks) = (Fleet::new(), topics().1);
    let (one, two) = (fleet.join("host-1", share(9)).await, fleet.join("host-2", share(9)).await);
    for key in 0..8 {
        fleet.take(&tasks, &format!("t{key}"), &one, &[]).await;
    }
    let fail = async |fleet: &Fleet, key: &str| {
        let term = fleet.take(&tasks, key, &one, &[]).await;
        let note = given_up(fleet.clock.wall(), "host-1", "no answer");
        fleet.leave(&tasks, key, &one, term, Some(note), ReleaseTo::Free).await;
        fleet.take(&tasks, key, &two, &[]).await;
    };
    fail(&fleet, "t8").await;
    fleet.pass(10 * SECOND).await;
    let says = "1 task of topics failing (t8): no answer";
    assert_eq!(fleet.told("fails").await, told(Grade::Passing, says, "tenure show --task=topics t8"));
    fail(&fleet, "t9").await;
    fleet.pass(10 * SECOND).await;
    assert_eq!(fleet.told("fails").await.0, Grade::Warning);
}

#[tokio::test(start_paused = true)]
async fn of_many_reasons_some_are_told() {
    let mut fleet = Fleet::new();
    for cap in 0..8 {
        fleet.join(&format!("worker-{cap}"), share(0)).await;
        fleet.alive[cap].1[0].draining = true;
        fleet.alive[cap].1[0].cap = u32::try_from(cap).unwrap();
    }
    fleet.alive[0].1[0].known = Some(1);
    fleet.pass(SECOND).await;
    let says = fleet.told("nowhere").await.1;
    assert!(says.ends_with("; worker-4 draining (cap 4); 3 more reasons"), "{says}");
}

#[tokio::test(start_paused = true)]
async fn schedules_are_told_that_fail_are_overdue_paused_or_lost_with_their_only_instance() {
    let mut fleet = Fleet::new();
    let schedules = || Share::new(Kind::Schedule.spread().unwrap());
    let (day, night) = (fleet.join("day-1", schedules()).await, fleet.join("night-1", schedules()).await);
    let yearly = "0 0 1 1 * in UTC";
    let failing = fleet.schedule("failing", yearly, &day).await;
    fleet.schedule("minutely", "* * * * * in UTC", &day).await;
    fleet.schedule("invoices", "* * * * * in UTC", &day).await;
    fleet.schedule("calm", yearly, &day).await;
    fleet.schedule("nobodys", yearly, &night).await;
    let reindex = fleet.schedule("reindex", yearly, &night).await;
    fleet.fail("failing", &day, failing).await;
    let (by, why) = ("anna".parse().unwrap(), Why::shortened("for the migration"));
    fleet.store().instruct(id("invoices"), Instruction::Pause { by, why }, LIMIT).await.unwrap();
    fleet.run("reindex", &night, reindex).await;
    fleet.stop(&night);
    fleet.pass(100 * SECOND).await;
    // Each look waits a second for a beat of the one that is silent.
    let says = "failing has failed once: disk full";
    assert_eq!(fleet.told("failures").await, told(Grade::Warning, says, "tenure history failing"));
    let says = "invoices was paused 102 s ago by anna: for the migration, 1 tick not run since";
    assert_eq!(fleet.told("paused").await, told(Grade::Warning, says, "tenure resume invoices"));
    let advice = "; start an instance that has it (tenure forget is for one that no code has any more)";
    let says = "reindex lost its run of 103 s ago with night-1, no other repeats it, and it is owned by night-1 (looks dead)";
    let says = format!("{says}{advice}");
    assert_eq!(fleet.told("lost_run").await, told(Grade::Warning, &says, "tenure history reindex"));
    let says = "nobodys is owned by night-1 (looks dead): its next tick will not be run";
    let says = format!("{says}{advice}");
    assert_eq!(fleet.told("nobody").await, told(Grade::Warning, &says, "tenure history nobodys"));
    fleet.pass(2 * MINUTE).await;
    assert_eq!(fleet.told("overdue").await.0, Grade::Warning);
    fleet.pass(9 * MINUTE).await;
    let (grade, says, _) = fleet.told("overdue").await;
    assert_eq!((grade, says.as_str()), (Grade::Critical, "minutely is overdue by 11 min, owned by day-1"));
    let order = RunNow { at: fleet.clock.wall(), by: "anna".parse().unwrap(), why: Why::shortened("now") };
    fleet.store().instruct(id("calm"), Instruction::Run(order), LIMIT).await.unwrap();
    fleet.pass(2 * MINUTE).await;
    assert_eq!(fleet.told("order").await.1, "calm was ordered to run by anna, and does not, owned by day-1");
    fleet.fail("failing", &day, failing).await;
    fleet.pass(SECOND).await;
    fleet.fail("failing", &day, failing).await;
    let says = "failing has failed 3 times in a row: disk full";
    assert_eq!(fleet.told("failures").await, told(Grade::Critical, says, "tenure history failing"));
}

#[tokio::test(start_paused = true)]
async fn a_schedule_between_two_owners_is_no_more_than_passing_for_who_asks_by_its_name() {
    let mut fleet = Fleet::new();
    let one = fleet.join("day-1", Share::new(Kind::Schedule.spread().unwrap())).await;
    let term = fleet.schedule("nightly", "0 0 1 1 * in UTC", &one).await;
    fleet.pass(5 * MINUTE).await;
    fleet.leave(&Kind::Schedule, "nightly", &one, term, None, ReleaseTo::Free).await;
    fleet.pass(10 * SECOND).await;
    assert_eq!(fleet.told_by_name("nightly").await, [("nobody", Grade::Passing)]);
    fleet.pass(MINUTE).await;
    assert_eq!(fleet.told_by_name("nightly").await, [("nobody", Grade::Passing)], "a minute and two ttls");
    fleet.pass(SECOND).await;
    assert_eq!(fleet.told_by_name("nightly").await, [("nobody", Grade::Warning)]);
}

#[tokio::test(start_paused = true)]
async fn how_long_a_silence_may_last_is_told_by_the_ttl_of_the_one_that_is_silent() {
    let mut fleet = Fleet::new();
    let schedules = || Share::new(Kind::Schedule.spread().unwrap());
    fleet.join_with("slow-1", schedules(), 1, 60 * MINUTE).await;
    let quick = fleet.join("quick-1", schedules()).await;
    fleet.schedule("nightly", "0 0 1 1 * in UTC", &quick).await;
    fleet.take(&Kind::Lock, "-x", &quick, &[]).await;
    let two = fleet.join("quick-2", schedules()).await;
    fleet.store().wait(vec![Wait { lock: lock(Kind::Lock, "-x"), by: two }], LIMIT).await.unwrap();
    fleet.stop(&quick);
    fleet.pass(60 * SECOND).await;
    assert_eq!(fleet.verdict().await.worst(), Some(Grade::Passing));
    fleet.pass(11 * SECOND).await;
    for sort in ["silent", "nobody", "queue"] {
        assert_eq!(fleet.told(sort).await.0, Grade::Warning, "{sort}");
    }
    assert_eq!(fleet.told("queue").await.2, "tenure show --lock -- -x");
}

#[tokio::test(start_paused = true)]
async fn schedules_that_fail_alike_are_one_trouble_and_the_worst_comes_first() {
    let mut fleet = Fleet::new();
    let one = fleet.join("day-1", Share::new(Kind::Schedule.spread().unwrap())).await;
    for number in 0..17 {
        let name = format!("job-{number:02}");
        let term = fleet.schedule(&name, "0 0 1 1 * in UTC", &one).await;
        fleet.fail(&name, &one, term).await;
    }
    let term = fleet.schedule("other", "0 0 1 1 * in UTC", &one).await;
    for _ in 0..3 {
        fleet.pass(SECOND).await;
        fleet.fail("other", &one, term).await;
    }
    let verdict = fleet.verdict().await;
    let told: Vec<_> =
        verdict.troubles.iter().map(|one| (one.grade, one.number, one.says.as_str())).collect();
    let names = "job-00, job-01, job-02, job-03, job-04, 12 more";
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].0, Grade::Critical);
    assert_eq!(told[0].1, 18);
    let says = format!("other has failed 3 times in a row: disk full; so with 17 more: {names}");
    assert_eq!(told[0].2, says);
    // One noisy schedule takes one line of the last hour.
    let picture = fleet.picture().await;
    let failures = picture.changes().iter().filter(|change| change.severity() == Severity::Failure);
    let groups = Group::all(failures);
    assert_eq!((groups.len(), groups[0].count), (18, 3));
    let (word, says) = groups[0].describe();
    assert!(word == "run" && says.contains("by day-1: disk full (3 times since 00:"), "{says}");
}

#[tokio::test(start_paused = true)]
async fn instances_that_look_dead_died_or_stand_still_are_told() {
    let mut fleet = Fleet::new();
    let (one, two) = (fleet.join("pod-1", share(9)).await, fleet.join("pod-2", share(9)).await);
    fleet.take(&topics().1, "t1", &two, &[]).await;
    fleet.stop(&two);
    fleet.pass(6 * SECOND).await;
    let says = "pod-2 looks dead, and has 1 key: its last beat is 7 s old, its ttl 5 s";
    assert_eq!(fleet.told("silent").await, told(Grade::Passing, says, "tenure instances"));
    let picture = fleet.reader().program("tenure --namespace=a").picture().await.unwrap();
    let all = &picture.verdict().troubles;
    assert!(all.iter().all(|one| one.command.starts_with("tenure --namespace=a ")), "{all:#?}");
    let command = picture.command(&["show", "--task=-a b"], "-c");
    assert_eq!(command, "tenure --namespace=a show '--task=-a b' -- -c", "as it is typed");
    fleet.pass(66 * SECOND).await;
    assert_eq!(fleet.told("silent").await.0, Grade::Warning);
    let (grade, says, _) = fleet.told("nowhere").await;
    let wanted = "1 task of topics runs nowhere: pod-2 looking dead; pod-1 with room";
    assert_eq!((grade, says.as_str()), (Grade::Warning, wanted));

    fleet.stop(&one);
    fleet.pass(6 * SECOND).await;
    let told_first = fleet.verdict().await.troubles.swap_remove(0);
    assert_eq!(
        (told_first.grade, told_first.sort),
        (Grade::Warning, "all_silent"),
        "the cause before its effects"
    );
    fleet.pass(65 * SECOND).await;
    let says =
        "none of 2 instances has beaten for 75 s: the store takes no writes, or all of them have stopped";
    assert_eq!(fleet.told("all_silent").await, told(Grade::Critical, says, "tenure doctor"));
    assert!(!fleet.sorts().await.contains(&"silent"), "one sentence tells of all");

    for (number, pid) in [9998, 10_002, 10_003].into_iter().enumerate() {
        let shortlived = fleet.join(&format!("pod-9-{pid}"), share(9)).await;
        fleet.stop(&shortlived);
        fleet.world.declare_dead(shortlived.session, "no beat").await;
        fleet.pass(SECOND).await;
        let sort = if number < 2 { "died" } else { "dies" };
        assert_eq!(fleet.told(sort).await.2, "tenure instances --all");
    }
    let says = "pod-9-10003 died 3 times, last 3 s ago, declared by ops: no beat";
    assert_eq!(fleet.told("dies").await, told(Grade::Warning, says, "tenure instances --all"));
    fleet.join("pod-9-10004", share(9)).await;
    fleet.pass(SECOND).await;
    assert_eq!(fleet.told("dies").await.0, Grade::Warning, "it may die once more");
    fleet.pass(80 * SECOND).await;
    assert_eq!(fleet.told("died").await.0, Grade::Passing, "it lives for longer than a pause");

    let mut beside = Vec::new();
    for pid in [2001, 2002, 2003] {
        beside.push(fleet.join(&format!("pod-8-{pid}"), share(9)).await);
    }
    for one in &beside {
        fleet.stop(one);
        fleet.world.declare_dead(one.session, "no beat").await;
    }
    assert!(!fleet.sorts().await.contains(&"dies"), "processes of one machine that die together are no loop");

    let stalled = fleet.join("pod-4", share(9)).await;
    let number = fleet.number();
    let mut beat = BeatWrite::new(stalled.session, Beat::new(number), Nonce::new(number));
    beat.stalled_since = Some(fleet.clock.wall().minus(3 * MINUTE));
    fleet.store().beat(beat, LIMIT).await.unwrap();
    assert_eq!(fleet.told("stalled").await.0, Grade::Warning);
}

#[tokio::test(start_paused = true)]
async fn a_queue_stands_still_behind_a_holder_that_looks_dead() {
    let mut fleet = Fleet::new();
    let (one, two) = (fleet.join("web-1", share(9)).await, fleet.join("web-2", share(9)).await);
    fleet.take(&Kind::Lock, "it's billing", &one, &[]).await;
    for ticket in 1..=5 {
        let mut by = two.clone();
        by.ticket = Ticket::new(ticket);
        let wait = Wait { lock: lock(Kind::Lock, "it's billing"), by };
        fleet.store().wait(vec![wait], LIMIT).await.unwrap();
    }
    fleet.pass(2 * MINUTE).await;
    let verdict = fleet.verdict().await;
    assert_eq!(verdict.troubles, [], "standbys wait");
    assert_eq!(verdict.sums(), "2 instances, 0 tasks, 0 schedules, 5 in line");
    fleet.stop(&one);
    fleet.pass(SECOND * 6).await;
    assert_eq!(fleet.told("queue").await.0, Grade::Passing, "it is about to be taken over");
    fleet.pass(SECOND * 66).await;
    let says = "it's billing: 5 in line behind web-1, which looks dead";
    let wanted = told(Grade::Warning, says, r"tenure show --lock 'it'\''s billing'");
    assert_eq!(fleet.told("queue").await, wanted);
    fleet.stop(&two);
    fleet.pass(SECOND * 6).await;
    assert_eq!(fleet.sorts().await, ["all_silent"], "nobody is left who waits");
}
