//! A MongoDB deployment: its shape, its versions, the clocks of its members, and the user.

mod indexes;
mod members;

use std::time::{Duration, Instant, SystemTime};

use tenure::{
    ElectConfig,
    store::mongo::driver::{
        Client,
        bson::{Document, doc},
        options::ClientOptions,
    },
};

use super::findings::Findings;

/// Longest that one question may take.
const LIMIT: Duration = Duration::from_secs(5);
/// Members whose clocks differ by more than this are told.
const OFF: Duration = Duration::from_secs(2);

pub(super) async fn look(uri: &str, config: &ElectConfig, findings: &mut Findings) {
    let client = match client(uri, None).await {
        Ok(client) => client,
        Err(error) => {
            findings.bad("uri", error, "write mongodb://HOSTS/DATABASE?replicaSet=NAME");
            return;
        }
    };
    let hello = match ask(&client, doc! { "hello": 1 }).await {
        Ok(hello) => hello,
        Err(error) if error.contains("uthentication") => {
            findings.bad(
                "login",
                format!("the server refuses the login: {error}"),
                "check the user, the password, and the database of the user (authSource=NAME in the URI)",
            );
            shut(client).await;
            return;
        }
        // The error of opening says why, in words.
        Err(_) => {
            findings.bad(
                "reach",
                format!("no server answers within {} s", LIMIT.as_secs()),
                "check the names of the hosts, the network, and the replica set's name",
            );
            shut(client).await;
            return;
        }
    };
    shape(&hello, findings);
    version(&client, findings).await;
    if hello.get_str("setName").is_ok() {
        members::look(&client, findings).await;
        members::durations(&client, config, findings).await;
        clocks(uri, &hello, findings).await;
    }
    user(&client, findings).await;
    indexes::look(&client, findings).await;
    shut(client).await;
}

async fn client(uri: &str, host: Option<&str>) -> Result<Client, String> {
    // The parser's words may repeat parts of the string.
    let wrong = |_| "the connection string cannot be read".to_owned();
    let mut options = ClientOptions::parse(uri).await.map_err(wrong)?;
    options.server_selection_timeout = Some(LIMIT);
    options.connect_timeout = Some(LIMIT);
    options.app_name = Some("tenure doctor".to_owned());
    if let Some(host) = host {
        options.hosts = vec![host.parse().map_err(wrong)?];
        options.direct_connection = Some(true);
        options.repl_set_name = None;
    }
    Client::with_options(options).map_err(wrong)
}

async fn shut(client: Client) {
    // One that does not answer is left alone.
    let _ = tokio::time::timeout(LIMIT, client.shutdown()).await;
}

async fn ask(client: &Client, question: Document) -> Result<Document, String> {
    match tokio::time::timeout(LIMIT * 2, client.database("admin").run_command(question)).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(short(&error.kind.to_string())),
        Err(_) => Err("it does not answer".to_owned()),
    }
}

/// The first sentence: errors of the driver go on with the whole state of the deployment, those of a server with the
/// whole command.
fn short(text: &str) -> String {
    let text = text.lines().next().unwrap_or_default();
    let text = text.split(" Topology: ").next().unwrap_or_default();
    let text = match text.split_once(" command { ") {
        Some((says, command)) => format!("{says} {}", command.split(':').next().unwrap_or_default()),
        None => text.to_owned(),
    };
    text.chars().take(300).collect()
}

fn shape(hello: &Document, findings: &mut Findings) {
    if hello.get_str("msg").is_ok_and(|says| says == "isdbgrid") {
        findings.note("shape", "this is a sharded cluster, which should work and was not tested with tenure");
    } else if let Ok(set) = hello.get_str("setName") {
        let members = hello.get_array("hosts").map_or(0, Vec::len);
        match hello.get_str("primary") {
            Ok(primary) => findings.ok(
                "shape",
                format!(
                    "the replica set {set} has {members} voters that hold data, its primary is {primary}"
                ),
            ),
            Err(_) => findings.bad(
                "shape",
                format!("the replica set {set} has no primary"),
                "nothing can be locked until a majority of its members is up and sees each other",
            ),
        }
        if hello.get_array("arbiters").is_ok_and(|arbiters| !arbiters.is_empty()) {
            findings.warning(
                "arbiter",
                "the replica set has an arbiter: while a member that holds data is down, no write reaches a majority",
                "replace the arbiter by a member that holds data",
            );
        }
        if members == 1 {
            findings.warning(
                "members",
                "one member holds data: while it is down no key can be held",
                "use three members where that matters",
            );
        }
    } else {
        findings.bad(
            "shape",
            "this is a standalone server: nothing takes its place when it is down, and it has no transactions for fences",
            "make it a replica set, of one member at least: mongod --replSet rs0, then rs.initiate()",
        );
    }
}

