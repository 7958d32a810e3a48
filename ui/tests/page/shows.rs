//! Each part shows what the store says.

use std::{collections::BTreeMap, time::Duration};

use tenure::{
    Elect, ElectConfig, Lease,
    model::{Holder, Kind, LockId, SessionId},
    store::{About, Candidate, Nonce, Open, StoreExt, Ticket, Wait},
    testing::{Fault, Faulty, Intercept, Operation},
};

use crate::{
    fleet::{BROKEN, LEADER, SPREAD, namespace},
    site::{Memory, SOON, Site, attributes, fleet, memory, text, texts},
};

#[tokio::test(start_paused = true)]
async fn the_fleet_has_a_strip_for_each_instance() {
    let store = memory();
    let fleet = fleet(&store, 10).await;
    let site = Site::new(store, |ui| ui);
    let page = site.until("/instances", |page| text(page, ".load").contains("5 tasks")).await;
    let strips = texts(&page, ".strip");
    assert_eq!(strips.len(), 2, "{strips:?}");
    for (strip, holder) in strips.iter().zip(["pod-1", "pod-2"]) {
        for part in [holder, "alive", "shop 1.4", "ago of 3 s"] {
            assert!(strip.contains(part), "{part}: {strip}");
        }
    }
    if let Some(one) = fleet.instances.get("pod-2") {
        one.spread.drain();
        one.elect.schedules().drain();
    }
    site.until("/instances", |page| text(page, ".badge").contains("draining")).await;
    let one = attributes(&page, ".strip a", "href").remove(0);
    let page = site.page(&one).await;
    assert_eq!(texts(&page, "h1"), ["Instance pod-1"]);
    assert!(text(&page, "#holds").contains("topic-"), "{}", text(&page, "main"));
    fleet.close().await;
}

