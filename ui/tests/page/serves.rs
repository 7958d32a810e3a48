//! The page on an address of its own.

use std::{sync::Arc, time::Duration};

use tenure_ui::Ui;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
    time::timeout,
};

use crate::{fleet::namespace, site::memory};

const SOON: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn who_follows_is_let_go_when_it_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let end = Arc::new(Notify::new());
    let ended = end.clone();
    let page = Ui::new(memory(), namespace());
    let serving =
        tokio::spawn(async move { tenure_ui::serve(listener, page, ended.notified()).await.unwrap() });
    let mut follower = TcpStream::connect(address).await.unwrap();
    let request = format!("GET / HTTP/1.1\r\nhost: {address}\r\naccept: text/event-stream\r\n\r\n");
    follower.write_all(request.as_bytes()).await.unwrap();
    let mut told = String::new();
    while !told.contains("event: now") {
        let mut bytes = [0; 4096];
        let length = timeout(SOON, follower.read(&mut bytes)).await.unwrap().unwrap();
        assert!(length > 0, "{told}");
        told.push_str(&String::from_utf8_lossy(&bytes[..length]));
    }
    end.notify_one();
    let mut rest = Vec::new();
    timeout(SOON, follower.read_to_end(&mut rest)).await.expect("its connection is closed").unwrap();
    timeout(SOON, serving).await.expect("it has ended").unwrap();
}
