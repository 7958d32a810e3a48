//! Rights of this user and abilities of the server, checked at the start, so that no operator finds out at the first
//! failover.
//!
//! Each question is the thing itself, done to nothing: an update that matches no record, a document that no
//! server takes. So the server judges, by whatever roles and resources it knows, and nothing is left behind.

use std::{collections::BTreeMap, ops::RangeInclusive};

use bson::{Bson, Document, doc};
use futures::{StreamExt, stream};
use mongodb::{
    Database,
    error::{Error as DriverError, ErrorKind},
};

use super::{
    codes::{
        BAD_VALUE, COMMAND_NOT_FOUND, COMMAND_NOT_SUPPORTED, FAILED_TO_PARSE, FEATURE_NOT_SUPPORTED,
        INVALID_OPTIONS, NOT_IMPLEMENTED, READ_CONCERN_MAJORITY_NOT_ENABLED, TYPE_MISMATCH, UNAUTHORIZED,
        UNDEFINED_VARIABLE,
    },
    error::{CommandFailure, CommandResult, ConnectError},
    messages,
    options::Collections,
};

/// The `_id` of no record: those of sessions and places are texts of another form, all others are documents.
const NOBODY: &str = "tenure asks what it may do";
/// The numbers of places in the server's own parsers.
const IN_A_PARSER: RangeInclusive<i32> = 20_000..=99_999;
/// The number of questions that are under way at once: a start on a server far away takes a few round trips,
/// and no more connections than the first locks will.
const AT_ONCE: usize = 4;

/// The actions that change nothing.
const READS: [&str; 3] = ["listCollections", "find", "listIndexes"];

/// A right: the name of the action, and its target.
struct Right {
    action: &'static str,
    on: String,
    question: Document,
}

/// All that the store does, on each of its collections, or all that it does to read.
fn needed(database: &str, names: &Collections, read_only: bool) -> Vec<Right> {
    let mut rights = vec![Right {
        action: "listCollections",
        on: database.to_owned(),
        question: doc! { "listCollections": 1, "filter": { "name": NOBODY }, "cursor": {} },
    }];
    for name in names.all() {
        let right = |action, question| Right { action, on: format!("{database}.{name}"), question };
        let one = doc! { "w": 1 };
        rights.extend([
            right("find", doc! { "find": name, "filter": { "_id": NOBODY }, "limit": 1 }),
            // An `_id` cannot be a list; a user that may insert learns that, one that may not does not.
            right(
                "insert",
                doc! { "insert": name, "documents": [{ "_id": [NOBODY] }], "writeConcern": one.clone() },
            ),
            right(
                "update",
                doc! {
                    "update": name,
                    "updates": [{ "q": { "_id": NOBODY }, "u": { "$set": { "v": 0 } } }],
                    "writeConcern": one.clone(),
                },
            ),
            right(
                "remove",
                doc! {
                    "delete": name,
                    "deletes": [{ "q": { "_id": NOBODY }, "limit": 1 }],
                    "writeConcern": one,
                },
            ),
            right("listIndexes", doc! { "listIndexes": name, "cursor": {} }),
        ]);
    }
    if read_only {
        rights.retain(|right| READS.contains(&right.action));
    }
    rights
}

/// The user whose rights are asked for: none, where the server asks for no login.
pub(crate) enum User {
    Nobody,
    Named(String),
    /// The server does not say.
    Unknown,
}

impl User {
    pub(crate) fn name(self) -> Option<String> {
        match self {
            Self::Named(name) => Some(name),
            Self::Nobody | Self::Unknown => None,
        }
    }
}

pub(crate) async fn user(database: &Database) -> User {
    let Ok(status) = database.run_command(doc! { "connectionStatus": 1 }).await else {
        return User::Unknown;
    };
    match status.get_document("authInfo").and_then(|info| info.get_array("authenticatedUsers")) {
        Ok(users) => match users.first().and_then(Bson::as_document).map(|user| user.get_str("user")) {
            Some(Ok(name)) => User::Named(name.to_owned()),
            Some(Err(_)) => User::Unknown,
            None => User::Nobody,
        },
        Err(_) => User::Unknown,
    }
}

/// Checks that the user has every right but those that only hints need, or every one to read.
pub(crate) async fn check(
    database: &Database,
    names: &Collections,
    read_only: bool,
) -> CommandResult<Result<(), ConnectError>> {
    let user = match user(database).await {
        User::Nobody => return Ok(Ok(())),
        user => user.name(),
    };
    let answers: Vec<CommandResult<Option<Right>>> = stream::iter(needed(database.name(), names, read_only))
        .map(|right| async move { Ok(is_refused(&right.question, database).await?.then_some(right)) })
        .buffered(AT_ONCE)
        .collect()
        .await;
    let lacking: Vec<_> =
        answers.into_iter().collect::<CommandResult<Vec<_>>>()?.into_iter().flatten().collect();
    if !lacking.is_empty() {
        let lacking = in_words(lacking.iter().map(|right| (right.action, right.on.as_str())));
        return Ok(Err(ConnectError::Rights { user, lacking, to_create: false }));
    }
    Ok(Ok(()))
}

/// Asks the server whether this user may not do it. Whatever else it says is no matter of rights.
async fn is_refused(question: &Document, database: &Database) -> CommandResult<bool> {
    match database.run_command(question.clone()).await {
        Ok(_) => Ok(false),
        Err(error) => match &*error.kind {
            ErrorKind::Command(command) => Ok(command.code == UNAUTHORIZED),
            _ => Err(error.into()),
        },
    }
}

