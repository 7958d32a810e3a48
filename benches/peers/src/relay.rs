//! A TCP relay that can be told to swallow all that comes: neither side sees the other close.

use std::net::Ipv4Addr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf, tcp::OwnedWriteHalf},
    sync::watch,
    task::JoinHandle,
};

pub(crate) struct Relay {
    swallows: watch::Sender<bool>,
    acceptor: JoinHandle<()>,
}

impl Relay {
    /// Listens first: its port stands in the URI from which the server's port is taken.
    pub(crate) async fn bind() -> (TcpListener, u16) {
        let listener =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("the loopback has a free port");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        (listener, port)
    }

    pub(crate) fn start(listener: TcpListener, server: u16) -> Self {
        let (swallows, look) = watch::channel(false);
        let acceptor = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(connect(client, server, look.clone()));
            }
        });
        Self { swallows, acceptor }
    }

    pub(crate) fn swallow(&self) {
        self.swallows.send_replace(true);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.acceptor.abort();
    }
}

async fn connect(client: TcpStream, server: u16, swallows: watch::Receiver<bool>) {
    let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await else { return };
    // An error means that a side refuses small packets at once: slower, and no wrong figure, as this is for seconds.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::join!(pass(from_client, to_server, swallows.clone()), pass(from_server, to_client, swallows));
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, swallows: watch::Receiver<bool>) {
    let mut bytes = vec![0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut bytes).await {
        if !*swallows.borrow() && to.write_all(&bytes[..length]).await.is_err() {
            return;
        }
    }
    if *swallows.borrow() {
        // Held open, so that the other side sees no end.
        std::future::pending::<()>().await;
    }
}
