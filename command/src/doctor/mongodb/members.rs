//! The members of a replica set, and how long they take to elect a primary, beside what leases survive.

use std::time::Duration;

use tenure::{
    ElectConfig,
    store::mongo::driver::{
        Client,
        bson::{Document, doc},
    },
};

use super::{super::findings::Findings, ask};

/// A member that is further behind than this is told.
const BEHIND: Duration = Duration::from_secs(10);

pub(super) async fn look(client: &Client, findings: &mut Findings) {
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
    let wrong = judge_members(&members);
    if wrong.is_empty() {
        findings.ok("members", format!("all {} members are up and replicate", members.len()));
    }
    for (is_bad, says) in wrong {
        if is_bad {
            findings.bad("members", says, "bring members back: without a majority nothing can be locked");
        } else {
            findings.warning("members", says, "check that member: one more failure may cost the majority");
        }
    }
}

/// Returns the faults of the members: whether each stops everything, and a sentence.
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

pub(super) async fn durations(client: &Client, config: &ElectConfig, findings: &mut Findings) {
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

/// Judges whether leases outlive an election: its timeout, the time until the next beat, and a moment for the vote.
fn judge_durations(config: &ElectConfig, election: Duration) -> Result<String, (String, String)> {
    let without = election + Duration::from_secs(2);
    // The last beat may be an interval old when the primary goes, and jobs are cancelled before the end.
    let lasts =
        config.ttl().saturating_sub(config.refresh_interval() + config.margin() + config.stop_grace());
    let survives = lasts >= without;
    let whole = |time: Duration| Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    let [lasts, without, timeout] =
        [lasts, without, election].map(|time| humantime::format_duration(whole(time)));
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
