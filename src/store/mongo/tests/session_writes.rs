//! Commands of a beat and a declaration.

use expect_test::expect;

use super::{check, lock};
use crate::{
    model::{SessionId, Term, Why},
    store::{
        Beat, BeatWrite, Declaration, Evidence, Nonce,
        mongo::ops::sessions::{beat_statement, declare_statement},
    },
};

#[test]
fn a_beat() {
    let beat = BeatWrite {
        session: SessionId::from_u128(0xab),
        beat: Beat::new(12),
        nonce: Nonce::new(99),
        stalled_since: None,
        shares: None,
        left: Vec::new(),
        heard: vec![(lock(), Term::new(5))],
    };
    check(
        beat_statement(&beat),
        expect![[r#"
            {
              q: { "_id": "000000000000000000000000000000ab" }
              u: [
                {
                  $replaceWith: {
                    $cond: [
                      {
                        $and: [
                          {
                            $and: [
                              { "$eq": ["$death", null] }
                              { "$eq": ["$v", 2] }
                              { "$in": [{ "$type": "$ns" }, ["string"]] }
                              { "$in": [{ "$type": "$holder" }, ["string"]] }
                              { "$in": [{ "$type": "$host" }, ["string"]] }
                              { "$in": [{ "$type": "$program" }, ["string"]] }
                              { "$in": [{ "$type": "$started" }, ["date"]] }
                              { "$in": [{ "$type": "$beat_at" }, ["date"]] }
                              { "$in": [{ "$type": "$stalled_since" }, ["missing", "null", "date"]] }
                              {
                                $and: [
                                  { "$in": [{ "$type": "$beat" }, ["long", "int"]] }
                                  { "$gte": ["$beat", 0] }
                                  { "$lte": ["$beat", 9007199254740991] }
                                ]
                              }
                              {
                                $and: [
                                  { "$in": [{ "$type": "$nonce" }, ["long", "int"]] }
                                  { "$gte": ["$nonce", 0] }
                                  { "$lte": ["$nonce", 9007199254740991] }
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
                                  {
                                    $and: [
                                      { "$in": [{ "$type": "$pid" }, ["long", "int"]] }
                                      { "$gte": ["$pid", 0] }
                                      { "$lte": ["$pid", 9007199254740991] }
                                    ]
                                  }
                                  { "$lte": ["$pid", 4294967295] }
                                ]
                              }
                              {
                                $and: [
                                  {
                                    $and: [
                                      { "$in": [{ "$type": "$plan_version" }, ["long", "int"]] }
                                      { "$gte": ["$plan_version", 0] }
                                      { "$lte": ["$plan_version", 9007199254740991] }
                                    ]
                                  }
                                  { "$lte": ["$plan_version", 4294967295] }
                                ]
                              }
                              {
                                $and: [
                                  { "$isArray": "$shares" }
                                  {
                                    $allElementsTrue: [
                                      {
                                        $map: {
                                          input: "$shares"
                                          as: "one"
                                          in: {
                                            $and: [
                                              { "$in": [{ "$type": "$$one.spread" }, ["string"]] }
                                              { "$in": [{ "$type": "$$one.digest" }, ["string"]] }
                                              { "$in": [{ "$type": "$$one.draining" }, ["bool"]] }
                                              { "$in": [{ "$type": "$$one.paused" }, ["bool"]] }
                                              {
                                                $and: [
                                                  {
                                                    $and: [
                                                      { "$in": [{ "$type": "$$one.cap" }, ["long", "int"]] }
                                                      { "$gte": ["$$one.cap", 0] }
                                                      { "$lte": ["$$one.cap", 9007199254740991] }
                                                    ]
                                                  }
                                                  { "$lte": ["$$one.cap", 4294967295] }
                                                ]
                                              }
                                              {
                                                $and: [
                                                  {
                                                    $and: [
                                                      { "$in": [{ "$type": "$$one.weight" }, ["long", "int"]] }
                                                      { "$gte": ["$$one.weight", 0] }
                                                      { "$lte": ["$$one.weight", 9007199254740991] }
                                                    ]
                                                  }
                                                  { "$lte": ["$$one.weight", 4294967295] }
                                                ]
                                              }
                                              {
                                                $and: [
                                                  { "$in": [{ "$type": "$$one.reserved" }, ["long", "int"]] }
                                                  { "$gte": ["$$one.reserved", 0] }
                                                  { "$lte": ["$$one.reserved", 9007199254740991] }
                                                ]
                                              }
                                              {
                                                $cond: [
                                                  { "$in": [{ "$type": "$$one.buckets" }, ["binData"]] }
                                                  { "$eq": [{ "$binarySize": "$$one.buckets" }, 1024] }
                                                  { "$in": [{ "$type": "$$one.buckets" }, ["missing", "null"]] }
                                                ]
                                              }
                                            ]
                                          }
                                        }
                                      }
                                    ]
                                  }
                                ]
                              }
                              {
                                $and: [
                                  { "$isArray": "$requests" }
                                  {
                                    $allElementsTrue: [
                                      {
                                        $map: {
                                          input: "$requests"
                                          as: "one"
                                          in: {
                                            $and: [
                                              { "$in": [{ "$type": "$$one.kind" }, ["string"]] }
                                              { "$in": [{ "$type": "$$one.key" }, ["string"]] }
                                              { "$in": [{ "$type": "$$one.by" }, ["string"]] }
                                              { "$in": [{ "$type": "$$one.why" }, ["string"]] }
                                              {
                                                $and: [
                                                  { "$in": [{ "$type": "$$one.term" }, ["long", "int"]] }
                                                  { "$gte": ["$$one.term", 0] }
                                                  { "$lte": ["$$one.term", 9007199254740991] }
                                                ]
                                              }
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
                            $and: [
                              { "$in": [{ "$type": "$beat" }, ["long", "int"]] }
                              { "$gte": ["$beat", 0] }
                              { "$lte": ["$beat", 9007199254740991] }
                            ]
                          }
                          { "$lt": ["$beat", 12] }
                        ]
                      }
                      {
                        $mergeObjects: [
                          "$$ROOT"
                          { "$literal": { "beat": 12, "nonce": 99, "stalled_since": null } }
                          {
                            beat_at: "$$NOW"
                            requests: {
                              $filter: {
                                input: "$requests"
                                as: "request"
                                cond: {
                                  $not: {
                                    $in: [
                                      { "kind": "$$request.kind", "key": "$$request.key", "term": "$$request.term" }
                                      { "$literal": [{ "kind": "lock", "key": "$report", "term": 5 }] }
                                    ]
                                  }
                                }
                              }
                            }
                          }
                        ]
                      }
                      "$$ROOT"
                    ]
                  }
                }
              ]
              upsert: false
            }"#]],
    );
}

#[test]
fn a_declaration() {
    let declaration = Declaration {
        session: SessionId::from_u128(0xab),
        ground: Evidence::Unbeaten { nonce: Nonce::new(99) },
        by: "$pod".parse().unwrap(),
        why: Why::new("no beat for 30s").unwrap(),
        tell: Vec::new(),
    };
    check(
        declare_statement(&declaration),
        expect![[r#"
            {
              q: { "_id": "000000000000000000000000000000ab" }
              u: [
                {
                  $replaceWith: {
                    $cond: [
                      {
                        $and: [
                          {
                            $and: [
                              { "$eq": ["$death", null] }
                              { "$eq": ["$v", 2] }
                              { "$in": [{ "$type": "$ns" }, ["string"]] }
                              { "$in": [{ "$type": "$holder" }, ["string"]] }
                              { "$in": [{ "$type": "$host" }, ["string"]] }
                              { "$in": [{ "$type": "$program" }, ["string"]] }
                              { "$in": [{ "$type": "$started" }, ["date"]] }
                              { "$in": [{ "$type": "$beat_at" }, ["date"]] }
                              { "$in": [{ "$type": "$stalled_since" }, ["missing", "null", "date"]] }
                              {
                                $and: [
                                  { "$in": [{ "$type": "$beat" }, ["long", "int"]] }
                                  { "$gte": ["$beat", 0] }
                                  { "$lte": ["$beat", 9007199254740991] }
                                ]
                              }
                              {
                                $and: [
                                  { "$in": [{ "$type": "$nonce" }, ["long", "int"]] }
                                  { "$gte": ["$nonce", 0] }
                                  { "$lte": ["$nonce", 9007199254740991] }
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
                                  {
                                    $and: [
                                      { "$in": [{ "$type": "$pid" }, ["long", "int"]] }
                                      { "$gte": ["$pid", 0] }
                                      { "$lte": ["$pid", 9007199254740991] }
                                    ]
                                  }
                                  { "$lte": ["$pid", 4294967295] }
                                ]
                              }
                              {
                                $and: [
                                  {
                                    $and: [
                                      { "$in": [{ "$type": "$plan_version" }, ["long", "int"]] }
                                      { "$gte": ["$plan_version", 0] }
                                      { "$lte": ["$plan_version", 9007199254740991] }
                                    ]
                                  }
                                  { "$lte": ["$plan_version", 4294967295] }
                                ]
                              }
                              {
                                $and: [
                                  { "$isArray": "$shares" }
                                  {
                                    $allElementsTrue: [
                                      {
                                        $map: {
                                          input: "$shares"
                                          as: "one"
                                          in: {
                                            $and: [
                                              { "$in": [{ "$type": "$$one.spread" }, ["string"]] }
                                              { "$in": [{ "$type": "$$one.digest" }, ["string"]] }
                                              { "$in": [{ "$type": "$$one.draining" }, ["bool"]] }
                                              { "$in": [{ "$type": "$$one.paused" }, ["bool"]] }
                                              {
                                                $and: [
                                                  {
                                                    $and: [
                                                      { "$in": [{ "$type": "$$one.cap" }, ["long", "int"]] }
                                                      { "$gte": ["$$one.cap", 0] }
                                                      { "$lte": ["$$one.cap", 9007199254740991] }
                                                    ]
                                                  }
                                                  { "$lte": ["$$one.cap", 4294967295] }
                                                ]
                                              }
                                              {
                                                $and: [
                                                  {
                                                    $and: [
                                                      { "$in": [{ "$type": "$$one.weight" }, ["long", "int"]] }
                                                      { "$gte": ["$$one.weight", 0] }
                                                      { "$lte": ["$$one.weight", 9007199254740991] }
                                                    ]
                                                  }
                                                  { "$lte": ["$$one.weight", 4294967295] }
                                                ]
                                              }
                                              {
                                                $and: [
                                                  { "$in": [{ "$type": "$$one.reserved" }, ["long", "int"]] }
                                                  { "$gte": ["$$one.reserved", 0] }
                                                  { "$lte": ["$$one.reserved", 9007199254740991] }
                                                ]
                                              }
                                              {
                                                $cond: [
                                                  { "$in": [{ "$type": "$$one.buckets" }, ["binData"]] }
                                                  { "$eq": [{ "$binarySize": "$$one.buckets" }, 1024] }
                                                  { "$in": [{ "$type": "$$one.buckets" }, ["missing", "null"]] }
                                                ]
                                              }
                                            ]
                                          }
                                        }
                                      }
                                    ]
                                  }
                                ]
                              }
                              {
                                $and: [
                                  { "$isArray": "$requests" }
                                  {
                                    $allElementsTrue: [
                                      {
                                        $map: {
                                          input: "$requests"
                                          as: "one"
                                          in: {
                                            $and: [
                                              { "$in": [{ "$type": "$$one.kind" }, ["string"]] }
                                              { "$in": [{ "$type": "$$one.key" }, ["string"]] }
                                              { "$in": [{ "$type": "$$one.by" }, ["string"]] }
                                              { "$in": [{ "$type": "$$one.why" }, ["string"]] }
                                              {
                                                $and: [
                                                  { "$in": [{ "$type": "$$one.term" }, ["long", "int"]] }
                                                  { "$gte": ["$$one.term", 0] }
                                                  { "$lte": ["$$one.term", 9007199254740991] }
                                                ]
                                              }
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
                          { "$eq": ["$nonce", 99] }
                        ]
                      }
                      {
                        $mergeObjects: [
                          "$$ROOT"
                          { "$literal": {} }
                          {
                            death: { "at": "$$NOW", "by": { "$literal": "$pod" }, "why": { "$literal": "no beat for 30s" } }
                          }
                        ]
                      }
                      "$$ROOT"
                    ]
                  }
                }
              ]
              upsert: false
            }"#]],
    );
}
