use super::Invariant;
use crate::{Entry, EventKind, Life, Registry, Reported};
use tenure::model::Term;

/// No job starts on a guess: work under a lock has its term from a record that named its session and its very ticket,
/// and its instance was told so before its session's end.
pub(super) struct Granted;

impl Invariant for Granted {
    fn name(&self) -> &'static str {
        "unknown starts nothing"
    }

    fn see(&mut self, registry: &Registry, entry: &Entry) -> Result<(), String> {
        let Some(life) = entry.life else { return Ok(()) };
        match &entry.what {
            EventKind::Began { key, term, tag, .. } => {
                told_in_time(registry, life, *key, *term)?;
                let granted = &registry.grant(*key, *term).ok_or("nothing is granted")?.tag;
                if granted != tag {
                    return Err(format!(
                        "{tag} runs under term {term} of key {key}, which was granted to {granted}"
                    ));
                }
                Ok(())
            }
            EventKind::Reported(Reported::Acquired { key, term }) => {
                told_in_time(registry, life, *key, *term)
            }
            _ => Ok(()),
        }
    }
}

fn told_in_time(registry: &Registry, life: Life, key: usize, term: Term) -> Result<(), String> {
    let Some(grant) = registry.grant(key, term) else {
        return Err(format!("something runs under term {term} of key {key}, which nobody was granted"));
    };
    let session = registry.session(grant.session);
    if session.and_then(|session| session.life) != Some(life) {
        return Err(format!("something runs under term {term} of key {key}, which was granted to another"));
    }
    let Some(told) = registry.noticed(life, key, term) else {
        return Err(format!("something runs under term {term} of key {key}, of which it was never told"));
    };
    match session.and_then(|session| session.end) {
        Some(end) if told >= end => Err(format!(
            "something runs under term {term} of key {key}, of which it was told {:?} after its session's end",
            told.since(end)
        )),
        _ => Ok(()),
    }
}
