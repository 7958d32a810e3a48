//! A store with something to look at, the real command, and the fields that its documents have.

#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, also in its helpers")]

use std::{
    path::PathBuf,
    process::{Command, Output},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use serde_json::Value;
use tenure::{
    Elect, ElectConfig, Guard,
    model::{Kind, LockId, SessionId, StoreTime, Why},
    store::{
        About, Candidate, Declaration, Evidence, FailureRow, Nonce, Note, Open, Release, ReleaseTo,
        Revocation, Share, Store, StoreExt, Take, TakeAnswer, Ticket, Topic, sqlite::SqliteStore,
    },
};

pub(crate) use crate::wait::LIMIT;
use crate::wait::until;

pub(crate) const NAMESPACE: &str = "shop";

/// A store to look at, and the URI by which the command finds it.
pub(crate) struct World {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) uri: String,
    folder: PathBuf,
}

impl World {
    pub(crate) fn sqlite() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("tenure-looking-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("tenure.db");
        let store = SqliteStore::open(&file).unwrap();
        Self { store: Arc::new(store), uri: format!("sqlite:{}", file.display()), folder }
    }

    pub(crate) fn on(store: Arc<dyn Store>, uri: &str) -> Self {
        Self { store, uri: uri.to_owned(), folder: PathBuf::new() }
    }

    /// A file beside the store's.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) async fn engine(&self, holder: &str) -> Elect {
        let config = ElectConfig::new(NAMESPACE, holder).unwrap();
        Elect::builder(self.store.clone(), config).program("shop 1.2").start().await.unwrap()
    }

    /// The command, with nothing of this process's environment that it would heed.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        command(&["--store", &self.uri, "--namespace", NAMESPACE], arguments)
    }

    /// Runs the command to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(&mut self.command(arguments))
    }

    /// Runs the command and reads its document.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let ran = self.run(&[arguments, &["--output", "json"]].concat());
        assert!(ran.err.is_empty(), "{arguments:?}: {}", ran.err);
        ran.json()
    }

    /// Asks until the document is as wanted.
    pub(crate) async fn json_until(&self, arguments: &[&str], is_so: impl Fn(&Value) -> bool) -> Value {
        until(&format!("{arguments:?}"), async || {
            let json = self.json(arguments);
            if is_so(&json) { Ok(json) } else { Err(json) }
        })
        .await
    }

    /// A session without an engine: it never beats.
    pub(crate) async fn session(
        &self,
        number: u128,
        holder: &str,
        ttl: Duration,
        shares: Vec<Share>,
    ) -> Candidate {
        let mut about = About::new(NAMESPACE.parse().unwrap(), holder.parse().unwrap());
        "node-7".clone_into(&mut about.host);
        about.pid = 4711;
        let session = SessionId::from_u128(number);
        let open = Open { session, nonce: Nonce::new(1), about, ttl, shares, drained: None };
        self.store.open(open, LIMIT).await.unwrap();
        Candidate::new(session, Ticket::new(1), ttl, holder.parse().unwrap())
    }

    /// A session that looks dead at once.
    pub(crate) async fn silent(&self, number: u128, holder: &str) -> Candidate {
        let candidate = self.session(number, holder, Duration::from_millis(1), Vec::new()).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
        candidate
    }

    pub(crate) async fn take(&self, kind: Kind, key: &str, by: &Candidate) -> tenure::model::Term {
        let takes = vec![Take { lock: lock(kind, key), by: by.clone() }];
        match self.store.take(takes, Vec::new(), LIMIT).await.unwrap().remove(0) {
            TakeAnswer::Taken(record) => record.term,
            other => panic!("{key} is not taken: {other:?}"),
        }
    }

    /// Takes a key and gives it back, with a note, closed for so long.
    pub(crate) async fn close_for(
        &self,
        kind: Kind,
        key: &str,
        by: &Candidate,
        note: Option<Note>,
        time: Duration,
    ) {
        let term = self.take(kind.clone(), key, by).await;
        let then = ReleaseTo::ClosedFor(time);
        let lock = lock(kind, key);
        let release = Release { lock, session: by.session, term, note, then };
        self.store.release(vec![release], LIMIT).await.unwrap();
    }

    pub(crate) async fn drain(&self, by: &Candidate, (operator, why): (&str, &str)) {
        let order = Some((operator.parse().unwrap(), Why::new(why).unwrap()));
        let (session, tell) = (by.session, Topic::Session(by.session));
        self.store.revoke(Revocation::Drain { session, order, tell }, LIMIT).await.unwrap();
    }

    pub(crate) async fn declare_dead(&self, session: SessionId, why: &str) {
        let declaration = Declaration {
            session,
            ground: Evidence::Operator,
            by: "ops".parse().unwrap(),
            why: Why::shortened(why),
            tell: Vec::new(),
        };
        self.store.declare(declaration, LIMIT).await.unwrap();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if !self.folder.as_os_str().is_empty() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// Holds a lock, with all that can be said of it.
pub(crate) async fn lead(elect: &Elect, key: &str) -> Guard {
    let asked = elect.key(key).who("mailer").why("nightly report").value("10.0.0.1:80");
    asked.try_acquire().await.unwrap().guard().expect("nobody has it")
}

pub(crate) fn lock(kind: Kind, key: &str) -> LockId {
    LockId { namespace: NAMESPACE.parse().unwrap(), kind, key: key.parse().unwrap() }
}

pub(crate) fn command(first: &[&str], arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TENURE_") {
            command.env_remove(name);
        }
    }
    command.env("TZ", "UTC").args(first).args(arguments);
    command
}

