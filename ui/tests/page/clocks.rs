//! Clocks that differ: the viewer's, and an instance's. Nobody looks dead for that.

use std::{sync::Arc, time::Duration};

use futures::stream::BoxStream;
use tenure::{
    Clock, Elect, ElectConfig,
    store::{Answer, Capabilities, Hint, Op, Reply, SessionRecord, SessionSeen, Store, Topics},
    testing::TestClock,
};
use tenure_look::{ClockAhead, Liveness, Picture, Reader};
use tokio::time::{Instant, sleep};

use crate::{
    fleet::{Cabled, namespace},
    site::{Memory, Site, memory, text, texts},
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// A store as it is where an instance stamps its beats by a clock of its own, which is ahead.
#[derive(Debug)]
struct OneAhead {
    store: Arc<dyn Store>,
    holder: &'static str,
    by: Duration,
}

impl OneAhead {
    fn stamped(&self, record: &mut SessionRecord) {
        if record.about.holder.as_str() == self.holder {
            record.beat_at = record.beat_at.plus(self.by);
        }
    }
}

impl Store for OneAhead {
    fn call(&self, op: Op, limit: Duration) -> Answer<'_, Reply> {
        let answer = self.store.call(op, limit);
        Box::pin(async move {
            let mut reply = answer.await?;
            match &mut reply {
                Reply::Observe(seen) => {
                    for one in seen {
                        if let SessionSeen::Alive(record) = one {
                            self.stamped(record);
                        }
                    }
                }
                Reply::Sessions(page) => page.items.iter_mut().for_each(|record| self.stamped(record)),
                _ => {}
            }
            Ok(reply)
        })
    }

    fn hints(&self, topics: Topics) -> BoxStream<'static, Hint> {
        self.store.hints(topics)
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    fn dedicated(&self) -> Answer<'_, Option<Arc<dyn Store>>> {
        self.store.dedicated()
    }
}

async fn started(memory: &Memory, store: Arc<dyn Store>, holders: &[&str]) -> Vec<Elect> {
    let mut fleet = Vec::new();
    for holder in holders {
        let config = ElectConfig::new(namespace().as_str(), *holder).unwrap();
        let builder = Elect::builder(store.clone(), config).clock(memory.clock.clone());
        fleet.push(builder.start().await.unwrap());
    }
    sleep(MINUTE).await;
    fleet
}

fn reader(store: Arc<dyn Store>, clock: &Arc<TestClock>) -> Reader {
    Reader::new(store, namespace()).clock(clock.clone())
}

/// A clock of a viewer, ahead or behind by that from the beginning of the test.
fn viewers(ahead_s: i64) -> Arc<TestClock> {
    let clock = Arc::new(TestClock::new());
    let by = Duration::from_secs(ahead_s.unsigned_abs());
    if ahead_s > 0 {
        clock.step_wall(by);
    } else {
        clock.step_wall_back(by);
    }
    clock
}

fn lives(picture: &Picture) -> Vec<Liveness> {
    picture.instances().iter().map(|one| one.life).collect()
}

fn is_about(ms: i64, seconds: i64) -> bool {
    (ms - seconds * 1000).abs() < 1_000
}

#[tokio::test(start_paused = true)]
async fn a_healthy_fleet_looks_alive_at_once_and_by_a_clock_that_is_wrong_after_a_beat() {
    let memory = memory();
    let of = |(ahead_s, wait)| (ahead_s, wait, viewers(ahead_s));
    let looks = [(0, 0), (60, 6), (-600, 6), (20, 0)].map(of);
    let fleet = started(&memory, memory.store.clone(), &["pod-1", "pod-2", "pod-3"]).await;
    for (ahead_s, wait, viewer) in looks {
        let (within, began) = (wait * SECOND, Instant::now());
        let picture = reader(memory.store.clone(), &viewer).picture().await.unwrap();
        assert!(began.elapsed() <= within, "{ahead_s} s ahead: {:?}", began.elapsed());
        assert_eq!(lives(&picture), [Liveness::Alive; 3], "{ahead_s} s ahead");
        if within.is_zero() {
            continue;
        }
        let clocks = picture.clock_ahead();
        let [ClockAhead { instance: None, ahead_ms, .. }] = clocks else { panic!("{clocks:?}") };
        assert!(is_about(*ahead_ms, ahead_s), "{clocks:?}");
        let skew = picture.now().as_millis() - memory.clock.wall().as_millis();
        assert!(is_about(skew, 0), "its times are the fleet's: {skew} ms");
    }
    for elect in fleet {
        elect.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_page_of_a_machine_whose_clock_is_ahead_shows_everybody_alive() {
    let memory = memory();
    let site = Site::new(Memory { store: memory.store.clone(), clock: viewers(60) }, |ui| ui);
    let fleet = started(&memory, memory.store.clone(), &["pod-1", "pod-2", "pod-3"]).await;
    for _ in 0..20 {
        let page = site.page("/instances").await;
        assert_eq!(texts(&page, ".strip").len(), 3);
        assert!(!text(&page, "main").contains("looks dead"), "{}", text(&page, "main"));
        sleep(5 * SECOND).await;
    }
    for elect in fleet {
        elect.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_instance_whose_clock_differs_is_named_and_makes_nobody_look_dead() {
    let memory = memory();
    let fleet = started(&memory, memory.store.clone(), &["pod-1", "pod-2", "pod-3"]).await;
    let store = OneAhead { store: memory.store.clone(), holder: "pod-2", by: 40 * SECOND };
    let picture = reader(Arc::new(store), &memory.clock).picture().await.unwrap();
    assert_eq!(lives(&picture), [Liveness::Alive; 3]);
    let [ClockAhead { instance: Some((_, holder)), ahead_ms, .. }] = picture.clock_ahead() else {
        panic!("{:?}", picture.clock_ahead())
    };
    assert!(holder.as_str() == "pod-2" && is_about(*ahead_ms, 40), "{:?}", picture.clock_ahead());
    let told = picture.instances().into_iter().map(|one| one.clock_ahead_ms.is_some());
    assert_eq!(told.collect::<Vec<_>>(), [false, true, false]);
    for elect in fleet {
        elect.close().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_fleet_looks_dead_at_the_second_look() {
    let memory = memory();
    let readers = [0, 60].map(|ahead_s| reader(memory.store.clone(), &viewers(ahead_s)));
    let cable = tokio_util::sync::CancellationToken::new();
    let cabled = Arc::new(Cabled { store: memory.store.clone(), pulled: cable.clone() });
    let _fleet = started(&memory, cabled, &["pod-1", "pod-2"]).await;
    cable.cancel();
    sleep(MINUTE).await;
    for reader in readers {
        let began = Instant::now();
        assert_eq!(lives(&reader.picture().await.unwrap()), [Liveness::Silent; 2]);
        assert!((5 * SECOND..8 * SECOND).contains(&began.elapsed()), "{:?}", began.elapsed());
        let again = Instant::now();
        assert_eq!(lives(&reader.picture().await.unwrap()), [Liveness::Silent; 2]);
        assert_eq!(again.elapsed(), Duration::ZERO, "one wait is enough");
    }
}
