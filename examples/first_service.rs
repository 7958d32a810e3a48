//! A service that runs as several instances, as far as tenure goes: its tasks, its nightly job, the answers for health
//! checks and operators, and its end. [docs/first-service.md](../docs/first-service.md) goes through it.
//!
//! ```sh
//! export MONGODB_URI=mongodb://localhost/shop TENURE_NAMESPACE=shop TENURE_HOLDER=pod-1
//! cargo run --features mongodb --example first_service
//! ```

use std::{env, error::Error, process::ExitCode, sync::Arc, time::Duration};

use tenure::{
    Elect, ElectConfig, Lease,
    schedule::{Failure, Retries, Schedule, Tick, Timing},
    spread::{Spread, Task},
    store::mongo::{
        MongoOptions, MongoStore, Stamp,
        driver::{
            Client, Database,
            bson::{Document, doc},
        },
    },
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    signal::unix::{SignalKind, signal},
};

type Problem = Box<dyn Error + Send + Sync>;

/// Topics to follow: a document for each, which people add and remove.
async fn topics(shop: Database) -> Result<Vec<Task<String>>, Problem> {
    let mut topics = shop.collection::<Document>("topics").find(doc! {}).await?;
    let mut tasks = Vec::new();
    while topics.advance().await? {
        let topic = topics.deserialize_current()?;
        tasks.push(Task::new(topic.get_str("_id")?, topic.get_str("url")?.to_owned())?);
    }
    Ok(tasks)
}

/// Follows a topic, for as long as this instance has it.
async fn follow(shop: Database, topic: Task<String>, lease: Lease) -> Result<(), Problem> {
    let (stamp, seen) = (Stamp::new(lease.lock(), lease.term()), shop.collection::<Document>("seen"));
    println!("follows {} at {}", topic.key(), topic.meta());
    while !lease.is_cancelled() {
        // ... get a message, and act on it. If another instance has this topic by now, the write is refused.
        stamp.write(&seen, topic.key().as_str(), doc! { "$inc": { "messages": 1 } }).await?;
        tokio::select! {
            () = lease.cancelled() => {}
            () = tokio::time::sleep(Duration::from_millis(200)) => {}
        }
    }
    Ok(()) // told to stop: the next instance that has the topic begins anew
}

/// The nightly job.
async fn clean_up(shop: Database, tick: Tick, lease: Lease) -> Result<(), Problem> {
    for part in ["carts", "sessions", "drafts"] {
        if lease.is_cancelled() {
            return Err("cancelled".into()); // `Ok` would say that this tick has done its work
        }
        shop.collection::<Document>(part).delete_many(doc! { "stale": true }).await?;
    }
    println!("{tick} is done");
    Ok(())
}

/// An instance of the service.
struct Service {
    store: MongoStore,
    elect: Elect,
    topics: Spread<String>,
    clean_up: Schedule,
}

impl Service {
    async fn start(uri: &str) -> Result<Self, Problem> {
        let shop = Client::with_uri_str(uri).await?.default_database().ok_or("the URI names no database")?;
        // tenure has clients of its own, and a database of its own: its role needs no other.
        let store = MongoStore::connect(uri, MongoOptions::new().database("tenure")).await?;
        let config = ElectConfig::from_env("TENURE_")?;
        let elect = Elect::builder(store.clone(), config).program("shop 1.0").start().await?;

        let asks = shop.clone();
        let topics = elect
            .spread("topics")
            .cap(500) // as many as one pod can do: when the others fail, it is not overloaded
            .tasks_by(Duration::from_secs(10), move || topics(asks.clone()))
            .run_with(shop.clone(), follow)?;
        let clean_up = elect
            .schedule("clean-up", Timing::new("30 2 * * *").zone("Europe/London"))
            .retries(Retries { tries: 3, ..Retries::default() })
            .timeout(Duration::from_secs(60 * 60))
            .on_failure(async |tick: Tick, failure: Failure| eprintln!("ALARM: {tick}: {failure}"))
            .run_with(shop, clean_up)?;
        Ok(Self { store, elect, topics, clean_up })
    }

    /// Answer to a `GET` of this path.
    async fn answer(&self, path: &str) -> (&'static str, String) {
        match path {
            // Alive: the process answers. A restart of this process repairs nothing in the store.
            "/healthz" => ("200 OK", "ok".to_owned()),
            // Ready: it has a session, so its jobs may run. Leading has no part in that.
            "/readyz" => {
                let health = self.elect.health();
                (if health.is_ok() { "200 OK" } else { "503 Service Unavailable" }, health.to_string())
            }
            "/tenure" => ("200 OK", self.overview().await),
            _ => ("404 Not Found", String::new()),
        }
    }

    /// State of the service, for people.
    async fn overview(&self) -> String {
        let mut lines = vec![self.elect.health().to_string(), self.topics.status().to_string()];
        match self.clean_up.status().await {
            Ok(status) => lines.extend(status.map(|status| status.to_string())),
            Err(error) => lines.push(format!("the store does not answer: {error}")),
        }
        match self.elect.locked_keys().await {
            Ok(all) => lines.extend(all.held.iter().map(ToString::to_string)),
            Err(error) => lines.push(format!("the store does not answer: {error}")),
        }
        lines.join("\n")
    }

    /// As much of HTTP as a probe speaks; use the server that your service has.
    async fn serve(self: Arc<Self>, listener: TcpListener) {
        loop {
            let Ok((stream, _)) = listener.accept().await else { continue };
            let service = self.clone();
            tokio::spawn(async move {
                let limit = Duration::from_secs(5);
                let _ = tokio::time::timeout(limit, service.respond(stream)).await;
            });
        }
    }

    async fn respond(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(&mut stream).lines();
        let request = lines.next_line().await?.unwrap_or_default();
        while lines.next_line().await?.is_some_and(|header| !header.is_empty()) {}
        let (status, body) = self.answer(request.split(' ').nth(1).unwrap_or_default()).await;
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
        stream.write_all((head + &body).as_bytes()).await
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("{problem}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Problem> {
    // Before anything is held, so that no signal is missed.
    let mut told_to_stop = signal(SignalKind::terminate())?;
    let uri = env::var("MONGODB_URI")
        .map_err(|_| "MONGODB_URI has to name the database: mongodb://db1,db2/shop")?;
    let listener = TcpListener::bind(env::var("LISTEN").unwrap_or("0.0.0.0:8080".to_owned())).await?;
    println!("listens on {}", listener.local_addr()?);

    let service = Arc::new(Service::start(&uri).await?);
    let server = tokio::spawn(service.clone().serve(listener));
    told_to_stop.recv().await;

    // Its jobs are told to stop, and have `stop_grace`; then others have its topics at once.
    let closed = service.elect.close().await;
    service.store.close().await;
    server.abort();
    println!("closed, with {} jobs that go on", closed.overran.len());
    Ok(())
}
