//! A MongoDB deployment: its shape, its members, their clocks, and the durations beside its own.

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
/// A member that is further behind than this is told.
const BEHIND: Duration = Duration::from_secs(10);

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
        Err(error) => {
            findings.bad(
                "reach",
                format!("no server answers within {} s: {error}", LIMIT.as_secs()),
                "look at the names of the hosts, the network, the replica set's name, the user and the password",
            );
            shut(client).await;
            return;
        }
    };
    shape(&hello, findings);
    version(&client, findings).await;
    if hello.get_str("setName").is_ok() {
        members(&client, findings).await;
        durations(&client, config, findings).await;
        clocks(uri, &hello, findings).await;
    }
    pipeline_updates(&client, findings).await;
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

/// The first sentence: errors of the driver go on with the whole state of the deployment.
fn short(text: &str) -> String {
    text.lines().next().unwrap_or_default().chars().take(300).collect()
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
                "one member holds data: while it is down nobody holds anything",
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
        Ok(info) => {
            let version = info.get_str("version").unwrap_or("unknown");
            let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok()).unwrap_or(0);
            if major < 6 {
                findings.bad(
                    "version",
                    format!("the server is {version}"),
                    "tenure needs MongoDB 6.0 or later",
                );
            } else {
                findings.ok("version", format!("the server is MongoDB {version}"));
            }
        }
    }
    let asked = doc! { "getParameter": 1, "featureCompatibilityVersion": 1 };
    match ask(client, asked).await {
        Err(error) => findings.untested("compatibility", error),
        Ok(answer) => {
            let version = answer
                .get_document("featureCompatibilityVersion")
                .and_then(|answer| answer.get_str("version"));
            let version = version.unwrap_or("unknown");
            let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok()).unwrap_or(0);
            if major < 6 {
                findings.warning(
                    "compatibility",
                    format!("the server behaves as {version}"),
                    "finish its upgrade: db.adminCommand({ setFeatureCompatibilityVersion: \"6.0\" })",
                );
            } else {
                findings.ok("compatibility", format!("the server behaves as {version}"));
            }
        }
    }
}

async fn members(client: &Client, findings: &mut Findings) {
    let status = match ask(client, doc! { "replSetGetStatus": 1 }).await {
        Ok(status) => status,
        Err(error) => {
            findings
                .untested("members", format!("the user may not ask for the state of the members: {error}"));
            return;
        }
    };
    let members = status.get_array("members").cloned().unwrap_or_default();
    let members: Vec<Document> = members.iter().filter_map(|member| member.as_document().cloned()).collect();
    for (level_is_bad, says) in judge_members(&members) {
        if level_is_bad {
            findings.bad("members", says, "bring members back: without a majority nothing can be locked");
        } else {
            findings.warning("members", says, "look at that member: one more that fails may be one too many");
        }
    }
    if judge_members(&members).is_empty() {
        findings.ok("members", format!("all {} members are up and follow", members.len()));
    }
}

/// What is wrong with the members: whether it stops everything, and the words.
fn judge_members(members: &[Document]) -> Vec<(bool, String)> {
    let name = |member: &Document| member.get_str("name").unwrap_or("a member").to_owned();
    let mut found = Vec::new();
    let is_up = |member: &&Document| {
        let state = member.get_i32("state").unwrap_or(-1);
        member.get_f64("health").unwrap_or(1.0) > 0.0 && [1, 2, 7].contains(&state)
    };
    let up = members.iter().filter(is_up).count();
    for member in members.iter().filter(|member| !is_up(member)) {
        let state = member.get_str("stateStr").unwrap_or("unknown");
        found.push((false, format!("{} is {state}", name(member))));
    }
    if up * 2 <= members.len() {
        found.push((true, format!("{up} of {} members are up, which is no majority", members.len())));
    }
    let primary = members.iter().find(|member| member.get_i32("state").is_ok_and(|state| state == 1));
    if let Some(newest) = primary.and_then(|primary| primary.get_datetime("optimeDate").ok()) {
        for member in members.iter().filter(|member| member.get_i32("state").is_ok_and(|state| state == 2)) {
            let Ok(at) = member.get_datetime("optimeDate") else { continue };
            let behind = u64::try_from(newest.timestamp_millis() - at.timestamp_millis()).unwrap_or(0);
            if Duration::from_millis(behind) > BEHIND {
                found.push((false, format!("{} is {} s behind the primary", name(member), behind / 1000)));
            }
        }
    }
    found
}

