//! Errors between the driver and a server, in one line each: the cause, and what to do about it.
//!
//! The driver has its own messages, which repeat whole replies byte by byte and describe every server it
//! knows. Its errors keep their types; only what is printed is made here, of their texts where there is
//! nothing else.

use bson::Document;
use mongodb::error::{CommandError, Error as DriverError, ErrorKind, WriteFailure};

use super::codes::{AUTHENTICATION_FAILED, UNAUTHORIZED};
use crate::error::{in_one_line, without_command};

/// The longest message of a server's or the driver's that is repeated.
const LONGEST: usize = 300;
/// The most servers whose troubles are listed one by one.
const MOST_SERVERS: usize = 3;

/// Messages of the TLS library about certificates that one of the sides does not accept.
const REFUSED_CERTIFICATE: [&str; 2] = ["invalid peer certificate", "received fatal alert"];
/// The message of the TLS library about a server that closes without a word.
const CLOSED_IN_TLS: &str = "without sending TLS close_notify";

pub(crate) const IN_DNS: &str =
    "the host name cannot be resolved (DNS): check the name, and the resolver of this machine";

/// An error of the driver's in words.
pub(crate) fn message(error: &DriverError) -> String {
    let words = match &*error.kind {
        ErrorKind::Command(CommandError { code, code_name, message, .. }) => {
            of_server(*code, code_name, message)
        }
        ErrorKind::Write(WriteFailure::WriteError(error)) => {
            of_server(error.code, error.code_name.as_deref().unwrap_or_default(), &error.message)
        }
        ErrorKind::Write(WriteFailure::WriteConcernError(error)) => {
            format!("write concern not met: {}", of_server(error.code, &error.code_name, &error.message))
        }
        ErrorKind::Authentication { message, .. } => authentication(message),
        ErrorKind::ServerSelection { message, .. } => selection(message),
        ErrorKind::DnsResolve { message, .. } => format!("{IN_DNS}: {}", plain(message)),
        ErrorKind::Io(error) => connection(&error.to_string()),
        ErrorKind::InvalidResponse { message, .. } => connection(message),
        ErrorKind::InvalidArgument { message, .. }
        | ErrorKind::ConnectionPoolCleared { message, .. }
        | ErrorKind::InvalidTlsConfig { message, .. }
        | ErrorKind::IncompatibleServer { message, .. }
        | ErrorKind::Transaction { message, .. }
        | ErrorKind::Internal { message, .. } => plain(message),
        other => plain(&other.to_string()),
    };
    in_one_line(words.trim_end_matches('.'), 2 * LONGEST)
}

/// Words for what a reply says under `writeErrors` or `writeConcernError`.
pub(crate) fn of_reply(error: &Document) -> String {
    let code = error.get_i32("code").unwrap_or_default();
    let [name, message] = ["codeName", "errmsg"].map(|field| error.get_str(field).unwrap_or_default());
    of_server(code, name, message)
}

/// Words for what a server says of a command, by its code.
fn of_server(code: i32, name: &str, message: &str) -> String {
    let name = if name.is_empty() { "error" } else { name };
    let message = in_one_line(without_command(message), LONGEST);
    match code {
        UNAUTHORIZED if message.to_lowercase().contains("requires authentication") => {
            "the server requires a user and a password, and the connection string has none: \
             mongodb://user:password@host/"
                .to_owned()
        }
        UNAUTHORIZED => format!("{name} ({code}): {message}; docs/operations.md has the role to grant"),
        AUTHENTICATION_FAILED => authentication(&message),
        _ => format!("{name} ({code}): {message}"),
    }
}

fn authentication(message: &str) -> String {
    let message = plain(message);
    if message.to_lowercase().contains("authentication failed") {
        return format!(
            "AuthenticationFailed ({AUTHENTICATION_FAILED}): wrong user or password, or the user is not \
             in the database that authSource= names (admin by default)"
        );
    }
    format!("could not authenticate the user: {message}")
}

/// Returns whether none of the hosts in the connection string is a member of the set it names: an operator has to
/// change the string.
pub(crate) fn is_of_another_set(message: &str) -> bool {
    let nobody_left = message.contains("Set Name: ") && !message.contains("Address: ");
    nobody_left || message.contains("does not match actual name") || message.contains("replica set name")
}

