//! Cost of the page on a large store: 10,000 locks, 1,000 tasks on 50 instances, 2,000 schedules, and a ledger of
//! 1,000,000 entries.
//!
//! `cargo bench -p tenure-ui --bench page` starts its own server. Commands are counted as the driver sends them, looks of
//! listeners among them; processor time is that of this process, which is the page and its client of the store.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a bench says what it expects")]

#[path = "../../../benches/common/figures.rs"]
mod figures;
#[path = "../../../benches/common/measure.rs"]
#[allow(dead_code, reason = "other benches use the rest")]
mod measure;
#[path = "../../../tests/support/mod.rs"]
mod support;

mod large;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::ConnectInfo,
    http::{Request, header},
};
use figures::{figure, measured};
use futures::StreamExt;
use mongodb::event::{EventHandler, command::CommandEvent};
use support::mongod::{Deployment, Options, Shape};
use tenure::{
    Elect, ElectConfig, Lease,
    model::Namespace,
    store::{
        Store,
        mongo::{MongoOptions, MongoStore},
    },
};
use tenure_look::{LivePicture, Reader};
use tenure_ui::{Access, Ui};
use tower::ServiceExt;

const DATABASE: &str = "page";
const ROUNDS: usize = 5;
const SECOND: Duration = Duration::from_secs(1);
/// Time for which the commands of open pages and of an instance at rest are counted.
const REST: Duration = Duration::from_secs(60);
const SCREENS: [&str; 10] = [
    "/",
    "/instances",
    "/spreads",
    "/spread?name=topics",
    "/schedules",
    "/schedule?name=job-0001",
    "/locks",
    "/key?key=key-00042",
    "/changes",
    "/changes?all=true",
];

/// A client that counts what it sends.
struct Client {
    store: Arc<dyn Store>,
    sent: Arc<AtomicU64>,
}

