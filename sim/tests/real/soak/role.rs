//! The rights with which the fleet runs: those of the role that `docs/operations.md` shows, and those of
//! the program itself.

use mongodb::bson::{Document, doc, serialize_to_bson};

use crate::resource;

const PAGE: &str = include_str!("../../../../docs/operations.md");

/// The command that makes the documented role.
///
/// # Panics
/// If the page shows none.
pub(crate) fn documented() -> Document {
    let (_, after) = PAGE.split_once("createRole(").expect("the page shows how the role is made");
    let (role, _) = after.split_once("\n})").expect("its end stands on a line of its own");
    let role: serde_json::Value = serde_json::from_str(&format!("{role}}}")).expect("it is plain JSON");
    let mut command = doc! { "createRole": role["role"].as_str() };
    for field in ["privileges", "roles"] {
        let value = serialize_to_bson(&role[field]).expect("JSON is BSON");
        command.insert(field, value);
    }
    command
}

/// Rights for what the jobs do beside that.
pub(crate) fn of_the_program(database: &str) -> Vec<Document> {
    vec![doc! {
        "resource": { "db": database, "collection": resource::COLLECTION },
        "actions": ["update"],
    }]
}

#[test]
fn the_documented_role_is_made_of_what_the_page_says() {
    let role = documented();
    assert_eq!(role.get_str("createRole").unwrap(), "tenure");
    assert_eq!(role.get_array("privileges").unwrap().len(), 6);
}
