//! Tickets for keys: settings and outcome.

use std::{sync::Arc, time::Duration};

use super::{hold::Hold, parcel::Parcel};
use crate::{
    logic::key::TicketOutcome,
    model::{Value, Who, Why},
};

/// Outcome of a ticket, with the lock itself if it was granted.
#[derive(Debug)]
pub(crate) enum AcquireOutcome {
    Granted(Hold),
    Other(TicketOutcome),
}

/// The same on its way to its caller.
#[derive(Debug)]
pub(super) enum Delivery {
    Granted(Arc<Parcel<Hold>>),
    Other(TicketOutcome),
}

/// Settings of a ticket besides the key.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wants {
    pub(crate) who: Option<Who>,
    pub(crate) why: Option<Why>,
    pub(crate) value: Option<Value>,
    pub(crate) lock_delay: Duration,
    pub(crate) at_least: Duration,
    pub(crate) timeout: Option<Duration>,
}
