//! Serving a page on an address of its own.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{net::TcpListener, time::timeout};

use crate::Ui;

/// Time in which answers that have begun may end: as long as an action may take.
const GRACE: Duration = Duration::from_secs(10);

/// Answers requests until `until` is over. Then it answers those that it has, and lets go the followers of changes.
///
/// # Errors
///
/// If the address cannot be listened on any more.
pub async fn serve(listener: TcpListener, ui: Ui, until: impl Future<Output = ()>) -> io::Result<()> {
    let end = ui.end.clone();
    let service = ui.router().into_make_service_with_connect_info::<SocketAddr>();
    let serving = axum::serve(listener, service).with_graceful_shutdown(end.clone().cancelled_owned());
    let serving = serving.into_future();
    tokio::pin!(serving);
    tokio::select! {
        served = &mut serving => return served,
        () = until => end.cancel(),
    }
    // A client that says nothing is not waited for longer.
    timeout(GRACE, serving).await.unwrap_or(Ok(()))
}