#[tokio::test(start_paused = true)]
async fn the_overview_begins_with_what_needs_somebody_and_leads_to_it() {
    let store = memory();
    let site = Site::new(store.clone(), |ui| ui);
    let page = site.page("/").await;
    assert_eq!(
        (texts(&page, "head title"), texts(&page, "ul.troubles li")),
        (vec!["Overview - tenure".to_owned()], vec![])
    );
    assert!(
        text(&page, "#verdict").starts_with("no instance runs: 0 instances"),
        "{}",
        text(&page, "#verdict")
    );
    let fleet = fleet(&store, 4).await;
    let schedules = fleet.instances["pod-1"].elect.schedules();
    schedules.pause("pulse", "the numbers are being mended").await.unwrap();
    let is_told = |page: &scraper::Html| text(page, "ul.troubles").contains("pulse was paused");
    let page = site.until("/", is_told).await;
    assert_eq!(attributes(&page, "main > section", "id"), ["unreadable", "verdict", "fleet", "hour", "gaps"]);
    assert_eq!(text(&page, "#unreadable"), "");
    assert!(attributes(&page, "ul.troubles a", "href").contains(&"/schedule?name=pulse".to_owned()));
    assert!(texts(&page, "ul.troubles code").contains(&"tenure resume pulse".to_owned()));
    let (title, icon) =
        (texts(&page, "head title").remove(0), attributes(&page, "link[rel=icon]", "href").remove(0));
    assert!(title.starts_with('(') && title.ends_with(") Overview - tenure"), "{title}");
    assert_eq!(icon, "/alarm.svg");
    assert_eq!(site.get(&icon).await.headers["content-type"], "image/svg+xml");
    let needing = site.json("/").await["verdict"]["troubles"].as_array().map(Vec::len);
    let told = site.events("/").await.until("now", SOON, |_| true).await;
    assert_eq!(told["needing"].as_u64().map(|number| number > 0), needing.map(|number| number > 0), "{told}");
    fleet.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_spread_has_a_mark_for_each_task_in_the_row_of_its_holder_and_says_why() {
    let store = memory();
    let fleet = fleet(&store, 10).await;
    let site = Site::new(store, |ui| ui);
    let address = format!("/spread?name={SPREAD}");
    let page = site.until(&address, |page| attributes(page, "svg .task.held", "y").len() == 10).await;
    // The holders as the members say themselves.
    let mut held: BTreeMap<String, String> = BTreeMap::new();
    for (holder, one) in &fleet.instances {
        held.extend(one.spread.share().keys().map(|task| (task.to_string(), holder.clone())));
    }
    let rows: BTreeMap<String, String> =
        texts(&page, "svg .holder").into_iter().zip(attributes(&page, "svg .row", "y")).collect();
    let titles = texts(&page, "svg .task title");
    let marks = attributes(&page, "svg .task", "y");
    for (title, y) in titles.iter().zip(marks) {
        let (task, why) = title.split_once(": ").unwrap();
        let holder = &held[task];
        let row =
            rows.iter().find(|(name, _)| name.contains(holder.as_str())).map(|(_, y)| y.clone()).unwrap();
        let of = |text: &str| text.parse::<f64>().unwrap();
        assert!((0.0..20.0).contains(&(of(&y) - of(&row))), "{task} is in the row of {holder}");
        assert!(why.contains(&format!("running on {holder}, under term")), "{why}");
    }
    // The same as text.
    let tasks = texts(&page, "table.tasks tbody th");
    let holders = texts(&page, "table.tasks tbody td:nth-child(3)");
    assert_eq!(tasks.into_iter().zip(holders).collect::<BTreeMap<_, _>>(), held);
    fleet.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_move_is_an_event_within_a_second() {
    let store = memory();
    let mut fleet = fleet(&store, 10).await;
    let site = Site::new(store, |ui| ui);
    let mut events = site.events(&format!("/spread?name={SPREAD}")).await;
    events.until("part", SOON, |data| data["id"] == "matrix").await;
    fleet.join("pod-3").await.unwrap();
    let third = Holder::new("pod-3").unwrap();
    let moved = fleet.instances["pod-3"]
        .spread
        .until(|status| status.members.iter().any(|member| member.holder == third && member.tasks > 0));
    moved.await;
    let second = Duration::from_secs(1);
    let is_drawn = |data: &serde_json::Value| {
        let html = data["html"].as_str().unwrap_or_default();
        data["id"] == "matrix" && html.contains("running on pod-3") && html.contains("class=\"move\"")
    };
    events.until("part", second, is_drawn).await;
    fleet.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_failing_member_is_marked_in_its_spread_and_among_the_instances() {
    let store = memory();
    let mut pods = Vec::new();
    for holder in ["pod-1", "pod-2", "pod-3"] {
        let config = ElectConfig::new(namespace().as_str(), holder).unwrap();
        let elect = Elect::builder(store.store.clone(), config).clock(store.clock.clone());
        let elect = elect.start().await.unwrap();
        let keys = (0..9).map(|number| format!("topic-{number}"));
        let run = move |_, lease: Lease| async move {
            if holder == "pod-3" {
                return Err("no such file");
            }
            lease.cancelled().await;
            Ok(())
        };
        let spread = elect.spread("mail").tasks(keys).tries(1).run(run).unwrap();
        pods.push((elect, spread));
    }
    let site = Site::new(store, |ui| ui);
    pods[0].1.until(|status| status.members.iter().any(|member| member.failing)).await;
    let page = site.until("/spread?name=mail", |page| text(page, "#members").contains("failing")).await;
    assert_eq!(texts(&page, "#members .badge.bad"), ["failing"]);
    let page = site.until("/instances", |page| text(page, ".badge.bad").contains("failing")).await;
    assert!(texts(&page, ".strip").iter().any(|strip| strip.starts_with("pod-3 failing")));
    site.until("/spreads", |page| text(page, ".badge").contains("1 member failing")).await;
    for (elect, _) in pods {
        elect.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_schedule_shows_its_expression_in_words_its_ticks_and_its_runs() {
    let store = memory();
    let fleet = fleet(&store, 4).await;
    let site = Site::new(store, |ui| ui);
    let page = site
        .until("/schedules", |page| {
            text(page, ".runs li.failed").contains('✗') && text(page, ".runs li.ok").contains('✓')
        })
        .await;
    let rows = texts(&page, "table.schedules tbody tr");
    let row = |name: &str| rows.iter().find(|row| row.starts_with(name)).unwrap();
    assert!(row("digest").contains("At 02:30, on Monday"), "{}", row("digest"));
    assert!(row("digest").contains("Europe/Berlin"));
    assert!(row("cleanup").contains("Every 1m 30s"));
    assert!(row("invoices").contains("failed in a row"));

    let page = site.page("/schedule?name=invoices").await;
    assert_eq!(texts(&page, "ol.next li").len(), 3);
    assert!(text(&page, "#about").contains("overlap skip"), "its policies: {}", text(&page, "#about"));
    let runs = attributes(&page, "#ledger th a", "href");
    let page = site.page(&runs[0]).await;
    let run = text(&page, "#run");
    for part in
        ["The tick of", "failed", "Attempt1", "Term", "the printer is out of paper", "No attempt follows"]
    {
        assert!(run.contains(part), "{part}: {run}");
    }
    fleet.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_pause_and_ticks_that_were_not_run_are_told_with_their_reasons() {
    let store = memory();
    let fleet = fleet(&store, 4).await;
    let schedules = fleet.instances["pod-1"].elect.schedules();
    schedules.pause("pulse", "the numbers are being mended").await.unwrap();
    let site = Site::new(store, |ui| ui);
    let page = site.until("/schedule?name=pulse", |page| text(page, "#about").contains("paused")).await;
    let about = text(&page, "#about");
    assert!(about.contains("by pod-1: the numbers are being mended"), "{about}");
    // No signal tells that a tick has not been run: two seconds are its period.
    tokio::time::sleep(Duration::from_secs(3)).await;
    schedules.resume("pulse").await.unwrap();
    let page = site.until("/schedule?name=pulse", |page| text(page, "#ledger").contains("not run:")).await;
    assert!(text(&page, "#ledger").contains("pause"), "{}", text(&page, "#ledger"));
    fleet.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_lock_shows_its_holder_its_queue_and_its_past_and_hides_its_value() {
    let store = memory();
    let mut fleet = fleet(&store, 2).await;
    fleet.hold("pod-1", LEADER, "leads the shop").await.unwrap();
    fleet.queue("pod-2", LEADER);
    let site = Site::new(store, |ui| ui);
    let address = format!("/key?key={LEADER}");
    let page = site.until(&address, |page| text(page, "#queue").contains("pod-2")).await;
    let about = text(&page, "#about");
    for part in ["pod-1", "leads the shop", "not shown"] {
        assert!(about.contains(part), "{part}: {about}");
    }
    assert!(text(&page, "#queue").contains("to lead next"));
    assert!(!page.html().contains("secret"));
    assert!(!site.json(&address).await.to_string().contains("secret"));
    assert!(!site.json("/locks").await.to_string().contains("secret"));
    assert!(!site.json("/").await.to_string().contains("secret"));
    let told = site.events(&address).await.until("part", SOON, |part| part["id"] == "about").await;
    assert!(!told.to_string().contains("secret"), "{told}");
    let shown = site.page(&format!("{address}&value=true")).await;
    assert!(text(&shown, "#about").contains("10.0.0.1:8080 secret"));
    assert!(text(&site.page("/locks").await, "#locks").contains("wanted"));

    // The next one has it; the one before is remembered.
    fleet.give_back(LEADER);
    let page = site.until(&address, |page| text(page, "#past").contains("pod-1")).await;
    let how = texts(&page, "#past td:nth-child(5)");
    assert!(how.iter().all(|how| how == "released" || how == "handed over"), "how each ended: {how:?}");
    fleet.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_task_that_fails_says_so_wherever_it_is() {
    let store = memory();
    let fleet = fleet(&store, 20).await;
    let site = Site::new(store, |ui| ui);
    let address = format!("/key?kind=task:{SPREAD}&key={BROKEN}");
    let page = site.until(&address, |page| text(page, "#about").contains("the broker refuses it")).await;
    assert!(text(&page, "#past").contains("given up"), "{}", text(&page, "#past"));
    site.until("/changes", |page| text(page, ".failure").contains("failure")).await;
    fleet.close().await;
}

#[tokio::test(start_paused = true)]
async fn the_last_hour_tells_of_a_death_before_anybody_looked() {
    let store = memory();
    let mut fleet = fleet(&store, 10).await;
    fleet.crash("pod-2").await;
    // No visitor has looked until now.
    let site = Site::new(store, |ui| ui);
    let page = site.page("/changes").await;
    let changes = text(&page, "ol.changes");
    for part in [
        "takeover acquired 5 tasks of topics by pod-1, after pod-2 (died)",
        "pod-2 is dead, declared by pod-1",
    ] {
        assert!(changes.contains(part), "{part}: {changes}");
    }
    assert!(text(&page, "#gaps").contains("its last five holders"), "what is not kept is said");
    let marks = attributes(&page, "svg.hour .mark", "class");
    assert!(marks.iter().any(|class| class.contains("takeover")), "{marks:?}");
    assert!(texts(&page, "svg.hour title")[0].contains("takeovers"));
    fleet.close().await;
}

#[tokio::test(start_paused = true)]
async fn an_empty_namespace_has_pages_that_say_so() {
    let site = Site::new(memory(), |ui| ui);
    for address in ["/", "/instances", "/spreads", "/schedules", "/locks", "/changes"] {
        let page = site.page(address).await;
        assert!(!texts(&page, ".quiet").is_empty(), "{address}");
    }
    for address in [
        "/spread?name=x",
        "/schedule?name=x",
        "/key?key=x",
        "/instance?session=00000000000000000000000000000007",
        "/nowhere",
    ] {
        assert_eq!(site.get(address).await.status, 404, "{address}");
    }
    for (address, says) in [
        ("/instance?session=x", "session"),
        ("/spread?name=", "empty"),
        ("/locks?after=xyz", "after=\"xyz\""),
        ("/locks?kind=lorry", "\"lorry\" is not a kind"),
        ("/schedule", "name"),
    ] {
        let read = site.get(address).await;
        assert_eq!(read.status, 400, "{address}");
        let page = scraper::Html::parse_document(&read.body);
        assert!(text(&page, "main").contains(says), "{address}: {}", text(&page, "main"));
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_addresses_answer_with_documents_and_metrics() {
    let store = memory();
    let fleet = fleet(&store, 10).await;
    let site = Site::new(store, |ui| ui);
    site.until("/instances", |page| text(page, ".load").contains("5 tasks")).await;
    assert_eq!(text(&site.page("/").await, "#fleet"), "Instances2 alive", "the well in one line");
    let overview = site.json("/").await;
    assert_eq!(overview["instances"].as_array().map(Vec::len), Some(2));
    assert_eq!(overview["instances"][0]["life"], "alive");
    let spread = site.json(&format!("/spread?name={SPREAD}")).await;
    assert_eq!(spread["tasks"].as_array().map(Vec::len), Some(10));
    assert!(spread["tasks"][0]["why"][0].as_str().unwrap().starts_with("running on pod-"));
    let schedule = site.json("/schedule?name=pulse").await;
    assert_eq!(schedule["next"].as_array().map(Vec::len), Some(3));
    assert_eq!(site.json("/schedules").await["items"].as_array().map(Vec::len), Some(5));
    let metrics = site.get("/metrics").await.body;
    for line in [
        "tenure_instances{state=\"alive\"} 2",
        "tenure_spread_tasks{spread=\"topics\",state=\"held\"} 10",
        "tenure_picture_stale 0",
    ] {
        assert!(metrics.lines().any(|known| known == line), "{line}:\n{metrics}");
    }
    assert_eq!(site.get("/healthz").await.body, "ok\n");
    fleet.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_long_goes_on_from_page_to_page() {
    let store = memory();
    let mut fleet = fleet(&store, 2).await;
    for at in 0..250 {
        fleet.hold("pod-1", &format!("key {at:03}"), "many").await.unwrap();
    }
    let site = Site::new(store.clone(), |ui| ui);
    let (mut address, mut keys) = ("/locks".to_owned(), Vec::new());
    loop {
        let page = site.page(&address).await;
        let rows = texts(&page, "#locks tbody th");
        assert!(rows.len() <= 100);
        keys.extend(rows);
        match attributes(&page, "#locks a[rel=next]", "href").pop() {
            Some(next) => address = next,
            None => break,
        }
    }
    let wanted: Vec<_> = (0..250).map(|at| format!("key {at:03}")).collect();
    assert_eq!(keys, wanted);
    drop(store);
    fleet.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_page_keeps_what_it_shows_while_the_store_is_away() {
    let Memory { store, clock } = memory();
    let faulty = Faulty::default().around(store);
    faulty.intercept().always(Operation::ALL, Fault::Refused);
    let site = Site::new(Memory { store: faulty.clone(), clock }, |ui| ui);
    let mut events = site.events("/").await;
    let mut parts = 0;
    let mut told = events.next(SOON).await;
    for _ in 0..3 {
        assert_eq!(told.0, "trouble", "{told:?}");
        told = events.next(SOON).await;
    }
    faulty.intercept().heal();
    while told.0 != "now" {
        parts += usize::from(told.0 == "part");
        told = events.next(SOON).await;
    }
    assert!(parts > 3 && told.1["trouble"].is_null(), "{parts} {told:?}");
    // That what is shown is old is told before all else.
    faulty.intercept().always(Operation::ALL, Fault::Refused);
    told = events.next(SOON).await;
    while told.0 == "now" && told.1["trouble"].is_null() {
        told = events.next(SOON).await;
    }
    assert!(told.0 == "now" && told.1["trouble"].is_string(), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn a_problem_has_the_frame_and_its_events_bring_what_is_missing() {
    let Memory { store, clock } = memory();
    let faulty = Faulty::default().around(store.clone());
    let site = Site::new(Memory { store: faulty.clone(), clock: clock.clone() }, |ui| ui);
    site.page("/locks").await;
    faulty.intercept().always(Operation::ALL, Fault::Refused);
    tokio::time::sleep(SOON).await;
    for address in ["/locks", "/key?key=later", "/nowhere"] {
        let read = site.get(address).await;
        let page = scraper::Html::parse_document(&read.body);
        assert_eq!(texts(&page, "nav a").len(), 6, "{address}");
        assert_eq!(attributes(&page, "script", "src"), ["/script.js"], "{address}");
        assert!(!text(&page, "#problem").is_empty(), "{address}");
        assert_eq!(read.status, if address == "/nowhere" { 404 } else { 503 }, "{address}");
    }
    let mut events = site.events("/locks").await;
    events
        .until("trouble", SOON, |data| data["says"].as_str().is_some_and(|says| says.contains("store")))
        .await;
    faulty.intercept().heal();
    events.until("part", SOON, |data| data["id"] == "locks").await;
}

#[tokio::test(start_paused = true)]
async fn a_part_that_is_refused_is_told_where_it_is_of_concern() {
    let Memory { store, clock } = memory();
    let faulty = Faulty::default().around(store);
    let store = Memory { store: faulty.clone(), clock };
    let mut fleet = fleet(&store, 2).await;
    fleet.hold("pod-1", LEADER, "leads the shop").await.unwrap();
    faulty.intercept().always(&[Operation::LastRuns, Operation::Waiters], Fault::Forbidden);
    let site = Site::new(store, |ui| ui);
    let page = site.until("/schedules", |page| text(page, "#unreadable").contains("ledgers")).await;
    let says = text(&page, "#unreadable");
    assert!(
        says.starts_with("The ledgers cannot be read: ") && says.ends_with("; the rest is fresh."),
        "{says}"
    );
    assert!(!text(&page, "main").contains("No schedule is known") && text(&page, "#trouble").is_empty());
    assert_eq!(text(&site.page("/locks").await, "#unreadable"), "");
    let page = site.page(&format!("/key?key={LEADER}")).await;
    assert!(text(&page, "#about").contains("pod-1"), "its holder is there");
    assert!(text(&page, "#queue").contains("The waiters cannot be read: "), "{}", text(&page, "#queue"));
    assert!(site.get("/metrics").await.body.contains("tenure_picture_unreadable{part=\"ledgers\"} 1"));
    assert!(site.json("/").await["unreadable"]["ledgers"].is_string());
    fleet.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_died_is_marked_in_its_queue() {
    let store = memory();
    let mut fleet = fleet(&store, 2).await;
    fleet.hold("pod-1", LEADER, "leads the shop").await.unwrap();
    // Nobody shares a spread with this one, so that nobody clears up behind it.
    let (session, nonce, ttl) = (SessionId::from_u128(7), Nonce::new(1), Duration::from_secs(60));
    let holder = Holder::new("pod-9").unwrap();
    let about = About::new(crate::fleet::namespace(), holder.clone());
    store.open(Open { session, nonce, about, ttl, shares: Vec::new(), drained: None }, SOON).await.unwrap();
    let lock =
        LockId { namespace: crate::fleet::namespace(), kind: Kind::Lock, key: LEADER.parse().unwrap() };
    let by = Candidate::new(session, Ticket::new(1), ttl, holder);
    store.wait(vec![Wait { lock, by }], SOON).await.unwrap();
    let site = Site::new(store, |ui| ui);
    let address = format!("/key?key={LEADER}");
    site.until(&address, |page| texts(page, "#queue tbody th") == ["pod-9"]).await;
    assert_eq!(site.json(&address).await["waiter_lives"].to_string(), r#"["alive"]"#);
    tokio::time::sleep(ttl).await;
    site.until(&address, |page| texts(page, "#queue tbody th") == ["pod-9 looks dead"]).await;
    assert_eq!(site.json(&address).await["waiter_lives"].to_string(), r#"["silent"]"#);
    fleet.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_queue_of_a_hundred_has_no_others() {
    let store = memory();
    let mut fleet = fleet(&store, 2).await;
    fleet.hold("pod-1", LEADER, "leads the shop").await.unwrap();
    for _ in 0..100 {
        fleet.queue("pod-2", LEADER);
    }
    let (site, address, more) =
        (Site::new(store, |ui| ui), format!("/key?key={LEADER}"), "More waiters follow.");
    let page = site.until(&address, |page| texts(page, "#queue tbody th").len() == 100).await;
    assert!(!text(&page, "#queue").contains(more));
    fleet.queue("pod-2", LEADER);
    let page = site.until(&address, |page| text(page, "#queue").contains(more)).await;
    assert_eq!(texts(&page, "#queue tbody th").len(), 100);
    fleet.close().await;
}

#[tokio::test(start_paused = true)]
async fn an_age_is_no_reason_to_send_a_part_again() {
    let store = memory();
    let mut fleet = fleet(&store, 2).await;
    fleet.hold("pod-1", LEADER, "leads the shop").await.unwrap();
    let site = Site::new(store, |ui| ui);
    let (mut first, mut parts, mut turns) = (site.events("/locks").await, 0, 0);
    let second = site.events("/locks").await.until("part", SOON, |part| part["id"] == "locks").await;
    assert!(second["html"].as_str().unwrap().contains("class=\"age\""), "{second}");
    while turns < 5 {
        let (kind, data) = first.next(SOON).await;
        parts += usize::from(kind == "part" && data["id"] == "locks");
        turns += usize::from(kind == "now");
    }
    assert_eq!(parts, 1);
    fleet.hold("pod-2", "another", "is new").await.unwrap();
    first.until("part", SOON, |part| part["html"].as_str().unwrap().contains("another")).await;
    fleet.close().await;
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_there_says_so_every_few_seconds() {
    let Memory { store, clock } = memory();
    let faulty = Faulty::default().around(store);
    let site = Site::new(Memory { store: faulty.clone(), clock }, |ui| ui);
    let mut events = site.events("/").await;
    events.until("now", SOON, |_| true).await;
    // A store that swallows all keeps the picture from being told.
    faulty.intercept().always(Operation::ALL, Fault::Swallowed);
    for _ in 0..10 {
        events.any(Duration::from_secs(6)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn all_instances_are_counted_though_a_hundred_are_shown() {
    let store = memory();
    for number in 0..150 {
        let about = About::new(crate::fleet::namespace(), Holder::new(format!("pod-{number}")).unwrap());
        let (session, nonce) = (SessionId::from_u128(number), Nonce::new(1));
        let open =
            Open { session, nonce, about, ttl: Duration::from_secs(60), shares: Vec::new(), drained: None };
        store.open(open, SOON).await.unwrap();
    }
    let site = Site::new(store, |ui| ui);
    let metrics = site.get("/metrics").await.body;
    assert!(metrics.contains("tenure_instances{state=\"alive\"} 150"), "{metrics}");
    let page = site.page("/").await;
    assert!(text(&page, "#fleet").contains("150 alive"), "{}", text(&page, "#fleet"));
}
