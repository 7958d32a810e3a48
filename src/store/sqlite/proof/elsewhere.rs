//! Systems on which no death is proven: the ttl counts.

use std::{io, path::Path, sync::Arc};

use super::Identity;
use crate::{
    model::SessionId,
    store::{Presence, sqlite::file::Sharing},
};

/// There are none.
#[derive(Debug)]
pub(crate) enum SessionFiles {}

impl SessionFiles {
    #[expect(clippy::unnecessary_wraps, reason = "elsewhere it may fail")]
    pub(crate) fn open(_: &Path, _: Sharing) -> io::Result<Option<Self>> {
        Ok(None)
    }

    pub(crate) fn path(&self) -> &Path {
        match *self {}
    }

    pub(crate) fn presence(&self, _: SessionId) -> io::Result<Presence> {
        match *self {}
    }

    pub(crate) fn is_anybody_there(&self) -> io::Result<bool> {
        match *self {}
    }

    pub(crate) fn identity(&self, _: SessionId) -> Option<Identity> {
        match *self {}
    }

    pub(crate) fn remove(&self, _: SessionId) {
        match *self {}
    }

    pub(crate) fn prove(&self, _: SessionId, _: &Identity) -> Result<(), ()> {
        match *self {}
    }
}

/// A listener that never exists.
#[derive(Debug)]
pub(crate) enum Listener {}

impl Listener {
    pub(crate) fn start<R>(files: Arc<SessionFiles>, _: R) -> io::Result<Self> {
        match *files {}
    }

    pub(crate) fn end(self) {
        match self {}
    }
}
