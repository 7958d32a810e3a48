//! Parts that instances take in the fleet's spread.

use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{
    Dice, Instance, What,
    programs::{Conduct, job},
};
use crate::{
    Lease,
    spread::{Spread, Task},
};

const SECOND: Duration = Duration::from_secs(1);

/// Takes part in the fleet's spread, with jobs of one of these conducts; unless it does already.
pub(super) fn join(instance: &Instance, cap: u64, conducts: Vec<Conduct>, dice: &mut Dice) -> Option<Spread> {
    let tasks = (0..instance.fleet().plan().tasks).map(super::task_name);
    let (worker, dice) = (instance.clone(), dice.split(8));
    let run = move |_: Task, lease: Lease| {
        let mut dice = dice.clone().split(lease.term().get());
        let conduct = conducts[dice.place(conducts.len())];
        job(&worker, lease, "", conduct, dice)
    };
    let most = u32::try_from(cap).unwrap_or(u32::MAX);
    let spread = instance.elect().spread(super::SPREAD).tasks(tasks).cap(most).tries(2).again_after(SECOND);
    let spread = spread.run(run).ok()?;
    instance.record(What::Capped { cap: usize::try_from(cap).unwrap_or(usize::MAX) });
    Some(spread)
}

/// Takes part in the fleet's spread with jobs that obey, as soon as it takes part no more in another way,
/// until then.
pub(super) async fn share(instance: Instance, until: CancellationToken) {
    let mut dice = instance.fleet().dice();
    let kept = loop {
        let joined = join(&instance, u64::MAX, vec![Conduct::Obeys(u32::MAX)], &mut dice);
        if joined.is_some() || until.is_cancelled() {
            break joined;
        }
        sleep(SECOND / 10).await;
    };
    let Some(spread) = kept else { return };
    while !until.is_cancelled() {
        let picture = spread.picture();
        instance.set_unsettled(picture.held_back.is_some() || !picture.suspects.is_empty());
        // What failed before the calm rests: somebody sees that all is well.
        let looks = async {
            let _ = spread.put_back_all().await;
            sleep(SECOND).await;
        };
        tokio::select! {
            biased;
            () = until.cancelled() => {}
            () = looks => {}
        }
    }
    spread.stop().await;
}
