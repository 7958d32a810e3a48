//! Systems on which no death is proven: the ttl counts.

use std::{io, path::Path, sync::Arc};

use super::Identity;
use crate::{model::SessionId, store::Presence};

/// There are none.
#[derive(Debug)]
pub(in crate::store::sqlite) enum SessionFiles {}

impl SessionFiles {
    #[expect(clippy::unnecessary_wraps, reason = "elsewhere it may fail")]
    pub(in crate::store::sqlite) fn open(_: &Path, _: u32) -> io::Result<Option<Self>> {
        Ok(None)
    }

    pub(in crate::store::sqlite) fn presence(&self, _: SessionId) -> io::Result<Presence> {
        match *self {}
    }

    pub(in crate::store::sqlite) fn is_anybody_there(&self) -> io::Result<bool> {
        match *self {}
    }

    pub(in crate::store::sqlite) fn identity(&self, _: SessionId) -> Option<Identity> {
        match *self {}
    }

    pub(in crate::store::sqlite) fn prove(&self, _: SessionId, _: &Identity) -> Result<(), ()> {
        match *self {}
    }
}

/// A listener that never exists.
#[derive(Debug)]
pub(in crate::store::sqlite) enum Listener {}

impl Listener {
    pub(in crate::store::sqlite) fn start<R>(files: Arc<SessionFiles>, _: R) -> io::Result<Self> {
        match *files {}
    }

    pub(in crate::store::sqlite) fn end(self) {
        match self {}
    }
}
