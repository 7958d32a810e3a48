//! A little of MongoDB's wire protocol: messages as the proxy sees them, and
//! single commands without a driver.
//!
//! To ask a node for its state, or to set a fail point, one wants neither a
//! pool nor a monitor nor a retry: one connection, one question, one answer.

use std::io;

use mongodb::bson::{Document, RawDocument};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const HEADER: usize = 16;
const OP_QUERY: i32 = 2004;
const OP_MSG: i32 = 2013;
/// The largest message that MongoDB itself accepts.
const LARGEST: usize = 48_000_000;

/// A whole message, its header included.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// The next message, or `None` where the other side closed between two.
    pub(crate) async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Self>> {
        let mut size = [0; 4];
        if from.read(&mut size[..1]).await? == 0 {
            return Ok(None);
        }
        from.read_exact(&mut size[1..]).await?;
        let length = usize::try_from(i32::from_le_bytes(size)).unwrap_or(0);
        if !(HEADER..=LARGEST).contains(&length) {
            return Err(io::Error::other(format!(
                "message of {length} bytes, must be {HEADER} to {LARGEST}"
            )));
        }
        let mut bytes = vec![0; length];
        bytes[..4].copy_from_slice(&size);
        from.read_exact(&mut bytes[4..]).await?;
        Ok(Some(Self { bytes }))
    }

    /// A command in a message of its own.
    pub(crate) fn command(command: &Document) -> io::Result<Self> {
        let body = command.to_vec().map_err(io::Error::other)?;
        let length = i32::try_from(HEADER + 5 + body.len()).map_err(io::Error::other)?;
        let mut bytes = Vec::new();
        for number in [length, 1, 0, OP_MSG, 0] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.push(0);
        bytes.extend(body);
        Ok(Self { bytes })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn request_id(&self) -> i32 {
        self.number(4)
    }

    pub(crate) fn response_to(&self) -> i32 {
        self.number(8)
    }

    /// The name of the command: the first key of the body.
    pub(crate) fn command_name(&self) -> Option<&str> {
        let (name, _) = self.body()?.into_iter().next()?.ok()?;
        Some(name.as_str())
    }

    /// The document that holds the command or the reply.
    pub(crate) fn body(&self) -> Option<&RawDocument> {
        match self.number(12) {
            OP_MSG => self.body_of_msg(),
            // Drivers still open a connection with this one.
            OP_QUERY => {
                let collection = self.bytes.get(HEADER + 4..)?.iter().position(|&byte| byte == 0)?;
                self.document_at(HEADER + 4 + collection + 1 + 8)
            }
            _ => None,
        }
    }

    fn body_of_msg(&self) -> Option<&RawDocument> {
        let mut at = HEADER + 4;
        loop {
            match self.bytes.get(at)? {
                0 => return self.document_at(at + 1),
                1 => at += 1 + self.size_at(at + 1)?,
                _ => return None,
            }
        }
    }

    fn document_at(&self, at: usize) -> Option<&RawDocument> {
        let end = at + self.size_at(at)?;
        RawDocument::from_bytes(self.bytes.get(at..end)?).ok()
    }

    fn size_at(&self, at: usize) -> Option<usize> {
        let bytes = self.bytes.get(at..at + 4)?;
        usize::try_from(i32::from_le_bytes(bytes.try_into().ok()?)).ok()
    }

    fn number(&self, at: usize) -> i32 {
        let bytes = self.bytes[at..at + 4].try_into();
        i32::from_le_bytes(bytes.expect("a message is never shorter than its header"))
    }
}

/// Sends one command to the node on this port: to the `admin` database, unless
/// the command names another one in `$db`.
pub(crate) async fn ask(port: u16, mut command: Document) -> io::Result<Document> {
    command.entry("$db".to_owned()).or_insert_with(|| "admin".into());
    let message = Message::command(&command)?;
    let mut connection = TcpStream::connect(("127.0.0.1", port)).await?;
    connection.write_all(message.bytes()).await?;
    let reply = Message::read(&mut connection).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let body = reply.body().ok_or_else(|| io::Error::other("a reply without a document"))?;
    let body = Document::try_from(body).map_err(io::Error::other)?;
    match body.get_f64("ok") {
        Ok(1.0) => Ok(body),
        _ => Err(io::Error::other(format!("port {port} refused {command}: {body}"))),
    }
}