impl Client {
    async fn connect(deployment: &Deployment) -> Self {
        let sent = Arc::new(AtomicU64::new(0));
        let count = {
            let sent = sent.clone();
            EventHandler::callback(move |event| {
                if matches!(event, CommandEvent::Started(_)) {
                    sent.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let options = MongoOptions::new().database(DATABASE).command_events(count);
        let store = MongoStore::connect(deployment.uri(), options).await.expect("the server is up");
        Self { store: store.into(), sent }
    }

    fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    fn page(&self, turn: Duration) -> Router {
        let look = Reader::new(self.store.clone(), large::namespace());
        Ui::of(LivePicture::new(look).turn(turn)).access(Access::open()).router()
    }
}

/// Processor time of this process, in milliseconds.
fn cpu() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
}

fn request(address: &str, accept: &str) -> Request<Body> {
    let local: SocketAddr = "127.0.0.1:9".parse().unwrap();
    let request = Request::get(address).header(header::ACCEPT, accept).extension(ConnectInfo(local));
    request.body(Body::empty()).unwrap()
}

async fn get(page: &Router, address: &str) -> String {
    let answer = page.clone().oneshot(request(address, "text/html")).await.unwrap();
    assert!(answer.status().is_success(), "{address}: {}", answer.status());
    let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
    String::from_utf8(body.to_vec()).unwrap()
}

/// Follows a screen as an open page does.
fn follow(page: &Router, address: &'static str, events: Arc<AtomicU64>) -> tokio::task::JoinHandle<()> {
    let page = page.clone();
    tokio::spawn(async move {
        let answer = page.oneshot(request(address, "text/event-stream")).await.unwrap();
        assert!(answer.status().is_success(), "{address}");
        let mut events_of = answer.into_body().into_data_stream();
        while let Some(Ok(_)) = events_of.next().await {
            events.fetch_add(1, Ordering::Relaxed);
        }
    })
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let deployment = Deployment::start(Shape::Single, Options::default()).await;
    large::fill(&deployment, DATABASE).await;
    first_page(&deployment).await;
    updates(&deployment).await;
    ten_open(&deployment).await;
}

async fn first_page(deployment: &Deployment) {
    let (mut commands, mut times, mut walls) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let client = Client::connect(deployment).await;
        let page = client.page(5 * SECOND);
        let (sent, time, began) = (client.sent(), cpu(), measure::now());
        let html = get(&page, "/").await;
        times.push(cpu() - time);
        walls.push(began.elapsed().as_secs_f64() * 1e3);
        commands.push((client.sent() - sent) as f64);
        assert!(html.contains("1000 of 1000 held"), "all tasks are there");
    }
    measured("page_first_wall_ms", measure::median(walls), "of_the_first_page");
    figure("page_first_commands", measure::median(commands));
    figure("page_first_cpu_ms", measure::median(times));
}

/// With one page open, turn after turn: while the ledgers are read for the first time, and when all were.
///
/// It counts no commands: to have them told costs a client as much as to read them.
async fn updates(deployment: &Deployment) {
    let options = MongoOptions::new().database(DATABASE);
    let store = MongoStore::connect(deployment.uri(), options).await.expect("the server is up");
    let look = Reader::new(store, large::namespace());
    let page = Ui::of(LivePicture::new(look).turn(SECOND)).access(Access::open()).router();
    get(&page, "/").await;
    let events = Arc::new(AtomicU64::new(0));
    let open = follow(&page, "/", events.clone());
    tokio::time::sleep(5 * SECOND).await;
    let turns = 15;
    let a_turn = async || {
        let (time, before) = (cpu(), events.load(Ordering::Relaxed));
        tokio::time::sleep(SECOND * turns).await;
        let events = events.load(Ordering::Relaxed) - before;
        assert!(events + 1 >= u64::from(turns), "each turn is an event: {events}");
        (cpu() - time) / f64::from(turns)
    };
    measured("page_update_cpu_ms_at_first", a_turn().await, "while_ledgers_are_read");
    tokio::time::sleep(15 * SECOND).await;
    figure("page_update_cpu_ms", a_turn().await);
    open.abort();
}

/// Ten pages on screens of all sorts, beside one instance of a fleet at rest.
async fn ten_open(deployment: &Deployment) {
    let watched = Client::connect(deployment).await;
    let fleet = Rest::start(deployment).await;
    let page = watched.page(5 * SECOND);
    get(&page, "/").await;
    let events = Arc::new(AtomicU64::new(0));
    let open: Vec<_> = SCREENS.into_iter().map(|screen| follow(&page, screen, events.clone())).collect();
    tokio::time::sleep(15 * SECOND).await;
    let (pages, one) = (watched.sent(), fleet.counted.sent());
    tokio::time::sleep(REST).await;
    let (pages, one) = ((watched.sent() - pages) as f64, (fleet.counted.sent() - one) as f64);
    open.iter().for_each(tokio::task::JoinHandle::abort);
    measured("page_ten_open_commands", pages, "a_minute");
    measured("instance_at_rest_commands", one, "a_minute");
    figure("page_ten_open_to_one_instance", pages / one);
    for instance in fleet.instances {
        instance.close().await;
    }
}

/// A fleet of ten with a thousand tasks and a hundred schedules, in a namespace of its own.
struct Rest {
    counted: Client,
    instances: Vec<Elect>,
}

impl Rest {
    async fn start(deployment: &Deployment) -> Self {
        let (counted, others) = (Client::connect(deployment).await, Client::connect(deployment).await);
        let namespace = Namespace::new("rest").unwrap();
        let (mut instances, mut spreads) = (Vec::new(), Vec::new());
        for at in 0..10 {
            let store = if at == 0 { &counted.store } else { &others.store };
            let config = ElectConfig::new(&namespace, format!("pod-{at}")).unwrap();
            let elect = Elect::start(store.clone(), config).await.unwrap();
            let job = async |_, lease: Lease| {
                lease.cancelled().await;
                Ok::<_, String>(())
            };
            let keys = (0..1000).map(|task| format!("task-{task}"));
            spreads.push(elect.spread("tasks").tasks(keys).run(job).unwrap());
            for schedule in 0..100 {
                let daily = elect.schedule(format!("daily-{schedule}"), "0 3 1 1 *");
                std::mem::forget(daily.run(async |_, _| Ok::<_, String>(())).unwrap());
            }
            instances.push(elect);
        }
        spreads[0].until(|status| status.members.len() == 10 && status.is_settled()).await;
        instances[0].schedules().until(|status| status.members.len() == 10 && status.is_settled()).await;
        // They live as long as the fleet.
        std::mem::forget(spreads);
        Self { counted, instances }
    }
}
