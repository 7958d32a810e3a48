//! Readiness and signs of life for the service manager, as systemd wants them: datagrams to `NOTIFY_SOCKET`.

use std::{
    env, io,
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixDatagram},
    },
    sync::Arc,
    time::Duration,
};

use tenure::Elect;

use crate::say;

/// Receiver of the datagrams, if any.
#[derive(Clone, Debug)]
pub(crate) struct Notify(Option<Arc<(UnixDatagram, SocketAddr)>>);

impl Notify {
    pub(crate) fn of_environment() -> Self {
        let Some(address) = env::var_os("NOTIFY_SOCKET") else { return Self(None) };
        let open = || -> io::Result<_> {
            let name = address.to_string_lossy();
            let address = match name.strip_prefix('@') {
                Some(name) => SocketAddr::from_abstract_name(name)?,
                None => SocketAddr::from_pathname(&*name)?,
            };
            Ok((UnixDatagram::unbound()?, address))
        };
        match open() {
            Ok(open) => Self(Some(Arc::new(open))),
            Err(error) => {
                say::say(format_args!("NOTIFY_SOCKET cannot be used: {error}"));
                Self(None)
            }
        }
    }

    pub(crate) fn ready(&self) {
        self.say("READY=1");
    }

    pub(crate) fn stopping(&self) {
        self.say("STOPPING=1");
    }

    fn say(&self, what: &str) {
        if let Some(open) = &self.0 {
            // A receiver that does not listen any more has no use for it.
            let _ = open.0.send_to_addr(what.as_bytes(), &open.1);
        }
    }

    /// Says from time to time that the engine works, if that is wanted: that it has tried a heartbeat within a ttl. A
    /// store that is away is no reason to start it anew.
    pub(crate) fn watchdog(&self, elect: &Elect) {
        let Some(every) = wanted(env::var("WATCHDOG_USEC").ok(), env::var("WATCHDOG_PID").ok()) else {
            return;
        };
        let (this, elect) = (self.clone(), elect.clone());
        tokio::spawn(async move {
            let mut ticks = tokio::time::interval(every);
            loop {
                ticks.tick().await;
                if works(elect.health().last_attempt, elect.config().ttl()) {
                    this.say("WATCHDOG=1");
                }
            }
        });
    }
}

/// Returns whether an engine works whose last attempt was so long ago; one that has just begun had none.
fn works(last_attempt: Option<Duration>, ttl: Duration) -> bool {
    last_attempt.is_none_or(|ago| ago < ttl)
}

/// Half of the time in which it is wanted, if it is wanted of this process.
fn wanted(micros: Option<String>, pid: Option<String>) -> Option<Duration> {
    let is_ours = pid.is_none_or(|pid| pid.parse() == Ok(std::process::id()));
    let micros: u64 = micros?.parse().ok()?;
    (is_ours && micros > 1).then(|| Duration::from_micros(micros / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_is_not_told_of_an_engine_that_tries_no_heartbeat() {
        let ttl = Duration::from_secs(30);
        assert!(works(None, ttl) && works(Some(ttl / 2), ttl));
        assert!(!works(Some(ttl), ttl));
    }

    #[test]
    fn the_watchdog_is_told_twice_in_its_time() {
        let own = std::process::id().to_string();
        assert_eq!(wanted(Some("2000000".to_owned()), Some(own)), Some(Duration::from_secs(1)));
        assert_eq!(wanted(Some("2000000".to_owned()), None), Some(Duration::from_secs(1)));
        assert_eq!(wanted(Some("2000000".to_owned()), Some("1".to_owned())), None);
        assert_eq!(wanted(None, None), None);
        assert_eq!(wanted(Some("soon".to_owned()), None), None);
    }
}
