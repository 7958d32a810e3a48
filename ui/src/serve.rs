//! Serving a page on an address of its own.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{net::TcpListener, time::timeout};

use crate::Ui;

/// Time in which answers and actions that have begun may end.
const GRACE: Duration = Duration::from_secs(10);

/// Answers requests until `until` is over. Then it answers those that it has, lets go the followers of changes, and waits
/// for actions that have begun, also those whose callers hung up; for ten seconds at most.
///
/// # Errors
///
/// If the address cannot be listened on any more.
pub async fn serve(listener: TcpListener, ui: Ui, until: impl Future<Output = ()>) -> io::Result<()> {
    let (end, begun) = (ui.end.clone(), ui.begun.clone());
    let service = ui.router().into_make_service_with_connect_info::<SocketAddr>();
    let serving = axum::serve(listener, service).with_graceful_shutdown(end.clone().cancelled_owned());
    let serving = async {
        let served = serving.await;
        begun.close();
        begun.wait().await;
        served
    };
    tokio::pin!(serving);
    tokio::select! {
        served = &mut serving => return served,
        () = until => end.cancel(),
    }
    // A client that says nothing is not waited for longer.
    timeout(GRACE, serving).await.unwrap_or(Ok(()))
}
