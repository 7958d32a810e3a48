//! The server of the page: connections, and their limits.

use std::{
    net::SocketAddr,
    pin::pin,
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use axum::{
    Router,
    extract::ConnectInfo,
    http::{Request, StatusCode, header},
    response::{IntoResponse, Response},
};
use hyper::{
    body::Incoming,
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use rustix::process::{Resource, getrlimit};
use tenure_ui::Ui as Page;
use tokio::{
    net::{TcpListener, TcpStream},
    task::yield_now,
    time::{Instant, sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Time in which answers that have begun may end: as long as an action may take.
const GRACE: Duration = Duration::from_secs(10);
/// Time in which a connection without an answer ends by itself.
const SHORT: Duration = Duration::from_secs(1);
/// Time for the head of a request, and for its answer to begin. Proxies keep idle connections for a minute.
const PATIENCE: Duration = Duration::from_secs(75);
/// Room for what is read of a connection: a head of a request that has no end within it is refused.
const READ_AT_MOST: usize = 64 * 1024;
/// Connections at most, if the process may have twice as many files.
const CONNECTIONS: u64 = 500;

/// Answers requests until `until` is over. Then it answers those that it has, and lets go the followers of changes.
///
/// Beyond the limit of connections, the one that is idle the longest makes room for a new one; without idle ones, the
/// one that waits the longest for its answer, and at last the one that follows changes the longest.
pub(super) async fn serve(listener: TcpListener, page: Page, until: impl Future<Output = ()>) {
    let (end, tasks) = (page.end(), TaskTracker::new());
    let (service, most) = (TowerToHyperService::new(page.router()), most());
    let mut lines: Vec<Weak<Line>> = Vec::new();
    let mut told: Option<Instant> = None;
    let mut until = pin!(until);
    loop {
        let accepted = tokio::select! {
            () = &mut until => break,
            accepted = listener.accept() => accepted,
        };
        lines.retain(|line| line.strong_count() > 0);
        let problem = match accepted {
            Ok((stream, peer)) => {
                let is_full = lines.len() >= most;
                if is_full {
                    make_room(&lines).await;
                }
                let line = Arc::new(Line::new());
                lines.push(Arc::downgrade(&line));
                tasks.spawn(connection(stream, peer, service.clone(), line, end.clone()));
                is_full.then(|| format!("there are {most} connections: the longest idle ones make room"))
            }
            Err(error) => {
                sleep(Duration::from_millis(10)).await;
                Some(error.to_string())
            }
        };
        if let Some(problem) = problem
            && told.is_none_or(|told| told.elapsed() >= Duration::from_secs(60))
        {
            told = Some(Instant::now());
            tracing::warn!(problem, "connections are closed or refused");
        }
    }
    drop(listener);
    end.cancel();
    tasks.close();
    let _ = timeout(GRACE, tasks.wait()).await;
}

fn most() -> usize {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(CONNECTIONS.min(files / 2)).unwrap_or_default()
}

/// Connection of a client.
struct Line {
    state: Mutex<(State, Instant)>,
    close: CancellationToken,
}

/// In the order in which they make room.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Idle,
    /// A request was read: its answer is being made.
    Answering,
    /// Events are sent, for as long as the follower wants.
    Following,
}

impl Line {
    fn new() -> Self {
        Self { state: Mutex::new((State::Idle, Instant::now())), close: CancellationToken::new() }
    }

    fn state(&self) -> (State, Instant) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: State) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = (state, Instant::now());
    }
}

/// Closes a connection.
async fn make_room(lines: &[Weak<Line>]) {
    let known = lines.iter().filter_map(|line| Some((line, line.upgrade()?)));
    let known = known.map(|(line, known)| (line, known.state(), known.close.clone()));
    let Some((line, _, close)) = known.min_by_key(|(_, state, _)| *state) else { return };
    close.cancel();
    while line.strong_count() > 0 {
        yield_now().await;
    }
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    service: TowerToHyperService<Router>,
    line: Arc<Line>,
    end: CancellationToken,
) {
    let answers = service_fn(|mut request: Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        line.set(State::Answering);
        let (answer, line) = (timeout(PATIENCE, service.call(request)), &line);
        async move {
            let answer = answer.await.unwrap_or_else(|_| Ok(StatusCode::REQUEST_TIMEOUT.into_response()));
            let follows = answer.as_ref().is_ok_and(is_followed);
            line.set(if follows { State::Following } else { State::Idle });
            answer
        }
    });
    let mut served = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(PATIENCE)
            .max_buf_size(READ_AT_MOST)
            .serve_connection(TokioIo::new(stream), answers)
    );
    tokio::select! {
        _ = &mut served => return,
        () = line.close.cancelled() => return,
        () = end.cancelled() => served.as_mut().graceful_shutdown(),
    }
    let is_open = timeout(SHORT, &mut served).await.is_err();
    // A request may be half a body, of which no more comes.
    if let (State::Answering, since) = line.state()
        && is_open
    {
        let _ = timeout(GRACE.saturating_sub(since.elapsed()), served).await;
    }
}

