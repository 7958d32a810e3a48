//! The JSON of everything that shows how things stand: commands, pages and scripts rely on it.

use std::{collections::BTreeMap, time::Duration};

use expect_test::{Expect, expect};
use serde::Serialize;

use crate::{
    elect::{
        Busy, CloseReport, Event, Health, HeldBy, LockedKeys, Resigned, Status, Trouble, Unlocked, Work,
    },
    model::{
        Entry, Finish, Kind, LockId, Loss, MAX_NUMBER, Outcome, Rules, RunId, RunRecord, ScheduleId,
        SessionId, Skipped, StoreTime, Term, Value, Why,
    },
    schedule::{Failure, NotRun, Overdue, ScheduleStatus},
    spread::{Explanation, HeldBack, Member, Phase, SpreadStatus, TaskState},
    store::{
        About, Beat, Candidate, Closed, Cursor, Death, Definition, Drained, Ended, FailureRow, Holding,
        LockRecord, Nonce, Note, Page, Past, Pause, PauseBefore, Refusal, Request, RunNow, RunPage,
        ScheduleRecord, SessionRecord, Share, Ticket,
    },
};

const SECOND: Duration = Duration::from_secs(1);

/// Prints each on a line, by its name.
fn json<T: Serialize>(values: impl IntoIterator<Item = T>) -> String {
    let lines = values.into_iter().map(|value| serde_json::to_string(&value).unwrap());
    lines.collect::<Vec<_>>().join("\n")
}

fn check<T: Serialize>(values: impl IntoIterator<Item = T>, expected: &Expect) {
    expected.assert_eq(&json(values));
}

fn at(seconds: i64) -> StoreTime {
    StoreTime::from_millis(1_795_230_000_000 + seconds * 1000)
}

fn session() -> SessionId {
    SessionId::from_u128(0xab)
}

fn why(text: &str) -> Why {
    Why::new(text).unwrap()
}

fn lock(kind: Kind) -> LockId {
    LockId { namespace: "shop".parse().unwrap(), kind, key: "nightly report".parse().unwrap() }
}

fn task() -> LockId {
    lock(Kind::Task("topics".parse().unwrap()))
}

fn schedule() -> ScheduleId {
    ScheduleId { namespace: "shop".parse().unwrap(), name: "cleanup".parse().unwrap() }
}

fn refusal() -> Refusal {
    Refusal::Damaged { field: "term".to_owned(), problem: "is missing".to_owned() }
}

fn held_by() -> HeldBy {
    HeldBy {
        lock: lock(Kind::Lock),
        holder: "pod-1".parse().unwrap(),
        who: None,
        why: Some(why("the 3 o'clock report")),
        value: Some(Value::new("page 8").unwrap()),
        term: Term::new(1_795_230_000_000),
        since: at(0),
        session: session(),
        stale: false,
    }
}

fn losses() -> [Loss; 9] {
    let by = || "ops".parse().unwrap();
    [
        Loss::Expired { unreachable_for: SECOND * 25, not_running_for: Duration::ZERO },
        Loss::Revoked { by: by(), why: why("maintenance") },
        Loss::DeclaredDead { by: by(), why: why("no beat") },
        Loss::Vanished { found: "no record".to_owned() },
        Loss::Resigned,
        Loss::Moved,
        Loss::Closed,
        Loss::TimedOut { after: SECOND * 90 },
        Loss::Probe,
    ]
}

fn share() -> Share {
    Share::new("topics".parse().unwrap())
}

