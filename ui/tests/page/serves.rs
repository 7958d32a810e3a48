//! The page on an address of its own.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use scraper::Html;
use tenure::{
    model::{Holder, ScheduleId},
    store::{Instruction, ScheduleSeen, Store, StoreExt},
    testing::{Call, Course, Intercept, Operation},
};
use tenure_ui::{Access, Ui};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
};

use crate::{
    fleet::namespace,
    site::{attributes, memory},
    wait::{until, within},
};

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

/// A store on the way to which an instruction takes a while, which tells that one was sent.
#[derive(Debug, Default)]
struct SlowToInstruct(Arc<Notify>);

impl Intercept for SlowToInstruct {
    fn decide(&self, call: &Call) -> Course {
        if call.operation != Operation::Instruct {
            return Course::PLAIN;
        }
        self.0.notify_one();
        Course::PLAIN.late_by(Duration::from_millis(500))
    }
}

/// Sends a request.
async fn sent(address: SocketAddr, head: &str, body: &str) -> TcpStream {
    let mut caller = TcpStream::connect(address).await.unwrap();
    let length = body.len();
    let request = format!(
        "{head} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {length}\r\n\
        content-type: application/x-www-form-urlencoded\r\n\r\n{body}"
    );
    caller.write_all(request.as_bytes()).await.unwrap();
    caller
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_whose_caller_hung_up_is_done_before_the_page_ends() {
    const LIMIT: Duration = Duration::from_secs(60);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (end, store) = (Arc::new(Notify::new()), memory().store);
    let id = ScheduleId { namespace: namespace(), name: "digest".parse().unwrap() };
    store.instruct(id.clone(), Instruction::Resume, LIMIT).await.unwrap();
    let (ended, slow) = (end.clone(), SlowToInstruct::default());
    let begun = slow.0.clone();
    let slow: Arc<dyn Store> = slow.around(store.clone());
    let page = Ui::new(slow, namespace()).access(Access::open()).actions(Holder::new("ops").unwrap());
    let serving =
        tokio::spawn(async move { tenure_ui::serve(listener, page, ended.notified()).await.unwrap() });
    let csrf = until("a form", async || {
        let mut read = String::new();
        let mut caller = sent(address, "GET /schedule?name=digest", "").await;
        caller.read_to_string(&mut read).await.unwrap();
        let token = attributes(&Html::parse_document(&read), "input[name=csrf]", "value").pop();
        token.ok_or(read)
    })
    .await;
    let caller = sent(address, "POST /act/pause", &format!("csrf={csrf}&name=digest&why=late")).await;
    within("the action", begun.notified()).await;
    drop(caller);
    end.notify_one();
    within("the end of the page", serving).await.unwrap();
    let seen = store.schedules(vec![id], LIMIT).await.unwrap().pop();
    let Some(ScheduleSeen::Found(record)) = seen else { panic!("{seen:?}") };
    assert!(record.pause.is_some_and(|pause| pause.is_on()));
}
