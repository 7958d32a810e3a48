//! The records of sessions, for the thread that proves deaths: it writes by a connection of its own.

use std::sync::Arc;

use rusqlite::Connection;

use crate::{
    clock::Clock,
    model::{Holder, SessionId, Why},
    store::{
        Declaration, Evidence, SessionSeen,
        sqlite::{
            file::OpenFile,
            hints::{self, Hints},
            proof::{OnRecord, Proof, Register, SessionFiles},
            rows::{Failure, Outcome, SqlRows},
        },
        steps::Step,
    },
    sync::locked,
    words,
};

/// The declarer of the death, as the record names it.
const BY: &str = "the SQLite store";
const WHY: &str = "nobody holds its file any more";

pub(crate) struct Deaths {
    pub(crate) connection: Connection,
    pub(crate) file: Arc<OpenFile>,
    pub(crate) files: Arc<SessionFiles>,
    pub(crate) hints: Hints,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Deaths {
    fn rows(&self) -> SqlRows<'_> {
        SqlRows { connection: &self.connection, files: Some(&self.files) }
    }

    /// Declares these dead, in one transaction, and says which are. One that cannot be proven once more, as its record
    /// stands then, is left.
    fn declare(&self, sessions: &[SessionId]) -> Outcome<Vec<SessionId>> {
        let gate = locked(&self.file.gate);
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        if !self.file.is_in_place() {
            self.connection.execute_batch("ROLLBACK")?;
            return Ok(Vec::new());
        }
        let (mut rows, now, mut dead) = (self.rows(), self.clock.wall(), Vec::new());
        let mut step = Step::new(&mut rows, now);
        // Not an instance: any process that has the file open may be the first to see it.
        let by = Holder::new(BY).expect("it is within the limits");
        for session in sessions {
            let (by, why) = (by.clone(), Why::shortened(WHY));
            let declaration =
                Declaration { session: *session, ground: Evidence::Gone, by, why, tell: Vec::new() };
            if let SessionSeen::Dead(record) = step.declare(declaration)? {
                let about = &record.about;
                words::info!(of = %about.holder, host = about.host, pid = about.pid, namespace = %about.namespace,
                    %session, why = WHY, "declared a session dead");
                dead.push(*session);
            }
        }
        let bells = step.into_bells();
        hints::ring(&self.connection, &bells, now)?;
        self.connection.execute_batch("COMMIT")?;
        drop(gate);
        self.hints.announce(&bells);
        Ok(dead)
    }

    fn without_record(&self, sessions: &[SessionId], each: &dyn Fn(SessionId)) -> Outcome<()> {
        let _gate = locked(&self.file.gate);
        // A store that inserts a record now has found the file held, or comes when this is over.
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        for session in sessions {
            if !self.rows().has_session(*session)? {
                each(*session);
            }
        }
        self.connection.execute_batch("ROLLBACK")?;
        Ok(())
    }

    fn failed(&self, failure: &Failure) {
        if !self.connection.is_autocommit() {
            // An error says that SQLite has done so already.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        let path = self.file.path().display();
        words::debug!(%path, ?failure, "could not read or write who is dead");
    }
}

impl Register for Deaths {
    fn look(&mut self, sessions: &[SessionId]) -> Vec<(SessionId, OnRecord)> {
        let one = |session: &SessionId| {
            let rows = self.rows();
            let Some(record) = rows.record(*session)? else {
                let is_there = rows.has_session(*session)?;
                return Ok((!is_there).then_some((*session, OnRecord::Missing)));
            };
            let found =
                if record.is_alive() { OnRecord::Alive(rows.identity(*session)?) } else { OnRecord::Dead };
            Ok(Some((*session, found)))
        };
        sessions
            .iter()
            .filter_map(|session| {
                one(session).unwrap_or_else(|failure: Failure| {
                    self.failed(&failure);
                    None
                })
            })
            .collect()
    }

    fn proven(&mut self, proofs: &[Proof]) -> Vec<SessionId> {
        let sessions: Vec<_> = proofs.iter().map(Proof::session).collect();
        self.declare(&sessions).unwrap_or_else(|failure| {
            self.failed(&failure);
            Vec::new()
        })
    }

    fn without_record(&mut self, sessions: &[SessionId], each: &dyn Fn(SessionId)) {
        Self::without_record(self, sessions, each).unwrap_or_else(|failure| self.failed(&failure));
    }
}
