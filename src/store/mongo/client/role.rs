//! The least rights of the store's user, as text for operators who create it by hand.

use std::fmt::Write as _;

use super::options::{Collections, MongoOptions};

/// A script for the server's shell that creates the role of a store with these options.
pub(crate) fn script(database: &str, names: &Collections, options: &MongoOptions) -> String {
    let (role, of_each, of_bells): (&str, &[&str], &[&str]) = if options.read_only {
        ("tenureReader", &["find", "listIndexes"], &["find"])
    } else {
        let of_each: &[&str] = &["find", "insert", "update", "remove", "createIndex", "listIndexes"];
        ("tenure", of_each, &["find", "insert", "convertToCapped"])
    };
    let mut script =
        format!("db.getSiblingDB({database:?}).createRole({{\n  \"role\": {role:?},\n  \"privileges\": [\n");
    privilege(&mut script, database, "", &["listCollections"], false);
    for name in [&names.sessions, &names.locks, &names.waiters, &names.fences] {
        privilege(&mut script, database, name, of_each, false);
    }
    // The ledgers are read by the index of the `_id` alone.
    let of_runs: Vec<_> = of_each.iter().copied().filter(|action| *action != "createIndex").collect();
    privilege(&mut script, database, &names.runs, &of_runs, true);
    script.push_str("  ],\n  \"roles\": []\n})\n");
    // A string writes itself.
    let _ = write!(
        script,
        "db.getSiblingDB({database:?}).grantPrivilegesToRole({role:?}, [...Array(64).keys()].map((n) => ({{\n  \
         \"resource\": {{ \"db\": {database:?}, \"collection\": {:?} + String(n).padStart(2, \"0\") }},\n  \
         \"actions\": [{}]\n}})))\n",
        format!("{}bells_", options.prefix),
        quoted(of_bells),
    );
    script
}

fn privilege(script: &mut String, database: &str, collection: &str, actions: &[&str], is_last: bool) {
    let comma = if is_last { "" } else { "," };
    let _ = write!(
        script,
        "    {{\n      \"resource\": {{ \"db\": {database:?}, \"collection\": {collection:?} }},\n      \
         \"actions\": [{}]\n    }}{comma}\n",
        quoted(actions)
    );
}

fn quoted(actions: &[&str]) -> String {
    actions.iter().map(|action| format!("{action:?}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The roles of the page are those that tests on a real server give the store's user.
    #[test]
    fn the_script_is_the_one_of_the_page() {
        let page = include_str!("../../../../docs/operations.md");
        for read_only in [false, true] {
            let options = MongoOptions::new().read_only(read_only);
            let script = script("tenure", &Collections::new(""), &options);
            let (role, bells) = script.split_at(script.find("db.getSiblingDB(\"tenure\").grant").unwrap());
            assert!(page.contains(role.trim()), "{role}");
            assert!(page.contains(bells.trim()), "{bells}");
        }
    }
}
