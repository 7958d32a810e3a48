//! Commands that run until they are stopped: `cron` and `spread`.

use std::{fs::File, net::SocketAddr, sync::Arc};

use clap::Args;
use futures::future::BoxFuture;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use tenure::Elect;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::{
    child,
    common::{Common, Level},
    exit::Failure,
    file::Followed,
    logs,
    metrics::Metrics,
    notify::Notify,
    place::{OpenMode, OpenStore},
    say,
    settings::Settings,
    signals::{self, ReceivedSignal},
    times,
    under::Patience,
};

/// Options of these commands.
#[derive(Args, Debug)]
pub(crate) struct Long {
    /// Address for metrics and health over HTTP, such as 127.0.0.1:9150: /metrics and /healthz
    #[arg(long, value_name = "ADDR")]
    metrics: Option<SocketAddr>,

    /// Time between SIGTERM and SIGKILL of a child [default and maximum: --stop-grace]
    #[arg(long, value_name = "TIME")]
    kill_after: Option<String>,
}

/// An instance that serves.
pub(crate) struct Served {
    pub(crate) elect: Elect,
    pub(crate) settings: Settings,
    pub(crate) patience: Patience,
    place: OpenStore,
    notify: Notify,
    _metrics: Option<Metrics>,
    signals: UnboundedReceiver<ReceivedSignal>,
    had_terminal: bool,
    /// Ready when the store is lost for good, and that failure.
    lost: BoxFuture<'static, Failure>,
    failure: Option<Failure>,
}

/// The next step of a served instance.
enum Next {
    /// Read its file again.
    Reload,
    /// End.
    Stop,
}

impl Served {
    pub(crate) async fn start(common: &Common, long: &Long, what: &str) -> Result<Self, Failure> {
        logs::start(common, Level::Info);
        child::prepare()?;
        let settings = Settings::of(common)?;
        let kill_after =
            long.kill_after.as_deref().map(|text| times::duration("--kill-after", text)).transpose()?;
        let patience = Patience::of(&settings.config, kill_after)?;
        let signals = signals::collect()
            .map_err(|error| Failure::failed(format!("signals cannot be received: {error}")))?;
        // Before anything is held: an address that is taken must not cost any instance a key.
        let metrics = match long.metrics {
            Some(address) => Some(Metrics::listen(address).await?),
            None => None,
        };
        let place = OpenStore::open(&settings, OpenMode::ReadWrite).await?;
        let elect = Elect::builder(Arc::clone(&place.store), settings.config.clone())
            .program(format!("tenure {what} {}", env!("CARGO_PKG_VERSION")))
            .start()
            .await?;
        if let Some(metrics) = &metrics {
            metrics.serve(elect.clone());
        }
        Ok(Self {
            lost: place.lost(&elect),
            failure: None,
            elect,
            settings,
            patience,
            place,
            notify: Notify::of_environment(),
            _metrics: metrics,
            signals,
            had_terminal: has_terminal(),
        })
    }

    /// The store's file, if it is one.
    pub(crate) fn file(&self) -> Option<&std::path::Path> {
        self.place.file.as_deref()
    }

    /// Says that all is in place, for the service manager.
    pub(crate) fn ready(&mut self) {
        self.notify.ready();
        self.notify.watchdog(&self.elect);
    }

    /// Waits until a file is to be read again. Returns false if this is to end, and is not called again then.
    pub(crate) async fn reload(&mut self, file: &mut Followed) -> bool {
        loop {
            tokio::select! {
                next = next(&mut self.signals, self.had_terminal) => match next {
                    Next::Stop => return false,
                    Next::Reload if !file.is_there() => return false,
                    Next::Reload => {}
                },
                () = file.changed() => {}
                failure = &mut self.lost => {
                    self.failure = Some(failure);
                    return false;
                }
            }
            let Some(blank) = file.blank() else { return true };
            say::say(format_args!(
                "nothing is changed: {} is empty, without even a comment",
                blank.display()
            ));
        }
    }

    /// Ends all children, gives everything back and closes the store.
    pub(crate) async fn stop(self) -> Result<u8, Failure> {
        self.notify.stopping();
        let report = self.elect.close().await;
        for lock in &report.overran {
            say::say(format_args!(
                "a process still runs under {lock}; keeping the lock until its lease expires"
            ));
        }
        drop((self.elect, self.lost));
        self.place.close().await;
        match self.failure {
            Some(failure) => Err(failure),
            None if report.overran.is_empty() => Ok(0),
            None => Ok(crate::exit::FAILED),
        }
    }
}

/// Returns whether this process has a terminal. One that was started on a terminal has none once that is gone.
fn has_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

/// Waits for the next signal that says something.
async fn next(signals: &mut UnboundedReceiver<ReceivedSignal>, had_terminal: bool) -> Next {
    loop {
        match signals.recv().await {
            // Some shells tell all that they have started when their terminal goes; it is not a user who wants a
            // file to be read.
            Some(came) if came.signal == SIGHUP && had_terminal && !has_terminal() => return Next::Stop,
            Some(came) if came.signal == SIGHUP && !came.from_terminal => return Next::Reload,
            Some(came) if [SIGHUP, SIGINT, SIGQUIT, SIGTERM].contains(&came.signal) => return Next::Stop,
            Some(_) => {}
            None => std::future::pending().await,
        }
    }
}
