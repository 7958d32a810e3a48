//! The least rights of the store's user, as text for operators who create it by hand.

use std::fmt::Write as _;

use super::options::Collections;

/// A script for the server's shell that creates the role.
pub(crate) fn script(database: &str, names: &Collections, prefix: &str, bells_in_local: bool) -> String {
    let mut script = format!(
        "db.getSiblingDB({database:?}).createRole({{\n  \"role\": \"tenure\",\n  \"privileges\": [\n"
    );
    privilege(&mut script, database, "", &["listCollections"], false);
    for name in [&names.sessions, &names.locks, &names.waiters, &names.fences] {
        let actions = ["find", "insert", "update", "remove", "createIndex", "listIndexes"];
        privilege(&mut script, database, name, &actions, false);
    }
    privilege(
        &mut script,
        database,
        &names.runs,
        &["find", "insert", "update", "remove", "listIndexes"],
        true,
    );
    script.push_str("  ],\n  \"roles\": []\n})\n");
    if bells_in_local {
        script.push_str(
            "// The bells are in the database local: a role of the database admin has to allow find, insert and\n\
             // convertToCapped on them, and listCollections on local.\n",
        );
        return script;
    }
    // A string writes itself.
    let _ = write!(
        script,
        "db.getSiblingDB({database:?}).grantPrivilegesToRole(\"tenure\", [...Array(64).keys()].map((n) => ({{\n  \
         \"resource\": {{ \"db\": {database:?}, \"collection\": {:?} + String(n).padStart(2, \"0\") }},\n  \
         \"actions\": [\"find\", \"insert\", \"convertToCapped\"]\n}})))\n",
        format!("{prefix}bells_"),
    );
    script
}

fn privilege(script: &mut String, database: &str, collection: &str, actions: &[&str], is_last: bool) {
    let comma = if is_last { "" } else { "," };
    let _ = write!(
        script,
        "    {{\n      \"resource\": {{ \"db\": {database:?}, \"collection\": {collection:?} }},\n      \
         \"actions\": [{}]\n    }}{comma}\n",
        actions.iter().map(|action| format!("{action:?}")).collect::<Vec<_>>().join(", ")
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The role of the page is the one that tests on a real server give the store's user.
    #[test]
    fn the_script_is_the_one_of_the_page() {
        let page = include_str!("../../../../docs/operations.md");
        let script = script("tenure", &Collections::new(""), "", false);
        let (role, bells) = script.split_at(script.find("db.getSiblingDB(\"tenure\").grant").unwrap());
        assert!(page.contains(role.trim()), "{role}");
        assert!(page.contains(bells.trim()), "{bells}");
    }
}
