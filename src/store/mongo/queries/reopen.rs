//! What opens a lock that is kept closed.

use bson::doc;

use super::{Statement, changed_if, is_sane_lock, lock_id, long, not_closed, overlaid};
use crate::model::Request;

/// Opens a lock that nobody has held since that term.
pub(in crate::store::mongo) fn reopen(request: &Request) -> Statement {
    let condition = doc! { "$and": [
        is_sane_lock(),
        { "$eq": ["$term", long(request.term.get())] },
        { "$eq": ["$session", null] },
    ] };
    let opened = overlaid(not_closed(), doc! {});
    Statement::pipeline(doc! { "_id": lock_id(&request.lock) }, changed_if(condition, opened))
}

#[cfg(test)]
mod tests {
    use bson::Bson;

    use super::*;
    use crate::model::{Kind, LockId, Term, Why};

    #[test]
    fn it_says_nothing_else_of_the_record_and_inserts_none() {
        let lock =
            LockId { namespace: "shop".parse().unwrap(), kind: Kind::Lock, key: "$report".parse().unwrap() };
        let by = "$admin".parse().unwrap();
        let request = Request { lock, term: Term::new(5), by, why: Why::new("$mended").unwrap() };
        let statement = reopen(&request);
        assert_eq!(statement.filter, doc! { "_id": { "ns": "shop", "kind": "lock", "key": "$report" } });
        assert!(!statement.upsert);
        let [Bson::Document(stage)] = &statement.update.as_array().unwrap()[..] else { panic!("one stage") };
        let change = stage.get_document("$replaceWith").unwrap().get_array("$cond").unwrap();
        let needed = &change[0].as_document().unwrap().get_array("$and").unwrap()[1..];
        assert_eq!(
            needed,
            [doc! { "$eq": ["$term", 5_i64] }.into(), Bson::Document(doc! { "$eq": ["$session", null] })]
        );
        let opened = doc! { "$mergeObjects": [
            "$$ROOT", { "$literal": { "not_before": null, "closed_for": null } }, {},
        ] };
        assert_eq!(change[1..], [Bson::Document(opened), "$$ROOT".into()]);
    }
}
