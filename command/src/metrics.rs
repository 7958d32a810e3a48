//! Metrics and health over HTTP, for collectors and probes.

use std::net::SocketAddr;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tenure::Elect;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::{exit::Failure, say};

/// The longest request that is read.
const LONGEST: usize = 8 * 1024;
/// The longest that one may take.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

/// An address that is listened on.
pub(crate) struct Metrics {
    listener: std::sync::Arc<TcpListener>,
    recorded: PrometheusHandle,
}

impl Metrics {
    pub(crate) async fn listen(address: SocketAddr) -> Result<Self, Failure> {
        let listener = TcpListener::bind(address)
            .await
            .map_err(|error| Failure::config(format!("cannot listen on {address} (--metrics): {error}")))?;
        let recorded = PrometheusBuilder::new()
            .install_recorder()
            .map_err(|error| Failure::failed(format!("metrics cannot be recorded: {error}")))?;
        if let Ok(bound) = listener.local_addr() {
            say::say(format_args!("metrics at http://{bound}/metrics"));
        }
        Ok(Self { listener: listener.into(), recorded })
    }

    /// Answers from now on.
    pub(crate) fn serve(&self, elect: Elect) {
        let (listener, recorded) = (self.listener.clone(), self.recorded.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (elect, recorded) = (elect.clone(), recorded.clone());
                tokio::spawn(async move {
                    // A client that does not ask or does not listen gets no answer.
                    let _ = tokio::time::timeout(PATIENCE, answer(stream, &elect, &recorded)).await;
                });
            }
        });
    }
}

async fn answer(mut stream: TcpStream, elect: &Elect, recorded: &PrometheusHandle) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < LONGEST {
        if stream.read_buf(&mut request).await? == 0 {
            break;
        }
    }
    let response = respond(
        &request,
        || recorded.render(),
        || {
            let health = elect.health();
            (health.is_ok(), health.to_string())
        },
    );
    stream.write_all(response.as_bytes()).await?;
    stream.shutdown().await
}

/// The whole response to a request.
fn respond(
    request: &[u8],
    metrics: impl FnOnce() -> String,
    health: impl FnOnce() -> (bool, String),
) -> String {
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = path.split('?').next().unwrap_or_default();
    let (status, body) = match (method, path) {
        ("GET", "/metrics") => ("200 OK", metrics()),
        ("GET", "/healthz") => match health() {
            (true, said) => ("200 OK", said + "\n"),
            (false, said) => ("503 Service Unavailable", said + "\n"),
        },
        ("GET", _) => ("404 Not Found", "this address serves /metrics and /healthz\n".to_owned()),
        _ => ("405 Method Not Allowed", "only GET is answered\n".to_owned()),
    };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(request: &str) -> String {
        let response = respond(
            request.as_bytes(),
            || "a 1\n".to_owned(),
            || (request.contains("well"), "so".to_owned()),
        );
        response.lines().next().unwrap_or_default().to_owned()
    }

    #[test]
    fn requests_are_answered() {
        assert_eq!(status("GET /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 200 OK");
        assert_eq!(status("GET /healthz?well HTTP/1.1\r\n\r\n"), "HTTP/1.1 200 OK");
        assert_eq!(status("GET /healthz HTTP/1.1\r\n\r\n"), "HTTP/1.1 503 Service Unavailable");
        assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 404 Not Found");
        assert_eq!(status("POST /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 405 Method Not Allowed");
        assert_eq!(status(""), "HTTP/1.1 405 Method Not Allowed");
    }
}
