use bson::doc;

use super::LIMIT;
use crate::{
    model::Kind,
    store::mongo::{documents::queries, ops::locks::listed_locks},
};

#[test]
fn a_list_of_locks_is_what_the_primary_has_now_and_one_of_tasks_what_a_majority_has() {
    let tasks = Kind::Task("topics".parse().unwrap());
    for (kind, level) in [
        (None, "local"),
        (Some(Kind::Lock), "local"),
        (Some(Kind::Schedule), "majority"),
        (Some(tasks), "majority"),
    ] {
        let wanted = listed_locks(&"shop".parse().unwrap(), kind.as_ref(), None, 10);
        let command = queries::find("locks", wanted, LIMIT);
        let concern = command.get_document("readConcern").unwrap();
        assert_eq!(concern, &doc! { "level": level }, "{kind:?}");
        // One more than wanted says whether there is more.
        assert_eq!(command.get_i64("limit").unwrap(), 11);
    }
}
