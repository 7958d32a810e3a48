//! Cost of another program's writes, when instances wait.

use std::time::Duration;

use futures::future::join_all;
use mongodb::{
    Collection,
    bson::{Document, doc},
    options::WriteConcern,
};
use tokio::time::sleep;

use crate::{
    figures::{figure, measured},
    machine::{Meter, Spent},
    measure::{median, now, turn},
    table,
    waiting::Waiting,
    world::{World, insert},
};

const ROUNDS: usize = 3;
const INSTANCES: usize = 40;
const RATES: [u32; 5] = [0, 8, 50, 500, 1500];
/// The interval of the instances, too, so that each window has as many of their beats.
const WINDOW: Duration = Duration::from_millis(2500);
/// Time until instances that have just started are at rest.
const CALM: Duration = Duration::from_secs(4);
const CALM_AFTER_THE_END: Duration = Duration::from_secs(1);
const WRITERS: u32 = 4;

/// Costs at one rate, and the writes a second that there were.
#[derive(Clone, Copy, Debug)]
struct Window {
    spent: Spent,
    rate: f64,
}

/// Writes of a plain client to a database of its own, with and without instances that wait, in turns.
pub(crate) async fn writes(world: &World) {
    let foreign = world.plain.database("foreign").collection::<Document>("things");
    insert(&foreign, (0..WRITERS).map(|writer| format!("thing {writer}"))).await;
    let mut rounds = [const { Vec::new() }; 2];
    for round in 0..ROUNDS {
        for contestant in turn(round, 2) {
            let waiting = if contestant == 0 {
                sleep(CALM_AFTER_THE_END).await;
                None
            } else {
                let waiting =
                    Waiting::start(world, INSTANCES, |config| config.with_refresh_interval(WINDOW)).await;
                sleep(CALM).await;
                Some(waiting)
            };
            let mut windows = Vec::new();
            for rate in RATES {
                windows.push(window(world, &foreign, rate).await);
            }
            if let Some(waiting) = waiting {
                waiting.end().await;
            }
            rounds[contestant].push(windows);
        }
    }
    told(world.nodes, &rounds);
}

async fn window(world: &World, foreign: &Collection<Document>, rate: u32) -> Window {
    let meter = Meter::start(world);
    let writers = (0..WRITERS).map(|writer| write(foreign, writer, rate));
    let written: u32 = join_all(writers).await.iter().sum();
    let spent = meter.stop();
    Window { spent, rate: f64::from(written) / spent.seconds }
}

/// Writes at one writer's share of a rate, for a window. Returns the number of writes.
async fn write(foreign: &Collection<Document>, writer: u32, rate: u32) -> u32 {
    let (id, change) = (doc! { "_id": format!("thing {writer}") }, doc! { "$inc": { "n": 1_i64 } });
    let (began, mut written) = (now(), 0);
    // Each in another phase.
    let due = |written: u32| f64::from(written * WRITERS + writer) / f64::from(rate);
    while rate > 0 && due(written).max(began.elapsed().as_secs_f64()) < WINDOW.as_secs_f64() {
        sleep(Duration::from_secs_f64(due(written)).saturating_sub(began.elapsed())).await;
        let update = foreign.update_one(id.clone(), change.clone());
        update.write_concern(WriteConcern::nodes(1)).await.expect("the server answers");
        written += 1;
    }
    sleep(WINDOW.saturating_sub(began.elapsed())).await;
    written
}

fn told(nodes: usize, [without, with]: &[Vec<Vec<Window>>; 2]) {
    let of = |rounds: &[Vec<Window>], place: usize, what: fn(&Window) -> f64| {
        median(rounds.iter().map(|windows| what(&windows[place])).collect())
    };
    let more = |round: usize, place: usize, what: fn(Spent) -> f64| {
        what(with[round][place].spent) - what(without[round][place].spent)
    };
    // For each write and each instance, beyond what the instances cost without writes.
    let each = |place: usize, what: fn(Spent) -> f64| {
        let rounds = (0..ROUNDS).map(|round| {
            let more = more(round, place, what) - more(round, 0, what);
            more / with[round][place].rate / INSTANCES as f64
        });
        median(rounds.collect())
    };
    let row = |(place, rate): (usize, &u32)| {
        let each = |what| if *rate == 0 { "-".to_owned() } else { format!("{:.2}", each(place, what)) };
        let ms = |rounds: &[Vec<Window>], what| format!("{:.1}", of(rounds, place, what) / 1e3);
        let servers = |window: &Window| window.spent.servers_a_second();
        let connections = |window: &Window| window.spent.connections_a_second();
        let client = |window: &Window| window.spent.client_a_second();
        vec![
            rate.to_string(),
            format!("{:.0}", of(with, place, |window| window.rate)),
            format!("{:.0}%", of(with, place, |window| window.spent.busy) * 100.0),
            ms(without, servers),
            ms(with, servers),
            each(Spent::servers_a_second),
            ms(without, connections),
            ms(with, connections),
            each(Spent::connections_a_second),
            ms(without, client),
            ms(with, client),
        ]
    };
    let rows: Vec<_> = RATES.iter().enumerate().map(row).collect();
    table::print(
        &format!(
            "{INSTANCES} instances that wait, and writes of others, on {nodes}: ms of processor a second \
             without and with them, and µs for each write and instance"
        ),
        &[
            "writes/s",
            "were",
            "busy",
            "servers",
            "with",
            "each",
            "connections",
            "with",
            "each",
            "client",
            "with",
        ],
        &rows,
    );
    for (place, rate) in RATES.iter().enumerate().skip(1) {
        let each = each(place, Spent::connections_a_second);
        measured(&format!("foreign_connections_at_{rate}_on_{nodes}"), each, "µs");
    }
    let slope = |what: fn(Spent) -> f64| {
        let slopes = (0..ROUNDS).map(|round| {
            // A rate that was not reached on a busy machine compares nothing.
            let is_reached = |place: &usize| {
                let reached = with[round][*place].rate.min(without[round][*place].rate);
                reached >= 0.9 * f64::from(RATES[*place])
            };
            let places = (0..RATES.len()).filter(is_reached);
            let points = places.map(|place| (with[round][place].rate, more(round, place, what)));
            slope(&points.collect::<Vec<_>>()) / INSTANCES as f64
        });
        median(slopes.collect())
    };
    figure(&format!("foreign_connections_us_{nodes}"), slope(Spent::connections_a_second));
    let all = format!("foreign_server_us_{nodes}");
    if nodes == 1 {
        figure(&all, slope(Spent::servers_a_second));
    } else {
        // The more the servers of a set have to do, the less replication costs for each write: on processors that
        // all of them share and fill, the sum tells nothing, and only the threads tell who caused it.
        measured(&all, slope(Spent::servers_a_second), "µs");
    }
}

/// Slope of the line through points (x, y) with the least squares.
fn slope(points: &[(f64, f64)]) -> f64 {
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / points.len() as f64;
    let (x, y) = (mean(|point| point.0), mean(|point| point.1));
    let above: f64 = points.iter().map(|point| (point.0 - x) * (point.1 - y)).sum();
    let below: f64 = points.iter().map(|point| (point.0 - x).powi(2)).sum();
    above / below
}
