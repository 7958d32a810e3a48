//! The board of a store: what the listeners are told, and the buckets that cannot be tailed at present. A listener to
//! those looks at the next poll.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
};

use tokio::sync::broadcast;

use super::buckets::Bucket;
use crate::{
    store::{Bell, Hint, Topic, hints::Told, mongo::client::error::CommandFailure},
    sync::locked,
};

/// The number of hints a slow listener may lag behind before it gets a [resync](Hint::Resync).
const HINTS_KEPT: usize = 4096;

/// Why a bucket is silent.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) error: String,
    /// True if an operator has to change something first.
    pub(crate) lasting: bool,
}

/// Buckets that are silent, and why.
pub(crate) type Silent = BTreeMap<Bucket, Failure>;

impl Failure {
    pub(crate) fn unheard(self) -> Hint {
        Hint::Failing { error: self.error, lasting: self.lasting }
    }

    pub(crate) fn unsent(self) -> Hint {
        Hint::Unsent { error: self.error, lasting: self.lasting }
    }
}

impl From<CommandFailure> for Failure {
    fn from(failure: CommandFailure) -> Self {
        let lasting = failure.is_lasting() || failure.is_of_the_command();
        Self { error: failure.into_words(), lasting }
    }
}

/// Notice to the listeners of a handle. Each takes what concerns it.
#[derive(Clone)]
pub(crate) enum Notice {
    Bell(Bell),
    /// Open anew: changes from here on are told.
    Opened(Bucket),
    Deaf(Bucket, Failure),
}

pub(crate) struct Board {
    listeners: broadcast::Sender<Notice>,
    deaf: Mutex<Silent>,
}

impl Default for Board {
    fn default() -> Self {
        let listeners = broadcast::Sender::new(HINTS_KEPT);
        Self { listeners, deaf: Mutex::default() }
    }
}

impl Board {
    pub(crate) fn listen(&self) -> broadcast::Receiver<Notice> {
        self.listeners.subscribe()
    }

    pub(crate) fn rung(&self, bell: Bell) {
        self.tell(Notice::Bell(bell));
    }

    pub(crate) fn opened(&self, bucket: Bucket) {
        self.left(bucket);
        self.tell(Notice::Opened(bucket));
    }

    pub(crate) fn deaf(&self, bucket: Bucket, failure: Failure) {
        locked(&self.deaf).insert(bucket, failure.clone());
        self.tell(Notice::Deaf(bucket, failure));
    }

    /// Forgets a bucket that has no listeners any more.
    pub(crate) fn left(&self, bucket: Bucket) {
        locked(&self.deaf).remove(&bucket);
    }

    /// Returns why some of these topics are not heard of, if so.
    pub(crate) fn why_deaf(&self, topics: &BTreeSet<Topic>) -> Option<Failure> {
        let deaf = locked(&self.deaf);
        deaf.iter().find(|(bucket, _)| bucket.concerns(topics)).map(|(_, why)| why.clone())
    }

    fn tell(&self, told: Notice) {
        // An error only says that there is no listener.
        let _ = self.listeners.send(told);
    }
}

impl Told for Notice {
    fn hint(self, topics: &BTreeSet<Topic>) -> Option<Hint> {
        match self {
            Self::Bell(bell) => bell.hint(topics),
            Self::Opened(bucket) => bucket.concerns(topics).then_some(Hint::Resync),
            Self::Deaf(bucket, failure) => bucket.concerns(topics).then(|| failure.unheard()),
        }
    }
}
