//! Digests of task sets, which members compare in order to plan together.

use crate::{
    model::{Digest, Key, StoreTime},
    store::{Buckets, Share},
};

/// Writes the digests of these tasks into a share, and since when it has them. The keys come in their order.
pub(crate) fn publish<'a>(share: &mut Share, keys: impl Iterator<Item = &'a Key> + Clone, now: StoreTime) {
    let before = std::mem::replace(&mut share.digest, digest(keys.clone()));
    share.known_since = share.known_since.filter(|_| share.digest == before).or(Some(now));
    share.known = u32::try_from(keys.clone().count()).ok();
    share.buckets = Some(buckets(keys));
}

/// Returns whether both are known to know the same tasks of that part.
pub(crate) fn agree(one: &Share, other: &Share, part: u16) -> bool {
    let digests = |share: &Share| share.buckets.as_ref().map(|buckets| buckets.digest(part));
    one.digest == other.digest || digests(one).is_some() && digests(one) == digests(other)
}

/// The part of a task set to which a task belongs: the same on every machine and in every version.
pub(crate) fn part(key: &Key) -> u16 {
    let mut hash = Digest::default();
    hash.write(key.as_str().as_bytes());
    let [high, low, ..] = hash.mixed().to_be_bytes();
    u16::from_be_bytes([high, low]) >> 6
}

/// The digests of the parts of a task set, whose keys come in their order.
fn buckets<'a>(keys: impl Iterator<Item = &'a Key>) -> Buckets {
    let mut digests = [const { Digest::new() }; Buckets::COUNT];
    for key in keys {
        let digest = &mut digests[usize::from(part(key))];
        digest.write(key.as_str().as_bytes());
        digest.write(&[0]);
    }
    Buckets::new(digests.map(|digest| digest.mixed().to_be_bytes()[0]))
}

/// The digest of a task set: the same for the same keys, on every machine and in every version (64-bit
/// FNV-1a).
fn digest<'a>(keys: impl Iterator<Item = &'a Key>) -> u64 {
    let mut digest = Digest::default();
    for key in keys {
        digest.write(key.as_str().as_bytes());
        // The zero byte is in no key.
        digest.write(&[0]);
    }
    digest.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts of four keys, and the digests of three parts of a set of two of them.
    const PARTS: [u16; 4] = [522, 441, 559, 43];
    const DIGESTS: [u8; 3] = [134, 250, 239];

    #[test]
    fn a_digest_is_the_same_in_every_version() {
        let of =
            |keys: &[&str]| digest(keys.iter().map(|key| key.parse().unwrap()).collect::<Vec<Key>>().iter());
        assert_eq!(of(&[]), 0xcbf2_9ce4_8422_2325);
        assert_eq!(of(&["a"]), 0x089b_e207_b544_f1e4);
        assert_eq!(of(&["a", "b"]), 0xab40_d782_0d40_8076);
        assert_ne!(of(&["ab"]), of(&["a", "b"]));
    }

    fn share(keys: &[String]) -> Share {
        let mut keys: Vec<Key> = keys.iter().map(|key| key.parse().unwrap()).collect();
        keys.sort();
        let mut share = Share::new("s".parse().unwrap());
        publish(&mut share, keys.iter(), StoreTime::from_millis(0));
        share
    }

    #[test]
    fn a_share_says_since_when_its_set_is_as_it_is() {
        let keys: Vec<Key> = ["a", "b"].iter().map(|key| key.parse().unwrap()).collect();
        let mut share = Share::new("s".parse().unwrap());
        let mut since = |keys: &[Key], second: i64| {
            publish(&mut share, keys.iter(), StoreTime::from_millis(second * 1000));
            share.known_since.unwrap().as_millis() / 1000
        };
        assert_eq!([since(&keys, 1), since(&keys, 2)], [1, 1]);
        assert_eq!([since(&keys[..1], 3), since(&keys[..1], 4)], [3, 3]);
        assert_eq!([since(&keys, 5), since(&[], 6), since(&[], 7)], [5, 6, 6]);
    }

    #[test]
    fn the_parts_are_the_same_in_every_version() {
        let of = |key: &str| part(&key.parse().unwrap());
        assert_eq!(["a", "b", "task-001", "task-002"].map(of), PARTS);
        let share = share(&["a".to_owned(), "b".to_owned()]);
        let buckets = share.buckets.unwrap();
        assert_eq!([buckets.digest(PARTS[0]), buckets.digest(PARTS[1]), buckets.digest(0)], DIGESTS);
        assert_eq!(Buckets::from_bytes(&buckets.to_bytes()), Some(buckets.clone()));
        assert_eq!(Buckets::from_bytes(&buckets.to_bytes()[1..]), None);
    }

    #[test]
    fn sets_that_differ_by_a_task_agree_on_all_parts_but_its_own() {
        let keys: Vec<_> = (0..1000).map(|task| format!("task-{task:04}")).collect();
        let (all, but_one) = (share(&keys), share(&keys[1..]));
        let differ: Vec<_> = (0..1024).filter(|at| !agree(&all, &but_one, *at)).collect();
        assert_eq!(differ, [part(&keys[0].parse().unwrap())]);
        // One of an earlier version says nothing of its parts.
        let earlier = Share { buckets: None, ..but_one.clone() };
        assert!((0..1024).all(|at| !agree(&all, &earlier, at) && !agree(&earlier, &all, at)));
        assert!((0..1024).all(|at| agree(&but_one, &earlier, at)), "the whole digest is enough");
        let other = Share { digest: 1, ..earlier.clone() };
        assert!(!agree(&other, &earlier, 0), "two that say nothing do not agree on it");
    }

    #[test]
    fn the_parts_are_about_as_large_as_each_other() {
        let mut sizes = [0_u32; Buckets::COUNT];
        for task in 0..102_400 {
            sizes[usize::from(part(&format!("topic-{task}").parse().unwrap()))] += 1;
        }
        let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
        assert!(*least > 60 && *most < 140, "{least} to {most}, 100 is even");
    }
}
