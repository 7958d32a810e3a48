//! A takeover within a time that was asked for, on a real replica set.

use crate::{
    fleet::{Place, SECOND, bounded, config, replica_set},
    polls::now,
    support::proxy::{Mode, Proxy},
};

#[tokio::test]
async fn whoever_waits_leads_within_three_seconds_of_the_last_that_was_heard_of_the_holder() {
    let deployment = replica_set().await;
    let place = Place::on(deployment.uri()).await;
    let within = 3 * SECOND;
    let proxy = Proxy::start(deployment.wait_for_primary(None).await.port());
    let config = |holder| config(holder).takeover_within(within);
    let first = place.builder_over(&proxy.uri(), config("a")).await.start().await.unwrap();
    let leads = first.campaign("key").start().unwrap();
    bounded("a free key is led", leads.led()).await.unwrap();
    let second = place.instance(config("b")).await;
    let waits = second.campaign("key").start().unwrap();
    // It has watched for longer than the ttl, and been seen to.
    tokio::time::sleep(within).await;
    assert!(leads.is_leading() && !waits.is_leading());

    proxy.set_mode(Mode::BlackHole).await;
    let died = now();
    bounded("the one that waits leads", waits.led()).await.unwrap();
    let took = now().since(died);
    println!("taken over after {took:.2?} of {within:?}, the ttl being {:?}", config("a").ttl());
    assert!(took <= within, "it took {took:?}");
    assert!(!leads.is_leading(), "two never lead");
}
