//! Actions: which are allowed, by whom, and what is on record afterwards.

use std::time::Duration;

use axum::{body::Body, http::Request};
use tenure::{
    model::{Holder, Key, Kind, LockId, ScheduleId, SpreadName},
    store::{LockSeen, ScheduleSeen, StoreExt},
    testing::{Course, Faulty, Intercept, Operation},
};
use tenure_ui::Access;
use tokio::time::{Instant, timeout};

use crate::{
    fleet::{BROKEN, Fleet, LEADER, SPREAD, namespace},
    site::{Memory, SOON, Site, attributes, fleet, memory, text, texts},
};

const LIMIT: Duration = Duration::from_secs(5);

fn operated(store: &Memory) -> Site {
    Site::new(store.clone(), |ui| ui.actions(Holder::new("ops").unwrap()))
}

/// The fields of a form as the page has them, with a reason.
async fn fields(site: &Site, address: &str, verb: &str) -> Vec<(String, String)> {
    let page = site.page(address).await;
    let form = format!("form[action='/act/{verb}'] input");
    let names = attributes(&page, &form, "name");
    let values = attributes(&page, &format!("{form}[type=hidden]"), "value");
    assert_eq!(names.last().map(String::as_str), Some("why"), "{address}: {}", text(&page, "main"));
    names.into_iter().zip(values.into_iter().chain(["a good\r\n reason ".to_owned()])).collect()
}

/// Sends the form that a page has.
async fn act(site: &Site, address: &str, verb: &str) -> String {
    let fields = fields(site, address, verb).await;
    let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let read = site.post_from(&format!("/act/{verb}"), &fields, &[("origin", "http://localhost:7070")]).await;
    assert_eq!(read.status, 200, "{}", read.body);
    let page = scraper::Html::parse_document(&read.body);
    assert_eq!(attributes(&page, "main a", "href"), [address], "the way back");
    text(&page, "main")
}

async fn schedule(store: &Memory, name: &str) -> tenure::store::ScheduleRecord {
    let id = ScheduleId { namespace: namespace(), name: name.parse().unwrap() };
    match store.schedules(vec![id], LIMIT).await.unwrap().pop() {
        Some(ScheduleSeen::Found(record)) => record,
        other => panic!("{other:?}"),
    }
}

/// The page knows of a schedule once it has read it.
async fn known(site: &Site, address: &str, what: &str) {
    site.until(address, |page| text(page, "main").contains(what)).await;
}

#[tokio::test(start_paused = true)]
async fn a_schedule_is_paused_with_a_reason_on_record_resumed_and_run() {
    let store = memory();
    let fleet = fleet(&store, 2).await;
    let site = operated(&store);
    let address = "/schedule?name=digest";
    known(&site, address, "Europe/Berlin").await;
    assert!(act(&site, address, "pause").await.contains("\"digest\" is paused"));
    let pause = schedule(&store, "digest").await.pause.unwrap();
    assert_eq!((pause.is_on(), pause.by.as_str(), pause.why.as_str()), (true, "ops", "a good reason"));
    known(&site, address, "paused").await;
    act(&site, address, "resume").await;
    assert!(!schedule(&store, "digest").await.pause.unwrap().is_on());
    known(&site, address, "Pause digest").await;
    act(&site, address, "run").await;
    known(&site, address, "succeeded").await;
    assert!(text(&site.page(address).await, "#ledger").contains("(order)"));
    fleet.close().await;
}

