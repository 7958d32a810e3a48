//! Parts that instances take in the fleet's spread.

use std::{future::Future, pin::pin, time::Duration};

use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{
    Dice, EventKind, FIRST_TASK, Instance,
    programs::{JobBehaviour, job},
};
use tenure::{
    Lease,
    spread::{Spread, Task, TaskState},
};

const SECOND: Duration = Duration::from_secs(1);

/// Takes part in the fleet's spread, with jobs of one of these conducts; unless it does already. Some versions do not
/// know one of the tasks.
pub(super) fn join(
    instance: &Instance,
    cap: u64,
    conducts: Vec<JobBehaviour>,
    unknown: Option<usize>,
    dice: &mut Dice,
) -> Option<Spread> {
    let known = (0..instance.fleet().plan().tasks).filter(|task| Some(*task) != unknown);
    let known: Vec<_> = known.collect();
    let tasks = known.iter().copied().map(super::task_name);
    let (worker, dice) = (instance.clone(), dice.split(8));
    let run = move |_: Task, lease: Lease| {
        let mut dice = dice.clone().split(lease.term().get());
        let conduct = conducts[dice.place(conducts.len())];
        needy(&worker, lease, conduct, dice)
    };
    let most = u32::try_from(cap).unwrap_or(u32::MAX);
    let spread = instance.elect().spread(super::SPREAD).tasks(tasks).cap(most).tries(2).again_after(SECOND);
    let spread = spread.run(run).ok()?;
    instance.record(EventKind::Knows { tasks: known });
    instance.record(EventKind::Capped { cap: usize::try_from(cap).unwrap_or(usize::MAX) });
    Some(spread)
}

/// The job of a task: it fails while what it needs is away, and one of them kills its process.
fn needy(
    instance: &Instance,
    lease: Lease,
    conduct: JobBehaviour,
    mut dice: Dice,
) -> impl Future<Output = Result<(), String>> + Send + use<> {
    let (fleet, life) = (instance.fleet().clone(), instance.life());
    let task = super::key_of(lease.key()).and_then(|key| key.checked_sub(FIRST_TASK));
    let kills = task.filter(|task| Some(*task) == fleet.killer() && dice.percent(60));
    let (patience, again) = (dice.up_to(5 * SECOND), dice.up_to(30 * SECOND));
    let works = job(instance, lease, "", conduct, dice);
    async move {
        let works = async {
            let mut works = pin!(works);
            if let Some(task) = kills {
                tokio::select! {
                    biased;
                    done = &mut works => return done,
                    () = sleep(patience) => fleet.is_killed(life, task, again),
                }
            }
            works.await
        };
        let is_away = fleet.is_away();
        tokio::select! {
            biased;
            () = is_away.cancelled() => Err("what it needs is away".to_owned()),
            done = works => done,
        }
    }
}

/// Takes part in the fleet's spread with jobs that obey, as soon as it takes part no more in another way,
/// until then.
pub(super) async fn share(instance: Instance, until: CancellationToken) {
    let mut dice = instance.fleet().dice();
    let kept = loop {
        let joined = join(&instance, u64::MAX, vec![JobBehaviour::Obeys(u32::MAX)], None, &mut dice);
        if joined.is_some() || until.is_cancelled() {
            break joined;
        }
        sleep(SECOND / 10).await;
    };
    let Some(spread) = kept else { return };
    while !until.is_cancelled() {
        let status = spread.status();
        // Nor is what failed somewhere lately moved there for the sake of balance.
        let waits = status.held_back.is_some()
            || !status.is_settled()
            || status.members.iter().any(|member| member.failing)
            || status.tasks.values().any(|task| matches!(task, TaskState::Failing { .. }));
        instance.set_unsettled(waits);
        // Tasks rest that failed before the calm began: an operator sees that all is well, and puts them back.
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