/// The exit code and the output of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn of(command: &mut Command) -> Self {
        let Output { status, stdout, stderr } = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: status.code().unwrap(), out: text(stdout), err: text(stderr) }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// The line of a table that begins with this cell.
    pub(crate) fn row(&self, cell: &str) -> &str {
        let mut rows = self.out.lines().filter(|line| line.split_whitespace().next() == Some(cell));
        rows.next_back().unwrap_or_else(|| panic!("no line begins with {cell}:\n{}", self.out))
    }
}

/// Checks that an object has these fields and no others, each of one of these types: `number|null`. A name with dots
/// is of an object within; a name that ends in `[]` is of the objects of an array, which must not be empty.
pub(crate) fn fields(value: &Value, schema: &[(&str, &str)]) {
    let object = value.as_object().unwrap_or_else(|| panic!("{value:#} is no object"));
    let mut names: Vec<_> = object.keys().map(String::as_str).collect();
    let mut wanted: Vec<_> = schema.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(names, wanted, "fields of {value:#}");
    for (name, types) in schema {
        let kind = kind_of(&object[*name]);
        assert!(
            types.split('|').any(|one| one == kind),
            "{name} is {kind}, and should be {types}: {value:#}"
        );
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Checks a listing, and returns its items.
pub(crate) fn listing(value: &Value) -> &Vec<Value> {
    fields(value, &[("items", "array"), ("refused", "array"), ("more", "bool")]);
    value["items"].as_array().unwrap()
}

/// The item whose field has this text.
pub(crate) fn item<'a>(items: &'a [Value], pointer: &str, text: &str) -> &'a Value {
    let found = items.iter().find(|item| item.pointer(pointer).and_then(Value::as_str) == Some(text));
    found.unwrap_or_else(|| panic!("no item has {text} at {pointer}: {items:#?}"))
}

pub(crate) const LOCK: &[(&str, &str)] = &[
    ("id", "object"),
    ("term", "number"),
    ("holding", "object|null"),
    ("closed", "object|null"),
    ("wanted", "bool"),
    ("past", "array"),
];
pub(crate) const LOCK_ID: &[(&str, &str)] = &[("namespace", "string"), ("kind", "string"), ("key", "string")];
pub(crate) const CANDIDATE: &[(&str, &str)] = &[
    ("session", "string"),
    ("ticket", "number"),
    ("ttl_ms", "number"),
    ("holder", "string"),
    ("who", "string|null"),
    ("why", "string|null"),
    ("value", "string|object|null"),
    ("lock_delay_ms", "number"),
];
pub(crate) const PAST: &[(&str, &str)] = &[
    ("holder", "string"),
    ("session", "string|null"),
    ("who", "string|null"),
    ("term", "number"),
    ("from", "string"),
    ("to", "string"),
    ("how", "string"),
    ("note", "object|null"),
];
pub(crate) const SESSION: &[(&str, &str)] = &[
    ("id", "string"),
    ("about", "object"),
    ("started", "string"),
    ("beat", "number"),
    ("nonce", "number"),
    ("beat_at", "string"),
    ("stalled_since", "string|null"),
    ("ttl_ms", "number"),
    ("death", "object|null"),
    ("shares", "array"),
    ("drained", "object|null"),
    ("requests", "array"),
];
pub(crate) const SHARE: &[(&str, &str)] = &[
    ("spread", "string"),
    ("cap", "number|null"),
    ("weight", "number"),
    ("draining", "bool"),
    ("paused", "bool"),
    ("reserved_ms", "number"),
    ("digest", "string"),
    ("known", "number|null"),
    ("known_since", "string|null"),
];
pub(crate) const RUN: &[(&str, &str)] = &[
    ("id", "object"),
    ("session", "string"),
    ("holder", "string"),
    ("term", "number"),
    ("attempt", "number"),
    ("started", "string"),
    ("finish", "object|null"),
    ("skipped", "object|null"),
];
pub(crate) const LIFE: &[(&str, &str)] = &[("life", "string|null"), ("looks_dead", "bool")];

pub(crate) fn and<'a>(one: &[(&'a str, &'a str)], more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    [one, more].concat()
}

/// Note of a task that three members gave up.
pub(crate) fn given_up() -> Note {
    let [first, second, third] = ["pod-1", "pod-2", "pod-3"].map(|name| name.parse().unwrap());
    let row = FailureRow::begun(StoreTime::from_millis(1_763_784_813_123), &first, "no route to host");
    let row = row.followed_by(&second, "no route to host").followed_by(&third, "no route to host");
    Note::Failing(row)
}