#[tokio::test(start_paused = true)]
async fn an_instance_is_drained_and_undrained() {
    let store = memory();
    let fleet = fleet(&store, 6).await;
    let site = operated(&store);
    known(&site, "/instances", "3 tasks").await;
    let address = attributes(&site.page("/instances").await, ".strip a", "href").remove(0);
    assert!(act(&site, &address, "drain").await.contains("pod-1 was asked"));
    known(&site, &address, "draining").await;
    known(&site, &address, "drained since ").await;
    known(&site, "/changes", "person drained pod-1 by ").await;
    fleet.instances["pod-2"]
        .spread
        .until(|status| status.members.iter().any(|member| member.tasks == 6))
        .await;
    act(&site, &address, "undrain").await;
    known(&site, &address, "alive").await;
    fleet.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_asked_for_and_a_task_is_put_back() {
    let store = memory();
    let mut fleet: Fleet = fleet(&store, 20).await;
    fleet.hold("pod-1", LEADER, "leads").await.unwrap();
    let site = operated(&store);
    let said = act(&site, &format!("/key?key={LEADER}&kind=lock"), "release").await;
    assert!(said.contains("pod-1 was asked to release \"leader\""), "{said}");
    let lock = LockId { namespace: namespace(), kind: Kind::Lock, key: LEADER.parse().unwrap() };
    let given_back = async {
        while let Some(LockSeen::Found(record)) = store.locks(vec![lock.clone()], LIMIT).await.unwrap().pop()
            && record.holding.is_some()
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(SOON, given_back).await.expect("it is given back");

    let kind = Kind::of_tasks(&SpreadName::new(SPREAD).unwrap());
    let task = LockId { namespace: namespace(), kind, key: Key::new(BROKEN).unwrap() };
    let address = format!("/key?key={BROKEN}&kind=task%3A{SPREAD}");
    // It rests for a second or two, and is held in between: until the form is there and still holds.
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < SOON, "it is not put back");
        let page = scraper::Html::parse_document(&site.get(&address).await.body);
        if attributes(&page, "form", "action").contains(&"/act/put-back".to_owned()) {
            let fields = fields(&site, &address, "put-back").await;
            let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let read = site.post("/act/put-back", &fields).await;
            if read.status == 200 {
                break;
            }
            assert_eq!(read.status, 409, "{}", read.body);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(matches!(&store.locks(vec![task], LIMIT).await.unwrap()[..], [LockSeen::Found(_)]));
    fleet.close().await;
}

/// Sends a form that was opened before, and returns the status and the sentence of the answer.
async fn late(site: &Site, verb: &str, fields: &[(String, String)]) -> (u16, String) {
    let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let read = site.post(&format!("/act/{verb}"), &fields).await;
    (read.status.as_u16(), text(&scraper::Html::parse_document(&read.body), "main"))
}

#[tokio::test(start_paused = true)]
async fn a_form_names_whom_it_hits_and_never_hits_the_next_holder() {
    let store = memory();
    let mut fleet: Fleet = fleet(&store, 2).await;
    fleet.hold("pod-1", LEADER, "leads").await.unwrap();
    let site = operated(&store);
    let address = format!("/key?key={LEADER}&kind=lock");
    known(&site, &address, "pod-1").await;
    let opened = fields(&site, &address, "release").await;
    assert_eq!(texts(&site.page(&address).await, "#acts button"), ["Ask pod-1 to release"]);
    fleet.give_back(LEADER);
    let free = |page: &scraper::Html| attributes(page, "#acts form", "action").is_empty();
    let page = site.until(&address, free).await;
    let changed = attributes(&page, "#acts [data-changed]", "data-changed");
    assert_eq!(changed, ["It changed hands while you wrote: no instance has it now."]);
    fleet.hold("pod-2", LEADER, "leads now").await.unwrap();
    let page = site.until(&address, |page| text(page, "#acts button") == "Ask pod-2 to release").await;
    let changed = attributes(&page, "#acts [data-changed]", "data-changed");
    assert_eq!(changed, ["It changed hands while you wrote: pod-2 has it now."]);
    let (status, says) = late(&site, "release", &opened).await;
    assert!(status == 409 && says.contains("was released or taken since"), "{status} {says}");
    // The one that has it now was not asked.
    let lock = LockId { namespace: namespace(), kind: Kind::Lock, key: LEADER.parse().unwrap() };
    let Some(LockSeen::Found(record)) = store.locks(vec![lock], LIMIT).await.unwrap().pop() else { panic!() };
    let holder = record.holding.unwrap().by.session;
    let seen = store.observe(vec![holder], LIMIT).await.unwrap().pop().unwrap();
    assert!(seen.record().unwrap().requests.is_empty(), "{seen:?}");
    fleet.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_form_is_refused_in_another_state_than_it_was_opened_for() {
    let store = memory();
    let fleet = fleet(&store, 6).await;
    let site = operated(&store);
    let address = "/schedule?name=digest";
    known(&site, address, "Europe/Berlin").await;
    let (pause, run) = (fields(&site, address, "pause").await, fields(&site, address, "run").await);
    let schedules = fleet.instances["pod-1"].elect.schedules();
    schedules.pause("digest", "repairs").await.unwrap();
    for (verb, opened) in [("pause", &pause), ("run", &run)] {
        let (status, says) = late(&site, verb, opened).await;
        assert!(status == 409 && says.contains("it is paused by pod-1 since"), "{verb}: {status} {says}");
    }
    known(&site, address, "paused").await;
    let resume = fields(&site, address, "resume").await;
    schedules.resume("digest").await.unwrap();
    schedules.pause("digest", "another reason").await.unwrap();
    let (status, says) = late(&site, "resume", &resume).await;
    assert!(status == 409 && says.contains("it changed while you wrote"), "{status} {says}");
    assert!(schedule(&store, "digest").await.pause.unwrap().is_on());

    known(&site, "/instances", "3 tasks").await;
    let address = attributes(&site.page("/instances").await, ".strip a", "href").remove(0);
    let drain = fields(&site, &address, "drain").await;
    assert_eq!(texts(&site.page(&address).await, "#acts button"), ["Drain pod-1"]);
    act(&site, &address, "drain").await;
    known(&site, &address, "draining").await;
    let (status, says) = late(&site, "drain", &drain).await;
    assert!(status == 409 && says.contains("it is draining now"), "{status} {says}");
    fleet.close().await;
}

#[tokio::test(start_paused = true)]
async fn an_action_is_done_and_on_record_though_its_caller_hangs_up() {
    let store = memory();
    let fleet = fleet(&store, 2).await;
    let slow = Faulty::default().around(store.store.clone());
    let site = operated(&Memory { store: slow.clone(), clock: store.clock.clone() });
    let address = "/schedule?name=digest";
    known(&site, address, "Europe/Berlin").await;
    let fields = fields(&site, address, "pause").await;
    let second = Duration::from_secs(1);
    slow.intercept().always(&[Operation::Schedules], Course { before: second, ..Course::PLAIN });
    timeout(second / 2, late(&site, "pause", &fields)).await.expect_err("the store has not answered yet");
    tokio::time::sleep(2 * second).await;
    let pause = schedule(&store, "digest").await.pause.unwrap();
    assert_eq!((pause.is_on(), pause.by.as_str(), pause.why.as_str()), (true, "ops", "a good reason"));
    fleet.close().await;
}

#[tokio::test(start_paused = true)]
async fn without_rights_nothing_is_offered_and_nothing_is_done() {
    let store = memory();
    let fleet = fleet(&store, 2).await;
    let reader = Site::new(store.clone(), |ui| ui);
    let address = "/schedule?name=digest";
    known(&reader, address, "Europe/Berlin").await;
    assert_eq!(attributes(&reader.page(address).await, "form", "action"), Vec::<String>::new());
    let fields = [("name", "digest"), ("why", "x"), ("csrf", "")];
    let read = reader.post("/act/pause", &fields).await;
    assert_eq!(read.status, 403);
    assert!(read.body.contains("actions are not allowed"));

    let site = operated(&store);
    let ours = self::fields(&site, address, "pause").await;
    let ours: Vec<_> = ours.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let with = |name: &'static str, value: &'static str| {
        let mut fields = ours.clone();
        fields.retain(|(known, _)| *known != name);
        fields.push((name, value));
        fields
    };
    let refused = [
        (
            site.post("/act/pause", &with("csrf", "0123456789abcdef0123456789abcdef")).await,
            403,
            "not from this page",
        ),
        (
            site.post_from("/act/pause", &ours, &[("origin", "https://evil.example")]).await,
            403,
            "another site",
        ),
        (site.post_from("/act/pause", &ours, &[("origin", "null")]).await, 403, "another site"),
        (site.post_from("/act/pause", &ours, &[("sec-fetch-site", "cross-site")]).await, 403, "another site"),
        (site.post_from("/act/pause", &ours, &[("sec-fetch-site", "same-site")]).await, 403, "another site"),
        (site.post("/act/pause", &with("why", "  ")).await, 400, "the reason is missing"),
        (site.post("/act/pause", &with("name", "digets")).await, 404, "no schedule \"digets\""),
        (site.post("/act/delete", &ours).await, 404, "no action \"delete\""),
        (site.post("/act/drain", &ours).await, 400, "no field session"),
        (site.get("/act/pause").await, 405, ""),
    ];
    for (read, status, says) in refused {
        let page = scraper::Html::parse_document(&read.body);
        assert_eq!(read.status, status, "{says}: {}", read.body);
        assert!(text(&page, "main").contains(says), "{says}: {}", text(&page, "main"));
    }
    assert!(schedule(&store, "digest").await.pause.is_none(), "nothing was done");
    fleet.close().await;
}

#[tokio::test(start_paused = true)]
async fn an_action_is_on_record_in_the_name_that_the_proxy_gives() {
    let store = memory();
    let fleet = fleet(&store, 2).await;
    let site = Site::new(store.clone(), |ui| {
        ui.actions(Holder::new("ops").unwrap())
            .access(Access::header("x-user", vec!["localhost".to_owned()], None).unwrap())
    });
    let asked = |address: &str| Request::get(address).header("x-user", "ann");
    let address = "/schedule?name=digest";
    let begun = Instant::now();
    let token = loop {
        let read = site.read(asked(address), Body::empty()).await;
        let page = scraper::Html::parse_document(&read.body);
        if let Some(token) = attributes(&page, "form[action='/act/pause'] input[name=csrf]", "value").pop() {
            break token;
        }
        assert!(begun.elapsed() < SOON, "{}", text(&page, "main"));
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let request = Request::post("/act/pause")
        .header("x-user", "ann")
        .header("accept", "application/json")
        .header("content-type", "application/x-www-form-urlencoded");
    let body = format!("csrf={token}&name=digest&why=because");
    let read = site.read(request, Body::from(body)).await;
    assert_eq!((read.status.as_u16(), &*read.body), (200, r#"{"done":true,"said":"\"digest\" is paused."}"#));
    assert_eq!(schedule(&store, "digest").await.pause.unwrap().by.as_str(), "ann");
    fleet.close().await;
}
