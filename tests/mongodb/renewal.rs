//! A login that is refused: the store makes its client anew, and what it is to be made of is looked at.

use std::{
    collections::VecDeque,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::future::join_all;
use mongodb::{
    Client,
    bson::{Document, doc},
};
use tenure::{
    StoreError,
    model::{Key, Kind, LockId},
    store::{
        LockSeen, SessionSeen, Store, StoreExt,
        mongo::{MongoOptions, MongoStore},
    },
};
use tenure_conformance::{Fixture, LIMIT};
use tokio::{
    io::{AsyncReadExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
};

use crate::mongodb::connected;
use crate::support::{
    mongod::{Deployment, Options, Shape},
    proxy::Proxy,
    wait, wire,
};

struct Guarded {
    server: Deployment,
    port: u16,
    admin: Client,
}

impl Guarded {
    async fn start() -> Self {
        let args = vec!["--auth".into()];
        let server = Deployment::start(Shape::Standalone, Options { args, ..Options::default() }).await;
        let port = server.nodes()[0].port();
        let root = doc! { "createUser": "root", "pwd": "root", "roles": ["root"] };
        wire::ask(port, root).await.expect("the first user can be created from this machine");
        let admin = Client::with_uri_str(format!("mongodb://root:root@127.0.0.1:{port}/")).await.unwrap();
        let guarded = Self { server, port, admin };
        guarded.ask(doc! { "createUser": "ada", "pwd": "f0rmer", "roles": ["root"] }).await;
        guarded
    }

    async fn ask(&self, command: Document) -> Document {
        self.admin.database("admin").run_command(command).await.unwrap()
    }

    fn uri(&self, password: &str, database: &str, more: &str) -> String {
        format!("mongodb://ada:{password}@127.0.0.1:{}/{database}?authSource=admin{more}", self.port)
    }

    /// Number of connections of this name.
    async fn connections(&self, name: &str) -> usize {
        let all = doc! { "$currentOp": { "allUsers": true, "idleConnections": true } };
        let named = doc! { "$match": { "appName": name } };
        let pipeline = [all, named];
        let command = doc! { "aggregate": 1, "pipeline": pipeline.to_vec(), "cursor": {} };
        let reply = self.ask(command).await;
        reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap().len()
    }
}

async fn look(store: &MongoStore) -> Result<Vec<LockSeen>, StoreError> {
    let key = Key::new("orders").unwrap();
    let lock = LockId { namespace: "test".parse().unwrap(), kind: Kind::Lock, key };
    store.locks(vec![lock], LIMIT).await
}

/// Uses the store until an answer says what is waited for.
async fn until(
    what: &str,
    store: &MongoStore,
    mut is: impl FnMut(&Result<Vec<LockSeen>, StoreError>) -> bool,
) {
    wait::until(what, async || {
        let answer = look(store).await;
        if is(&answer) { Ok(()) } else { Err(answer) }
    })
    .await;
}

/// A way to the server on which nothing is answered before a client has given up on it once.
async fn slow_way_to(server: u16) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut first, _) = listener.accept().await.unwrap();
        while first.read(&mut [0; 1024]).await.is_ok_and(|read| read > 0) {}
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut server = TcpStream::connect(("127.0.0.1", server)).await.unwrap();
            tokio::spawn(async move { copy_bidirectional(&mut client, &mut server).await });
        }
    });
    port
}

#[tokio::test]
async fn a_new_client_that_finds_its_server_late_is_taken_up_by_the_same_attempt() {
    let guarded = Guarded::start().await;
    let uri = |password, port| {
        format!("mongodb://ada:{password}@127.0.0.1:{port}/app?authSource=admin&directConnection=true")
    };
    let (slow, asked) = (slow_way_to(guarded.port).await, Arc::new(AtomicUsize::new(0)));
    let source = {
        let (asked, right) = (Arc::clone(&asked), uri("l4tter", slow));
        move || {
            asked.fetch_add(1, Ordering::Relaxed);
            let answer = right.clone();
            async move { Ok(answer) }
        }
    };
    let proxy = Proxy::start(guarded.port);
    let options = MongoOptions::new().uri_from(source);
    let store = connected(&uri("f0rmer", proxy.port()), options).await;
    guarded.ask(doc! { "updateUser": "ada", "pwd": "l4tter" }).await;
    proxy.sever();
    until("its login is refused", &store, Result::is_err).await;
    until("it has reconnected", &store, Result::is_ok).await;
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    store.close().await;
}

