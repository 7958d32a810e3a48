use super::*;
use crate::model::{About, Beat, Death, Nonce, SessionId, Share, Term, Why};

const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(30);

fn at(second: i64) -> StoreTime {
    StoreTime::from_millis(1_000_000_000 + second * 1000)
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

/// One who had the task.
fn had(holder: &str, from: i64, to: i64, how: Ended) -> Past {
    let holder = holder.parse().unwrap();
    Past { holder, who: None, term: Term::new(1), from: at(from), to: at(to), how, note: None }
}

/// Sessions that died: whose, since when, until when, and what they had on trial.
fn deaths(of: &[(&str, i64, i64, Option<Trial>)]) -> Deaths {
    let mut deaths = Deaths::default();
    for (number, (holder, from, to, trial)) in of.iter().enumerate() {
        deaths.learn(
            &session(number as u128, holder, *from, *to, *trial, "no heartbeat for its whole ttl"),
            &spread(),
        );
    }
    deaths
}

fn spread() -> SpreadName {
    "topics".parse().unwrap()
}

fn session(number: u128, holder: &str, from: i64, to: i64, trial: Option<Trial>, why: &str) -> SessionRecord {
    let about = About::new("shop".parse().unwrap(), holder.parse().unwrap());
    let opened = SessionRecord::opened(SessionId::from_u128(number), about, Nonce::new(1), TTL, at(from));
    SessionRecord {
        beat: Beat::new(1),
        beat_at: at(to),
        death: Some(Death { at: at(to + 30), by: "pod".parse().unwrap(), why: Why::shortened(why) }),
        shares: vec![Share::new("other".parse().unwrap()), Share { trial, ..Share::new(spread()) }],
        ..opened
    }
}

fn found(key_of: &str, past: &[Past], deaths: &Deaths) -> Suspicion {
    suspicion(&key(key_of), past, deaths)
}

#[test]
fn holders_that_died_soon_one_after_the_other_make_a_suspect() {
    let past = [had("c", 200, 240, Ended::Died), had("b", 100, 140, Ended::Died)];
    assert!(!found("t", &past[..1], &Deaths::default()).is_suspect(), "one death is anybody's");
    let both = found("t", &past, &Deaths::default());
    assert_eq!((both.is_suspect(), both.holders(), both.since), (true, 2, Some(at(140))));
}

#[test]
fn one_that_had_it_for_long_ends_the_row_and_one_that_moved_it_on_does_not() {
    let died = |from| had("c", from, from + 40, Ended::Died);
    for how in [Ended::Died, Ended::Released] {
        let past = [died(1000), had("b", 200, 900, how), died(100), died(0)];
        assert_eq!(found("t", &past, &Deaths::default()).deaths, 1, "{how:?}");
    }
    let past = [died(300), had("b", 200, 260, Ended::HandedOver), died(100)];
    assert_eq!(found("t", &past, &Deaths::default()).deaths, 2);
}

#[test]
fn a_restart_is_no_death() {
    let past = [had("c", 200, 240, Ended::Died), had("b", 100, 140, Ended::Died)];
    let closed = |of: &[(&str, i64)]| {
        let mut deaths = Deaths::default();
        for (number, (holder, from)) in of.iter().enumerate() {
            let own = Death::own();
            deaths.learn(&session(number as u128, holder, *from, from + 35, None, own.as_str()), &spread());
        }
        deaths
    };
    assert_eq!(found("t", &past, &closed(&[("b", 90), ("c", 190)])), Suspicion::default());
    // Another session of that name says nothing of this one.
    assert_eq!(found("t", &past, &closed(&[("b", 150), ("c", -900)])).deaths, 2);
}

#[test]
fn only_what_was_on_trial_is_blamed() {
    let past = [had("c", 200, 240, Ended::Died), had("b", 100, 140, Ended::Died)];
    let alone = Some(Trial::of(&key("t")));
    let tried = [("b", 90, 110, alone), ("c", 190, 210, alone)];
    let blamed = found("t", &past, &deaths(&tried));
    assert_eq!((blamed.deaths, blamed.blames, blamed.is_guilty()), (0, 2, true));
    let other = found("other", &past, &deaths(&tried));
    assert_eq!((other.blames, other.deaths, other.beside), (0, 0, 2), "it may hide behind that");
    assert!(!found("t", &past, &deaths(&tried[..1])).is_guilty(), "once is not enough");
}

#[test]
fn who_died_while_a_group_was_tried_narrows_it() {
    let past = [had("c", 200, 240, Ended::Died), had("b", 100, 140, Ended::Died)];
    let group = |digits| Some(Trial::of(&key("t")).group(digits));
    let found = found("t", &past, &deaths(&[("b", 90, 110, group(1)), ("c", 190, 210, group(2))]));
    assert_eq!((found.blames, found.shared, found.narrowed, found.is_suspect()), (0, 2, 2, true));
}

#[test]
fn one_that_was_quarantined_for_it_is_tried_alone_and_once_more_is_enough() {
    let guilty = Suspicion { blames: 2, deaths: 2, ..Suspicion::default() };
    let note = |error: &str| Quarantine { since: at(0), tries: 4, error: error.to_owned() }.note();
    let noted = |error: &str| Past { note: Some(note(error)), ..had("a", 0, 1, Ended::Released) };
    let killer = noted(&guilty.verdict());
    assert_eq!(found("t", std::slice::from_ref(&killer), &Deaths::default()).blames, 1);
    assert!(!found("t", &[noted("no route")], &Deaths::default()).is_suspect());
    let again = [had("b", 4000, 4040, Ended::Died), killer];
    let tried = deaths(&[("b", 3990, 4010, Some(Trial::of(&key("t"))))]);
    assert!(found("t", &again, &tried).is_guilty());
}

#[test]
fn old_deaths_are_forgotten() {
    let mut known = deaths(&[("b", 0, 10, None), ("b", 4000, 4010, None), ("c", 0, 10, None)]);
    known.forget(at(8000));
    assert_eq!(known.0.values().map(BTreeMap::len).sum::<usize>(), 1);
}

#[test]
fn what_is_blamed_is_tried_first_then_what_most_died_with() {
    let deaths = |deaths| Suspicion { deaths, ..Suspicion::default() };
    let blamed = Suspicion { deaths: 2, blames: 1, ..Suspicion::default() };
    let mut waiting = BTreeMap::from([(key("a"), deaths(2)), (key("b"), blamed), (key("c"), deaths(5))]);
    for expected in ["b", "c", "a"] {
        assert_eq!(next(&waiting), Some(Trial::of(&key(expected))));
        waiting.remove(&key(expected));
    }
    assert_eq!(next(&waiting), None);
}

#[test]
fn of_many_that_are_alike_whole_groups_are_tried_until_the_one_is_found() {
    let keys: Vec<Key> = (0..20_000).map(|number| key(&format!("task-{number}"))).collect();
    let killer = &keys[7];
    let (mut suspects, mut trials, mut deaths) = (keys.clone(), 0, 0);
    let mut narrowed = 0;
    loop {
        let found = Suspicion { deaths: 2, narrowed, ..Suspicion::default() };
        let mut waiting: BTreeMap<Key, Suspicion> = suspects.iter().map(|key| (key.clone(), found)).collect();
        let fatal = loop {
            let trial = next(&waiting).unwrap();
            trials += 1;
            if trial.is_of(killer) {
                break trial;
            }
            waiting.retain(|key, _| !trial.is_of(key));
        };
        deaths += 1;
        if fatal.is_of_one() {
            assert_eq!(fatal, Trial::of(killer));
            break;
        }
        suspects.retain(|key| fatal.is_of(key));
        narrowed = fatal.digits();
    }
    assert!(deaths <= 5 && trials <= 16 * 5, "{deaths} deaths, {trials} trials");
}

#[test]
fn trials_grow_with_the_deaths_and_end_in_ten_ttls_for_all() {
    let length = |deaths, waiting| length(Suspicion { deaths, ..Suspicion::default() }, waiting, TTL);
    assert_eq!([length(2, 1), length(3, 1), length(5, 1)], [SECOND * 10, SECOND * 20, SECOND * 80]);
    assert_eq!(length(5, 10), SECOND * 30);
    let others_die = Suspicion { deaths: 2, all: 10, ..Suspicion::default() };
    assert_eq!(super::length(others_die, 1, TTL), SECOND * 2);
    for waiting in [1, 16, 17, 10_000] {
        let parts = u32::try_from(waiting.min(ONE_BY_ONE)).unwrap();
        assert!(length(9, waiting) * parts <= TTL * 10);
    }
}

#[test]
fn where_others_die_as_well_more_is_needed() {
    let alone = Some(Trial::of(&key("t")));
    let past = |blames: i64| -> Vec<Past> {
        (0..blames).rev().map(|death| had("b", death * 100, death * 100 + 40, Ended::Died)).collect()
    };
    let with = |blames: i64, others: i64| {
        let own = (0..blames).map(|death| ("b", death * 100 - 5, death * 100 + 10, alone));
        let others = (0..others).map(|death| ("c", death, death + 1, None));
        let all: Vec<_> = own.chain(others).collect();
        found("t", &past(blames), &deaths(&all)).is_guilty()
    };
    assert!(with(2, 0) && with(2, 2), "another that kills");
    assert!(!with(2, 3) && with(3, 6) && !with(3, 7) && !with(4, 100) && with(5, 100));
}
