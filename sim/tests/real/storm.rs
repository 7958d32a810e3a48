//! Fleets half of whose programs misbehave: their logs, recorders, callbacks, handlers of commands and sources of
//! connection strings panic, block or lag at each call, and their runtimes are hardly driven. Meanwhile servers and
//! processes fail. No process works beside the next holder, no key is without a holder, and the other half goes on.
//!
//! `TENURE_STORM=each TENURE_STORM_SECONDS=120 cargo test -p tenure-sim --all-features --test real storm:: --
//! --nocapture` has a fleet for each of them; `TENURE_STORM=log-blocks,uri-panics` one for these.

use std::time::Duration;

use tenure::clock::Moment;
use tenure_sim::Dice;
use tokio::time::sleep;

use crate::{
    audit::{Audit, Folder},
    fleet::{Fleet, Plan, Way, now},
    holder::{self, FILE, Pace},
    ills::Ill,
    record::Record,
    short::{RECENT, Set},
    support::proxy::Mode,
};

const MEMBERS: usize = 4;
const KEYS: usize = 9;
/// Number of tasks they share out.
const TASKS: usize = 6;
/// Time until the next fault, at most.
const REST: Duration = Duration::from_secs(3);

fn plan(ills: Vec<Ill>) -> Plan {
    Plan {
        seed: 1,
        members: MEMBERS,
        keys: KEYS,
        tasks: TASKS,
        database: "storm".to_owned(),
        // A program that does not run keeps the schedule's key, and its ticks wait.
        one_time: false,
        pace: Pace::Quick,
        ills,
        with_guards: true,
    }
}

/// The ills of each fleet, one after the other.
fn storms(all: &[Ill]) -> Vec<Vec<Ill>> {
    match std::env::var("TENURE_STORM").as_deref() {
        Err(_) => vec![all.to_vec()],
        Ok("each") => all.iter().map(|ill| vec![*ill]).collect(),
        Ok(names) => vec![names.split(',').map(|name| name.parse().unwrap()).collect()],
    }
}

fn ttl() -> Duration {
    holder::config(0, Pace::Quick).ttl()
}

fn duration() -> Duration {
    let seconds = std::env::var("TENURE_STORM_SECONDS").ok();
    Duration::from_secs(seconds.map_or(5, |seconds| seconds.parse().unwrap()))
}

/// Faults of the fleet, and of the set it has, if any.
struct Storm<'w> {
    set: Option<&'w Set>,
    dice: Dice,
    longest: Duration,
    faults: u32,
}

impl<'w> Storm<'w> {
    fn new(set: Option<&'w Set>) -> Self {
        Self { set, dice: Dice::new(1), longest: Duration::ZERO, faults: 0 }
    }

    /// Makes one fault after the other, and waits each time until every key is held again.
    async fn rages(&mut self, fleet: &mut Fleet) {
        let begun = now();
        self.settles(fleet, "the start", begun).await;
        while self.faults == 0 || now().since(begun) < duration() {
            sleep(self.dice.between(Duration::ZERO, REST)).await;
            let fault = match self.set {
                Some(set) if self.dice.below(2) == 0 => self.strikes_the_set(set).await,
                _ => self.strikes_the_fleet(fleet).await,
            };
            self.faults += 1;
            self.settles(fleet, &fault, now()).await;
        }
        let guarded: Vec<_> = (0..KEYS).filter(|key| holder::is_guarded(*key)).collect();
        fleet.lets_go_of(&guarded).await;
    }

    async fn settles(&mut self, fleet: &mut Fleet, after: &str, since: Moment) {
        fleet.trouble(after);
        let held = fleet.holds_all(since).await;
        let judged = fleet.judge().await;
        assert!(judged.is_none(), "after {after}: {}", judged.unwrap());
        let held = held.unwrap_or_else(|missing| panic!("after {after} nobody holds {missing:?}"));
        println!("{after}: every key held {held:.1?} later");
        self.longest = self.longest.max(held);
    }

    async fn strikes_the_set(&mut self, set: &Set) -> String {
        match self.dice.below(4) {
            0 => {
                let before = set.deployment.step_down().await;
                set.deployment.wait_for_primary(Some(before.port())).await;
                "a primary stood down".to_owned()
            }
            1 => {
                let before = set.deployment.kill_primary().await;
                set.deployment.wait_for_primary(Some(before.port())).await;
                set.deployment.restart(before).await;
                "a primary was killed".to_owned()
            }
            2 => {
                let time = self.dice.between(Duration::from_millis(100), Duration::from_secs(6));
                let proxy = set.proxy(set.primary().await);
                proxy.set_mode(Mode::BlackHole).await;
                sleep(time).await;
                proxy.set_mode(Mode::Pass).await;
                set.primary().await;
                format!("a primary was cut off for {time:.1?}")
            }
            _ => {
                set.proxy(set.primary().await).sever();
                "all connections were closed".to_owned()
            }
        }
    }

    async fn strikes_the_fleet(&mut self, fleet: &mut Fleet) -> String {
        // Also one that does not get to work.
        let member = if self.dice.below(2) == 0 {
            self.dice.place(MEMBERS)
        } else {
            fleet.until_busiest(RECENT).await.0
        };
        match self.dice.below(4) {
            0 => {
                fleet.kill(member).await;
                fleet.run(member);
                format!("holder {member} was killed")
            }
            1 => {
                fleet.close(member).await;
                fleet.run(member);
                format!("holder {member} was closed")
            }
            kind => {
                let time = if kind == 2 {
                    ttl() + Duration::from_millis(700)
                } else {
                    self.dice.between(Duration::from_millis(200), Duration::from_millis(2500))
                };
                fleet.freeze(member).await;
                sleep(time).await;
                fleet.thaw(member);
                format!("holder {member} was frozen for {time:.1?}")
            }
        }
    }

    async fn ends(self, fleet: &mut Fleet, ills: &[Ill]) {
        let judged = fleet.end().await;
        assert!(judged.is_none(), "at the end: {}", judged.unwrap());
        let (entries, ttl) = (fleet.court.entries(), ttl());
        let Self { longest, faults, .. } = self;
        println!(
            "{ills:?}: {faults} faults, {entries} entries judged; keys held again after {longest:.1?} at most, ttl {ttl:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_on_a_set_keeps_its_promises_while_its_programs_misbehave() {
    for ills in storms(&Ill::all(true)) {
        println!("==> {ills:?}");
        let (set, mut fleet) = Set::with_fleet(plan(ills.clone())).await;
        let mut storm = Storm::new(Some(&set));
        storm.rages(&mut fleet).await;
        storm.ends(&mut fleet, &ills).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_on_a_file_keeps_its_promises_while_its_programs_misbehave() {
    for ills in storms(&Ill::all(false)) {
        println!("==> {ills:?}");
        let folder = Folder::new("storm");
        let file = folder.0.join("tenure.db");
        let record = Record::File(Audit::new(&file).await);
        let way = Way { uri: format!("{FILE}{}", file.display()), namespace: None };
        let mut fleet = Fleet::start(plan(ills.clone()), record, vec![way; MEMBERS]).await;
        let mut storm = Storm::new(None);
        storm.rages(&mut fleet).await;
        storm.ends(&mut fleet, &ills).await;
    }
}
