//! The rows of ledgers.

use rusqlite::{params, types::ValueRef};

use super::fields::{Fields, Raw, Read, long, parts, place, quoted};
use super::{Failure, Outcome, SqlRows, bytes, rows, shown};
use crate::{
    model::{
        Entry, Finish, Holder, Namespace, Outcome as End, RunId, RunRecord, ScheduleId, ScheduleName,
        Skipped, StoreTime, Term, Why,
    },
    store::{
        sqlite::file::tables::LAYOUT,
        steps::{Listed, Row},
    },
};

macro_rules! columns {
    () => {
        "v, ns, schedule, at, entry, session, holder, term, attempt, started, finished_at, outcome, error, last, \
         skipped_from, skipped_count, skipped_why"
    };
}

/// The word for an entry, in the order of the ledger.
const fn word(entry: Entry) -> &'static str {
    match entry {
        Entry::Tick => "",
        Entry::Order => "order",
        Entry::Skipped => "skipped",
    }
}

fn read_run(fields: &mut Fields<'_>) -> Read<RunRecord> {
    let schedule =
        ScheduleId { namespace: fields.named(Namespace::new)?, name: fields.named(ScheduleName::new)? };
    let instant = fields.at()?;
    let found = fields.text()?;
    let all = [Entry::Tick, Entry::Order, Entry::Skipped];
    let entry = all.into_iter().find(|entry| word(*entry) == found);
    let entry = entry.ok_or_else(|| fields.wrong(format_args!("is {}, which is no entry", quoted(found))))?;
    let session = fields.session()?;
    let holder = fields.named(Holder::new)?;
    let (term, attempt, started) = (Term::new(fields.number()?), fields.small()?, fields.at()?);
    let finish = if fields.is_null() {
        fields.skip(3);
        None
    } else {
        let at = fields.at()?;
        let found = fields.text()?;
        let outcome = End::ALL.into_iter().find(|outcome| outcome.as_str() == found);
        let outcome =
            outcome.ok_or_else(|| fields.wrong(format_args!("is {}, which is no end", quoted(found))))?;
        let error = fields.optional(|fields| fields.named(Why::new))?;
        Some(Finish { at, outcome, error, last: fields.bool()? })
    };
    let skipped = if fields.is_null() {
        None
    } else {
        Some(Skipped { from: fields.at()?, count: fields.number()?, why: fields.named(Why::new)? })
    };
    let id = RunId { schedule, instant, entry };
    Ok(RunRecord { id, session, holder, term, attempt, started, finish, skipped })
}

pub(super) fn read(sql: &SqlRows<'_>, id: &RunId) -> Outcome<Row<RunRecord>> {
    let by_id = concat!(
        "SELECT ",
        columns!(),
        " FROM runs WHERE ns = ?1 AND schedule = ?2 AND at = ?3 AND entry = ?4"
    );
    let RunId { schedule, instant, entry } = id;
    let key = params![schedule.namespace.as_str(), schedule.name.as_str(), instant.as_millis(), word(*entry)];
    sql.one(by_id, key, read_run)
}

pub(super) fn put(sql: &SqlRows<'_>, record: &RunRecord) -> Outcome<()> {
    let put = "INSERT INTO runs (ns, schedule, at, entry, v, session, holder, term, attempt, started, finished_at, \
         outcome, error, last, skipped_from, skipped_count, skipped_why) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17) \
         ON CONFLICT (ns, schedule, at, entry) DO UPDATE SET v = ?5, session = ?6, holder = ?7, term = ?8, \
         attempt = ?9, started = ?10, finished_at = ?11, outcome = ?12, error = ?13, last = ?14, \
         skipped_from = ?15, skipped_count = ?16, skipped_why = ?17";
    let RunId { schedule, instant, entry } = &record.id;
    let (finish, skipped) = (record.finish.as_ref(), record.skipped.as_ref());
    let written = sql.write(
        put,
        params![
            schedule.namespace.as_str(),
            schedule.name.as_str(),
            instant.as_millis(),
            word(*entry),
            LAYOUT,
            record.session.to_string(),
            record.holder.as_str(),
            long(record.term.get()),
            record.attempt,
            record.started.as_millis(),
            finish.map(|finish| finish.at.as_millis()),
            finish.map(|finish| finish.outcome.as_str()),
            finish.and_then(|finish| finish.error.as_ref()).map(Why::as_str),
            finish.map(|finish| finish.last),
            skipped.map(|skipped| skipped.from.as_millis()),
            skipped.map(|skipped| long(skipped.count)),
            skipped.map(|skipped| skipped.why.as_str()),
        ],
    );
    written.map(drop)
}

