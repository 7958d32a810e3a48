//! Rows that somebody else wrote, wrote by hand, or damaged: each is refused by itself, and nothing else stops.

use std::time::Duration;

use rusqlite::{Connection, types::Value as Sql};
use tenure::{
    model::{Outcome, Retention, RunId, StoreTime, Term, Why},
    store::{
        Claim, ClaimAnswer, Define, Evidence, FinishRun, Instruction, LockSeen, Refusal, Release,
        ReleaseAnswer, ReleaseTo, Revocation, RevokeAnswer, RunNow, ScheduleSeen, SessionSeen, SetAnswer,
        SetValue, Store, StoreExt, Take, TakeAnswer, Wait,
    },
};
use tenure_conformance::{Fixture, LIMIT};

use crate::folder::{Folder, fixture};

fn says(refusal: &Refusal, expected: &str) {
    assert!(refusal.to_string().contains(expected), "{refusal} should tell of {expected}");
}

/// All that a table has, to see that nothing was written.
fn table(shell: &Connection, name: &str) -> Vec<Vec<Sql>> {
    let mut statement = shell.prepare(&format!("SELECT * FROM {name}")).unwrap();
    let columns = statement.column_count();
    let rows = statement.query_map([], |row| (0..columns).map(|column| row.get(column)).collect());
    rows.unwrap().collect::<Result<_, _>>().unwrap()
}

/// Changes that make a row one that nobody may write.
const NOT_OURS: [(&str, &str); 2] = [("v = NULL", "no layout version"), ("v = 99", "layout version 99")];

#[tokio::test]
async fn a_lock_that_cannot_be_read_is_refused_and_left_as_it_is() {
    let folder = Folder::new();
    let (store, shell) = (folder.open(), folder.shell());
    let damage = [
        ("term = -1", "`term` is -1"),
        ("term = NULL", "`term` is of the type Null"),
        ("session = 'nobody'", "`session` is not a session"),
        ("ticket = NULL", "`ticket` is of the type Null"),
        ("holder = ''", "`holder` breaks a limit"),
        ("value = zeroblob(20000)", "`value` breaks a limit"),
        ("acquired_at = NULL", "`acquired_at`"),
        ("closed_until = 5", "`closed_ms`"),
        ("past = 'what'", "`past` is not the list"),
        ("past = NULL", "`past` is of the type Null"),
    ];
    for (change, expected) in NOT_OURS.into_iter().chain(damage) {
        let fixture = fixture(&store);
        let session = fixture.opened().await.id;
        let held = fixture.held(&fixture.lock("report"), session, 1).await;
        let beside = fixture.lock("beside");
        let ns = fixture.namespace().as_str();
        assert_eq!(shell.execute(&format!("UPDATE locks SET {change} WHERE ns = ?1"), [ns]), Ok(1));
        let before = table(&shell, "locks");

        let by = fixture.candidate(fixture.session(), 1);
        let take = |lock: &tenure::model::LockId| Take { lock: lock.clone(), by: by.clone() };
        let answers = fixture.take_all(vec![take(&held.id), take(&beside)], &[session]).await;
        let [TakeAnswer::Refused(refusal), TakeAnswer::Taken(other)] = &answers[..] else {
            panic!("{change}: {answers:?}");
        };
        says(refusal, expected);
        fixture.release(&beside, by.session, other.term, ReleaseTo::Free).await;
        let LockSeen::Refused(refusal) = fixture.look(&held.id).await else { panic!("{change}") };
        says(&refusal, expected);
        let release =
            Release { lock: held.id.clone(), session, term: held.term, note: None, then: ReleaseTo::Free };
        let released = store.release(vec![release], LIMIT).await.unwrap();
        assert!(matches!(&released[..], [ReleaseAnswer::Refused(_)]), "{change}: {released:?}");
        let set = SetValue { lock: held.id.clone(), session, term: held.term, number: 1, value: None };
        let set = store.set_value(set, LIMIT).await.unwrap();
        assert!(matches!(set, SetAnswer::Refused(_)), "{change}: {set:?}");
        let request = tenure::store::Request {
            lock: held.id.clone(),
            term: held.term,
            by: "ops".parse().unwrap(),
            why: Why::shortened(""),
        };
        for revocation in [Revocation::Force(request.clone()), Revocation::Reopen(request)] {
            let revoked = store.revoke(revocation, LIMIT).await.unwrap();
            assert!(matches!(revoked, RevokeAnswer::Refused(_)), "{change}: {revoked:?}");
        }
        let wait = Wait { lock: held.id.clone(), by: by.clone() };
        store.wait(vec![wait], LIMIT).await.unwrap();
        assert_eq!(fixture_line(&fixture, &held.id).await, 1, "it may be waited for");
        let page = store.list_locks(fixture.namespace().clone(), None, None, 10, LIMIT).await.unwrap();
        assert_eq!((page.items.len(), page.refused.len()), (1, 1), "{change}");
        assert!(page.refused[0].0.contains("\"report\""), "{:?}", page.refused);
        let latest = store.latest_grants(vec![session, by.session], 10, LIMIT).await.unwrap();
        assert_eq!(latest, [], "{change}: what cannot be read is left out");
        let nothing = Retention { locks: Duration::ZERO, sessions: Duration::ZERO };
        fixture.declare_dead(session).await;
        store.purge(fixture.namespace().clone(), nothing, None, LIMIT).await.unwrap();

        shell.execute("DELETE FROM locks WHERE ns = ?1 AND key = 'beside'", [ns]).unwrap();
        assert_eq!(table(&shell, "locks"), before, "{change}");
        shell.execute("DELETE FROM locks", []).unwrap();
    }
}

