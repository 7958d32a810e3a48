//! The rows of schedules.

use rusqlite::params;

use super::{Outcome, SqlRows, bytes, rows, shown};
use super::{
    fields::{Fields, Raw, Read, long},
    json,
};
use crate::{
    model::{Holder, Namespace, Rules, ScheduleId, ScheduleName, StoreTime, Term, Why},
    store::{
        Definition, Pause, ScheduleRecord,
        sqlite::file::tables::LAYOUT,
        steps::{Listed, Row},
    },
};

macro_rules! columns {
    () => {
        "v, ns, name, timing, policies, since, term, pause_since, pause_until, pause_by, pause_why, pauses_before, \
         orders, mark"
    };
}

fn read_schedule(fields: &mut Fields<'_>) -> Read<ScheduleRecord> {
    let id = ScheduleId { namespace: fields.named(Namespace::new)?, name: fields.named(ScheduleName::new)? };
    let definition = if fields.is_null() {
        fields.skip(3);
        None
    } else {
        Some(Definition {
            timing: fields.named(Rules::new)?,
            policies: fields.named(Rules::new)?,
            since: fields.at()?,
            term: Term::new(fields.number()?),
        })
    };
    let pause = if fields.is_null() {
        fields.skip(3);
        None
    } else {
        Some(Pause {
            since: fields.at()?,
            until: fields.optional(Fields::at)?,
            by: fields.named(Holder::new)?,
            why: fields.named(Why::new)?,
        })
    };
    let (pauses_before, orders) = (fields.list(json::read_pauses)?, fields.list(json::read_orders)?);
    Ok(ScheduleRecord { id, definition, pause, pauses_before, orders, mark: fields.optional(Fields::at)? })
}

pub(super) fn read(sql: &SqlRows<'_>, id: &ScheduleId) -> Outcome<Row<ScheduleRecord>> {
    let by_name = concat!("SELECT ", columns!(), " FROM schedules WHERE ns = ?1 AND name = ?2");
    sql.one(by_name, [id.namespace.as_str(), id.name.as_str()], read_schedule)
}

pub(super) fn put(sql: &SqlRows<'_>, record: &ScheduleRecord) -> Outcome<()> {
    let put = "INSERT INTO schedules (ns, name, v, timing, policies, since, term, pause_since, pause_until, pause_by, \
         pause_why, pauses_before, orders, mark) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14) \
         ON CONFLICT (ns, name) DO UPDATE SET v = ?3, timing = ?4, policies = ?5, since = ?6, term = ?7, \
         pause_since = ?8, pause_until = ?9, pause_by = ?10, pause_why = ?11, pauses_before = ?12, orders = ?13, \
         mark = ?14";
    let (definition, pause) = (record.definition.as_ref(), record.pause.as_ref());
    let written = sql.write(
        put,
        params![
            record.id.namespace.as_str(),
            record.id.name.as_str(),
            LAYOUT,
            definition.map(|definition| definition.timing.as_str()),
            definition.map(|definition| definition.policies.as_str()),
            definition.map(|definition| definition.since.as_millis()),
            definition.map(|definition| long(definition.term.get())),
            pause.map(|pause| pause.since.as_millis()),
            pause.and_then(|pause| pause.until).map(StoreTime::as_millis),
            pause.map(|pause| pause.by.as_str()),
            pause.map(|pause| pause.why.as_str()),
            json::pauses(&record.pauses_before),
            json::orders(&record.orders),
            record.mark.map(StoreTime::as_millis),
        ],
    );
    written.map(drop)
}

pub(super) fn list(
    sql: &SqlRows<'_>,
    namespace: &Namespace,
    after: Option<&[u8]>,
    at_most: usize,
) -> Outcome<Vec<Listed<ScheduleRecord>>> {
    let all =
        concat!("SELECT ", columns!(), " FROM schedules WHERE ns = ?1 AND name > ?2 ORDER BY name LIMIT ?3");
    let params = params![namespace.as_str(), Raw(after.unwrap_or_default()), rows(at_most)];
    sql.listed(all, params, read_schedule, |fields| {
        let [ns, name] = [bytes(fields), bytes(fields)];
        (name.to_vec(), format!("schedule {:?} of {}", shown(name), shown(ns)))
    })
}
