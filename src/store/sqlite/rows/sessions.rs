//! The rows of sessions.

use rusqlite::params;

use super::{Outcome, SqlRows, bytes, rows, shown};
use super::{
    fields::{Fields, Raw, Read, long, millis},
    json,
};
use crate::{
    model::{Holder, Namespace, SessionId, StoreTime, Why},
    store::{
        About, Beat, Death, Drained, Nonce, SessionRecord,
        sqlite::{file::tables::LAYOUT, proof::Identity},
        steps::{Listed, Row},
    },
};

macro_rules! columns {
    () => {
        "v, id, ns, holder, host, pid, program, plan_version, started, beat, nonce, beat_at, stalled_since, ttl_ms, \
         died_at, died_by, died_why, shares, requests, drained_at, drained_by, drained_why"
    };
}

fn read_session(fields: &mut Fields<'_>) -> Read<SessionRecord> {
    let id = fields.session()?;
    let about = About {
        namespace: fields.named(Namespace::new)?,
        holder: fields.named(Holder::new)?,
        host: fields.text()?.to_owned(),
        pid: fields.small()?,
        program: fields.text()?.to_owned(),
        plan_version: fields.small()?,
    };
    let (started, beat, nonce) = (fields.at()?, Beat::new(fields.number()?), Nonce::new(fields.number()?));
    let (beat_at, stalled_since, ttl) = (fields.at()?, fields.optional(Fields::at)?, fields.time()?);
    let death = if fields.is_null() {
        fields.skip(2);
        None
    } else {
        Some(Death { at: fields.at()?, by: fields.named(Holder::new)?, why: fields.named(Why::new)? })
    };
    let (shares, requests) = (fields.list(json::read_shares)?, fields.list(json::read_requests)?);
    let drained = if fields.is_null() {
        None
    } else {
        Some(Drained { since: fields.at()?, by: fields.named(Holder::new)?, why: fields.named(Why::new)? })
    };
    Ok(SessionRecord {
        id,
        about,
        started,
        beat,
        nonce,
        beat_at,
        stalled_since,
        ttl,
        death,
        shares,
        drained,
        requests,
    })
}

pub(super) fn read(sql: &SqlRows<'_>, id: SessionId) -> Outcome<Row<SessionRecord>> {
    let by_id = concat!("SELECT ", columns!(), " FROM sessions WHERE id = ?1");
    sql.one(by_id, [id.to_string()], read_session)
}

/// The file that it keeps locked, as its record has it.
pub(super) fn identity(sql: &SqlRows<'_>, id: SessionId) -> Outcome<Option<Identity>> {
    let file = "SELECT file_dev, file_inode, boot_id FROM sessions WHERE id = ?1 AND file_dev IS NOT NULL \
                AND typeof(file_inode) = 'integer' AND typeof(boot_id) = 'text'";
    let mut identity = None;
    sql.each(file, [id.to_string()], |row| {
        let (device, inode, boot) = (row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get(2)?);
        identity = Some(Identity { device: device.cast_unsigned(), inode: inode.cast_unsigned(), boot });
        Ok(())
    })?;
    Ok(identity)
}

/// The file that it keeps locked is the one it has when its row is inserted.
pub(super) fn put(sql: &SqlRows<'_>, record: &SessionRecord) -> Outcome<()> {
    let put = "INSERT INTO sessions (id, v, ns, holder, host, pid, program, plan_version, started, beat, nonce, \
         beat_at, ttl_ms, died_at, died_by, died_why, shares, requests, file_dev, file_inode, boot_id, stalled_since, \
         drained_at, drained_by, drained_why) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, \
         ?23, ?24, ?25) \
         ON CONFLICT (id) DO UPDATE SET beat = ?10, nonce = ?11, beat_at = ?12, died_at = ?14, died_by = ?15, \
         died_why = ?16, shares = ?17, requests = ?18, stalled_since = ?22, \
         drained_at = ?23, drained_by = ?24, drained_why = ?25";
    let (about, death, drained) = (&record.about, record.death.as_ref(), record.drained.as_ref());
    let file = sql.files.and_then(|files| files.identity(record.id));
    let written = sql.write(
        put,
        params![
            record.id.to_string(),
            LAYOUT,
            about.namespace.as_str(),
            about.holder.as_str(),
            about.host,
            about.pid,
            about.program,
            about.plan_version,
            record.started.as_millis(),
            long(record.beat.get()),
            long(record.nonce.get()),
            record.beat_at.as_millis(),
            millis(record.ttl),
            death.map(|death| death.at.as_millis()),
            death.map(|death| death.by.as_str()),
            death.map(|death| death.why.as_str()),
            json::shares(&record.shares),
            json::requests(&record.requests),
            file.as_ref().map(|file| file.device.cast_signed()),
            file.as_ref().map(|file| file.inode.cast_signed()),
            file.as_ref().map(|file| &*file.boot),
            record.stalled_since.map(StoreTime::as_millis),
            drained.map(|order| order.since.as_millis()),
            drained.map(|order| order.by.as_str()),
            drained.map(|order| order.why.as_str()),
        ],
    );
    written.map(drop)
}

pub(super) fn list(
    sql: &SqlRows<'_>,
    namespace: &Namespace,
    after: Option<&[u8]>,
    at_most: usize,
) -> Outcome<Vec<Listed<SessionRecord>>> {
    let all = concat!("SELECT ", columns!(), " FROM sessions WHERE ns = ?1 AND id > ?2 ORDER BY id LIMIT ?3");
    let params = params![namespace.as_str(), Raw(after.unwrap_or_default()), rows(at_most)];
    sql.listed(all, params, read_session, |fields| {
        let id = bytes(fields);
        (id.to_vec(), shown(id))
    })
}

pub(super) fn the_dead(
    sql: &SqlRows<'_>,
    namespace: &Namespace,
    after: Option<SessionId>,
    at_most: usize,
) -> Outcome<Vec<(SessionId, StoreTime)>> {
    // Sessions that cannot be read are not counted: behind a full page there may be more.
    let dead = "SELECT v, id, died_at FROM sessions \
         WHERE ns = ?1 AND died_at IS NOT NULL AND id > ?2 AND v = ?3 AND typeof(died_at) = 'integer' \
         AND length(id) = 32 AND id NOT GLOB '*[^0-9a-f]*' ORDER BY id LIMIT ?4";
    let after = after.map_or_else(String::new, |after| after.to_string());
    let mut all = Vec::new();
    sql.each(dead, params![namespace.as_str(), after, LAYOUT, rows(at_most)], |row| {
        let read = |mut fields: Fields<'_>| Ok((fields.session()?, fields.at()?));
        all.extend(Fields::of(row).and_then(read).ok());
        Ok(())
    })?;
    Ok(all)
}