#[tokio::test]
async fn an_unusable_connection_string_is_told_and_the_store_waits_for_a_usable_one() {
    let guarded = Guarded::start().await;
    let answers: VecDeque<Result<String, &str>> = VecDeque::from([
        Err("the vault is sealed"),
        Ok(guarded.uri("l4tter", "other", "")),
        Ok("mongodb://ada:l4tter@@:x/".to_owned()),
    ]);
    let right = guarded.uri("l4tter", "app", "");
    let asked = Arc::new(Mutex::new(0));
    let source = {
        let (asked, answers) = (Arc::clone(&asked), Arc::new(Mutex::new(answers)));
        move || {
            *asked.lock().unwrap() += 1;
            let answer = answers.lock().unwrap().pop_front().unwrap_or_else(|| Ok(right.clone()));
            async move { answer.map_err(Into::into) }
        }
    };
    let options = MongoOptions::new().uri_from(source);
    let store = connected(&guarded.uri("f0rmer", "app", ""), options).await;
    look(&store).await.unwrap();
    // On the disk, for the server is killed.
    let kept = doc! { "w": 1, "j": true };
    guarded.ask(doc! { "updateUser": "ada", "pwd": "l4tter", "writeConcern": kept }).await;
    let node = &guarded.server.nodes()[0];
    guarded.server.kill(node).await;
    guarded.server.restart(node).await;

    for says in [
        "uri_from failed: the vault is sealed",
        "the connection string names another database than \"app\"",
        "the connection string cannot be used",
    ] {
        until(says, &store, |answer| {
            let Err(error) = answer else { return false };
            let told = error.to_string();
            assert!(!told.contains("f0rmer") && !told.contains("l4tter"), "{told}");
            told.contains(says)
        })
        .await;
    }
    until("it has reconnected", &store, Result::is_ok).await;
    // Asked twice for one attempt, one of the answers above were never told of. The last attempt may have been
    // repeated, on a machine that stood still.
    let attempts = *asked.lock().unwrap();
    assert!(attempts >= 4, "{attempts}");
    store.close().await;
    let closed = look(&store).await.unwrap_err();
    assert_eq!(closed.applied(), tenure::Applied::No, "{closed}");
    assert_eq!(*asked.lock().unwrap(), attempts, "nothing is asked after the end");
}

#[tokio::test]
async fn a_call_that_is_under_way_ends_on_the_former_client_which_then_goes() {
    let guarded = Guarded::start().await;
    let right = guarded.uri("l4tter", "app", "&appName=latter");
    let options = MongoOptions::new().uri_from(move || {
        let right = right.clone();
        async move { Ok(right) }
    });
    let store = connected(&guarded.uri("f0rmer", "app", "&appName=former"), options).await;
    look(&store).await.unwrap();
    guarded.ask(doc! { "updateUser": "ada", "pwd": "l4tter" }).await;

    // Some have the connections there are and are slow, the others have to log in.
    let slow =
        doc! { "failCommands": ["find"], "blockConnection": true, "blockTimeMS": 2000, "appName": "former" };
    guarded.ask(doc! { "configureFailPoint": "failCommand", "mode": "alwaysOn", "data": slow }).await;
    let answers = wait::within("all have an answer", join_all((0..32).map(|_| look(&store)))).await;
    let refused: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().err()).collect();
    for error in &refused {
        assert!(error.to_string().contains("AuthenticationFailed"), "{error}");
    }
    assert!(!refused.is_empty(), "nobody had to log in");
    assert!(refused.len() < answers.len(), "calls that were under way have their answers");

    until("it has reconnected", &store, Result::is_ok).await;
    assert!(guarded.connections("latter").await > 0);
    wait::until("the former client goes", async || match guarded.connections("former").await {
        0 => Ok(()),
        open => Err(open),
    })
    .await;
    look(&store).await.unwrap();
    store.close().await;
}

