//! The server's clock is for people to read: where it stands moves no lease and no takeover (R1).

use crate::elect_mongodb::{
    contender::Contender,
    fleet::{Place, calm, quick, record},
    processes::watches,
};
use crate::support::mongod::{Deployment, Options, Shape};

const HOUR: i64 = 60 * 60 * 1000;

#[tokio::test]
async fn a_step_of_the_servers_clock_moves_no_lease_and_no_takeover() {
    let options = Options { steppable_clock: true, ..calm() };
    let deployment = Deployment::start(Shape::Single, options).await;
    let place = Place::on(deployment.uri()).await;
    let (store, key) = (place.store().await, "the one");
    let mut leader = Contender::start(&place, "pod-0", key).await;
    let mut term = leader.until("poll", |_| true).await.number();
    for (number, step) in [HOUR, 0].into_iter().enumerate() {
        let next = Contender::start(&place, &format!("pod-{}", number + 1), key).await;
        watches(&place, &store, key, &next).await;
        deployment.step_clock(step).await;
        // Whoever went by its clock would have declared the holder dead by now.
        watches(&place, &store, key, &next).await;
        let beaten = watches(&place, &store, key, &next).await;
        for process in [&leader, &next] {
            assert!(process.all("lost").is_empty() && process.all("session-lost").is_empty());
        }
        assert_eq!(record(&store, key).await.unwrap().term.get(), term);

        let killed = leader.kill();
        let polled = next.until("poll", |_| true).await;
        println!("server's clock {step} ms off: takeover after {:.3?}", polled.at.since(killed));
        assert!(polled.at >= beaten + quick("x").ttl(), "{:?}", polled.at.since(beaten));
        assert!(polled.number() > term, "terms rise, also when the clock was set back");
        term = polled.number();
        leader = next;
    }
}