async fn version(client: &Client, findings: &mut Findings) {
    match ask(client, doc! { "buildInfo": 1 }).await {
        Err(error) => findings.untested("version", error),
        Ok(info) => match info.get_str("version") {
            Ok(version) if is_too_old(version) => findings.bad(
                "version",
                format!("the server is {version}"),
                "tenure needs MongoDB 6.0 or later",
            ),
            Ok(version) => findings.ok("version", format!("the server is MongoDB {version}")),
            Err(_) => findings.untested("version", "the server does not report it"),
        },
    }
    let asked = doc! { "getParameter": 1, "featureCompatibilityVersion": 1 };
    match ask(client, asked).await {
        Err(error) => findings.untested("compatibility", error),
        Ok(answer) => {
            let version = answer.get_document("featureCompatibilityVersion");
            match version.and_then(|version| version.get_str("version")) {
                Ok(version) if is_too_old(version) => findings.warning(
                    "compatibility",
                    format!("the server behaves as {version}"),
                    "finish its upgrade: db.adminCommand({ setFeatureCompatibilityVersion: \"6.0\" })",
                ),
                Ok(version) => findings.ok("compatibility", format!("the server behaves as {version}")),
                Err(_) => findings.untested("compatibility", "the server does not report it"),
            }
        }
    }
}

/// Returns whether a version is one before 6.0.
fn is_too_old(version: &str) -> bool {
    version.split('.').next().and_then(|major| major.parse::<u32>().ok()).is_none_or(|major| major < 6)
}

async fn clocks(uri: &str, hello: &Document, findings: &mut Findings) {
    let hosts = hello.get_array("hosts").cloned().unwrap_or_default();
    let mut worst: Option<(Duration, String)> = None;
    let mut asked = 0;
    for host in hosts.iter().filter_map(|host| host.as_str()) {
        match clock_of(uri, host).await {
            Err(error) => findings.untested("clocks", format!("the clock of {host}: {error}")),
            Ok(apart) => {
                asked += 1;
                if worst.as_ref().is_none_or(|(worst, _)| apart > *worst) {
                    worst = Some((apart, host.to_owned()));
                }
            }
        }
    }
    let Some((apart, host)) = worst else { return };
    let says =
        format!("of {asked} members the clock of {host} is furthest from this machine's, by {apart:.1?}");
    if apart > OFF {
        findings.warning(
            "clocks",
            says,
            "synchronise the clocks of the members: after a failover schedules run by another one",
        );
    } else {
        findings.ok("clocks", says);
    }
}

/// Returns the minimum difference between a member's clock and this machine's.
async fn clock_of(uri: &str, host: &str) -> Result<Duration, String> {
    let client = client(uri, Some(host)).await?;
    // The second answer comes over a connection that is there.
    let _ = ask(&client, doc! { "ping": 1 }).await?;
    let begin = Instant::now();
    let before = SystemTime::now();
    let answer = ask(&client, doc! { "hello": 1 }).await;
    let way = begin.elapsed();
    shut(client).await;
    let there =
        answer?.get_datetime("localTime").map_err(|_| "it reports no time".to_owned())?.to_system_time();
    let apart = there.duration_since(before).unwrap_or_else(|error| error.duration());
    Ok(apart.saturating_sub(way))
}

/// Reports the user, or that the server requires no login. The user's rights are found out when the store is opened.
async fn user(client: &Client, findings: &mut Findings) {
    match ask(client, doc! { "connectionStatus": 1 }).await {
        Err(error) => findings.untested("user", error),
        Ok(status) => {
            let users = status.get_document("authInfo").and_then(|info| info.get_array("authenticatedUsers"));
            let user = users.ok().and_then(|users| users.first()?.as_document()?.get_str("user").ok());
            match user {
                Some(user) => findings.ok("user", format!("it is the user {user}")),
                None => findings.note(
                    "user",
                    "the server requires no login: every client that reaches it may take and free every lock",
                ),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_error_the_sentence_is_kept() {
        for (said, kept) in [
            (
                "not authorized on admin to execute command { replSetGetStatus: 1, lsid: { id: UUID(\"4\") } }",
                "not authorized on admin to execute replSetGetStatus",
            ),
            ("No available servers. Topology: { Type: Unknown, Servers: [ .. ] }", "No available servers."),
            ("the first line\nand another", "the first line"),
        ] {
            assert_eq!(short(said), kept);
        }
    }

    #[test]
    fn the_shape_of_a_set_is_judged() {
        let judged = |hello: Document| {
            let mut findings = Findings::default();
            shape(&hello, &mut findings);
            findings.render(false)
        };
        let set = |more: Document| {
            let mut hello = doc! { "setName": "rs0", "hosts": ["a", "b"], "primary": "a" };
            hello.extend(more);
            judged(hello)
        };
        assert!(set(doc! {}).starts_with("ok "), "{}", set(doc! {}));
        assert!(set(doc! { "arbiters": ["c"] }).contains("WARNING     arbiter"));
        assert!(set(doc! { "hosts": ["a"] }).contains("WARNING     members"));
        let none = judged(doc! { "setName": "rs0", "hosts": ["a", "b"] });
        assert!(none.contains("BAD") && none.contains("rs0 has no primary"), "{none}");
        assert!(judged(doc! { "msg": "isdbgrid" }).contains("was not tested"));
        assert!(judged(doc! {}).contains("BAD         shape  this is a standalone server"));
    }

    #[test]
    fn versions_before_six_are_too_old() {
        assert!(["5.0.14", "4.4", "", "x"].into_iter().all(is_too_old));
        assert!(!["6.0.5", "7.0", "10.0.1"].into_iter().any(is_too_old));
    }
}