fn is_followed(answer: &Response) -> bool {
    let kind = answer.headers().get(header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes() == b"text/event-stream")
}

#[cfg(test)]
mod tests {
    use std::io;

    use tenure::store::MemoryStore;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        sync::oneshot,
        task::JoinHandle,
    };

    use super::*;

    /// A page of the time that is paused, and its end.
    async fn served() -> (SocketAddr, oneshot::Sender<()>, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ended) = oneshot::channel();
        let page = Page::new(MemoryStore::default(), "shop".parse().unwrap());
        let serving = serve(listener, page, async move { ended.await.unwrap() });
        (address, end, tokio::spawn(serving))
    }

    async fn sent(address: SocketAddr, text: &str) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(text.replace("HOST", &address.to_string()).as_bytes()).await?;
        Ok(stream)
    }

    /// Connections that have sent nothing, half a head, half a body, and a request whose answer was read.
    async fn idle(address: SocketAddr) -> [TcpStream; 4] {
        let head = "POST /login HTTP/1.1\r\nhost: HOST\r\n";
        let form = "content-type: application/x-www-form-urlencoded\r\ncontent-length: 99\r\n\r\ntoken=";
        let [nothing, half_head] = [sent(address, "").await.unwrap(), sent(address, head).await.unwrap()];
        let half_body = sent(address, &format!("{head}{form}")).await.unwrap();
        let mut answered = sent(address, "GET /healthz HTTP/1.1\r\nhost: HOST\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"ok\n") {
            answer.push(answered.read_u8().await.unwrap());
        }
        [nothing, half_head, half_body, answered]
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_whole_request_ends_within_75_seconds() {
        let (address, end, serving) = served().await;
        let began = Instant::now();
        let [nothing, half_head, mut half_body, answered] = idle(address).await;
        for mut stream in [nothing, half_head, answered] {
            let _ = stream.read_to_end(&mut Vec::new()).await;
            assert!(began.elapsed() < Duration::from_secs(80), "{:?}", began.elapsed());
        }
        assert!(began.elapsed() > Duration::from_secs(70), "{:?}", began.elapsed());
        let mut answer = [0; 12];
        half_body.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 408");
        end.send(()).unwrap();
        serving.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_makes_room_before_one_that_is_answered_or_follows() {
        let mut lines = Vec::new();
        for state in [State::Following, State::Answering, State::Idle, State::Idle] {
            let line = Arc::new(Line::new());
            line.set(state);
            lines.push(Arc::downgrade(&line));
            tokio::spawn(async move { line.close.cancelled().await });
            sleep(SHORT).await;
        }
        for next in [2, 3, 1, 0] {
            assert!(lines[next].strong_count() > 0, "{next}");
            make_room(&lines).await;
            assert_eq!(lines[next].strong_count(), 0, "{next}");
        }
    }

    #[tokio::test]
    async fn a_request_with_a_long_head_is_refused() {
        let (address, end, serving) = served().await;
        for (length, wanted) in [(60_000, b"HTTP/1.1 200"), (200_000, b"HTTP/1.1 431")] {
            let mut stream = sent(address, "GET /healthz HTTP/1.1\r\nhost: HOST\r\n").await.unwrap();
            let mut answer = [0; 12];
            // The answer may come in the middle of it.
            let _ = stream.write_all(format!("x: {}\r\n\r\n", "y".repeat(length)).as_bytes()).await;
            stream.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, wanted, "{length}");
        }
        end.send(()).unwrap();
        serving.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn idle_connections_do_not_keep_a_page_that_ends() {
        let (address, end, serving) = served().await;
        let _idle = idle(address).await;
        // Half a body is a request, and might be an action for as long as one takes.
        sleep(GRACE).await;
        let began = Instant::now();
        end.send(()).unwrap();
        serving.await.unwrap();
        assert!(began.elapsed() <= Duration::from_secs(2), "{:?}", began.elapsed());
    }
}
