//! Commands of a take and a release.

use std::time::Duration;

use bson::doc;
use expect_test::expect;

use super::{LIMIT, candidate, check, lock, pretty};
use crate::{
    model::{SessionId, Term, Why},
    store::{
        Release, ReleaseTo, Take,
        mongo::{
            documents::queries::{find, modify},
            ops::{
                locks::latest_held, queue::want_statement, release::release_statements, take::take_statement,
            },
        },
    },
};

#[test]
fn a_take() {
    check(
        take_statement(&Take { lock: lock(), by: candidate() }, &[SessionId::from_u128(0xdead)]),
        expect![[r#"
            {
              q: { "_id": { "ns": "shop", "kind": "lock", "key": "$report" } }
              u: [
                {
                  $replaceWith: {
                    $let: {
                      vars: {
                        verdict: {
                          $switch: {
                            branches: [
                              {
                                case: {
                                  $eq: ["$$ROOT", { "_id": { "$literal": { "ns": "shop", "kind": "lock", "key": "$report" } } }]
                                }
                                then: "new"
                              }
                              {
                                case: {
                                  $not: {
                                    $and: [
                                      {
                                        $and: [
                                          { "$eq": ["$v", 2] }
                                          {
                                            $and: [
                                              { "$in": [{ "$type": "$term" }, ["long", "int"]] }
                                              { "$gte": ["$term", 0] }
                                              { "$lte": ["$term", 9007199254740991] }
                                            ]
                                          }
                                          { "$isArray": "$past" }
                                          {
                                            $or: [
                                              { "$eq": ["$not_before", null] }
                                              {
                                                $and: [
                                                  { "$in": [{ "$type": "$not_before" }, ["date"]] }
                                                  {
                                                    $and: [
                                                      { "$in": [{ "$type": "$closed_for" }, ["long", "int"]] }
                                                      { "$gte": ["$closed_for", 0] }
                                                      { "$lte": ["$closed_for", 9007199254740991] }
                                                    ]
                                                  }
                                                ]
                                              }
                                            ]
                                          }
                                          {
                                            $or: [
                                              { "$eq": ["$session", null] }
                                              {
                                                $and: [
                                                  { "$in": [{ "$type": "$session" }, ["string"]] }
                                                  { "$in": [{ "$type": "$holder" }, ["string"]] }
                                                  { "$in": [{ "$type": "$acquired_at" }, ["date"]] }
                                                  {
                                                    $and: [
                                                      { "$in": [{ "$type": "$ticket" }, ["long", "int"]] }
                                                      { "$gte": ["$ticket", 0] }
                                                      { "$lte": ["$ticket", 9007199254740991] }
                                                    ]
                                                  }
                                                  {
                                                    $and: [
                                                      { "$in": [{ "$type": "$ttl" }, ["long", "int"]] }
                                                      { "$gte": ["$ttl", 0] }
                                                      { "$lte": ["$ttl", 9007199254740991] }
                                                    ]
                                                  }
                                                  {
                                                    $and: [
                                                      { "$in": [{ "$type": "$lock_delay" }, ["long", "int"]] }
                                                      { "$gte": ["$lock_delay", 0] }
                                                      { "$lte": ["$lock_delay", 9007199254740991] }
                                                    ]
                                                  }
                                                  {
                                                    $and: [
                                                      { "$in": [{ "$type": "$value_set" }, ["long", "int"]] }
                                                      { "$gte": ["$value_set", 0] }
                                                      { "$lte": ["$value_set", 9007199254740991] }
                                                    ]
                                                  }
                                                  { "$in": [{ "$type": "$who" }, ["null", "string"]] }
                                                  { "$in": [{ "$type": "$why" }, ["null", "string"]] }
                                                  { "$in": [{ "$type": "$value" }, ["null", "binData"]] }
                                                ]
                                              }
                                            ]
                                          }
                                        ]
                                      }
                                      { "$lt": ["$term", 9007199254740991] }
                                    ]
                                  }
                                }
                                then: "keep"
                              }
                              {
                                case: { "$eq": ["$session", { "$literal": "000000000000000000000000000000ab" }] }
                                then: { "$cond": [{ "$lt": ["$ticket", 7] }, "superseded", "keep"] }
                              }
                              {
                                case: { "$in": ["$session", { "$literal": ["0000000000000000000000000000dead"] }] }
                                then: { "$cond": [{ "$gt": ["$lock_delay", 0] }, "delay", "died"] }
                              }
                              { "case": { "$ne": ["$session", null] }, "then": "keep" }
                              {
                                case: {
                                  $or: [
                                    { "$and": [{ "$ne": ["$not_before", null] }, { "$gte": ["$closed_for", 315360000000] }] }
                                    {
                                      $and: [
                                        { "$gt": ["$not_before", "$$NOW"] }
                                        { "$lte": ["$not_before", { "$add": ["$$NOW", "$closed_for"] }] }
                                      ]
                                    }
                                  ]
                                }
                                then: "keep"
                              }
                            ]
                            default: "free"
                          }
                        }
                      }
                      in: {
                        $switch: {
                          branches: [
                            { "case": { "$eq": ["$$verdict", "keep"] }, "then": "$$ROOT" }
                            {
                              case: { "$eq": ["$$verdict", "delay"] }
                              then: {
                                $mergeObjects: [
                                  "$$ROOT"
                                  { "$literal": { "session": null, "value": null, "ended": "died", "note": null } }
                                  {
                                    ended_at: "$$NOW"
                                    not_before: { "$add": ["$$NOW", "$lock_delay"] }
                                    closed_for: "$lock_delay"
                                  }
                                ]
                              }
                            }
                          ]
                          default: {
                            $mergeObjects: [
                              "$$ROOT"
                              {
                                $literal: {
                                  v: 2
                                  session: "000000000000000000000000000000ab"
                                  ticket: 7
                                  ttl: 30000
                                  holder: "$exp"
                                  who: null
                                  why: "$$NOW"
                                  value: null
                                  lock_delay: 0
                                  value_set: 0
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
                                  $cond: [
                                    { "$eq": ["$$verdict", "new"] }
                                    []
                                    {
                                      $slice: [
                                        {
                                          $concatArrays: [
                                            [
                                              {
                                                holder: "$holder"
                                                who: "$who"
                                                term: "$term"
                                                from: "$acquired_at"
                                                to: { "$ifNull": ["$ended_at", "$$NOW"] }
                                                how: { "$ifNull": ["$ended", "$$verdict"] }
                                                note: "$note"
                                              }
                                            ]
                                            "$past"
                                          ]
                                        }
                                        5
                                      ]
                                    }
                                  ]
                                }
                              }
                            ]
                          }
                        }
                      }
                    }
                  }
                }
              ]
              upsert: true
            }"#]],
    );
}

#[test]
fn a_release_to_nobody() {
    let release = Release {
        lock: lock(),
        session: SessionId::from_u128(0xab),
        term: Term::new(5),
        note: Some(Why::new("$done").unwrap()),
        then: ReleaseTo::Free,
    };
    check(
        release_statements(&[release]).remove(0),
        expect![[r#"
            {
              q: {
                _id: { "ns": "shop", "kind": "lock", "key": "$report" }
                v: 2
                session: "000000000000000000000000000000ab"
                term: 5
              }
              u: {
                $set: {
                  session: null
                  value: null
                  ended: "released"
                  note: "$done"
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
fn a_release_unless_somebody_waits() {
    let release = |then| Release {
        lock: lock(),
        session: SessionId::from_u128(0xab),
        term: Term::new(5),
        note: None,
        then,
    };
    let unless_wanted = release_statements(&[release(ReleaseTo::FreeUnlessWanted)]).remove(0);
    assert_eq!(unless_wanted.filter.get("wanted"), Some(&doc! { "$ne": true }.into()));
    let set = unless_wanted.update.as_document().unwrap().get_document("$set").unwrap();
    assert!(
        set.contains_key("session") && !set.contains_key("wanted"),
        "there is no mark to take away: {set}"
    );
}

#[test]
fn a_lock_that_is_wanted() {
    check(
        want_statement(&lock()),
        expect![[r#"
        {
          q: {
            _id: { "ns": "shop", "kind": "lock", "key": "$report" }
            v: 2
            session: { "$ne": null }
            wanted: { "$ne": true }
          }
          u: { "$set": { "wanted": true } }
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
        note: Some(Why::new("$done").unwrap()),
        then: ReleaseTo::HandTo(Box::new(candidate())),
    };
    check(
        release_statements(&[release]).remove(0),
        expect![[r#"
            {
              q: {
                _id: { "ns": "shop", "kind": "lock", "key": "$report" }
                v: 2
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
                          v: 2
                          session: "000000000000000000000000000000ab"
                          ticket: 7
                          ttl: 30000
                          holder: "$exp"
                          who: null
                          why: "$$NOW"
                          value: null
                          lock_delay: 0
                          value_set: 0
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
                                    who: "$who"
                                    term: "$term"
                                    from: "$acquired_at"
                                    to: { "$ifNull": ["$ended_at", "$$NOW"] }
                                    how: { "$ifNull": ["$ended", "handed over"] }
                                    note: { "$literal": "$done" }
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
