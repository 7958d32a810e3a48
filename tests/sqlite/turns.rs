//! Instances in one process that take turns on one key.

#[path = "../support/turns.rs"]
mod support;

use std::time::Duration;

use tenure::{Elect, ElectConfig};

use crate::{folder::Folder, wait::within};

/// Far longer than any wait that does not count on it.
const POLL: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_that_take_turns_wait_for_no_poll() {
    let folder = Folder::in_memory();
    for instances in [2, 3, 8] {
        let mut elects = Vec::new();
        for place in 0..instances {
            let config = ElectConfig::new(format!("of-{instances}"), format!("pod-{place}")).unwrap();
            elects.push(Elect::start(folder.open(), config.with_poll_interval(POLL)).await.unwrap());
        }
        let worst = within("all have had their turns", support::take_turns(&elects, 40, 1)).await;
        println!("{instances} instances: {worst:?}");
        assert!(worst.wait < POLL / 2, "{instances} instances: {worst:?}");
        if let [one, other, third] = &elects[..] {
            let given_up = support::take_after_others_gave_up([one, other, third], 40);
            let longest = within("keys that others gave up are taken", given_up).await;
            assert!(longest < POLL / 2, "{longest:?} after others gave up");
        }
        for elect in elects {
            elect.close().await;
        }
    }
}
