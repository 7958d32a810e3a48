//! The methods of the contract, each as the commands that carry it out.

#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod bare;
pub(crate) mod batch;
pub(crate) mod locks;
pub(crate) mod pages;
pub(crate) mod purge;
pub(crate) mod queue;
pub(crate) mod release;
pub(crate) mod restored;
pub(crate) mod revoke;
pub(crate) mod runs;
pub(crate) mod schedules;
pub(crate) mod sessions;
pub(crate) mod steps;
pub(crate) mod take;
