//! Snapshots of the commands sent to a server: no test here needs one.

mod lists;
mod lock_writes;
mod schedule_writes;

use std::{fmt::Write as _, time::Duration};

use bson::{Bson, doc};
use expect_test::Expect;

use super::documents::queries::Statement;
use crate::{
    model::{Holder, Kind, LockId, SessionId, Why},
    store::{Candidate, Ticket},
};

const LIMIT: Duration = Duration::from_millis(2500);

/// A document over several lines, as a person would write it.
fn pretty(value: &Bson, indent: usize, out: &mut String) {
    let pad = " ".repeat(indent + 2);
    match value {
        Bson::Document(document) if value.to_string().len() > 90 => {
            out.push_str("{\n");
            for (key, value) in document {
                write!(out, "{pad}{key}: ").expect("a string takes any text");
                pretty(value, indent + 2, out);
                out.push('\n');
            }
            write!(out, "{}}}", " ".repeat(indent)).expect("a string takes any text");
        }
        Bson::Array(values) if value.to_string().len() > 90 => {
            out.push_str("[\n");
            for value in values {
                out.push_str(&pad);
                pretty(value, indent + 2, out);
                out.push('\n');
            }
            write!(out, "{}]", " ".repeat(indent)).expect("a string takes any text");
        }
        short => out.push_str(&short.to_string()),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "reads better where it is called")]
fn check(statement: Statement, expected: Expect) {
    let mut text = String::new();
    let filter = doc! { "q": statement.filter, "u": statement.update, "upsert": statement.upsert };
    pretty(&filter.into(), 0, &mut text);
    expected.assert_eq(&text);
}

fn lock() -> LockId {
    LockId { namespace: "shop".parse().unwrap(), kind: Kind::Lock, key: "$report".parse().unwrap() }
}

fn candidate() -> Candidate {
    Candidate {
        session: SessionId::from_u128(0xab),
        ticket: Ticket::new(7),
        ttl: Duration::from_secs(30),
        holder: Holder::new("$exp").unwrap(),
        who: None,
        why: Some(Why::new("$$NOW").unwrap()),
        value: None,
        lock_delay: Duration::ZERO,
    }
}
