//! Screens that read the store themselves read it once, however many look.

use std::{any::Any, collections::HashMap, sync::Arc, time::Duration};

use tokio::{sync::Mutex, time::Instant};

/// Screens that are kept at most: one for each follower, and some for visitors who come and go.
const MOST: usize = crate::live::FOLLOWERS + 56;

/// Content that was read for screens, by address.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    slots: Mutex<HashMap<String, Slot>>,
}

type Slot = Arc<Mutex<Option<(Instant, Arc<dyn Any + Send + Sync>)>>>;

impl Cache {
    /// Returns the content read for that address, or reads it: requests that come meanwhile wait for the same answer.
    pub(crate) async fn get<T: Send + Sync + 'static, E>(
        &self,
        address: String,
        fresh: Duration,
        read: impl Future<Output = Result<T, E>>,
    ) -> Result<Arc<T>, E> {
        self.get_while(address, |at, _: &T| at.elapsed() < fresh, read).await
    }

    /// The same for content that is good as long as this says.
    pub(crate) async fn get_while<T: Send + Sync + 'static, E>(
        &self,
        address: String,
        is_good: impl FnOnce(Instant, &T) -> bool,
        read: impl Future<Output = Result<T, E>>,
    ) -> Result<Arc<T>, E> {
        let slot = {
            let mut slots = self.slots.lock().await;
            while slots.len() >= MOST
                && !slots.contains_key(&address)
                && let Some(oldest) = oldest(&slots)
            {
                slots.remove(&oldest);
            }
            slots.entry(address).or_default().clone()
        };
        let mut held = slot.lock().await;
        if let Some((at, known)) = &*held
            && let Ok(known) = known.clone().downcast::<T>()
            && is_good(*at, &known)
        {
            return Ok(known);
        }
        let read = Arc::new(read.await?);
        *held = Some((now(), read.clone()));
        Ok(read)
    }

    /// Forgets all: something was changed.
    pub(crate) async fn clear(&self) {
        self.slots.lock().await.clear();
    }
}

/// The one that was read longest ago. Those in use are held by their readers.
fn oldest(slots: &HashMap<String, Slot>) -> Option<String> {
    let read_at = |slot: &Slot| slot.try_lock().ok().and_then(|held| held.as_ref().map(|(at, _)| *at));
    let idle = slots.iter().filter(|(_, slot)| Arc::strong_count(slot) == 1);
    idle.min_by_key(|(_, slot)| read_at(slot)).map(|(address, _)| address.clone())
}

#[allow(clippy::disallowed_methods, reason = "no lease is counted here")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_fresh_value_is_read_once_and_an_error_is_not_kept() {
        let (cache, reads) = (Cache::default(), AtomicUsize::new(0));
        let minute = Duration::from_secs(60);
        let read = |ok: bool| {
            let reads = &reads;
            async move {
                let count = reads.fetch_add(1, Ordering::Relaxed);
                if ok { Ok(count) } else { Err("away") }
            }
        };
        assert_eq!(cache.get("a".to_owned(), minute, read(false)).await, Err("away"));
        let both = futures::future::join(
            cache.get("a".to_owned(), minute, read(true)),
            cache.get("a".to_owned(), minute, read(true)),
        );
        assert_eq!(both.await, (Ok(Arc::new(1)), Ok(Arc::new(1))));
        assert_eq!(cache.get("b".to_owned(), minute, read(true)).await, Ok(Arc::new(2)));
        assert_eq!(cache.get("a".to_owned(), Duration::ZERO, read(true)).await, Ok(Arc::new(3)));
    }

    #[tokio::test]
    async fn a_cache_keeps_no_more_entries_than_it_has_room_for() {
        let cache = Cache::default();
        for at in 0..3 * MOST {
            let read = async { Ok::<_, ()>(at) };
            cache.get(at.to_string(), Duration::ZERO, read).await.unwrap();
        }
        assert!(cache.slots.lock().await.len() <= MOST);
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_goes_where_there_is_no_room() {
        let (cache, minute) = (Cache::default(), Duration::from_secs(60));
        for at in 0..=MOST {
            let read = async { Ok::<_, ()>(at) };
            cache.get(at.to_string(), minute, read).await.unwrap();
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        let read = async { Ok::<_, ()>(7_777_usize) };
        assert_eq!(cache.get("1".to_owned(), minute, read).await, Ok(Arc::new(1)));
        let read = async { Ok::<_, ()>(7_777_usize) };
        assert_eq!(cache.get("0".to_owned(), minute, read).await, Ok(Arc::new(7_777_usize)));
    }
}