pub(super) fn delete(sql: &SqlRows<'_>, id: &RunId) -> Outcome<()> {
    let RunId { schedule, instant, entry } = id;
    let key = params![schedule.namespace.as_str(), schedule.name.as_str(), instant.as_millis(), word(*entry)];
    sql.write("DELETE FROM runs WHERE ns = ?1 AND schedule = ?2 AND at = ?3 AND entry = ?4", key).map(drop)
}

fn name(fields: &mut Fields<'_>) -> (Vec<u8>, String) {
    let [ns, schedule] = [bytes(fields), bytes(fields)];
    let at = match fields.take() {
        ValueRef::Integer(at) => at,
        _ => 0,
    };
    let entry = bytes(fields);
    let name =
        format!("{} {} of {:?} of {}", shown(entry), StoreTime::from_millis(at), shown(schedule), shown(ns));
    (place(&[&at.to_be_bytes(), entry]), name.trim_start().to_owned())
}

pub(super) fn list(
    sql: &SqlRows<'_>,
    schedule: &ScheduleId,
    after: Option<&[u8]>,
    at_most: usize,
) -> Outcome<Vec<Listed<RunRecord>>> {
    let (ns, schedule) = (schedule.namespace.as_str(), schedule.name.as_str());
    let Some(after) = after else {
        let first = concat!(
            "SELECT ",
            columns!(),
            " FROM runs WHERE ns = ?1 AND schedule = ?2 ORDER BY at DESC, entry DESC LIMIT ?3"
        );
        return sql.listed(first, params![ns, schedule, rows(at_most)], read_run, name);
    };
    let [at, entry] = parts::<2>(after).ok_or(Failure::NoPlace)?;
    let at = i64::from_be_bytes(at.try_into().map_err(|_| Failure::NoPlace)?);
    let next = concat!(
        "SELECT ",
        columns!(),
        " FROM runs WHERE ns = ?1 AND schedule = ?2 AND (at, entry) < (?3, ?4) ",
        "ORDER BY at DESC, entry DESC LIMIT ?5"
    );
    sql.listed(next, params![ns, schedule, at, Raw(entry), rows(at_most)], read_run, name)
}

pub(super) fn old(
    sql: &SqlRows<'_>,
    schedule: &ScheduleId,
    before: StoreTime,
    keep: usize,
    at_most: usize,
) -> Outcome<Vec<RunRecord>> {
    let (ns, schedule) = (schedule.namespace.as_str(), schedule.name.as_str());
    // The first of those that are kept, if there are as many.
    let mut first_kept = None;
    if keep > 0 {
        let kept = "SELECT at, entry FROM runs WHERE ns = ?1 AND schedule = ?2 \
             ORDER BY at DESC, entry DESC LIMIT 1 OFFSET ?3";
        sql.each(kept, params![ns, schedule, rows(keep - 1)], |row| {
            let mut fields = Fields::plain(row);
            first_kept = fields.at().ok().map(|at| (at, bytes(&mut fields).to_vec()));
            Ok(())
        })?;
        if first_kept.is_none() {
            return Ok(Vec::new());
        }
    }
    let (at, entry) = first_kept.map_or((i64::MAX, b"~".to_vec()), |(at, entry)| (at.as_millis(), entry));
    let old = concat!(
        "SELECT ",
        columns!(),
        " FROM runs WHERE ns = ?1 AND schedule = ?2 AND (at, entry) < (?3, ?4) AND started < ?5 AND v = ?6 ",
        "ORDER BY at, entry LIMIT ?7"
    );
    let params = params![ns, schedule, at, Raw(&entry), before.as_millis(), LAYOUT, rows(at_most)];
    let listed = sql.listed(old, params, read_run, name)?;
    Ok(listed.into_iter().filter_map(|run| run.record.ok()).collect())
}

pub(super) fn delete_of(sql: &SqlRows<'_>, schedule: &ScheduleId, at_most: usize) -> Outcome<bool> {
    let gone = sql.write(
        "DELETE FROM runs WHERE rowid IN (SELECT rowid FROM runs WHERE ns = ?1 AND schedule = ?2 LIMIT ?3)",
        params![schedule.namespace.as_str(), schedule.name.as_str(), rows(at_most)],
    )?;
    Ok(gone < at_most)
}