/// Tells that the user lacks these rights, and the remedy.
pub(crate) fn may_not(user: Option<&str>, lacking: &str) -> String {
    let user = user.map_or_else(|| "the user".to_owned(), |user| format!("the user {user:?}"));
    format!("{user} may not {lacking}: grant that; docs/operations.md has the role it needs")
}

/// `insert, update on shop.waiters; remove on shop.locks, shop.runs`: collections that lack the same together.
pub(crate) fn in_words<'a>(lacking: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut places: Vec<(&str, Vec<&str>)> = Vec::new();
    for (action, on) in lacking {
        match places.iter_mut().find(|(place, _)| *place == on) {
            Some((_, actions)) => actions.push(action),
            None => places.push((on, vec![action])),
        }
    }
    let mut alike: BTreeMap<Vec<&str>, Vec<&str>> = BTreeMap::new();
    for (place, actions) in places {
        alike.entry(actions).or_default().push(place);
    }
    let parts = alike.iter().map(|(actions, on)| format!("{} on {}", actions.join(", "), on.join(", ")));
    parts.collect::<Vec<_>>().join("; ")
}

/// Checks that tenure's commands mean the same on this server. Servers that speak MongoDB's protocol and are none may
/// lack any of these, and one that is too old does. A store that only reads is not concerned by how others write.
pub(crate) async fn try_out(
    database: &Database,
    names: &Collections,
    read_only: bool,
) -> CommandResult<Result<(), ConnectError>> {
    let pipeline = |set: Bson| {
        doc! {
            "findAndModify": &names.sessions,
            "query": { "_id": NOBODY },
            "update": [{ "$set": { "v": set } }],
            "writeConcern": { "w": 1 },
        }
    };
    let majority = doc! {
        "find": &names.sessions, "filter": { "_id": NOBODY }, "limit": 1, "readConcern": { "level": "majority" },
    };
    let writes = [
        ("updates by an aggregation pipeline", pipeline(0.into())),
        ("the server's time in an update ($$NOW)", pipeline("$$NOW".into())),
    ];
    let writes = writes.into_iter().filter(|_| !read_only);
    for (what, command) in writes.chain([("reads from a majority", majority)]) {
        if let Err(error) = database.run_command(command).await {
            if !is_of_the_command(&error) {
                return Err(CommandFailure::from(error));
            }
            return Ok(Err(ConnectError::Unsupported { what, why: messages::message(&error) }));
        }
    }
    Ok(Ok(()))
}

/// Returns whether the server can never make anything of a command: it does not know the command, its syntax,
/// or an option. Every other error comes from the server's state, or from the user.
pub(crate) fn is_of_the_command(error: &DriverError) -> bool {
    let of_the_command = |code| {
        matches!(
            code,
            BAD_VALUE
                | FAILED_TO_PARSE
                | TYPE_MISMATCH
                | COMMAND_NOT_FOUND
                | INVALID_OPTIONS
                | COMMAND_NOT_SUPPORTED
                | READ_CONCERN_MAJORITY_NOT_ENABLED
                | NOT_IMPLEMENTED
                | FEATURE_NOT_SUPPORTED
                | UNDEFINED_VARIABLE
        ) || IN_A_PARSER.contains(&code)
    };
    matches!(&*error.kind, ErrorKind::Command(command) if of_the_command(command.code))
}

/// Creates every index that is missing, and says for which of them the right is.
pub(crate) async fn create_indexes(
    database: &Database,
    commands: Vec<Document>,
) -> Result<Vec<String>, DriverError> {
    let mut lacking = Vec::new();
    for command in commands {
        let collection = command.get_str("createIndexes").unwrap_or_default().to_owned();
        match database.run_command(command).await {
            Err(error) if matches!(&*error.kind, ErrorKind::Command(why) if why.code == UNAUTHORIZED) => {
                lacking.push(format!("{}.{collection}", database.name()));
            }
            other => drop(other?),
        }
    }
    lacking.dedup();
    Ok(lacking)
}

/// Names the user who lacks the rights to create what is missing.
pub(crate) async fn may_not_create(database: &Database, places: &[String]) -> ConnectError {
    let user = user(database).await.name();
    let lacking = in_words(places.iter().map(|place| ("createIndex", place.as_str())));
    ConnectError::Rights { user, lacking, to_create: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lacking_rights_are_told_once_for_all_collections_that_lack_the_same() {
        let lacking = [
            ("listCollections", "shop"),
            ("insert", "shop.waiters"),
            ("update", "shop.waiters"),
            ("remove", "shop.locks"),
            ("insert", "shop.runs"),
            ("update", "shop.runs"),
        ];
        assert_eq!(
            in_words(lacking),
            "insert, update on shop.waiters, shop.runs; listCollections on shop; remove on shop.locks"
        );
        assert_eq!(in_words([]), "");
    }

    #[test]
    fn every_collection_is_asked_for_whatever_is_done_to_it() {
        for (read_only, of_each) in [
            (false, &["find", "insert", "update", "remove", "listIndexes"][..]),
            (true, &["find", "listIndexes"]),
        ] {
            let rights = needed("shop", &Collections::new("t_"), read_only);
            assert_eq!(rights.len(), 1 + 5 * of_each.len());
            for name in ["sessions", "locks", "waiters", "fences", "runs"] {
                let on = format!("shop.t_{name}");
                let actions: Vec<_> =
                    rights.iter().filter(|right| right.on == on).map(|right| right.action).collect();
                assert_eq!(actions, of_each);
            }
        }
    }
}
