//! The client a store uses at this moment, and how another one takes its place.
//!
//! A server asks for a login when a connection is opened, and by then the password or the certificate may
//! be another than the client was made with. When it refuses the login, a client is made anew, in the
//! background: of the string the program's source answers with, and of the files as they are now. So is one
//! that has answered nothing for long: a task of the driver may have panicked, for lack of a thread say.

use std::{
    future::Future,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bson::doc;
use futures::{FutureExt, future::join_all};
use mongodb::{Client, Database};
use tokio::{
    runtime::Handle,
    sync::{Semaphore, SemaphorePermit, watch},
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{
    command::run,
    connect::{ATTEMPT, CLOSING, Elections, FIRST_ANSWER, OwnClient, Room, Uri},
    error::{CommandFailure, CommandResult},
    marks::Marks,
    options::{Collections, MongoOptions},
};
use crate::{
    clock::{Clock, Moment, SystemClock},
    error::in_words,
    sync::locked,
    words,
};

/// Between two attempts, and then twice as long each time.
const FIRST_REST: Duration = Duration::from_secs(2);
/// No longer than this: logins that fail so rarely lock no user out, and fill no server's log. A client that
/// worked for so long counts as a success.
const LONGEST_REST: Duration = Duration::from_secs(30);

/// A client is made anew if it has answered nothing for so long: longer than an election, and than a start
/// of the server.
const SILENCE: Duration = Duration::from_secs(30);

/// The number of heartbeats that go on at once: one, and those before it that are not answered.
const BEATS: usize = 4;

/// The pace at which clients are made anew: one at a time, and not again and again.
#[derive(Debug)]
struct Pace {
    under_way: bool,
    rest: Duration,
    /// The end of the last attempt, and whether there was another client then.
    last: Option<(Moment, bool)>,
}

impl Default for Pace {
    fn default() -> Self {
        Self { under_way: false, rest: FIRST_REST, last: None }
    }
}

impl Pace {
    /// Returns whether to begin now.
    fn begins(&mut self, now: Moment) -> bool {
        if self.under_way {
            return false;
        }
        if let Some((ended, worked)) = self.last {
            let ago = now.since(ended);
            if ago < self.rest {
                return false;
            }
            // One that is refused soon after it was made has not worked.
            self.rest =
                if worked && ago >= LONGEST_REST { FIRST_REST } else { (self.rest * 2).min(LONGEST_REST) };
        }
        self.under_way = true;
        true
    }

    const fn ended(&mut self, now: Moment, worked: bool) {
        self.under_way = false;
        self.last = Some((now, worked));
    }
}

/// A client in use.
#[derive(Clone)]
pub(crate) struct Current {
    generation: u64,
    pub(crate) database: Database,
    /// Permits, one for each operation that goes on, so that its end can be waited for.
    pub(crate) permits: Arc<Semaphore>,
    /// The number of permits.
    at_once: usize,
    /// Permits of heartbeats, which wait behind nothing else.
    pub(crate) beats: Arc<Semaphore>,
    /// The number of streams there is room for besides.
    pub(crate) streams: usize,
    /// `None` if the client is the program's.
    elections: Option<Elections>,
    /// The string it was made of; `None` if the client is the program's.
    pub(crate) uri: Option<Uri>,
}

impl Current {
    /// A client of the store's own.
    pub(crate) fn own(made: OwnClient, uri: Uri) -> Self {
        let OwnClient { client, database, room, elections } = made;
        let lent = Self::lent(client.database(&database), room);
        Self { elections: Some(elections), uri: Some(uri), ..lent }
    }

    /// A client that the program has.
    pub(crate) fn lent(database: Database, room: Room) -> Self {
        let Room { permits, streams } = room;
        let at_once = permits.available_permits();
        let (permits, beats) = (Arc::new(permits), Arc::new(Semaphore::new(BEATS)));
        Self { generation: 0, database, permits, at_once, beats, streams, elections: None, uri: None }
    }

    /// Waits until its calls have ended: they go on when their callers have given up. Nothing begins as long as
    /// what this answers with is kept. Nothing, if it is closed already.
    async fn at_rest(&self) -> Option<[SemaphorePermit<'_>; 2]> {
        let all = |many| u32::try_from(many).unwrap_or(u32::MAX);
        let others = self.permits.acquire_many(all(self.at_once)).await.ok()?;
        Some([others, self.beats.acquire_many(all(BEATS)).await.ok()?])
    }

    /// Shuts its client down, if that is the store's own.
    async fn end(&self) {
        if self.uri.is_some() {
            shut_down(self.database.client().clone()).await;
        }
    }
}

async fn shut_down(client: Client) {
    // An error says that the server does not answer.
    let _ = timeout(CLOSING, client.shutdown()).await;
}

/// Waits for the first answer to a fresh client. It has to find its server, for which one attempt may be too short on a
/// busy machine: only a refusal is final.
async fn first_answer(database: &Database) -> CommandResult<()> {
    let clock = SystemClock::new();
    let begun = clock.now();
    loop {
        match run(database, doc! { "ping": 1 }).await {
            Err(failure) if !failure.is_lasting() && clock.now().since(begun) + ATTEMPT < FIRST_ANSWER => {}
            answer => return answer.map(drop),
        }
    }
}

#[derive(Default)]
struct RenewalState {
    pace: Pace,
    /// Since when the client that is in use has been asked again and again, and has not answered; and when it was asked
    /// last.
    unanswered: Option<(Moment, Moment)>,
    /// Why the last attempt came to nothing.
    problem: Option<String>,
    /// Attempts, and former clients that end.
    tasks: Vec<JoinHandle<()>>,
}

impl RenewalState {
    /// The client is asked. Returns whether it has been asked for long, and has answered nothing.
    fn asks(&mut self, now: Moment) -> bool {
        let before = self.unanswered.filter(|(_, last)| now.since(*last) < SILENCE);
        let since = before.map_or(now, |(since, _)| since);
        self.unanswered = Some((since, now));
        now.since(since) >= SILENCE
    }

    /// Notes an answer of the server. If it was silent for long, the attempts since then show nothing about logins.
    fn answered(&mut self) {
        let was_silent = self.unanswered.take().is_some_and(|(since, last)| last.since(since) >= SILENCE);
        if was_silent && !self.pace.under_way {
            self.pace = Pace::default();
            self.problem = None;
        }
    }
}

/// The client of one store, which may be another one later.
pub(crate) struct Connection {
    current: watch::Sender<Current>,
    course: Mutex<RenewalState>,
    options: MongoOptions,
    marks: Arc<Marks>,
    /// Runtime of the store: clients live on the runtime they are made on.
    runtime: Handle,
    /// The store is closed, or its last handle was dropped.
    stop: CancellationToken,
}

impl Connection {
    pub(crate) fn new(
        current: Current,
        mut options: MongoOptions,
        marks: Arc<Marks>,
        stop: CancellationToken,
    ) -> Self {
        let current = watch::Sender::new(current);
        options.uri_from = options.uri_from.map(|source| source.for_another());
        Self { current, course: Mutex::default(), options, marks, runtime: Handle::current(), stop }
    }

    pub(crate) fn current(&self) -> Current {
        self.current.borrow().clone()
    }

    pub(crate) fn database(&self) -> Database {
        self.current.borrow().database.clone()
    }

    /// Notifies when there is another client, or another primary.
    pub(crate) fn moves(&self) -> Moves {
        Moves { clients: self.current.subscribe(), elections: None }
    }

    /// Returns the runtime of the store.
    pub(crate) fn runtime(&self) -> Handle {
        self.runtime.clone()
    }

    /// Begins a task on the runtime of the store, which lasts as long as its client.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        self.runtime.spawn(task)
    }

    /// Runs an operation with the client there is, and looks at how it failed.
    pub(crate) async fn watched<T>(
        self: &Arc<Self>,
        used: &Current,
        operation: impl Future<Output = CommandResult<T>>,
    ) -> CommandResult<T> {
        if self.course().asks(SystemClock::new().now()) {
            self.replace(used, "the former client had answered nothing for long");
        }
        let answer = operation.await;
        if answer.as_ref().err().is_none_or(CommandFailure::is_answer) {
            self.course().answered();
        }
        answer.map_err(|failure| if failure.is_refused() { self.refused(used, failure) } else { failure })
    }

    /// The server refused a login, or the certificate, of this client: another one is made, unless that was tried a moment ago.
    /// Returns the message to log.
    pub(crate) fn refused(self: &Arc<Self>, used: &Current, failure: CommandFailure) -> CommandFailure {
        match self.replace(used, "the server had refused its login or certificate") {
            Some(problem) => failure.with_more(&format!("could not reconnect the store: {problem}")),
            None => failure,
        }
    }

    /// Has another client made, unless that was tried a moment ago. Returns why the last attempt came to nothing.
    fn replace(self: &Arc<Self>, used: &Current, why: &'static str) -> Option<String> {
        let current = self.current();
        if current.uri.is_none() || current.generation != used.generation || self.stop.is_cancelled() {
            return None;
        }
        let mut course = self.course();
        if course.pace.begins(SystemClock::new().now()) {
            course.tasks.retain(|task| !task.is_finished());
            course.tasks.push(self.runtime.spawn(Arc::clone(self).renew(current, why)));
        }
        course.problem.clone()
    }

    async fn renew(self: Arc<Self>, former: Current, why: &'static str) {
        let made = AssertUnwindSafe(self.make(&former)).catch_unwind().await;
        let problem = match made.unwrap_or_else(|_| Err("uri_from, or the driver, panicked".to_owned())) {
            Ok(next) if self.take_up(&next) => {
                words::info!(why, "reconnected the store");
                let end = async move {
                    // An operation that is about to begin with it waits that long, and finds the next one then.
                    let _rest = former.at_rest().await;
                    former.end().await;
                };
                self.course().tasks.push(self.runtime.spawn(end));
                None
            }
            Ok(next) => {
                next.end().await;
                None
            }
            Err(problem) => {
                words::debug!(error = problem, "could not reconnect the store");
                Some(problem)
            }
        };
        let mut course = self.course();
        course.pace.ended(SystemClock::new().now(), problem.is_none());
        if problem.is_none() {
            course.unanswered = None;
        }
        course.problem = problem;
    }

    /// Takes the next client into use, unless the store was closed meanwhile.
    fn take_up(&self, next: &Current) -> bool {
        self.current.send_if_modified(|current| {
            let goes_on = !self.stop.is_cancelled();
            if goes_on {
                *current = next.clone();
            }
            goes_on
        })
    }

    /// Another client for the same database of the same deployment, which has logged in.
    async fn make(&self, former: &Current) -> Result<Current, String> {
        let ready = async {
            let uri = match (&self.options.uri_from, &former.uri) {
                (Some(source), _) => match source.ask().await {
                    Ok(uri) => Uri::new(&uri),
                    Err(error) => return Err(format!("uri_from failed: {}", in_words(&*error))),
                },
                (None, Some(uri)) => uri.clone(),
                (None, None) => return Err("the client was lent".to_owned()),
            };
            let made = uri.client(&self.options).await.map_err(|error| error.to_string())?;
            Ok((uri, made))
        };
        let (uri, made) = self.bounded(ready).await?;
        let (name, used) = (&made.database, former.database.name());
        let logged_in = async {
            if name != used {
                return Err(format!(
                    "the connection string names another database than {used:?}, in which the store is: give \
                     the same one"
                ));
            }
            let database = made.client.database(name);
            first_answer(&database).await.map_err(CommandFailure::into_words)?;
            let sessions = Collections::new(&self.options.prefix).sessions;
            let unknown = self.marks.unknown_in(&database, &sessions).await;
            unknown.map_err(CommandFailure::into_words)?.map_or(Ok(()), |session| {
                let source = if self.options.uri_from.is_some() { "uri_from" } else { "the connection string" };
                Err(format!(
                    "{source} names another deployment, in which session {session} is unknown: this instance stays \
                     where it is"
                ))
            })
        };
        if let Err(problem) = self.bounded(logged_in).await {
            // Not only dropped: see `MongoStore::close`.
            shut_down(made.client).await;
            return Err(problem);
        }
        Ok(Current { generation: former.generation + 1, ..Current::own(made, uri) })
    }

    async fn bounded<T>(&self, work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err("the store is closed".to_owned()),
            done = timeout(FIRST_ANSWER, work) => {
                done.unwrap_or_else(|_| Err(format!("no answer within {FIRST_ANSWER:?}")))
            }
        }
    }

    /// Ends the client there is, when its operations and then `last_words` have ended, and the clients that came
    /// before it. Needs `stop` to be cancelled.
    pub(crate) async fn close(&self, last_words: impl Future<Output = ()>) {
        let current = self.current();
        let last = async {
            if let Some(rest) = current.at_rest().await {
                rest.into_iter().for_each(SemaphorePermit::forget);
            }
            current.permits.close();
            current.beats.close();
            last_words.await;
            current.end().await;
        };
        let former = async {
            loop {
                let tasks = std::mem::take(&mut self.course().tasks);
                if tasks.is_empty() {
                    return;
                }
                // An error says that one of them panicked.
                join_all(tasks).await;
            }
        };
        tokio::join!(last, former);
    }

    fn course(&self) -> MutexGuard<'_, RenewalState> {
        locked(&self.course)
    }
}

