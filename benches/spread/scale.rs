//! 1,000 instances and 100,000 tasks, without a server.

use tenure::sim::scale::LargeFleet;

use crate::{
    figures::{figure, measured},
    measure::{median, now},
};

const SIZES: [(usize, usize); 4] = [(10, 1_000), (30, 3_000), (100, 10_000), (1_000, 100_000)];

type Event = fn(&mut LargeFleet, usize);

fn timed(mut activity: impl FnMut(usize), times: usize) -> f64 {
    let once = |time| {
        let begun = now();
        activity(time);
        begun.elapsed().as_secs_f64() * 1e3
    };
    median((0..times).map(once).collect())
}

/// The plan by itself, when one has just come.
pub(crate) fn plan_alone() {
    let mut fleet = LargeFleet::new(1_000, 100_000);
    fleet.join(1);
    let input = fleet.input();
    let spent = timed(|_| assert_eq!(input.plan(), 99), 21);
    figure("plan_100000x1000_ms", spent);
}

/// A row for each event of each size.
pub(crate) fn events() {
    println!(
        "| instances | tasks | event | moves | least | plan, ms | all that one works out, ms | who act | rounds |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut needless = 0;
    for (members, tasks) in SIZES {
        let mut fleet = LargeFleet::new(members, tasks);
        let events: [(&str, Event, usize); 6] = [
            ("one joins", LargeFleet::join, 1),
            ("one leaves", LargeFleet::leave, 1),
            ("one crashes", LargeFleet::crash, 1),
            ("1 % join", LargeFleet::join, members / 100),
            ("1 % crash", LargeFleet::crash, members / 100),
            ("10 % join", LargeFleet::join, members / 10),
        ];
        for (name, event, how_many) in events {
            if how_many == 0 || name.starts_with("1 %") && how_many == 1 {
                continue;
            }
            let before = fleet.members();
            event(&mut fleet, how_many);
            let least = fleet.least();
            let input = fleet.input();
            let alone = timed(|_| _ = std::hint::black_box(input.plan()), 9);
            let all = timed(|time| _ = std::hint::black_box(fleet.resolve(time * 97)), 9);
            let settled = fleet.settle(10);
            needless = needless.max(settled.moves - least);
            assert!(fleet.gap() <= 1, "all have as many");
            println!(
                "| {before} | {tasks} | {name} | {} | {least} | {alone:.2} | {all:.2} | {} | {} |",
                settled.moves, settled.acting, settled.rounds
            );
            if name == "one joins" {
                measured(&format!("resolve_{tasks}x{members}"), all, "ms");
            }
        }
    }
    let mut fleet = LargeFleet::new(1_000, 100_000);
    fleet.restart();
    let all = timed(|time| _ = std::hint::black_box(fleet.resolve(time * 97)), 9);
    measured("resolve_100000x1000_after_a_restart", all, "ms");
    figure("scale_needless_moves", needless as f64);
}
