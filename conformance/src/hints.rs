//! Hints: what changes, as it changes. They decide nothing, but they come.

use std::{collections::BTreeSet, time::Duration};

use futures::{StreamExt, stream::BoxStream};
use tokio::sync::watch;

use crate::{
    fixture::{Fixture, LIMIT, holder, name, sure, value, why},
    runs::{claim, claimed, run},
    schedules::{define, defined, instructed, order, pause},
};
use tenure::{
    model::{Kind, LockId, Outcome, ScheduleId, SessionId, SpreadName, StoreTime},
    store::{
        BeatWrite, FinishRun, Hint, Instruction, LockRecord, News, Open, ReleaseTo, Request, Revocation,
        Share, StoreExt, Topic, Wait,
    },
};

/// The spread whose tasks are granted to see whether the stream is alive.
const KNOCKS: &str = "knocks";

/// A listener that has seen that the stream is alive.
///
/// News that it has received before is ignored: hints may be doubled.
struct Listener {
    hints: BoxStream<'static, Hint>,
    topics: watch::Sender<BTreeSet<Topic>>,
    heard: Vec<News>,
}

impl Listener {
    async fn new(fixture: &Fixture, topics: impl IntoIterator<Item = Topic>) -> Self {
        let (sender, listens) = watch::channel(BTreeSet::new());
        let mut hints = fixture.store().hints(listens);
        let first = tokio::time::timeout(LIMIT, hints.next()).await;
        let first = first.expect("a listener must get a resync without waiting for a change");
        assert_eq!(first, Some(Hint::Resync), "the first hint must say that some may have been lost");
        let mut listener = Self { hints, topics: sender, heard: Vec::new() };
        for topic in topics.into_iter().chain([fixture.topic(KNOCKS)]) {
            listener.add(topic).await;
        }
        listener.knock(fixture).await;
        listener
    }

    /// Listens to one more topic. It is heard from its resync on, and the others may be before or after.
    async fn add(&mut self, topic: Topic) {
        let is_new = self.topics.send_if_modified(|topics| topics.insert(topic.clone()));
        let resync = async { while is_new && self.hints.next().await != Some(Hint::Resync) {} };
        let resync = tokio::time::timeout(LIMIT, resync).await;
        resync.unwrap_or_else(|_| panic!("a topic that was added must be followed by a resync: {topic}"));
    }

    /// Waits until the stream is alive, which may begin some time after its first hint.
    async fn knock(&mut self, fixture: &Fixture) {
        for knock in 0..30 {
            let task = fixture.task(KNOCKS, &format!("knock {knock} of {}", fixture.session()));
            fixture.held(&task, fixture.session(), 1).await;
            // Or an earlier knock, which took longer.
            let knocks = |lock: &LockId| lock.kind == task.kind && lock.namespace == task.namespace;
            let is_heard = |news: &News| matches!(news, News::Lock(lock) if knocks(lock));
            if self.next(Duration::from_secs(1), is_heard).await.is_some() {
                return;
            }
        }
        panic!("a store that gives hints must give one when a task is granted");
    }

    /// The next news of something.
    async fn next(&mut self, time: Duration, about: impl Fn(&News) -> bool) -> Option<News> {
        let find = async {
            loop {
                let hint = self.hints.next().await.expect("hints go on for as long as the stream is kept");
                match hint {
                    Hint::News(news) if about(&news) => return news,
                    _ => {}
                }
            }
        };
        tokio::time::timeout(time, find).await.ok()
    }

    /// Waits for this news. What was heard before may come again, and nothing else of what it is about.
    async fn hears(&mut self, expected: News, about: impl Fn(&News) -> bool) {
        loop {
            let Some(news) = self.next(LIMIT, &about).await else {
                panic!("no hint came, where this one was due: {expected:?}");
            };
            let is_due = expected == news;
            assert!(is_due || self.heard.contains(&news), "heard {news:?}, where {expected:?} was due");
            self.heard.push(news);
            if is_due {
                return;
            }
        }
    }

    /// Waits until it hears that a lock changed, and forgets that it did: each change is told.
    async fn hears_of_lock(&mut self, lock: &LockId) {
        let about = |news: &News| matches!(news, News::Lock(about) | News::Revoked(about) if about == lock);
        self.hears(News::Lock(lock.clone()), about).await;
    }