async fn fixture_line(fixture: &Fixture, lock: &tenure::model::LockId) -> usize {
    fixture.store().waiters(lock.clone(), 10, LIMIT).await.unwrap().waiters.len()
}

#[tokio::test]
async fn a_session_that_cannot_be_read_counts_as_alive_and_is_left_as_it_is() {
    let folder = Folder::new();
    let (store, shell) = (folder.open(), folder.shell());
    let damage = [
        ("beat = 9007199254740992", "2^53 - 1"),
        ("pid = 4294967296", "more than 2^32 - 1"),
        ("host = NULL", "`host`"),
        ("died_at = 5", "`died_by`"),
        ("shares = '[{}]'", "`shares` is not the list"),
        ("requests = ''", "`requests` is not the list"),
    ];
    for (change, expected) in NOT_OURS.into_iter().chain(damage) {
        let fixture = fixture(&store);
        let session = fixture.opened().await.id;
        let id = session.to_string();
        assert_eq!(shell.execute(&format!("UPDATE sessions SET {change} WHERE id = ?1"), [&id]), Ok(1));
        let before = table(&shell, "sessions");
        let opening = tenure::store::Open { session, ..fixture.opening() };
        for seen in [
            fixture.seen(session).await,
            fixture.send(&fixture.beat(session, 5)).await,
            fixture.declare(session, Evidence::Operator).await,
            fixture.open(&opening).await,
        ] {
            let SessionSeen::Refused(refusal) = seen else { panic!("{change}: {seen:?}") };
            says(&refusal, expected);
        }
        let page = store.sessions(fixture.namespace().clone(), None, 10, LIMIT).await.unwrap();
        assert_eq!((page.items.len(), page.refused.len(), &page.refused[0].0), (0, 1, &id), "{change}");
        assert_eq!(table(&shell, "sessions"), before, "{change}");
    }
}