/// Returns whether the two sides could not agree on a certificate, of either of them.
pub(crate) fn is_of_a_certificate(error: &DriverError) -> bool {
    let says = |text: &str, words: &[&str]| words.iter().any(|one| text.contains(one));
    match &*error.kind {
        ErrorKind::Io(error) => says(&error.to_string(), &REFUSED_CERTIFICATE),
        // Some servers just close. So does one that ends; but that one is not found by the next look at it.
        ErrorKind::ServerSelection { message, .. } => {
            says(message, &REFUSED_CERTIFICATE) || says(message, &[CLOSED_IN_TLS])
        }
        _ => false,
    }
}

/// Why no server was found, of the driver's description of all it knows.
fn selection(message: &str) -> String {
    let message = plain(message);
    let set = message.split_once("Set Name: ").map(|(_, rest)| rest.split([',', ' ']).next().unwrap_or(rest));
    if is_of_another_set(&message) {
        let set = set.map_or_else(String::new, |set| format!(" {set:?}"));
        return format!(
            "none of the hosts in the connection string is a member of the replica set{set}: set replicaSet= to the \
             name that rs.status() shows, or leave it out"
        );
    }
    let servers: Vec<_> = message.split("{ Address: ").skip(1).collect();
    let troubles: Vec<_> = servers.iter().filter_map(|server| trouble(server)).collect();
    if troubles.is_empty() {
        if servers.is_empty() {
            return message;
        }
        let set = set.map_or_else(|| "these hosts".to_owned(), |set| format!("the replica set {set:?}"));
        return format!(
            "{set} has no primary: an election is in progress, or a majority of its members cannot be reached"
        );
    }
    let shown = troubles.iter().take(MOST_SERVERS).map(String::as_str).collect::<Vec<_>>().join("; ");
    match troubles.len().saturating_sub(MOST_SERVERS) {
        0 => shown,
        more => format!("{shown}; and {more} more"),
    }
}

/// The server, and what is wrong with it.
fn trouble(server: &str) -> Option<String> {
    let address = server.split([',', ' ']).next().unwrap_or(server);
    let (_, error) = server.split_once(", Error: ")?;
    let error = error.split(" }").next().unwrap_or(error);
    Some(format!("{address}: {}", connection(error)))
}

/// Words for what is wrong with a connection, by what the system and the TLS library say.
fn connection(error: &str) -> String {
    let error = plain(error);
    let lower = error.to_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| lower.contains(part));
    if has(&["failed to lookup address", "name or service not known", "could not resolve"]) {
        IN_DNS.to_owned()
    } else if has(&["connection refused"]) {
        "connection refused: check that the server is up, and that the port is right".to_owned()
    } else if has(&["unknownissuer"]) {
        "its certificate was issued by an unknown authority: set tlsCAFile= to the file of that \
         authority"
            .to_owned()
    } else if has(&["invalid peer certificate"]) {
        format!("its certificate was rejected: {error}")
    } else if has(&["corrupt message", "invalidcontenttype", "tls handshake eof"]) {
        "it does not use TLS: remove tls=true from the connection string, or enable TLS on the server"
            .to_owned()
    } else if error.contains(CLOSED_IN_TLS) {
        "it closed the connection: it may reject the certificate of tlsCertificateKeyFile=, or be \
         shutting down"
            .to_owned()
    } else if has(&["unexpected end of file", "early eof", "connection reset", "broken pipe"]) {
        format!("it closed the connection: it may require TLS (tls=true), or be shutting down: {error}")
    } else if has(&["wire protocol opcode"]) {
        "this is no MongoDB server: check the host and the port".to_owned()
    } else if has(&["timed out", "timeout"]) {
        "no answer in time: check the network, and whether the server hangs".to_owned()
    } else {
        error
    }
}