    async fn hears_of(&mut self, session: SessionId) {
        let about = |news: &News| matches!(news, News::Member(about) if *about == session);
        self.hears(News::Member(session), about).await;
    }

    async fn hears_that_asked(&mut self, session: SessionId) {
        self.hears(News::Asked(session), |news| *news == News::Asked(session)).await;
    }
}

fn of_schedules(fixture: &Fixture) -> Topic {
    Topic::Spread(
        fixture.namespace().clone(),
        Kind::Schedule.spread().expect("schedules are tasks of a spread"),
    )
}

fn request(record: &LockRecord) -> Request {
    Request { lock: record.id.clone(), term: record.term, by: holder("admin"), why: why("it hangs") }
}

/// The schedules that hints tell of, up to the one that is defined now.
async fn hinted(listener: &mut Listener, fixture: &Fixture) -> Vec<ScheduleId> {
    let last = fixture.schedule(&format!("last {}", fixture.session()));
    defined(fixture, define(&last, 1, "hourly", "late: run")).await;
    let mut hints = Vec::new();
    loop {
        let ours = |news: &News| matches!(news, News::Schedule(schedule) if schedule.namespace == *fixture.namespace());
        match listener.next(LIMIT, ours).await {
            Some(News::Schedule(schedule)) if schedule == last => return hints,
            Some(News::Schedule(schedule)) => hints.push(schedule),
            other => panic!("a schedule that was defined must be notified, not {other:?}"),
        }
    }
}

/// A new listener looks for itself first: anything may have happened before.
pub async fn a_listener_is_told_to_resync_first(fixture: &Fixture) {
    Listener::new(fixture, []).await;
}

/// A topic that is added is heard from then on; what happened before is looked for.
pub async fn a_topic_that_is_added_is_heard(fixture: &Fixture) {
    let mut listener = Listener::new(fixture, []).await;
    listener.add(fixture.topic("added")).await;
    let record = fixture.held(&fixture.task("added", "orders"), fixture.session(), 1).await;
    listener.hears_of_lock(&record.id).await;
}

/// Taken, taken for a later ticket, handed over, closed by a delay, taken over, released, taken away, opened.
pub async fn every_change_of_a_task_is_hinted(fixture: &Fixture) {
    let mut listener = Listener::new(fixture, [fixture.topic("$spread")]).await;
    let lock = fixture.task("$spread", "a.b 👑");
    let session = fixture.opened().await.id;
    fixture.held(&lock, session, 4).await;
    listener.hears_of_lock(&lock).await;
    let record = fixture.held(&lock, session, 5).await;
    listener.hears_of_lock(&lock).await;
    let next = fixture.talkative(session, 9);
    fixture.release(&lock, session, record.term, ReleaseTo::HandTo(Box::new(next))).await;
    listener.hears_of_lock(&lock).await;
    fixture.declare_dead(session).await;
    let taker = fixture.talkative(fixture.session(), 1);
    // The one that died asked for a short lock-delay: closed for a moment, then granted.
    fixture.take_over(&lock, &taker, &[session]).await;
    listener.hears_of_lock(&lock).await;
    let record = crate::fixture::eventually("the lock opens again", async || {
        fixture.take(&lock, &taker).await.taken().cloned()
    })
    .await;
    listener.hears_of_lock(&lock).await;
    fixture.freed(&record).await;
    listener.hears_of_lock(&lock).await;
    let successor = with!(fixture.candidate(fixture.opened().await.id, 1); lock_delay: Duration::ZERO);
    let record = fixture.taken(&lock, &successor).await;
    listener.hears_of_lock(&lock).await;
    fixture.release(&lock, successor.session, record.term, ReleaseTo::ClosedFor(LIMIT)).await;
    listener.hears_of_lock(&lock).await;
    sure(fixture.store().revoke(Revocation::Reopen(request(&record)), LIMIT)).await;
    listener.hears_of_lock(&lock).await;
    let record = fixture.held(&lock, fixture.session(), 1).await;
    listener.hears_of_lock(&lock).await;
    sure(fixture.store().revoke(Revocation::Force(request(&record)), LIMIT)).await;
    listener.hears(News::Revoked(lock.clone()), |news| *news == News::Revoked(lock.clone())).await;
}

