//! The collections and their indexes: as code, the same every time, and as text for operators who apply them by hand.

use std::fmt::Write as _;

use bson::{Document, doc};

use super::options::Collections;

/// An index, and its purpose.
struct Index {
    collection: String,
    name: &'static str,
    keys: Document,
    /// Only documents that match are in it.
    partial: Option<Document>,
    purpose: &'static str,
}

fn indexes(names: &Collections) -> Vec<Index> {
    let index = |collection: &String, name, keys, purpose| Index {
        collection: collection.clone(),
        name,
        keys,
        partial: None,
        purpose,
    };
    vec![
        index(
            &names.sessions,
            "members",
            doc! { "ns": 1, "_id": 1 },
            "the sessions of a namespace, page by page",
        ),
        Index {
            // Everything the audit compares, so that it reads the index alone.
            partial: Some(doc! { "session": { "$gt": "" } }),
            ..index(
                &names.locks,
                "audit",
                doc! { "session": 1, "term": -1, "_id": 1, "ticket": 1 },
                "what a session holds, latest term first",
            )
        },
        index(
            &names.waiters,
            "line",
            doc! { "lock": 1, "since": 1, "_id": 1 },
            "the first who wait for a lock",
        ),
        index(
            &names.waiters,
            "places",
            doc! { "session": 1 },
            "the places in the queue of a session that is purged",
        ),
        index(&names.fences, "fences", doc! { "lock": 1 }, "the fences of a lock that is purged"),
    ]
}

/// The commands that create every collection with the plain comparison of texts. A collection whose
/// collation takes `Key` for `key` would let one lock stand for both.
pub(crate) fn create_collections(names: &Collections) -> Vec<Document> {
    names.all().into_iter().map(|name| doc! { "create": name }).collect()
}

/// The commands that create every index.
pub(crate) fn create_indexes(names: &Collections) -> Vec<Document> {
    let command = |index: Index| {
        let mut spec = doc! { "key": index.keys, "name": index.name };
        if let Some(partial) = index.partial {
            spec.insert("partialFilterExpression", partial);
        }
        doc! { "createIndexes": index.collection, "indexes": [spec] }
    };
    indexes(names).into_iter().map(command).collect()
}

/// The collections, and the names of the indexes of each.
pub(crate) fn names(names: &Collections) -> Vec<(String, Vec<&'static str>)> {
    let all = indexes(names);
    let of =
        |name: &str| all.iter().filter(|index| index.collection == name).map(|index| index.name).collect();
    names.all().into_iter().map(|name| (name.to_owned(), of(name))).collect()
}

/// The same as a script for the server's shell.
pub(crate) fn script(database: &str, names: &Collections) -> String {
    let mut script = format!("const tenure = db.getSiblingDB({database:?});\n");
    for name in names.all() {
        let _ = writeln!(script, "tenure.createCollection({name:?});");
    }
    for index in indexes(names) {
        let mut options = doc! { "name": index.name };
        if let Some(partial) = &index.partial {
            options.insert("partialFilterExpression", partial.clone());
        }
        let _ = writeln!(
            script,
            "// {}\ntenure.getCollection({:?}).createIndex({}, {options});",
            index.purpose, index.collection, index.keys
        );
    }
    script
}
