//! Long rounds on a set of its own network, with logins, TLS and clocks of its own. `scripts/soak` prepares
//! what it needs and runs it.

mod faults;
mod net;
mod role;
mod rounds;
mod set;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use futures::FutureExt;
use mongodb::Client;
use tenure_sim::Dice;

use self::{
    faults::Fault,
    net::Place,
    rounds::World,
    set::{MEMBERS, Set},
};
use crate::{
    fleet::{Fleet, Plan, Way, now},
    holder::Pace,
    record::Record,
};

/// Number of sites of the fleet.
pub(crate) const SITES: usize = 2;
const HOLDERS: usize = 4;
const KEYS: usize = 6;
/// Number of tasks they share out.
const TASKS: usize = 12;
const DATABASE: &str = "tenure";
/// A minute ahead, an hour behind, and one that is right: every failover is to another time.
const OFFSETS: [i64; MEMBERS] = [60_000, -3_600_000, 0];

#[derive(Debug)]
struct Options {
    time: Duration,
    seed: u64,
    election: Duration,
    folder: PathBuf,
    mongod: PathBuf,
    faketime: PathBuf,
    /// Folder for the numbers.
    result: PathBuf,
}

impl Options {
    fn from_environment() -> Self {
        let text = |name: &str| {
            std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: this is run by scripts/soak"))
        };
        let number = |name: &str| text(name).parse::<u64>().unwrap_or_else(|error| panic!("{name}: {error}"));
        Self {
            time: Duration::from_secs(number("SOAK_SECONDS")),
            seed: number("SOAK_SEED"),
            election: Duration::from_millis(number("SOAK_ELECTION_MS")),
            folder: text("SOAK_FOLDER").into(),
            mongod: text("SOAK_MONGOD").into(),
            faketime: text("SOAK_FAKETIME").into(),
            result: text("SOAK_RESULT").into(),
        }
    }
}

#[test]
#[ignore = "not a test of its own: scripts/soak runs it, for as long as it is told"]
fn soaks() {
    let options = Options::from_environment();
    println!();
    let (told, folder) = (std::panic::take_hook(), options.folder.clone());
    // The cause of a fault that was not made is in the logs of the members, which end with the run.
    std::panic::set_hook(Box::new(move |panic| {
        told(panic);
        eprintln!("{}", set::logs(&folder));
    }));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let ended = runtime.block_on(soak(&options));
    assert!(ended, "the run did not end well");
}

/// Returns whether nothing was violated, and every fault was made.
async fn soak(options: &Options) -> bool {
    let members = (0..MEMBERS).map(Place::Member);
    let places: Vec<_> = members.chain((0..SITES).map(Place::Site)).collect();
    net::build(&places);
    let Options { folder, mongod, faketime, election, seed, .. } = options;
    let set = Set::start(folder, mongod, faketime, *election, OFFSETS, DATABASE).await;
    let client = Client::with_uri_str(set.root_uri()).await.unwrap();
    let plan = Plan {
        seed: *seed,
        members: HOLDERS,
        keys: KEYS,
        tasks: TASKS,
        database: DATABASE.to_owned(),
        one_time: false,
        pace: Pace::Quick,
        ills: Vec::new(),
        with_guards: false,
    };
    let site = |member| Way { uri: set.uri(DATABASE), namespace: Some(Place::Site(member % SITES).name()) };
    let ways = (0..HOLDERS).map(site).collect();
    let record = Record::Mongo { client, database: plan.database.clone() };
    let fleet = Fleet::start(plan, record, ways).await;
    let mut world = World::new(set, fleet);
    let interrupted = tokio::signal::ctrl_c();
    let rounds = std::panic::AssertUnwindSafe(run(&mut world, options)).catch_unwind();
    let end = tokio::select! {
        end = rounds => end.unwrap_or(End::Stuck),
        _ = interrupted => End::Interrupted,
    };
    let World { counts, fleet, .. } = &world;
    let counted: Vec<_> = counts.iter().map(|(count, number)| format!("{number} {count}")).collect();
    let (violations, ended) = match &end {
        End::Violated(_) => (1, "violated"),
        End::Over => (0, "over"),
        End::Interrupted => (0, "interrupted"),
        End::Stuck => (0, "stuck"),
    };
    println!("{}", counted.join(", "));
    println!(
        "{} entries judged, {} acknowledged writes all kept, {} jobs overran, {violations} violations",
        fleet.court.entries(),
        fleet.court.kept,
        fleet.overruns()
    );
    if let End::Violated(story) = &end {
        println!("{story}");
    }
    let numbers: BTreeMap<_, _> = counts.iter().map(|(count, number)| (count.to_string(), *number)).collect();
    let result = serde_json::json!({
        "counts": numbers, "violations": violations, "ended": ended, "entries": fleet.court.entries(), "kept": fleet.court.kept,
    });
    std::fs::write(&options.result, result.to_string()).unwrap();
    matches!(end, End::Over | End::Interrupted)
}

enum End {
    Over,
    Interrupted,
    /// A fault could not be made, or the set did not come back; why, has been told.
    Stuck,
    Violated(String),
}

async fn run(world: &mut World, options: &Options) -> End {
    let began = now();
    if let Some(violated) = world.settle(now()).await.err() {
        return End::Violated(violated);
    }
    println!("{:.1} s: every key is held", now().since(began).as_secs_f64());
    let mut number = 0;
    while now().since(began) < options.time {
        number += 1;
        let mut dice = Dice::new(options.seed).split(number);
        let fault = Fault::any(&mut dice);
        // One in four comes with another one.
        let besides = dice.percent(25) && !fault.is_of_the_fleet();
        let besides = besides.then(|| Fault::any_of_the_fleet(&mut dice));
        let start = now();
        let made = world.make(fault, besides).await;
        match world.settle(now()).await {
            Ok(settled) => println!(
                "{:>5.0} s  round {number}  {}  {made}; every key held {:.1} s later; {} entries; {:.1} s",
                now().since(began).as_secs_f64(),
                World::name(fault, besides),
                settled.as_secs_f64(),
                world.fleet.court.entries(),
                now().since(start).as_secs_f64(),
            ),
            Err(violated) => {
                return End::Violated(format!("round {number}, {fault:?} {besides:?}, {made}:\n{violated}"));
            }
        }
    }
    match world.fleet.end().await {
        Some(violation) => End::Violated(violation.to_string()),
        None => End::Over,
    }
}
