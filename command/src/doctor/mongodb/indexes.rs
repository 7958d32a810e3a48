//! The indexes of the store's collections: all have to be there, and none may delete records.

use tenure::store::mongo::{
    MongoOptions,
    driver::{
        Client,
        bson::{Document, doc},
        error::{Error, ErrorKind},
    },
    index_names,
};

use super::{super::findings::Findings, LIMIT, short};

/// The server's code for a collection that is not there.
const NAMESPACE_NOT_FOUND: i32 = 26;

/// Indexes that are missing, and those that delete records.
pub(super) async fn look(client: &Client, findings: &mut Findings) {
    let database = client.default_database().unwrap_or_else(|| client.database("tenure"));
    let wanted = index_names(&MongoOptions::new());
    let (mut absent, mut is_well) = (Vec::new(), true);
    for (collection, wanted) in &wanted {
        let list = doc! { "listIndexes": collection, "cursor": { "batchSize": 100 } };
        let found = match tokio::time::timeout(LIMIT, database.run_command(list)).await {
            Ok(Ok(found)) => found,
            Ok(Err(error)) if error_code(&error) == Some(NAMESPACE_NOT_FOUND) => {
                absent.push(collection.as_str());
                continue;
            }
            Ok(Err(error)) => {
                findings.untested("indexes", format!("{collection}: {}", short(&error.kind.to_string())));
                return;
            }
            Err(_) => {
                findings.untested("indexes", format!("{collection}: it does not answer"));
                return;
            }
        };
        let found = found.get_document("cursor").and_then(|cursor| cursor.get_array("firstBatch"));
        let found: Vec<&Document> =
            found.into_iter().flatten().filter_map(|index| index.as_document()).collect();
        for (is_bad, says, advice) in judge_indexes(collection, wanted, &found) {
            is_well = false;
            if is_bad {
                findings.bad("indexes", says, advice);
            } else {
                findings.warning("indexes", says, advice);
            }
        }
    }
    if absent.len() == wanted.len() {
        let database = database.name();
        findings.note(
            "indexes",
            format!(
                "{database} has no collection of tenure yet: created on first use, if the user has the right"
            ),
        );
    } else if !absent.is_empty() {
        findings.warning(
            "indexes",
            format!("there is no collection {}", absent.join(", ")),
            "run in mongosh what `tenure schema` prints",
        );
    } else if is_well {
        findings.ok("indexes", "all are there, and none deletes records");
    }
}

/// Returns the faults of a collection's indexes: whether records are lost, a sentence, and advice.
fn judge_indexes(collection: &str, wanted: &[&str], found: &[&Document]) -> Vec<(bool, String, String)> {
    let name = |index: &&Document| index.get_str("name").unwrap_or("of no name").to_owned();
    let mut wrong = Vec::new();
    for index in found.iter().filter(|index| index.contains_key("expireAfterSeconds")) {
        wrong.push((
            true,
            format!("the TTL index {} of {collection} deletes records that are in use", name(index)),
            format!(
                "drop it, tenure purges old records itself: db.{collection}.dropIndex({:?})",
                name(index)
            ),
        ));
    }
    let there: Vec<String> = found.iter().map(name).collect();
    let missing: Vec<&str> =
        wanted.iter().copied().filter(|wanted| !there.iter().any(|name| name == wanted)).collect();
    if !missing.is_empty() {
        wrong.push((
            false,
            format!("{collection} lacks the index {}, so queries read every record", missing.join(", ")),
            "run in mongosh what `tenure schema` prints".to_owned(),
        ));
    }
    wrong
}

fn error_code(error: &Error) -> Option<i32> {
    if let ErrorKind::Command(error) = &*error.kind { Some(error.code) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_that_are_missing_and_those_that_delete_are_named() {
        let plain = |name: &str| doc! { "name": name };
        let (id, audit, ttl) =
            (plain("_id_"), plain("audit"), doc! { "name": "old", "expireAfterSeconds": 60 });
        assert_eq!(judge_indexes("locks", &["audit"], &[&id, &audit]), []);
        let wrong = judge_indexes("locks", &["audit"], &[&id, &ttl]);
        assert_eq!(wrong.len(), 2);
        assert!(wrong[0].0 && wrong[0].1.contains("TTL index old of locks"), "{wrong:?}");
        assert!(!wrong[1].0 && wrong[1].1.contains("locks lacks the index audit"), "{wrong:?}");
    }
}