#[tokio::test]
async fn a_schedule_and_a_run_that_cannot_be_read_are_refused_and_left_as_they_are() {
    let folder = Folder::new();
    let (store, shell) = (folder.open(), folder.shell());
    let fixture = fixture(&store);
    let schedule = fixture.schedule("nightly");
    let define = Define {
        schedule: schedule.clone(),
        term: Term::new(5),
        timing: "daily".parse().unwrap(),
        policies: "none".parse().unwrap(),
        instead_of: None,
    };
    let order = RunNow { at: StoreTime::from_millis(5), by: "ops".parse().unwrap(), why: Why::shortened("") };
    let session = fixture.session();
    let run = RunId::tick(schedule.clone(), StoreTime::from_millis(60_000));
    let claim = Claim {
        run: run.clone(),
        session,
        holder: "pod".parse().unwrap(),
        term: Term::new(5),
        attempt: 1,
        instead_of: None,
        skipped: None,
    };
    let damage = [
        ("timing = ''", "`timing` breaks a limit"),
        ("term = NULL", "`term`"),
        ("pause_since = 5", "`pause_by`"),
        ("orders = '5'", "`orders`"),
        ("pauses_before = NULL", "`pauses_before`"),
    ];
    for (change, expected) in NOT_OURS.into_iter().chain(damage) {
        shell.execute_batch("DELETE FROM schedules; DELETE FROM runs").unwrap();
        store.define(define.clone(), LIMIT).await.unwrap();
        store.claim(claim.clone(), LIMIT).await.unwrap();
        assert_eq!(shell.execute(&format!("UPDATE schedules SET {change}"), []), Ok(1));
        let before = (table(&shell, "schedules"), table(&shell, "runs"));
        for seen in [
            store.define(define.clone(), LIMIT).await.unwrap(),
            store.instruct(schedule.clone(), Instruction::Run(order.clone()), LIMIT).await.unwrap(),
            store.schedules(vec![schedule.clone()], LIMIT).await.unwrap().remove(0),
        ] {
            let ScheduleSeen::Refused(refusal) = seen else { panic!("{change}: {seen:?}") };
            says(&refusal, expected);
        }
        // Without a mark to raise nothing of the ledger goes.
        let gone = store.purge_runs(schedule.clone(), Duration::ZERO, 0, LIMIT).await.unwrap();
        assert_eq!(gone.items, [], "{change}");
        assert_eq!((table(&shell, "schedules"), table(&shell, "runs")), before, "{change}");
    }
    let damage = [
        ("attempt = -1", "`attempt`"),
        ("finished_at = 5", "`outcome`"),
        ("finished_at = 5, outcome = 'well'", "which is no end"),
        ("skipped_from = 5", "`skipped_count`"),
    ];
    for (change, expected) in NOT_OURS.into_iter().chain(damage) {
        shell.execute_batch("DELETE FROM schedules; DELETE FROM runs").unwrap();
        store.claim(claim.clone(), LIMIT).await.unwrap();
        assert_eq!(shell.execute(&format!("UPDATE runs SET {change}"), []), Ok(1));
        let before = table(&shell, "runs");
        let finish = FinishRun {
            run: run.clone(),
            session,
            term: Term::new(5),
            attempt: 1,
            outcome: Outcome::Succeeded,
            error: None,
            last: true,
        };
        for answer in
            [store.claim(claim.clone(), LIMIT).await.unwrap(), store.finish(finish, LIMIT).await.unwrap()]
        {
            let ClaimAnswer::Refused(refusal) = answer else { panic!("{change}: {answer:?}") };
            says(&refusal, expected);
        }
        let page = store.history(schedule.clone(), None, 10, LIMIT).await.unwrap();
        assert_eq!((page.items.len(), page.refused.len()), (0, 1), "{change}");
        let last = store.last_runs(vec![schedule.clone()], 10, LIMIT).await.unwrap();
        assert_eq!(last, [page.into()], "{change}");
        store.purge_runs(schedule.clone(), Duration::ZERO, 0, LIMIT).await.unwrap();
        assert_eq!(table(&shell, "runs"), before, "{change}");
    }
    assert!(store.delete_schedule(schedule, LIMIT).await.unwrap());
    assert_eq!(table(&shell, "runs"), Vec::<Vec<Sql>>::new(), "deleted all the same");
}

/// The identity of its file on record is not whole: then nothing is proven, and that is no error.
#[tokio::test]
async fn a_session_whose_file_cannot_be_read_is_not_proven_dead() {
    let folder = Folder::new();
    let store = folder.open();
    let fixture = fixture(&store);
    let opening = fixture.opening();
    let presence = store.presence(opening.session).await.unwrap();
    fixture.open(&opening).await;
    folder.shell().execute_batch("UPDATE sessions SET file_dev = 1, boot_id = NULL").unwrap();
    drop(presence);
    let (by, why) = ("ops".parse().unwrap(), tenure::model::Why::shortened("gone"));
    let ground = tenure::store::Evidence::Gone;
    let declaration =
        tenure::store::Declaration { session: opening.session, ground, by, why, tell: Vec::new() };
    let seen = store.declare(declaration, LIMIT).await.unwrap();
    assert!(matches!(seen, SessionSeen::Alive(_)), "{seen:?}");
}
