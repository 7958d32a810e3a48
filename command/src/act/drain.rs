//! `tenure drain` and `tenure undrain`: an instance gives its tasks away, or may have some again.

use clap::Args;
use serde_json::json;
use tenure::store::SessionRecord;

use super::{Action, Because, Done};
use crate::exit::Failure;

/// To drain an instance, and to undrain it.
#[derive(Args, Debug)]
pub(crate) struct Drain {
    /// Name of the instance
    #[arg(value_name = "HOLDER")]
    name: String,

    /// Session of the instance, if several have that name
    #[arg(long, value_name = "ID")]
    session: Option<String>,

    #[command(flatten)]
    pub(super) because: Because,
}

pub(super) async fn run(action: &Action<'_>, drain: &Drain, drained: bool) -> Result<u8, Failure> {
    let sessions = action.look.all_sessions().await?.items;
    let session = chosen(&sessions, &drain.name, drain.session.as_deref()).map_err(Failure::usage)?;
    let name = &session.about.holder;
    let what = if drained {
        format!("have {name} give its tasks and schedules to others")
    } else {
        format!("let {name} accept tasks again")
    };
    if !action.agreed(&what)? {
        return action.nothing_done();
    }
    let said = if drained {
        action.operator.drain(session.id, &action.why).await?;
        format!("{name} was asked to give its tasks away; `tenure instances` shows what it still has.")
    } else {
        action.operator.undrain(session.id, &action.why).await?;
        format!("{name} accepts tasks again.")
    };
    let more = json!({ "done": true, "holder": name, "session": session.id, "drained": drained });
    action.tell(&Done::new(said, more))
}

/// The living session that is meant; or a sentence that says what to write.
fn chosen<'a>(
    sessions: &'a [SessionRecord],
    name: &str,
    session: Option<&str>,
) -> Result<&'a SessionRecord, String> {
    let alive = || sessions.iter().filter(|record| record.is_alive());
    let named: Vec<_> = alive().filter(|record| record.about.holder.as_str() == name).collect();
    let of_id = |record: &&SessionRecord| session.is_none_or(|id| record.id.to_string() == id);
    let meant: Vec<_> = named.iter().copied().filter(of_id).collect();
    match (&meant[..], &named[..]) {
        ([one], _) => Ok(one),
        ([], []) => {
            let mut names: Vec<_> =
                alive().map(|record| format!("{:?}", record.about.holder.as_str())).collect();
            names.sort();
            names.dedup();
            Err(if names.is_empty() {
                "no instance is alive in this namespace".to_owned()
            } else {
                format!("no living instance is called {name:?}; there are {}", names.join(", "))
            })
        }
        ([], _) => {
            Err(format!("no living instance called {name:?} has the session {:?}", session.unwrap_or("")))
        }
        _ => {
            let all: Vec<_> = named
                .iter()
                .map(|record| format!("{} ({}, pid {})", record.id, record.about.host, record.about.pid))
                .collect();
            Err(format!("several instances are called {name:?}: choose one by --session: {}", all.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure::{
        model::{Holder, Namespace, SessionId, StoreTime},
        store::{About, Nonce},
    };

    use super::*;

    fn session(id: u128, name: &str) -> SessionRecord {
        let about = About::new(Namespace::new("n").unwrap(), Holder::new(name).unwrap());
        let at = StoreTime::from_millis(0);
        SessionRecord::opened(SessionId::from_u128(id), about, Nonce::new(1), Duration::from_secs(30), at)
    }

    #[test]
    fn an_instance_is_found_by_its_name_or_else_by_its_session() {
        let all = [session(1, "a"), session(2, "b"), session(3, "b")];
        let id = |name, session| chosen(&all, name, session).map(|record| record.id.as_u128());
        assert_eq!(id("a", None), Ok(1));
        assert!(id("b", None).unwrap_err().contains("choose one by --session"));
        let second = SessionId::from_u128(3).to_string();
        assert_eq!(id("b", Some(&second)), Ok(3));
        assert!(id("a", Some(&second)).is_err());
        assert_eq!(
            id("c", None),
            Err("no living instance is called \"c\"; there are \"a\", \"b\"".to_owned())
        );
    }
}