#[test]
fn a_lease_is_lost_for_a_reason_that_a_reader_can_match_on() {
    check(
        losses(),
        &expect![[r#"
        {"kind":"expired","unreachable_for_ms":25000,"not_running_for_ms":0}
        {"kind":"revoked","by":"ops","why":"maintenance"}
        {"kind":"declared_dead","by":"ops","why":"no beat"}
        {"kind":"vanished","found":"no record"}
        {"kind":"resigned"}
        {"kind":"moved"}
        {"kind":"closed"}
        {"kind":"timed_out","after_ms":90000}
        {"kind":"probe"}"#]],
    );
}

#[test]
fn health_has_its_status_and_its_troubles() {
    let trouble = Trouble {
        work: Work::Hints,
        since: SECOND * 90,
        failures: 7,
        lasting: true,
        error: "not authorized".to_owned(),
    };
    let health = |status, troubles, time| Health {
        status,
        session: Some(session()),
        remaining: Duration::from_millis(24_500),
        last_beat: Some(SECOND / 2),
        last_attempt: Some(SECOND / 4),
        held: 2,
        waiting: 1,
        hints: Some("bells"),
        store_time: time,
        troubles,
    };
    let whole = [
        health(Status::Healthy, Vec::new(), None),
        health(
            Status::Degraded { since: SECOND * 90, error: "not authorized".to_owned() },
            vec![trouble],
            Some((at(1), Duration::from_millis(3))),
        ),
    ];
    check(
        whole,
        &expect![[r#"
        {"status":{"kind":"healthy"},"session":"000000000000000000000000000000ab","remaining_ms":24500,"last_beat_ms":500,"last_attempt_ms":250,"held":2,"waiting":1,"hints":"bells","store_time":null,"troubles":[]}
        {"status":{"kind":"degraded","for_ms":90000,"error":"not authorized"},"session":"000000000000000000000000000000ab","remaining_ms":24500,"last_beat_ms":500,"last_attempt_ms":250,"held":2,"waiting":1,"hints":"bells","store_time":{"at":"2026-11-21T03:00:01Z","off_by_ms":3},"troubles":[{"work":"hints","for_ms":90000,"failures":7,"lasting":true,"error":"not authorized"}]}"#]],
    );
    check(
        [Status::Lost { error: Some("no route".to_owned()) }, Status::Closed],
        &expect![[r#"
        {"kind":"lost","error":"no route"}
        {"kind":"closed"}"#]],
    );
    check(
        Work::ALL,
        &expect![[r#"
        "beats"
        "takes"
        "releases"
        "reads"
        "records"
        "joining"
        "leaving"
        "queues"
        "watching"
        "declaring"
        "audit"
        "purge"
        "hints"
        "ringing"
        "spreads"
        "schedules"
        "defining"
        "ledger"
        "history"
        "tasks"
        "keeping"
        "jobs"
        "telling"
        "requested""#]],
    );
}

#[test]
fn every_event_says_what_it_is() {
    let term = Term::new(7);
    let events = [
        Event::SessionOpened { session: session() },
        Event::SessionLost { session: session(), loss: Loss::Probe },
        Event::SessionClosed { session: session() },
        Event::Acquired { lock: lock(Kind::Lock), term },
        Event::Lost { lock: lock(Kind::Lock), term, loss: losses()[0].clone() },
        Event::Released { lock: task(), term },
        Event::NewLeader { lock: lock(Kind::Lock), leader: Some(held_by()) },
        Event::NewLeader { lock: lock(Kind::Lock), leader: None },
        Event::Overran { lock: task(), term, by: SECOND },
        Event::Waiting { lock: task() },
        Event::Resting {
            lock: task(),
            term,
            since: at(0),
            tries: 2,
            error: "no disk".to_owned(),
            rest: SECOND * 12,
        },
        Event::Ran {
            lock: lock(Kind::Schedule),
            run: RunId::tick(schedule(), at(0)),
            attempt: 1,
            outcome: Outcome::TimedOut,
            last: true,
            lateness: SECOND / 10,
            took: SECOND * 60,
            error: None,
        },
        Event::NotRun {
            lock: lock(Kind::Schedule),
            from: at(0),
            to: at(60),
            count: 2,
            why: NotRun::Overlapped,
        },
        Event::Retimed { lock: lock(Kind::Schedule), timing: Rules::new("@daily UTC").unwrap() },
        Event::Overdue { lock: lock(Kind::Schedule), due: at(0), by: SECOND * 300 },
        Event::Panicked { lock: task(), term, message: "index out of bounds".to_owned() },
        Event::Missed { count: 10 },
    ];
    check(
        events,
        &expect![[r#"
        {"kind":"session_opened","session":"000000000000000000000000000000ab"}
        {"kind":"session_lost","session":"000000000000000000000000000000ab","loss":{"kind":"probe"}}
        {"kind":"session_closed","session":"000000000000000000000000000000ab"}
        {"kind":"acquired","lock":{"namespace":"shop","kind":"lock","key":"nightly report"},"term":7}
        {"kind":"lost","lock":{"namespace":"shop","kind":"lock","key":"nightly report"},"term":7,"loss":{"kind":"expired","unreachable_for_ms":25000,"not_running_for_ms":0}}
        {"kind":"released","lock":{"namespace":"shop","kind":"task:topics","key":"nightly report"},"term":7}
        {"kind":"new_leader","lock":{"namespace":"shop","kind":"lock","key":"nightly report"},"leader":{"lock":{"namespace":"shop","kind":"lock","key":"nightly report"},"holder":"pod-1","who":null,"why":"the 3 o'clock report","value":"page 8","term":1795230000000,"since":"2026-11-21T03:00:00Z","session":"000000000000000000000000000000ab","stale":false}}
        {"kind":"new_leader","lock":{"namespace":"shop","kind":"lock","key":"nightly report"},"leader":null}
        {"kind":"overran","lock":{"namespace":"shop","kind":"task:topics","key":"nightly report"},"term":7,"by_ms":1000}
        {"kind":"waiting","lock":{"namespace":"shop","kind":"task:topics","key":"nightly report"}}
        {"kind":"resting","lock":{"namespace":"shop","kind":"task:topics","key":"nightly report"},"term":7,"since":"2026-11-21T03:00:00Z","tries":2,"error":"no disk","rest_ms":12000}
        {"kind":"ran","lock":{"namespace":"shop","kind":"schedule","key":"nightly report"},"run":{"schedule":{"namespace":"shop","name":"cleanup"},"instant":"2026-11-21T03:00:00Z","entry":"tick"},"attempt":1,"outcome":"timed_out","last":true,"lateness_ms":100,"took_ms":60000,"error":null}
        {"kind":"not_run","lock":{"namespace":"shop","kind":"schedule","key":"nightly report"},"from":"2026-11-21T03:00:00Z","to":"2026-11-21T03:01:00Z","count":2,"why":"overlapped"}
        {"kind":"retimed","lock":{"namespace":"shop","kind":"schedule","key":"nightly report"},"timing":"@daily UTC"}
        {"kind":"overdue","lock":{"namespace":"shop","kind":"schedule","key":"nightly report"},"due":"2026-11-21T03:00:00Z","by_ms":300000}
        {"kind":"panicked","lock":{"namespace":"shop","kind":"task:topics","key":"nightly report"},"term":7,"message":"index out of bounds"}
        {"kind":"missed","count":10}"#]],
    );
}

#[test]
fn held_keys_busy_answers_and_outcomes_of_releases_are_serialized() {
    let hidden = HeldBy { value: Some(Value::new([0, 255]).unwrap()), ..held_by() };
    let keys = LockedKeys { held: vec![held_by(), hidden], refused: vec![("shop/x".to_owned(), refusal())] };
    check(
        [keys],
        &expect![[
            r#"{"held":[{"lock":{"namespace":"shop","kind":"lock","key":"nightly report"},"holder":"pod-1","who":null,"why":"the 3 o'clock report","value":"page 8","term":1795230000000,"since":"2026-11-21T03:00:00Z","session":"000000000000000000000000000000ab","stale":false},{"lock":{"namespace":"shop","kind":"lock","key":"nightly report"},"holder":"pod-1","who":null,"why":"the 3 o'clock report","value":{"hex":"00ff"},"term":1795230000000,"since":"2026-11-21T03:00:00Z","session":"000000000000000000000000000000ab","stale":false}],"refused":[{"record":"shop/x","refusal":{"kind":"damaged","field":"term","problem":"is missing"}}]}"#
        ]],
    );
    check(
        [Busy::Held(held_by()), Busy::Here, Busy::Closed { until: at(60) }],
        &expect![[r#"
        {"kind":"held","lock":{"namespace":"shop","kind":"lock","key":"nightly report"},"holder":"pod-1","who":null,"why":"the 3 o'clock report","value":"page 8","term":1795230000000,"since":"2026-11-21T03:00:00Z","session":"000000000000000000000000000000ab","stale":false}
        {"kind":"here"}
        {"kind":"closed","until":"2026-11-21T03:01:00Z"}"#]],
    );
    check(
        [CloseReport { overran: vec![task()], unconfirmed: Vec::new() }],
        &expect![[
            r#"{"overran":[{"namespace":"shop","kind":"task:topics","key":"nightly report"}],"unconfirmed":[]}"#
        ]],
    );
    check(
        [Unlocked::Released, Unlocked::NotHeld, Unlocked::Pending],
        &expect![[r#"
        "released"
        "not_held"
        "pending""#]],
    );
    check(
        [Resigned::Yes, Resigned::NotLeading, Resigned::NobodyWaits],
        &expect![[r#"
        "yes"
        "not_leading"
        "nobody_waits""#]],
    );
}

#[test]
fn a_spread_has_members_tasks_and_phases() {
    let holder = || "pod-1".parse().unwrap();
    let states = [
        TaskState::Running { holder: Some(holder()), session: session(), term: Term::new(7) },
        TaskState::Failing {
            holder: Some(holder()),
            session: session(),
            term: Term::new(7),
            times: 2,
            of: Some(5),
            error: "no disk".to_owned(),
        },
        TaskState::Resting {
            since: at(0),
            tries: 2,
            by: vec![holder()],
            error: "no disk".to_owned(),
            until: SECOND * 9,
        },
        TaskState::WaitingForRoom { since: SECOND * 3 },
        TaskState::Moving { from: None, to: Some(holder()) },
        TaskState::Done,
        TaskState::Unreadable,
        TaskState::Unknown,
    ];
    assert_eq!(states.each_ref().map(TaskState::word), TaskState::WORDS);
    check(
        &states,
        &expect![[r#"
        {"kind":"running","holder":"pod-1","session":"000000000000000000000000000000ab","term":7}
        {"kind":"failing","holder":"pod-1","session":"000000000000000000000000000000ab","term":7,"times":2,"of":5,"error":"no disk"}
        {"kind":"resting","since":"2026-11-21T03:00:00Z","tries":2,"by":["pod-1"],"error":"no disk","left_ms":9000}
        {"kind":"waiting_for_room","for_ms":3000}
        {"kind":"moving","from":null,"to":"pod-1"}
        {"kind":"done"}
        {"kind":"unreadable"}
        {"kind":"unknown"}"#]],
    );
    let phases = [
        Phase::Running,
        Phase::Idle,
        Phase::Failing { times: 1, of: 5, error: "no disk".to_owned() },
        Phase::Moving,
    ];
    check(
        &phases,
        &expect![[r#"
        {"kind":"running"}
        {"kind":"idle"}
        {"kind":"failing","times":1,"of":5,"error":"no disk"}
        {"kind":"moving"}"#]],
    );
    let key = |name: &str| name.parse().unwrap();
    let member = Member {
        session: session(),
        holder: holder(),
        host: "node-3".to_owned(),
        pid: 17,
        share: Share { cap: 20, digest: u64::MAX, ..share() },
        drained: None,
        tasks: 1,
        failing: false,
        target: Some(1),
    };
    let status = SpreadStatus {
        spread: "topics".parse().unwrap(),
        members: vec![member],
        tasks: [(key("orders"), states[0].clone()), (key("prices"), states[4].clone())].into(),
        here: BTreeMap::from([(key("orders"), Phase::Running)]),
        planned: true,
        held_back: Some(HeldBack { deaths: 2, remaining: SECOND * 30 }),
        gave_up: BTreeMap::new(),
    };
    check(
        [status],
        &expect![[
            r#"{"spread":"topics","members":[{"session":"000000000000000000000000000000ab","holder":"pod-1","host":"node-3","pid":17,"share":{"spread":"topics","cap":20,"weight":1,"draining":false,"paused":false,"reserved_ms":0,"digest":"ffffffffffffffff","known":null,"known_since":null},"drained":null,"tasks":1,"failing":false,"target":1}],"tasks":{"orders":{"kind":"running","holder":"pod-1","session":"000000000000000000000000000000ab","term":7},"prices":{"kind":"moving","from":null,"to":"pod-1"}},"here":{"orders":{"kind":"running"}},"planned":true,"held_back":{"deaths":2,"remaining_ms":30000}}"#
        ]],
    );
    let says = vec!["running on pod-1, under term 7".to_owned()];
    check(
        [Explanation { key: key("orders"), says }],
        &expect![[r#"{"key":"orders","sentences":["running on pod-1, under term 7"]}"#]],
    );
}

fn runs() -> [RunRecord; 2] {
    let run = |entry, finish, skipped| RunRecord {
        id: RunId { schedule: schedule(), instant: at(0), entry },
        session: session(),
        holder: "pod-1".parse().unwrap(),
        term: Term::new(7),
        attempt: 1,
        started: at(1),
        finish,
        skipped,
    };
    let finish = Finish { at: at(2), outcome: Outcome::Failed, error: Some(why("no disk")), last: true };
    let skipped = Skipped { from: at(-60), count: 2, why: why("paused") };
    [run(Entry::Tick, Some(finish), None), run(Entry::Skipped, None, Some(skipped))]
}

#[test]
fn a_schedule_has_its_record_its_runs_and_its_failures() {
    let by = || "ops".parse().unwrap();
    let record = ScheduleRecord {
        id: schedule(),
        definition: Some(Definition {
            timing: Rules::new("@daily UTC").unwrap(),
            policies: Rules::new("skip").unwrap(),
            since: at(0),
            term: Term::new(7),
        }),
        pause: Some(Pause { since: at(0), until: None, by: by(), why: why("maintenance") }),
        pauses_before: vec![PauseBefore { since: at(-20), until: at(-10) }],
        orders: vec![RunNow { at: at(5), by: by(), why: why("once more") }],
        mark: None,
    };
    let [last, _] = runs();
    check(
        [ScheduleStatus { record, last: Some(last), failures: 1 }],
        &expect![[
            r#"{"record":{"id":{"namespace":"shop","name":"cleanup"},"definition":{"timing":"@daily UTC","policies":"skip","since":"2026-11-21T03:00:00Z","term":7},"pause":{"since":"2026-11-21T03:00:00Z","until":null,"by":"ops","why":"maintenance"},"pauses_before":[{"since":"2026-11-21T02:59:40Z","until":"2026-11-21T02:59:50Z"}],"orders":[{"at":"2026-11-21T03:00:05Z","by":"ops","why":"once more"}],"mark":null},"last":{"id":{"schedule":{"namespace":"shop","name":"cleanup"},"instant":"2026-11-21T03:00:00Z","entry":"tick"},"session":"000000000000000000000000000000ab","holder":"pod-1","term":7,"attempt":1,"started":"2026-11-21T03:00:01Z","finish":{"at":"2026-11-21T03:00:02Z","outcome":"failed","error":"no disk","last":true},"skipped":null},"failures":1}"#
        ]],
    );
    let items = runs().into();
    let page = Page { items, refused: Vec::new(), next: Some(Cursor::new(vec![0, 255])) };
    check(
        [RunPage::new(page, Some(at(-3600)))],
        &expect![[
            r#"{"items":[{"id":{"schedule":{"namespace":"shop","name":"cleanup"},"instant":"2026-11-21T03:00:00Z","entry":"tick"},"session":"000000000000000000000000000000ab","holder":"pod-1","term":7,"attempt":1,"started":"2026-11-21T03:00:01Z","finish":{"at":"2026-11-21T03:00:02Z","outcome":"failed","error":"no disk","last":true},"skipped":null},{"id":{"schedule":{"namespace":"shop","name":"cleanup"},"instant":"2026-11-21T03:00:00Z","entry":"skipped"},"session":"000000000000000000000000000000ab","holder":"pod-1","term":7,"attempt":1,"started":"2026-11-21T03:00:01Z","finish":null,"skipped":{"from":"2026-11-21T02:59:00Z","count":2,"why":"paused"}}],"refused":[],"next":"00ff","mark":"2026-11-21T02:00:00Z"}"#
        ]],
    );
    check(
        [Overdue { schedule: schedule().name, due: at(0), by: SECOND * 300 }],
        &expect![[r#"{"schedule":"cleanup","due":"2026-11-21T03:00:00Z","by_ms":300000}"#]],
    );
    check(
        [Failure { outcome: Outcome::TimedOut, error: Some("no disk".to_owned()), attempts: 3 }],
        &expect![[r#"{"outcome":"timed_out","error":"no disk","attempts":3}"#]],
    );
    check(
        [Entry::Tick, Entry::Order, Entry::Skipped],
        &expect![[r#"
        "tick"
        "order"
        "skipped""#]],
    );
    check(
        Outcome::ALL,
        &expect![[r#"
        "succeeded"
        "failed"
        "cancelled"
        "timed_out"
        "displaced"
        "abandoned"
        "not_begun"
        "skipped""#]],
    );
    check(
        NotRun::ALL,
        &expect![[r#"
        "late"
        "overlapped"
        "paused"
        "retimed""#]],
    );
}

#[test]
fn a_lock_has_its_holder_and_those_before() {
    let by = Candidate {
        session: session(),
        ticket: Ticket::new(3),
        ttl: SECOND * 30,
        holder: "pod-1".parse().unwrap(),
        who: Some("billing".parse().unwrap()),
        why: None,
        value: None,
        lock_delay: Duration::ZERO,
    };
    let past = |how| Past {
        holder: "pod-2".parse().unwrap(),
        session: Some(session()),
        who: None,
        term: Term::new(6),
        from: at(-60),
        to: at(-1),
        how,
        note: Some(Note::Failing(FailureRow::begun(at(-30), &"pod-2".parse().unwrap(), "no disk"))),
    };
    let record = LockRecord {
        id: lock(Kind::Lock),
        term: Term::new(7),
        holding: Some(Holding { by, value_set: 0, acquired_at: at(0) }),
        closed: None,
        wanted: true,
        past: vec![past(Ended::HandedOver)],
    };
    let free = LockRecord {
        holding: None,
        closed: Some(Closed::for_length(at(0), SECOND * 60)),
        wanted: false,
        past: Vec::new(),
        ..record.clone()
    };
    let refused = vec![("shop/x".to_owned(), refusal())];
    check(
        [Page { items: vec![record, free], refused, next: None }],
        &expect![[
            r#"{"items":[{"id":{"namespace":"shop","kind":"lock","key":"nightly report"},"term":7,"holding":{"by":{"session":"000000000000000000000000000000ab","ticket":3,"ttl_ms":30000,"holder":"pod-1","who":"billing","why":null,"value":null,"lock_delay_ms":0},"value_set":0,"acquired_at":"2026-11-21T03:00:00Z"},"closed":null,"wanted":true,"past":[{"holder":"pod-2","session":"000000000000000000000000000000ab","who":null,"term":6,"from":"2026-11-21T02:59:00Z","to":"2026-11-21T02:59:59Z","how":"handed_over","note":{"kind":"failing","since":"2026-11-21T02:59:30Z","tries":1,"by":["pod-2"],"error":"no disk"}}]},{"id":{"namespace":"shop","kind":"lock","key":"nightly report"},"term":7,"holding":null,"closed":{"until":"2026-11-21T03:01:00Z","length_ms":60000},"wanted":false,"past":[]}],"refused":[{"record":"shop/x","refusal":{"kind":"damaged","field":"term","problem":"is missing"}}],"next":null}"#
        ]],
    );
    check(
        [Ended::Released, Ended::HandedOver, Ended::Died, Ended::Superseded, Ended::Forced],
        &expect![[r#"
            "released"
            "handed_over"
            "died"
            "superseded"
            "forced""#]],
    );
    check(
        [
            Refusal::Foreign,
            Refusal::Layout { found: "3".to_owned() },
            refusal(),
            Refusal::Full { what: "requests", most: 1000 },
        ],
        &expect![[r#"
            {"kind":"foreign"}
            {"kind":"layout","found":"3"}
            {"kind":"damaged","field":"term","problem":"is missing"}
            {"kind":"full","what":"requests","most":1000}"#]],
    );
}

#[test]
fn a_session_has_its_shares_and_requests() {
    let by = || "ops".parse().unwrap();
    let record = SessionRecord {
        id: session(),
        stalled_since: None,
        about: About {
            namespace: "shop".parse().unwrap(),
            holder: "pod-1".parse().unwrap(),
            host: "node-3".to_owned(),
            pid: 17,
            program: "shop 1.0".to_owned(),
            plan_version: 2,
        },
        started: at(0),
        beat: Beat::new(3),
        nonce: Nonce::new(MAX_NUMBER),
        beat_at: at(15),
        ttl: SECOND * 30,
        death: Some(Death { at: at(60), by: by(), why: why("no beat") }),
        shares: vec![share()],
        drained: Some(Drained { by: by(), since: at(9), why: why("repair") }),
        requests: vec![Request { lock: task(), term: Term::new(7), by: by(), why: why("maintenance") }],
    };
    check(
        [record],
        &expect![[
            r#"{"id":"000000000000000000000000000000ab","about":{"namespace":"shop","holder":"pod-1","host":"node-3","pid":17,"program":"shop 1.0","plan_version":2},"started":"2026-11-21T03:00:00Z","beat":3,"nonce":9007199254740991,"beat_at":"2026-11-21T03:00:15Z","stalled_since":null,"ttl_ms":30000,"death":{"at":"2026-11-21T03:01:00Z","by":"ops","why":"no beat"},"shares":[{"spread":"topics","cap":null,"weight":1,"draining":false,"paused":false,"reserved_ms":0,"digest":"0000000000000000","known":null,"known_since":null}],"drained":{"by":"ops","since":"2026-11-21T03:00:09Z","why":"repair"},"requests":[{"lock":{"namespace":"shop","kind":"task:topics","key":"nightly report"},"term":7,"by":"ops","why":"maintenance"}]}"#
        ]],
    );
}

#[test]
fn a_place_in_a_listing_is_read_again() {
    let place = Cursor::new((0..=255).collect());
    let digits: String = serde_json::from_str(&json([place.clone()])).unwrap();
    assert_eq!(Cursor::from_hex(digits), Some(place));
    assert_eq!(Cursor::from_hex(""), Some(Cursor::new(Vec::new())));
    for text in ["0", "0g", "0é", "+1", "zz"] {
        assert_eq!(Cursor::from_hex(text), None, "{text}");
    }
}
