//! A takeover within a time that was asked for.

use std::{sync::Arc, time::Duration};

use tenure::{
    Elect,
    store::Store,
    testing::{Fault, Faulty, Intercept, Intercepted, Operation},
};
use tokio::time::Instant;

use crate::elect::world::{SECOND, World};

async fn instance(world: &World, holder: &str, within: Duration) -> (Elect, Arc<Intercepted<Faulty>>) {
    let faulty = Faulty::default().around(Arc::new(world.memory.clone()));
    let store: Arc<dyn Store> = faulty.clone();
    let config = World::config(holder).takeover_within(within);
    (world.on(store, config).start().await.unwrap(), faulty)
}

#[tokio::test(start_paused = true)]
async fn a_waiter_leads_within_the_promised_time_whenever_the_holder_dies() {
    for within in [SECOND, 3 * SECOND, 10 * SECOND, 60 * SECOND] {
        // At any moment between two beats.
        for phase in 0..8 {
            let world = World::new();
            let (first, faulty) = instance(&world, "a", within).await;
            let (second, _) = instance(&world, "b", within).await;
            let leads = first.campaign("k").start().unwrap();
            leads.led().await.unwrap();
            let waits = second.campaign("k").start().unwrap();
            tokio::time::sleep(5 * within + within * phase / 40).await;
            assert!(leads.is_leading() && !waits.is_leading());
            faulty.intercept().always(Operation::ALL, Fault::Swallowed);
            let died = Instant::now();
            waits.led().await.unwrap();
            let took = died.elapsed();
            // What is left is for a store that takes its time.
            assert!(took <= within * 9 / 10, "{took:?} of {within:?}, phase {phase}");
            assert!(took >= within / 2, "not before its ttl was over: {took:?} of {within:?}");
        }
    }
}
