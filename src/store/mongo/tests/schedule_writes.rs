//! Commands about schedules and their ledgers.

use std::collections::BTreeSet;

use bson::{Bson, doc};
use expect_test::{Expect, expect};

use super::{check, pretty};
use crate::{
    model::{Entry, Holder, RunId, ScheduleId, SessionId, Skipped, StoreTime, Term, Why},
    store::{
        Claim, Define, Instruction, RunNow,
        mongo::{
            documents::queries::Statement,
            ops::{
                batch::BATCH,
                runs::{claim_statement, last_entries, raise_mark_statement, run_id, runs_of},
                schedules::{define_statement, instruct_statement},
            },
        },
    },
};

fn schedule() -> ScheduleId {
    ScheduleId { namespace: "shop".parse().unwrap(), name: "$nightly".parse().unwrap() }
}

/// Only the change: the conditions of every record stand in one snapshot.
#[expect(clippy::needless_pass_by_value, reason = "reads better where it is called")]
fn check_change(statement: Statement, expected: Expect) {
    assert_eq!(statement.filter, doc! { "_id": { "ns": "shop", "schedule": "$nightly", "at": null } });
    assert!(statement.upsert, "whoever has something to say of it makes its record");
    let stages = statement.update.as_array().unwrap();
    let change = stages[1].as_document().unwrap().get_document("$replaceWith").unwrap();
    let [condition, changed, _] = &change.get_array("$cond").unwrap()[..] else { panic!("{change}") };
    let [_, needed] = &condition.as_document().unwrap().get_array("$and").unwrap()[..] else {
        panic!("{condition}")
    };
    let changed = changed.as_document().unwrap().get_array("$mergeObjects").unwrap();
    let mut text = String::new();
    pretty(&doc! { "if": needed.clone(), "then": changed.last().unwrap().clone() }.into(), 0, &mut text);
    expected.assert_eq(&text);
}

