//! Reads of ledgers.

use std::collections::BTreeSet;

use bson::Bson;
use expect_test::expect;

use super::pretty;
use crate::{
    model::{Entry, RunId, ScheduleId, StoreTime},
    store::mongo::ops::{
        batch::BATCH,
        runs::{last_entries, run_id, runs_of},
    },
};

fn schedule() -> ScheduleId {
    ScheduleId { namespace: "shop".parse().unwrap(), name: "$nightly".parse().unwrap() }
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