/// Withdraws a password, and has a login refused on a client that an instance works with. Returns how its next beats
/// are answered.
async fn beats_after_a_refusal(guarded: &Guarded) -> Result<(), StoreError> {
    guarded.ask(doc! { "updateUser": "ada", "pwd": "f0rmer" }).await;
    let store = connected(&guarded.uri("f0rmer", "app", ""), MongoOptions::new()).await;
    let dedicated = store.dedicated().await.unwrap().expect("it has a client of its own");
    let fixture = Fixture::new(Arc::clone(&dedicated));
    let session = fixture.opened().await.id;
    guarded.ask(doc! { "updateUser": "ada", "pwd": "l4tter" }).await;
    let lock = fixture.lock("orders");
    wait::until("somebody has to log in", async || {
        let looks = (0..4).map(|_| dedicated.locks(vec![lock.clone()], LIMIT));
        let refused = join_all(looks).await.into_iter().filter_map(Result::err);
        let told: Vec<_> = refused.map(|error| error.to_string()).collect();
        if told.iter().any(|told| told.contains("AuthenticationFailed")) { Ok(()) } else { Err(told) }
    })
    .await;
    for number in 1..=3 {
        let seen = dedicated.beat(fixture.beat(session, number), LIMIT).await?;
        assert!(matches!(seen, SessionSeen::Alive(_)), "{seen:?}");
    }
    store.close().await;
    Ok(())
}

#[tokio::test]
async fn heartbeats_keep_their_connection_when_a_login_of_other_work_is_refused() {
    let guarded = Guarded::start().await;
    // On a machine that stands still the driver may give up the server, and with it the connection of the beats.
    for _ in 0..4 {
        match beats_after_a_refusal(&guarded).await {
            Ok(()) => return,
            Err(error) => println!("once more: {error}"),
        }
    }
    panic!("time after time its beats had to log in");
}

fn tls(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("mongodb/tls").join(name)
}

/// A file of this test's own, which may be replaced.
struct Replaced(PathBuf);

impl Replaced {
    fn with(name: &str, content: &str) -> Self {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.pem", std::process::id()));
        let replaced = Self(file);
        replaced.by(content);
        replaced
    }

    fn by(&self, content: &str) {
        fs::copy(tls(content), &self.0).unwrap();
    }
}

impl Drop for Replaced {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[tokio::test]
async fn a_certificate_that_is_replaced_in_its_file_is_read_again_without_a_source() {
    let (trusted, ours) =
        (Replaced::with("trusted", "client-former.pem"), Replaced::with("ours", "client-former.pem"));
    // It takes clients with the certificate that it trusts, and no others.
    let mut args: Vec<String> = ["--tlsMode", "preferTLS"].map(Into::into).into();
    for (name, file) in [("--tlsCertificateKeyFile", &tls("server.pem")), ("--tlsCAFile", &trusted.0)] {
        args.extend([name.to_owned(), file.display().to_string()]);
    }
    let server = Deployment::start(Shape::Standalone, Options { args, ..Options::default() }).await;
    let node = &server.nodes()[0];
    let uri = format!(
        "mongodb://127.0.0.1:{}/app?tls=true&tlsCAFile={}&tlsCertificateKeyFile={}",
        node.port(),
        tls("ca.pem").display(),
        ours.0.display()
    );
    let store = connected(&uri, MongoOptions::new()).await;
    look(&store).await.unwrap();

    trusted.by("client-latter.pem");
    server.kill(node).await;
    server.restart(node).await;
    until("it is refused", &store, |answer| {
        let Err(error) = answer else { panic!("the former certificate is not trusted any more") };
        error.to_string().contains("could not reconnect the store")
    })
    .await;
    ours.by("client-latter.pem");
    until("it is read again", &store, Result::is_ok).await;
    store.close().await;
}
