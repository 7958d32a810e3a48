//! The schedules of a namespace: listed, and deleted with their ledgers.

use std::time::Duration;

use bson::{Bson, Document, doc};

use super::{
    MongoStore,
    command::{CommandResult, write},
    documents::{read_schedule, schedule_id},
    queries::{self, Find, KeptRecords, merged},
    steps::{PURGE, by_id, id_of, page, place},
};
use crate::{
    model::{Namespace, ScheduleId, ScheduleRecord},
    store::{Cursor, Page},
};

/// How many schedules one page has at most: each is a command of its own.
const AT_MOST: usize = 100;

/// Whatever stands in `runs` of the schedules of a namespace that come after one of them by name. The first of it
/// is the record of the next one, or an entry of its ledger where there is no record.
fn after(namespace: &Namespace, schedule: Option<&str>) -> Document {
    let ns = namespace.as_str();
    let last = |schedule| doc! { "ns": ns, "schedule": schedule, "at": Bson::MaxKey };
    let from = doc! { "$gt": schedule.map_or_else(|| doc! { "ns": ns }, last) };
    doc! { "_id": merged([from, doc! { "$lt": { "ns": ns, "schedule": Bson::MaxKey } }]) }
}

/// From one schedule to the next over the primary index, past their ledgers: an index of the records alone would
/// have every deployment grant one more right.
pub(super) async fn list(
    store: MongoStore,
    namespace: Namespace,
    last: Option<Cursor>,
    at_most: usize,
    limit: Duration,
) -> CommandResult<Page<ScheduleRecord>> {
    let (mut last, at_most) = (id_of(place(last)?), at_most.clamp(1, AT_MOST));
    let mut found: Vec<Document> = Vec::new();
    // One more than the page tells whether it is the last.
    while found.len() <= at_most {
        let name = last.as_ref().and_then(|id| id.as_document()?.get_str("schedule").ok());
        let sort = Some(doc! { "_id": 1 });
        let next = Find { filter: after(&namespace, name), sort, at_most: Some(1), ..Find::default() };
        let Some(next) = store.find(&store.names().runs, next, limit).await?.pop() else { break };
        let Some(id) = next.get("_id").cloned() else { break };
        let is_record = id.as_document().is_some_and(|id| matches!(id.get("at"), Some(Bson::Null)));
        // An id that names no schedule is somebody else's, and would be found for ever.
        let names_one = id.as_document().is_some_and(|id| id.get_str("schedule").is_ok());
        if is_record {
            found.push(next);
        }
        if !names_one {
            break;
        }
        last = Some(id);
    }
    page(found, at_most, read_schedule, by_id)
}

/// The record first: whoever reads it afterwards begins anew, and makes up for nothing that the ledger does not
/// tell any more.
pub(super) async fn delete(store: MongoStore, schedule: ScheduleId, limit: Duration) -> CommandResult<bool> {
    let (database, names) = store.place();
    let delete = |ids: Vec<Bson>| {
        queries::delete(&names.runs, vec![queries::by_ids(ids)], KeptRecords::Majority, limit)
    };
    write(&database, delete(vec![schedule_id(&schedule).into()])).await?;
    let some = Find {
        filter: queries::runs_of(&schedule, None),
        sort: Some(doc! { "_id": 1 }),
        projection: Some(doc! { "_id": 1 }),
        at_most: Some(PURGE),
        ..Find::default()
    };
    let found = store.find(&names.runs, some, limit).await?;
    let ids: Vec<_> = found.iter().filter_map(|run| run.get("_id").cloned()).collect();
    let is_all = ids.len() < PURGE;
    if !ids.is_empty() {
        write(&database, delete(ids)).await?;
    }
    Ok(is_all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_after_a_schedule_is_past_its_ledger() {
        let namespace = Namespace::new("shop").unwrap();
        let end = doc! { "ns": "shop", "schedule": Bson::MaxKey };
        let all = doc! { "_id": { "$gt": { "ns": "shop" }, "$lt": end.clone() } };
        assert_eq!(after(&namespace, None), all);
        let last = doc! { "ns": "shop", "schedule": "$a", "at": Bson::MaxKey };
        assert_eq!(after(&namespace, Some("$a")), doc! { "_id": { "$gt": last, "$lt": end } });
    }
}
