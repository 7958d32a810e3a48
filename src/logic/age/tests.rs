use super::*;
use crate::model::{About, Nonce};

const SECOND: Duration = Duration::from_secs(1);
const NOW: StoreTime = StoreTime::from_millis(100_000_000);

/// Opened so long ago, with its last beat so much later.
fn session(number: u128, holder: &str, ago: u64, lived: u64) -> SessionRecord {
    let started = NOW.minus(SECOND * u32::try_from(ago).unwrap());
    let about = About::new("shop".parse().unwrap(), holder.parse().unwrap());
    let opened =
        SessionRecord::opened(SessionId::from_u128(number), about, Nonce::new(1), SECOND * 30, started);
    let beat_at = started.plus(SECOND * u32::try_from(lived).unwrap());
    SessionRecord { beat: Beat::new(7), beat_at, ..opened }
}

fn dead(session: SessionRecord) -> SessionRecord {
    let why = crate::model::Why::shortened("no heartbeat for its whole ttl");
    SessionRecord { death: Some(Death { at: NOW, by: "pod-2".parse().unwrap(), why }), ..session }
}

fn closed(session: SessionRecord) -> SessionRecord {
    SessionRecord {
        death: Some(Death { at: NOW, by: "pod-1".parse().unwrap(), why: Death::own() }),
        ..session
    }
}

fn row(sessions: &[SessionRecord]) -> Row {
    Row::of(sessions, &"pod-1".parse().unwrap(), Some(SessionId::from_u128(1)), NOW)
}

#[test]
fn those_of_this_name_that_died_young_are_counted() {
    let all = [
        session(1, "pod-1", 1, 0),
        dead(session(2, "pod-1", 60, 20)),
        dead(session(3, "pod-2", 60, 20)),
        session(4, "pod-1", 30, 10),
        dead(session(2, "pod-1", 60, 20)),
    ];
    let row = row(&all);
    assert_eq!(row.deaths(), 2);
    assert_eq!(row.undecided().collect::<Vec<_>>(), [SessionId::from_u128(4)]);
}

#[test]
fn one_that_closed_itself_or_lived_long_ends_the_row() {
    for end in [closed(session(3, "pod-1", 60, 20)), dead(session(3, "pod-1", 700, 600))] {
        let all = [dead(session(2, "pod-1", 30, 20)), end, dead(session(4, "pod-1", 2000, 20))];
        assert_eq!(row(&all).deaths(), 1);
    }
    assert_eq!(row(&[dead(session(2, "pod-1", 3630, 20))]).deaths(), 0, "an hour ago is long ago");
}

#[test]
fn one_that_beats_is_another_of_the_same_name() {
    let mut row = row(&[session(4, "pod-1", 30, 10), dead(session(2, "pod-1", 60, 20))]);
    let again = session(4, "pod-1", 30, 10);
    row.saw(again.id, &SessionSeen::Alive(again.clone()));
    assert_eq!(row.deaths(), 2, "it is the beat that was seen before");
    row.saw(again.id, &SessionSeen::Alive(SessionRecord { beat: Beat::new(8), ..again }));
    assert_eq!(row.deaths(), 1);
}

#[test]
fn one_that_turns_out_dead_counts_and_one_that_turns_out_closed_does_not() {
    let before = [session(4, "pod-1", 30, 10), dead(session(2, "pod-1", 60, 20))];
    let mut died = row(&before);
    died.saw(before[0].id, &SessionSeen::Dead(dead(before[0].clone())));
    assert_eq!((died.deaths(), died.undecided().count()), (2, 0));
    let mut ended = row(&before);
    ended.saw(before[0].id, &SessionSeen::Dead(closed(before[0].clone())));
    assert_eq!(ended.deaths(), 0);
}

#[test]
fn the_least_age_is_a_ttl_and_doubles_up_to_ten_of_them_and_five_minutes() {
    let ages = |ttl: Duration| (0..7).map(move |deaths| least_age(deaths, ttl).as_secs()).collect::<Vec<_>>();
    assert_eq!(ages(SECOND * 30), [0, 30, 60, 120, 240, 300, 300]);
    assert_eq!(ages(SECOND * 3), [0, 3, 6, 12, 24, 30, 30]);
    assert_eq!(least_age(u32::MAX, SECOND * 900), SECOND * 900);
}

#[test]
fn what_is_usual_is_what_half_of_the_others_have() {
    let alive = |number, holder| session(number, holder, 20, 20);
    let died = |number, holder| dead(session(number, holder, 60, 20));
    let members = [alive(1, "a"), alive(2, "b"), alive(3, "c")];
    let with = |dead: &[SessionRecord]| {
        let all: Vec<_> = members.iter().chain(dead).cloned().collect();
        usual(&all, members.iter(), NOW)
    };
    assert_eq!(with(&[]), 0);
    assert_eq!(with(&[died(4, "a"), died(5, "a"), died(6, "x")]), 0);
    assert_eq!(with(&[died(4, "a"), died(5, "a"), died(6, "b")]), 1);
    assert_eq!(usual(&members, std::iter::empty(), NOW), 0);
}