/// Changes of where the operations of a store go.
pub(crate) struct Moves {
    clients: watch::Receiver<Current>,
    elections: Option<Elections>,
}

impl Moves {
    /// Returns the client there is. What changed before is not notified.
    pub(crate) fn mark_unchanged(&mut self) -> Current {
        let current = self.clients.borrow_and_update().clone();
        self.elections.clone_from(&current.elections);
        if let Some(elections) = &mut self.elections {
            elections.mark_unchanged();
        }
        current
    }

    /// Waits until there is another client, or another primary. What was open on the former one may stay open, and
    /// tells nothing any more.
    pub(crate) async fn moved(&mut self) {
        let elected = async {
            let elections = self.elections.as_mut()?;
            // An error says that its client has ended.
            elections.changed().await.ok()
        };
        let elected = async {
            if elected.await.is_none() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            () = elected => {}
            changed = self.clients.changed() => if changed.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::after_start(Duration::from_secs(seconds))
    }

    /// Seconds in which attempts begin, if a login is refused every second and each attempt takes none.
    fn begun(pace: &mut Pace, seconds: std::ops::Range<u64>, worked: bool) -> Vec<u64> {
        let mut begun = Vec::new();
        for second in seconds {
            if pace.begins(at(second)) {
                pace.ended(at(second), worked);
                begun.push(second);
            }
        }
        begun
    }

    #[test]
    fn attempts_become_more_seldom_and_never_stop() {
        let mut pace = Pace::default();
        assert_eq!(begun(&mut pace, 0..130, false), [0, 2, 6, 14, 30, 60, 90, 120]);
    }

    #[test]
    fn a_client_that_is_refused_soon_after_it_was_made_is_no_success() {
        let mut pace = Pace::default();
        assert_eq!(begun(&mut pace, 0..50, true), [0, 2, 6, 14, 30]);
    }

    #[test]
    fn after_a_client_that_worked_the_rests_begin_anew() {
        let mut pace = Pace::default();
        begun(&mut pace, 0..100, false);
        assert!(pace.begins(at(120)));
        pace.ended(at(120), true);
        assert_eq!(begun(&mut pace, 200..210, false), [200, 202, 206]);
    }

    #[test]
    fn a_client_that_is_asked_for_long_and_answers_nothing_is_silent() {
        let mut state = RenewalState::default();
        let silent: Vec<_> = (0..100).step_by(10).filter(|second| state.asks(at(*second))).collect();
        assert_eq!(silent, [30, 40, 50, 60, 70, 80, 90]);
        assert!(!state.asks(at(200)), "nobody has asked for long");
        state.pace.begins(at(200));
        state.pace.ended(at(200), false);
        assert!((201..240).any(|second| state.asks(at(second))));
        state.answered();
        assert!(!state.asks(at(240)));
        assert!(state.pace.begins(at(201)), "a refused login is looked at anew");
    }

    #[test]
    fn there_is_one_attempt_at_a_time() {
        let mut pace = Pace::default();
        assert!(pace.begins(at(0)));
        assert!(!pace.begins(at(1000)));
    }
}
