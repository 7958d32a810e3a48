//! The page on an address of its own.

use std::sync::Arc;

use tenure_ui::Ui;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
};

use crate::{fleet::namespace, site::memory, wait::within};

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_is_let_go_when_the_page_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let end = Arc::new(Notify::new());
    let ended = end.clone();
    let page = Ui::new(memory().store, namespace());
    let serving =
        tokio::spawn(async move { tenure_ui::serve(listener, page, ended.notified()).await.unwrap() });
    let mut follower = TcpStream::connect(address).await.unwrap();
    let request = format!("GET / HTTP/1.1\r\nhost: {address}\r\naccept: text/event-stream\r\n\r\n");
    follower.write_all(request.as_bytes()).await.unwrap();
    let mut told = String::new();
    while !told.contains("event: now") {
        let mut bytes = [0; 4096];
        let length = within("more", follower.read(&mut bytes)).await.unwrap();
        assert!(length > 0, "{told}");
        told.push_str(&String::from_utf8_lossy(&bytes[..length]));
    }
    end.notify_one();
    let mut rest = Vec::new();
    within("the end of its connection", follower.read_to_end(&mut rest)).await.unwrap();
    within("the end of the page", serving).await.unwrap();
}