/// A session that is handed a lock looks at once, and so does a waiter of one that becomes free.
pub async fn a_waiter_gets_a_hint_of_a_release(fixture: &Fixture) {
    let waiting = fixture.opened().await.id;
    let mut listener = Listener::new(fixture, [Topic::Session(waiting)]).await;
    let next = fixture.candidate(waiting, 1);
    let (handed, free) = (fixture.lock("handed over"), fixture.lock("free"));
    let wait = Wait { lock: free.clone(), by: next.clone() };
    for (lock, then) in [(&handed, ReleaseTo::HandTo(Box::new(next))), (&free, ReleaseTo::Free)] {
        let session = fixture.session();
        let record = fixture.held(lock, session, 1).await;
        // Told is also one that came just before the release.
        sure(fixture.store().wait(vec![wait.clone()], LIMIT)).await;
        fixture.release(lock, session, record.term, then).await;
    }
    let news = News::Handed(handed);
    listener.hears(news.clone(), |heard| *heard == news).await;
    listener.hears_of_lock(&free).await;
}

/// The hint makes the holder hand over, and not just release.
pub async fn a_hint_names_a_task_that_gets_a_waiter(fixture: &Fixture) {
    let mut listener = Listener::new(fixture, [fixture.topic("import")]).await;
    let lock = fixture.task("import", "report");
    fixture.held(&lock, fixture.session(), 1).await;
    let wait = Wait { lock: lock.clone(), by: fixture.talkative(fixture.session(), 1) };
    sure(fixture.store().wait(vec![wait], LIMIT)).await;
    let queue = News::Queue(lock);
    listener.hears(queue.clone(), |news| *news == queue).await;
}

/// The value of a schedule's lock is notified, since all plan by it.
pub async fn the_value_of_a_schedule_is_hinted(fixture: &Fixture) {
    let mut listener = Listener::new(fixture, [of_schedules(fixture)]).await;
    let session = fixture.session();
    let schedule = fixture.lock_of(Kind::Schedule, "report");
    let held = fixture.held(&schedule, session, 1).await;
    listener.hears_of_lock(&schedule).await;
    listener.heard.clear();
    fixture.set(&schedule, session, held.term, Some(value(b"busy"))).await;
    listener.hears_of_lock(&schedule).await;
}

/// Opened, other shares, left, dead.
pub async fn news_of_a_member_are_hinted(fixture: &Fixture) {
    let spreads = ["import", "export"];
    let mut listener = Listener::new(fixture, spreads.map(|of| fixture.topic(of))).await;
    let [import, export] = spreads.map(|spread| name(SpreadName::new(spread)));
    let opening = Open { shares: vec![Share::new(import.clone())], ..fixture.opening() };
    let session = sure(fixture.store().open(opening, LIMIT)).await.record().expect("it was opened").id;
    listener.hears_of(session).await;

    let share = with!(Share::new(export.clone()); digest: 7);
    let beat = BeatWrite { shares: Some(vec![share]), left: vec![import], ..fixture.beat(session, 1) };
    fixture.send(&beat).await;
    listener.hears_of(session).await;

    let beat = BeatWrite { shares: Some(Vec::new()), left: vec![export.clone()], ..fixture.beat(session, 2) };
    fixture.send(&beat).await;
    listener.hears_of(session).await;

    let beat = BeatWrite { shares: Some(vec![Share::new(export)]), ..fixture.beat(session, 3) };
    fixture.send(&beat).await;
    listener.hears_of(session).await;
    fixture.declare_dead(session).await;
    listener.hears_of(session).await;
}

/// With the hint a request or an order does not wait for the next beat.
pub async fn a_holder_that_is_asked_for_a_lock_gets_a_hint(fixture: &Fixture) {
    let session = fixture.opened().await.id;
    let mut listener = Listener::new(fixture, [Topic::Session(session), fixture.topic("import")]).await;
    for lock in [fixture.lock("report"), fixture.task("import", "orders")] {
        let held = fixture.held(&lock, session, 1).await;
        sure(fixture.store().revoke(Revocation::Ask { session, request: request(&held) }, LIMIT)).await;
        listener.hears_that_asked(session).await;
    }
    for tell in [Topic::Session(session), fixture.topic("import")] {
        let order = Some((holder("admin"), why("it is repaired")));
        sure(fixture.store().revoke(Revocation::Drain { session, order, tell }, LIMIT)).await;
        listener.hears_that_asked(session).await;
    }
}

