//! Commands of a take and a release.

use std::time::Duration;

use bson::doc;
use expect_test::expect;

use super::{LIMIT, candidate, check, lock, pretty};
use crate::{
    model::{SessionId, Term, Why},
    store::{
        Note, Release, ReleaseTo, Take,
        mongo::{
            documents::queries::{find, modify},
            ops::{locks::latest_held, release::release_statements, take::take_statement},
        },
    },
};

fn note() -> Note {
    Note::Revoked { by: "$ops".parse().unwrap(), why: Why::new("$hot").unwrap() }
}

#[test]
fn a_release_to_nobody() {
    let release = Release {
        lock: lock(),
        session: SessionId::from_u128(0xab),
        term: Term::new(5),
        note: Some(note()),
        then: ReleaseTo::Free,
    };
    check(
        release_statements(&[release]).remove(0),
        expect![[r#"
            {
              q: {
                _id: { "ns": "shop", "kind": "lock", "key": "$report" }
                v: 3
                session: "000000000000000000000000000000ab"
                term: 5
              }
              u: {
                $set: {
                  session: null
                  value: null
                  ended: "released"
                  note: { "kind": "revoked", "by": "$ops", "why": "$hot" }
                  not_before: null
                  closed_for: null
                  wanted: false
                }
                $currentDate: { "ended_at": true }
              }
              upsert: false
            }"#]],
    );
}

#[test]
fn a_hand_over() {
    let release = Release {
        lock: lock(),
        session: SessionId::from_u128(0xab),
        term: Term::new(5),
        note: Some(note()),
        then: ReleaseTo::HandTo(Box::new(candidate())),
    };
    check(
        release_statements(&[release]).remove(0),
        expect![[r#"
            {
              q: {
                _id: { "ns": "shop", "kind": "lock", "key": "$report" }
                v: 3
                session: "000000000000000000000000000000ab"
                term: 5
              }
              u: [
                {
                  $replaceWith: {
                    $mergeObjects: [
                      "$$ROOT"
                      {
                        $literal: {
                          v: 3
                          granted_to: "000000000000000000000000000000ab"
                          value_set: 0
                          session: "000000000000000000000000000000ab"
                          ticket: 7
                          ttl: 30000
                          holder: "$exp"
                          who: null
                          why: "$$NOW"
                          value: null
                          lock_delay: 0
                          ended: null
                          ended_at: null
                          note: null
                          not_before: null
                          closed_for: null
                        }
                      }
                      {
                        term: { "$max": [1, { "$add": ["$term", 1] }, { "$toLong": "$$NOW" }] }
                        acquired_at: "$$NOW"
                        past: {
                          $slice: [
                            {
                              $concatArrays: [
                                [
                                  {
                                    holder: "$holder"
                                    session: "$granted_to"
                                    who: "$who"
                                    term: "$term"
                                    from: "$acquired_at"
                                    to: { "$ifNull": ["$ended_at", "$$NOW"] }
                                    how: { "$ifNull": ["$ended", "handed over"] }
                                    note: { "$literal": { "kind": "revoked", "by": "$ops", "why": "$hot" } }
                                  }
                                ]
                                "$past"
                              ]
                            }
                            5
                          ]
                        }
                      }
                    ]
                  }
                }
              ]
              upsert: false
            }"#]],
    );
}

#[test]
fn the_latest_grants_of_sessions() {
    let sessions = [0xab, 0xcd].map(SessionId::from_u128);
    let command = find("locks", latest_held(&sessions, 20), LIMIT);
    let mut text = String::new();
    pretty(&command.into(), 0, &mut text);
    expect![[r#"
        {
          find: "locks"
          filter: {
            session: { "$in": ["000000000000000000000000000000ab", "000000000000000000000000000000cd"] }
          }
          sort: { "term": -1, "_id": 1 }
          limit: 20
          batchSize: 2147483647
          readConcern: { "level": "majority" }
          maxTimeMS: 2500
        }"#]]
    .assert_eq(&text);
}

#[test]
fn a_take_is_kept_by_a_majority_and_limited_at_both_ends() {
    let command = modify("locks", take_statement(&Take { lock: lock(), by: candidate() }, &[]), LIMIT);
    assert_eq!(
        command.get_document("writeConcern").unwrap(),
        &doc! { "w": "majority", "j": true, "wtimeout": 2500_i64 }
    );
    assert_eq!(command.get_i64("maxTimeMS").unwrap(), 2500);
    let none = modify("locks", take_statement(&Take { lock: lock(), by: candidate() }, &[]), Duration::ZERO);
    assert_eq!(none.get_i64("maxTimeMS").unwrap(), 1, "zero would be no limit at all");
}