#[test]
fn a_mark_that_is_raised() {
    let run = RunId::tick(schedule(), StoreTime::from_millis(60_000));
    check(
        raise_mark_statement(&schedule(), &run),
        expect![[r#"
            {
              q: { "_id": { "ns": "shop", "schedule": "$nightly", "at": null } }
              u: [
                {
                  $replaceWith: {
                    $cond: [
                      {
                        $eq: [
                          "$$ROOT"
                          { "_id": { "$literal": { "ns": "shop", "schedule": "$nightly", "at": null } } }
                        ]
                      }
                      { "$mergeObjects": ["$$ROOT", { "$literal": { "v": 2 } }, {}] }
                      "$$ROOT"
                    ]
                  }
                }
                {
                  $replaceWith: {
                    $cond: [
                      {
                        $and: [
                          {
                            $and: [
                              { "$eq": ["$v", 2] }
                              {
                                $or: [
                                  { "$in": [{ "$type": "$definition" }, ["null", "missing"]] }
                                  {
                                    $and: [
                                      { "$in": [{ "$type": "$definition" }, ["object"]] }
                                      { "$in": [{ "$type": "$definition.timing" }, ["string"]] }
                                      { "$in": [{ "$type": "$definition.policies" }, ["string"]] }
                                      { "$in": [{ "$type": "$definition.since" }, ["date"]] }
                                      { "$in": [{ "$type": "$definition.term" }, ["long", "int"]] }
                                      { "$gte": ["$definition.term", 0] }
                                      { "$lte": ["$definition.term", 9007199254740991] }
                                    ]
                                  }
                                ]
                              }
                              {
                                $or: [
                                  { "$in": [{ "$type": "$pause" }, ["null", "missing"]] }
                                  {
                                    $and: [
                                      { "$in": [{ "$type": "$pause" }, ["object"]] }
                                      { "$in": [{ "$type": "$pause.since" }, ["date"]] }
                                      { "$in": [{ "$type": "$pause.until" }, ["date", "null", "missing"]] }
                                      { "$in": [{ "$type": "$pause.by" }, ["string"]] }
                                      { "$in": [{ "$type": "$pause.why" }, ["string"]] }
                                    ]
                                  }
                                ]
                              }
                              {
                                $or: [
                                  { "$in": [{ "$type": "$pauses_before" }, ["null", "missing"]] }
                                  {
                                    $and: [
                                      { "$isArray": "$pauses_before" }
                                      {
                                        $allElementsTrue: [
                                          {
                                            $map: {
                                              input: "$pauses_before"
                                              as: "pause"
                                              in: {
                                                $and: [
                                                  { "$in": [{ "$type": "$$pause.since" }, ["date"]] }
                                                  { "$in": [{ "$type": "$$pause.until" }, ["date"]] }
                                                ]
                                              }
                                            }
                                          }
                                        ]
                                      }
                                    ]
                                  }
                                ]
                              }
                              {
                                $or: [
                                  { "$in": [{ "$type": "$orders" }, ["null", "missing"]] }
                                  {
                                    $and: [
                                      { "$isArray": "$orders" }
                                      {
                                        $allElementsTrue: [
                                          {
                                            $map: {
                                              input: "$orders"
                                              as: "order"
                                              in: {
                                                $and: [
                                                  { "$in": [{ "$type": "$$order.at" }, ["date"]] }
                                                  { "$in": [{ "$type": "$$order.by" }, ["string"]] }
                                                  { "$in": [{ "$type": "$$order.why" }, ["string"]] }
                                                ]
                                              }
                                            }
                                          }
                                        ]
                                      }
                                    ]
                                  }
                                ]
                              }
                              { "$in": [{ "$type": "$mark" }, ["date", "null", "missing"]] }
                            ]
                          }
                          { "$not": { "$gte": ["$mark", DateTime("1970-01-01 0:01:00.0 +00:00:00")] } }
                        ]
                      }
                      {
                        $mergeObjects: ["$$ROOT", { "$literal": {} }, { "mark": DateTime("1970-01-01 0:01:00.0 +00:00:00") }]
                      }
                      "$$ROOT"
                    ]
                  }
                }
              ]
              upsert: true
            }"#]],
    );
}

#[test]
fn a_definition() {
    let define = Define {
        schedule: schedule(),
        term: Term::new(5),
        timing: "$daily".parse().unwrap(),
        policies: "retry.3".parse().unwrap(),
        instead_of: None,
    };
    check_change(
        define_statement(&define),
        expect![[r#"
        {
          if: {
            $and: [
              { "$not": { "$gt": ["$definition.term", 5] } }
              {
                $not: {
                  $and: [
                    { "$eq": ["$definition.timing", { "$literal": "$daily" }] }
                    { "$eq": ["$definition.policies", { "$literal": "retry.3" }] }
                  ]
                }
              }
            ]
          }
          then: {
            definition: {
              timing: { "$literal": "$daily" }
              policies: { "$literal": "retry.3" }
              since: {
                $cond: [
                  { "$eq": ["$definition.timing", { "$literal": "$daily" }] }
                  "$definition.since"
                  "$$NOW"
                ]
              }
              term: 5
            }
          }
        }"#]],
    );
}

#[test]
fn a_pause() {
    let by = "$pod".parse().unwrap();
    let pause = Instruction::Pause { by, why: Why::new("$$NOW").unwrap() };
    check_change(
        instruct_statement(&schedule(), &pause),
        expect![[r#"
            {
              if: {
                $not: {
                  $and: [
                    { "$in": [{ "$type": "$pause" }, ["object"]] }
                    { "$eq": [{ "$ifNull": ["$pause.until", null] }, null] }
                  ]
                }
              }
              then: {
                pause: {
                  since: "$$NOW"
                  until: null
                  by: { "$literal": "$pod" }
                  why: { "$literal": "$$NOW" }
                }
                pauses_before: {
                  $cond: [
                    { "$in": [{ "$type": "$pause" }, ["object"]] }
                    {
                      $slice: [
                        {
                          $concatArrays: [
                            { "$ifNull": ["$pauses_before", []] }
                            [{ "since": "$pause.since", "until": "$pause.until" }]
                          ]
                        }
                        -20
                      ]
                    }
                    { "$ifNull": ["$pauses_before", []] }
                  ]
                }
              }
            }"#]],
    );
}

#[test]
fn the_end_of_a_pause() {
    check_change(
        instruct_statement(&schedule(), &Instruction::Resume),
        expect![[r#"
        {
          if: {
            $and: [
              { "$in": [{ "$type": "$pause" }, ["object"]] }
              { "$eq": [{ "$ifNull": ["$pause.until", null] }, null] }
            ]
          }
          then: { "pause": { "$mergeObjects": ["$pause", { "until": "$$NOW" }] } }
        }"#]],
    );
}

#[test]
fn an_order() {
    let (by, why) = ("$pod".parse().unwrap(), Why::new("$$NOW").unwrap());
    let order = RunNow { at: StoreTime::from_millis(60_000), by, why };
    check_change(
        instruct_statement(&schedule(), &Instruction::Run(order)),
        expect![[r#"
        {
          if: {
            $and: [
              {
                $not: { "$in": [DateTime("1970-01-01 0:01:00.0 +00:00:00"), { "$ifNull": ["$orders.at", []] }] }
              }
              { "$lt": [{ "$size": { "$ifNull": ["$orders", []] } }, 100] }
            ]
          }
          then: {
            orders: {
              $concatArrays: [
                {
                  $filter: {
                    input: { "$ifNull": ["$orders", []] }
                    as: "order"
                    cond: { "$lt": ["$$order.at", DateTime("1970-01-01 0:01:00.0 +00:00:00")] }
                  }
                }
                [
                  {
                    $literal: { "at": DateTime("1970-01-01 0:01:00.0 +00:00:00"), "by": "$pod", "why": "$$NOW" }
                  }
                ]
                {
                  $filter: {
                    input: { "$ifNull": ["$orders", []] }
                    as: "order"
                    cond: { "$gt": ["$$order.at", DateTime("1970-01-01 0:01:00.0 +00:00:00")] }
                  }
                }
              ]
            }
          }
        }"#]],
    );
}

#[test]
fn an_order_that_ran() {
    let ran = Instruction::Ran { at: StoreTime::from_millis(60_000) };
    check_change(
        instruct_statement(&schedule(), &ran),
        expect![[r#"
        {
          if: { "$in": [DateTime("1970-01-01 0:01:00.0 +00:00:00"), { "$ifNull": ["$orders.at", []] }] }
          then: {
            orders: {
              $filter: {
                input: { "$ifNull": ["$orders", []] }
                as: "order"
                cond: { "$ne": ["$$order.at", DateTime("1970-01-01 0:01:00.0 +00:00:00")] }
              }
            }
          }
        }"#]],
    );
}

#[test]
fn a_claim_of_ticks_that_are_not_run() {
    let instant = StoreTime::from_millis(60_000);
    let claim = Claim {
        run: RunId { schedule: schedule(), instant, entry: Entry::Skipped },
        session: SessionId::from_u128(0xab),
        holder: Holder::new("$exp").unwrap(),
        term: Term::new(5),
        attempt: 1,
        instead_of: Some((Term::new(4), 1)),
        skipped: Some(Skipped {
            from: StoreTime::from_millis(0),
            count: 2,
            why: Why::new("$paused").unwrap(),
        }),
    };
    check(
        claim_statement(&claim),
        expect![[r#"
            {
              q: {
                _id: {
                  ns: "shop"
                  schedule: "$nightly"
                  at: DateTime("1970-01-01 0:01:00.0 +00:00:00")
                  entry: "skipped"
                }
              }
              u: [
                {
                  $replaceWith: {
                    $cond: [
                      {
                        $or: [
                          {
                            $eq: [
                              "$$ROOT"
                              {
                                _id: {
                                  $literal: {
                                    ns: "shop"
                                    schedule: "$nightly"
                                    at: DateTime("1970-01-01 0:01:00.0 +00:00:00")
                                    entry: "skipped"
                                  }
                                }
                              }
                            ]
                          }
                          {
                            $and: [
                              {
                                $and: [
                                  { "$eq": ["$v", 2] }
                                  { "$in": [{ "$type": "$session" }, ["string"]] }
                                  { "$in": [{ "$type": "$holder" }, ["string"]] }
                                  { "$in": [{ "$type": "$started" }, ["date"]] }
                                  {
                                    $and: [
                                      { "$in": [{ "$type": "$term" }, ["long", "int"]] }
                                      { "$gte": ["$term", 0] }
                                      { "$lte": ["$term", 9007199254740991] }
                                    ]
                                  }
                                  {
                                    $and: [
                                      {
                                        $and: [
                                          { "$in": [{ "$type": "$attempt" }, ["long", "int"]] }
                                          { "$gte": ["$attempt", 0] }
                                          { "$lte": ["$attempt", 9007199254740991] }
                                        ]
                                      }
                                      { "$lte": ["$attempt", 4294967295] }
                                    ]
                                  }
                                  {
                                    $or: [
                                      { "$eq": ["$finish", null] }
                                      {
                                        $and: [
                                          { "$in": [{ "$type": "$finish" }, ["object"]] }
                                          { "$in": [{ "$type": "$finish.at" }, ["date"]] }
                                          {
                                            $in: [
                                              "$finish.outcome"
                                              [
                                                "succeeded"
                                                "failed"
                                                "cancelled"
                                                "timed out"
                                                "displaced"
                                                "abandoned"
                                                "not begun"
                                                "skipped"
                                              ]
                                            ]
                                          }
                                          { "$in": [{ "$type": "$finish.error" }, ["null", "string"]] }
                                          { "$in": [{ "$type": "$finish.last" }, ["bool", "null", "missing"]] }
                                        ]
                                      }
                                    ]
                                  }
                                  {
                                    $or: [
                                      { "$in": [{ "$type": "$skipped" }, ["null", "missing"]] }
                                      {
                                        $and: [
                                          { "$in": [{ "$type": "$skipped" }, ["object"]] }
                                          { "$in": [{ "$type": "$skipped.from" }, ["date"]] }
                                          {
                                            $and: [
                                              { "$in": [{ "$type": "$skipped.count" }, ["long", "int"]] }
                                              { "$gte": ["$skipped.count", 0] }
                                              { "$lte": ["$skipped.count", 9007199254740991] }
                                            ]
                                          }
                                          { "$in": [{ "$type": "$skipped.why" }, ["string"]] }
                                        ]
                                      }
                                    ]
                                  }
                                ]
                              }
                              { "$eq": ["$term", 4] }
                              { "$eq": ["$attempt", 1] }
                              { "$ne": ["$finish.outcome", "succeeded"] }
                              { "$ne": ["$finish.last", true] }
                              {
                                $not: {
                                  $and: [
                                    { "$eq": ["$session", { "$literal": "000000000000000000000000000000ab" }] }
                                    { "$eq": ["$term", 5] }
                                    { "$eq": ["$attempt", 1] }
                                  ]
                                }
                              }
                            ]
                          }
                        ]
                      }
                      {
                        $mergeObjects: [
                          "$$ROOT"
                          {
                            $literal: {
                              v: 2
                              session: "000000000000000000000000000000ab"
                              holder: "$exp"
                              term: 5
                              attempt: 1
                              skipped: { "from": DateTime("1970-01-01 0:00:00.0 +00:00:00"), "count": 2, "why": "$paused" }
                            }
                          }
                          {
                            started: "$$NOW"
                            finish: { "at": "$$NOW", "outcome": "skipped", "error": null, "last": true }
                          }
                        ]
                      }
                      "$$ROOT"
                    ]
                  }
                }
              ]
              upsert: true
            }"#]],
    );
}

#[test]
fn a_history_goes_on_before_an_entry_and_never_reaches_the_schedules_own_record() {
    let order = RunId { entry: Entry::Order, ..RunId::tick(schedule(), StoreTime::from_millis(60_000)) };
    let mut text = String::new();
    pretty(&runs_of(&schedule(), None).into(), 0, &mut text);
    text.push('\n');
    pretty(&runs_of(&schedule(), Some(run_id(&order).into())).into(), 0, &mut text);
    expect![[r#"
        {
          _id: {
            $gte: { "ns": "shop", "schedule": "$nightly", "at": DateTime("-9223372036854775808") }
            $lte: {
              ns: "shop"
              schedule: "$nightly"
              at: DateTime("9223372036854775807")
              entry: MaxKey
            }
          }
        }
        {
          _id: {
            $gte: { "ns": "shop", "schedule": "$nightly", "at": DateTime("-9223372036854775808") }
            $lt: {
              ns: "shop"
              schedule: "$nightly"
              at: DateTime("1970-01-01 0:01:00.0 +00:00:00")
              entry: "order"
            }
            $lte: {
              ns: "shop"
              schedule: "$nightly"
              at: DateTime("9223372036854775807")
              entry: MaxKey
            }
          }
        }"#]]
    .assert_eq(&text);
}

#[test]
fn ledgers_that_are_read_from_their_ends() {
    let another = ScheduleId { name: "hourly".parse().unwrap(), ..schedule() };
    let pipeline = last_entries("runs", &BTreeSet::from([&schedule(), &another]), 21);
    let mut text = String::new();
    pretty(&pipeline.into(), 0, &mut text);
    expect![[r#"
        [
          {
            $match: {
              _id: {
                $gte: { "ns": "shop", "schedule": "$nightly", "at": DateTime("-9223372036854775808") }
                $lte: {
                  ns: "shop"
                  schedule: "$nightly"
                  at: DateTime("9223372036854775807")
                  entry: MaxKey
                }
              }
            }
          }
          { "$sort": { "_id": -1 } }
          { "$limit": 21 }
          {
            $unionWith: {
              coll: "runs"
              pipeline: [
                {
                  $match: {
                    _id: {
                      $gte: { "ns": "shop", "schedule": "hourly", "at": DateTime("-9223372036854775808") }
                      $lte: {
                        ns: "shop"
                        schedule: "hourly"
                        at: DateTime("9223372036854775807")
                        entry: MaxKey
                      }
                    }
                  }
                }
                { "$sort": { "_id": -1 } }
                { "$limit": 21 }
              ]
            }
          }
          { "$sort": { "_id": -1 } }
        ]"#]]
    .assert_eq(&text);
}

/// The server refuses a pipeline of more than a thousand stages, and whatever an entry passes through takes time.
#[test]
fn no_pipeline_grows_with_the_ledgers() {
    let named = |number: usize| ScheduleId { name: format!("{number}").parse().unwrap(), ..schedule() };
    let schedules: Vec<_> = (0..BATCH).map(named).collect();
    let pipeline = last_entries("runs", &schedules.iter().collect(), 21);
    let text = Bson::from(pipeline.clone()).to_string();
    assert_eq!(text.matches("$limit").count(), BATCH, "each ledger is read once");
    assert!(pipeline.len() < 100, "{} stages", pipeline.len());
}
