//! The rights with which the fleet runs: no more than tenure needs, and those of the program itself.

use mongodb::bson::{Document, doc};

use crate::resource;

/// The role that `docs/operations.md` shows.
pub(crate) fn privileges(database: &str) -> Vec<Document> {
    let names = ["sessions", "locks", "waiters", "fences", "runs"];
    let records = names.map(|collection| {
        doc! {
            "resource": { "db": database, "collection": collection },
            "actions": ["find", "insert", "update", "remove", "createCollection", "createIndex", "listIndexes"],
        }
    });
    let whole = doc! {
        "resource": { "db": database, "collection": "" },
        "actions": ["listCollections", "find", "changeStream"],
    };
    records.into_iter().chain([whole]).collect()
}

/// What the jobs do beside that.
pub(crate) fn of_the_program(database: &str) -> Vec<Document> {
    vec![doc! {
        "resource": { "db": database, "collection": resource::COLLECTION },
        "actions": ["find", "update"],
    }]
}