/// A text of the driver's without the parts of its errors that say nothing: `Kind: `, labels, and the reply,
/// byte by byte.
fn plain(text: &str) -> String {
    let mut rest = text;
    let mut plain = String::new();
    while let Some(at) = rest.find(", labels: {") {
        plain.push_str(&rest[..at]);
        rest = &rest[at..];
        let reply = ", server response: ";
        // Without one this is some other text; what follows is not worth keeping.
        let Some(at) = rest.find(reply) else {
            rest = "";
            break;
        };
        rest = &rest[at + reply.len()..];
        rest = match (rest.strip_prefix("None"), rest.find("\" })")) {
            (Some(rest), _) => rest,
            (None, Some(end)) => &rest[end + 4..],
            (None, None) => "",
        };
    }
    plain.push_str(rest);
    let plain = plain
        .replace("Kind: ", "")
        .replace("I/O error: ", "")
        .replace("An invalid argument was provided: ", "");
    in_one_line(plain.trim(), 2 * LONGEST)
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use expect_test::expect;

    use super::*;

    #[test]
    fn a_server_is_quoted_with_its_code_and_without_the_command() {
        let printed = [
            doc! {
                "code": 13, "codeName": "Unauthorized",
                "errmsg": "not authorized on shop to execute command { insert: \"waiters\", documents: [ ..",
            },
            doc! { "code": 13, "errmsg": "Command find requires authentication" },
            doc! { "code": 14031, "codeName": "OutOfDiskSpace", "errmsg": "the disk\nis full" },
            doc! { "code": 7, "errmsg": "x".repeat(1000) },
            doc! {},
        ]
        .map(|reply| of_reply(&reply));
        let short = printed[3].len();
        assert!(short < 400, "{short}");
        expect![[r#"
            Unauthorized (13): not authorized on shop to execute command { insert: "waiters"; docs/operations.md has the role to grant
            the server requires a user and a password, and the connection string has none: mongodb://user:password@host/
            OutOfDiskSpace (14031): the disk is full"#]]
        .assert_eq(&printed[..3].join("\n"));
        assert_eq!(printed[4], "error (0): ");
    }

    #[test]
    fn a_description_of_servers_becomes_a_sentence_for_each() {
        let none = ", labels: {}, source: None, server response: None";
        let reply = r#", labels: {"x"}, source: Some(Error { kind: Io(Os { code: 1 }), server_response: None }), server response: Some(RawDocumentBuf { data: "ef00" })"#;
        let server = |host: &str, error: &str, more: &str| {
            format!("{{ Address: {host}, Type: Unknown, Error: Kind: I/O error: {error}{more} }}")
        };
        let topology = |servers: &[String]| {
            format!(
                "Server selection timeout: No available servers. Topology: {{ Type: Unknown, Servers: [ {} ] }}",
                servers.join(", ")
            )
        };
        let printed = [
            topology(&[
                server("a:1", "Connection refused (os error 111)", none),
                server("b:2", "failed to lookup address information: Name or service not known", reply),
            ]),
            topology(&[server("a:1", "invalid peer certificate: UnknownIssuer", none)]),
            topology(&[server("a:1", "received corrupt message of type InvalidContentType", none)]),
            topology(&[server("a:1", "unexpected end of file", none)]),
            topology(&["a", "b", "c", "d", "e"].map(|host| server(host, "odd", none))),
            "Server selection timeout: No available servers. Topology: { Type: ReplicaSetNoPrimary, Set Name: rs1 }"
                .to_owned(),
            "Server selection timeout: None of the available servers suitable for criteria x. Topology: { Type: \
             ReplicaSetNoPrimary, Set Name: rs1, Servers: [ { Address: a:1, Type: RsSecondary, Average RTT: 1ms } ] }"
                .to_owned(),
        ]
        .map(|message| selection(&message));
        expect![[r#"
            a:1: connection refused: check that the server is up, and that the port is right; b:2: the host name cannot be resolved (DNS): check the name, and the resolver of this machine
            a:1: its certificate was issued by an unknown authority: set tlsCAFile= to the file of that authority
            a:1: it does not use TLS: remove tls=true from the connection string, or enable TLS on the server
            a:1: it closed the connection: it may require TLS (tls=true), or be shutting down: unexpected end of file
            a: odd; b: odd; c: odd; and 2 more
            none of the hosts in the connection string is a member of the replica set "rs1": set replicaSet= to the name that rs.status() shows, or leave it out
            the replica set "rs1" has no primary: an election is in progress, or a majority of its members cannot be reached"#]]
        .assert_eq(&printed.join("\n"));
    }
}