async fn durations(client: &Client, config: &ElectConfig, findings: &mut Findings) {
    let answer = match ask(client, doc! { "replSetGetConfig": 1 }).await {
        Ok(answer) => answer,
        Err(error) => {
            findings
                .untested("durations", format!("the user may not read the replica set's settings: {error}"));
            return;
        }
    };
    let settings = answer.get_document("config").and_then(|config| config.get_document("settings")).cloned();
    let settings = settings.unwrap_or_default();
    let timeout = settings.get_i64("electionTimeoutMillis");
    let timeout =
        timeout.or_else(|_| settings.get_i32("electionTimeoutMillis").map(i64::from)).unwrap_or(10_000);
    let election = Duration::from_millis(u64::try_from(timeout).unwrap_or(10_000));
    match judge_durations(config, election) {
        Ok(says) => findings.ok("durations", says),
        Err((says, advice)) => findings.warning("durations", says, advice),
    }
}

/// Whether leases outlive an election: its timeout, the time until the next beat, and a moment for the vote.
fn judge_durations(config: &ElectConfig, election: Duration) -> Result<String, (String, String)> {
    let without = election + Duration::from_secs(2);
    // The last beat may be an interval old when the primary goes, and jobs are cancelled before the end.
    let lasts =
        (config.ttl()).saturating_sub(config.refresh_interval() + config.margin() + config.stop_grace());
    let (lasts, without, timeout) = (
        humantime::format_duration(Duration::from_millis(
            u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX),
        )),
        humantime::format_duration(without),
        humantime::format_duration(election),
    );
    let survives =
        config.ttl().saturating_sub(config.refresh_interval() + config.margin() + config.stop_grace())
            >= election + Duration::from_secs(2);
    if survives {
        Ok(format!(
            "leases survive {lasts} without a primary; with electionTimeoutMillis at {timeout} a killed one is replaced within {without}"
        ))
    } else {
        Err((
            format!(
                "leases survive {lasts} without a primary, and with electionTimeoutMillis at {timeout} a killed one is \
                 replaced after up to {without}: every such failover stops every job"
            ),
            "make --refresh-duration longer, or electionTimeoutMillis shorter".to_owned(),
        ))
    }
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

/// How far a member's clock is from this machine's, at least.
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
        answer?.get_datetime("localTime").map_err(|_| "it tells no time".to_owned())?.to_system_time();
    let apart = there.duration_since(before).unwrap_or_else(|error| error.duration());
    Ok(apart.saturating_sub(way))
}

/// Some servers that speak the protocol lack what locks are written with. This one matches nothing and writes nothing.
async fn pipeline_updates(client: &Client, findings: &mut Findings) {
    let update = doc! {
        "update": "tenure.doctor",
        "updates": [{ "q": { "_id": "none" }, "u": [{ "$set": { "seen": { "$literal": true } } }] }],
    };
    let database = client.default_database().unwrap_or_else(|| client.database("tenure"));
    match tokio::time::timeout(LIMIT * 2, database.run_command(update)).await {
        Ok(Ok(_)) => findings.ok("updates", "the server updates by pipelines"),
        Ok(Err(error)) => match error_code(&error) {
            // Unauthorized: the store's own collections are looked at when it is opened.
            Some(13) => findings.untested("updates", "the user may not write here, which is as it should be"),
            Some(9 | 14 | 40324 | 59) => findings.bad(
                "updates",
                "the server does not update by pipelines, as some that only speak the protocol",
                "use MongoDB itself, 6.0 or later",
            ),
            _ => findings.untested("updates", short(&error.kind.to_string())),
        },
        Err(_) => findings.untested("updates", "it does not answer"),
    }
}

fn error_code(error: &tenure::store::mongo::driver::error::Error) -> Option<i32> {
    use tenure::store::mongo::driver::error::ErrorKind;

    if let ErrorKind::Command(error) = &*error.kind { Some(error.code) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, state: i32, health: f64) -> Document {
        doc! { "name": name, "state": state, "stateStr": if state == 8 { "(not reachable/healthy)" } else { "SECONDARY" }, "health": health }
    }

    #[test]
    fn members_that_are_down_are_named() {
        let all = [member("a", 1, 1.0), member("b", 2, 1.0), member("c", 8, 0.0)];
        assert_eq!(judge_members(&all), [(false, "c is (not reachable/healthy)".to_owned())]);
        let few = [member("a", 2, 1.0), member("b", 8, 0.0), member("c", 8, 0.0)];
        assert_eq!(
            judge_members(&few).last(),
            Some(&(true, "1 of 3 members are up, which is no majority".to_owned()))
        );
    }

    #[test]
    fn durations_are_judged_beside_an_election() {
        let second = Duration::from_secs(1);
        let config = ElectConfig::new("n", "h").unwrap();
        assert!(judge_durations(&config, 10 * second).is_ok());
        let short = ElectConfig::new("n", "h").unwrap().takeover_within(3 * second);
        let (says, _) = judge_durations(&short, 10 * second).unwrap_err();
        assert!(says.contains("every such failover stops every job"), "{says}");
    }
}