/// A fleet beats all the time, and no listener is to be woken by it.
pub async fn a_beat_gives_no_hint(fixture: &Fixture) {
    let import = name(SpreadName::new("import"));
    let mut listener = Listener::new(fixture, [fixture.topic("import")]).await;
    let opening = Open { shares: vec![Share::new(import.clone())], ..fixture.opening() };
    let session = sure(fixture.store().open(opening, LIMIT)).await.record().expect("it was opened").id;
    listener.hears_of(session).await;
    for number in 1..=5 {
        fixture.send(&fixture.beat(session, number)).await;
    }
    let task = fixture.task("import", "last");
    fixture.held(&task, fixture.session(), 1).await;
    // The next news is the grant: the beats gave no hint. That of the opening may come twice.
    let any = |news: &News| match news {
        News::Lock(lock) | News::Handed(lock) | News::Queue(lock) | News::Revoked(lock) => *lock == task,
        News::Asked(of) => *of == session,
        _ => false,
    };
    listener.hears(News::Lock(task.clone()), any).await;
}

/// Defined, defined anew, held back, let go on, wanted, run.
pub async fn instructions_to_a_schedule_give_a_hint(fixture: &Fixture) {
    let mut listener = Listener::new(fixture, [of_schedules(fixture)]).await;
    let schedule = fixture.schedule("$nightly.report 👑");
    for (timing, policies) in [("first", "late: run"), ("second", "late: run"), ("second", "$other")] {
        defined(fixture, define(&schedule, 7, timing, policies)).await;
        assert!(hinted(&mut listener, fixture).await.contains(&schedule), "it was defined");
    }
    let at = StoreTime::from_millis(5);
    for instruction in [
        pause(),
        Instruction::Resume,
        Instruction::Run(order(5)),
        Instruction::Run(order(4)),
        Instruction::Run(order(6)),
        Instruction::Ran { at },
        Instruction::Ran { at: StoreTime::from_millis(6) },
        Instruction::Ran { at: StoreTime::from_millis(4) },
    ] {
        instructed(fixture, &schedule, instruction.clone()).await;
        assert!(hinted(&mut listener, fixture).await.contains(&schedule), "{instruction:?}");
    }
    let other = fixture.schedule("other");
    instructed(fixture, &other, pause()).await;
    assert!(hinted(&mut listener, fixture).await.contains(&other), "nobody has defined it");
}

/// A listener is not to be woken by old news, nor by the runs of a schedule. Only an instruction that is repeated may
/// be hinted again.
pub async fn a_run_gives_no_hint(fixture: &Fixture) {
    let mut listener = Listener::new(fixture, [of_schedules(fixture)]).await;
    let schedule = fixture.schedule("nightly");
    defined(fixture, define(&schedule, 7, "first", "late: run")).await;
    instructed(fixture, &schedule, Instruction::Run(order(5))).await;
    hinted(&mut listener, fixture).await;

    defined(fixture, define(&schedule, 8, "first", "late: run")).await;
    defined(fixture, define(&schedule, 6, "second", "late: run")).await;
    let ran = Instruction::Ran { at: StoreTime::from_millis(6) };
    let repeated = [Instruction::Run(order(5)), ran];
    let most = repeated.len();
    for instruction in [Instruction::Resume].into_iter().chain(repeated) {
        instructed(fixture, &schedule, instruction).await;
    }
    let claim = claim(&run(&schedule, 1000), fixture.session(), 1);
    claimed(fixture, &claim).await;
    let outcome = Outcome::Succeeded;
    let (run, session, term) = (claim.run, claim.session, claim.term);
    let finish = FinishRun { run, session, term, attempt: 1, outcome, error: None, last: true };
    sure(fixture.store().finish(finish, LIMIT)).await;
    let hints = hinted(&mut listener, fixture).await;
    let is_said = hints.iter().all(|hinted| *hinted == schedule);
    assert!(is_said && hints.len() <= most, "nothing was changed, and a run makes no hint: {hints:?}");
}

/// However many listen, and whichever of them has gone.
pub async fn every_listener_hears_the_same(fixture: &Fixture) {
    let listener = async || Listener::new(fixture, [fixture.topic("import")]).await;
    let mut listeners = [listener().await, listener().await];
    drop(listener().await);
    let record = fixture.held(&fixture.task("import", "report"), fixture.session(), 1).await;
    for listener in &mut listeners {
        listener.hears_of_lock(&record.id).await;
    }
}
