use super::Invariant;
use crate::{Entry, EventKind, Registry};

/// A session is declared dead by another only after its ttl has passed since its last beat, less the one per cent by
/// which clocks may differ.
pub(super) struct NoTheft;

impl Invariant for NoTheft {
    fn name(&self) -> &'static str {
        "no theft"
    }

    fn see(&mut self, registry: &Registry, entry: &Entry) -> Result<(), String> {
        let EventKind::Died { session: id, ground, by } = &entry.what else { return Ok(()) };
        // A checker that knows when processes end judges that.
        if *ground == "proven" {
            return Ok(());
        }
        let Some(session) =
            registry.session(*id).filter(|session| session.life.is_none() || session.life != *by)
        else {
            return Ok(());
        };
        let silent = entry.at.saturating_sub(session.beaten);
        if silent < session.ttl * 100 / 101 {
            return Err(format!(
                "a session was declared dead ({ground}) {silent:?} after its last beat, its ttl is {:?}",
                session.ttl
            ));
        }
        Ok(())
    }
}
