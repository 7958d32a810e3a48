//! Reads of the store that several commands share, page by page, and how they are told.

use std::{fmt::Write, ops::Deref, time::Duration};

use serde::Serialize;
use tenure::{
    StoreError,
    model::{Key, Kind},
    store::{Cursor, LockRecord, Page, Refusal, ScheduleRecord, SessionRecord},
};
use tenure_look::Refused;

use crate::{
    common::Common,
    exit::Failure,
    out::one_line,
    place::{OpenMode, OpenStore},
    settings::{self, Settings},
};

/// Time that a person waits for one answer of the store.
pub(crate) const LIMIT: Duration = Duration::from_secs(10);
/// Records of one page.
pub(crate) const PAGE: usize = 1000;

/// A store that is open, and the namespace that is looked at.
#[derive(Debug)]
pub(crate) struct OpenNamespace {
    pub(crate) place: OpenStore,
    reads: tenure_look::Reader,
    /// The ttl of this machine's settings, for those of which no other is known.
    pub(crate) ttl: Duration,
}

/// The reads of a page.
impl Deref for OpenNamespace {
    type Target = tenure_look::Reader;

    fn deref(&self) -> &tenure_look::Reader {
        &self.reads
    }
}

impl OpenNamespace {
    /// Opens it to look.
    pub(crate) async fn open(common: &Common) -> Result<Self, Failure> {
        Self::open_for(common, OpenMode::ReadOnly).await
    }

    /// Opens it to look and to act.
    pub(crate) async fn open_to_act(common: &Common) -> Result<Self, Failure> {
        Self::open_for(common, OpenMode::Existing).await
    }

    async fn open_for(common: &Common, mode: OpenMode) -> Result<Self, Failure> {
        let settings = Settings::of(common)?;
        let place = OpenStore::open(&settings, mode).await?;
        let reads = tenure_look::Reader::new(place.store.clone(), settings.config.namespace().clone());
        let reads = reads.program(&program(common));
        Ok(Self { place, reads, ttl: settings.config.ttl() })
    }

    pub(crate) async fn close(self) {
        self.place.close().await;
    }

    /// Reads all sessions of the namespace, dead ones too.
    pub(crate) async fn all_sessions(&self) -> Result<Found<SessionRecord>, StoreError> {
        pages(usize::MAX, |_| true, async |after| self.sessions(after, PAGE).await).await
    }

    /// Reads the locks of one kind, or of all, that are wanted, up to so many.
    pub(crate) async fn all_locks(
        &self,
        kind: Option<Kind>,
        at_most: usize,
        is_wanted: impl Fn(&LockRecord) -> bool,
    ) -> Result<Found<LockRecord>, StoreError> {
        pages(at_most, is_wanted, async |after| self.lock_records(kind.clone(), after, PAGE).await).await
    }

    /// Reads which kinds of records there are of a key.
    pub(crate) async fn kinds_of(&self, key: &Key) -> Result<Vec<Kind>, StoreError> {
        let found = self.all_locks(None, usize::MAX, |record| record.id.key == *key).await?;
        Ok(found.items.into_iter().map(|record| record.id.kind).collect())
    }

    /// Reads the records of all schedules.
    pub(crate) async fn all_schedules(&self) -> Result<Found<ScheduleRecord>, StoreError> {
        pages(usize::MAX, |_| true, async |after| self.schedule_records(after, PAGE).await).await
    }
}

/// Begins the commands that are advised, so that they are on the same store.
pub(crate) fn program(common: &Common) -> String {
    format!("tenure{}", settings::options_of(common))
}

/// Reads page after page what is wanted, up to so many.
async fn pages<T>(
    at_most: usize,
    is_wanted: impl Fn(&T) -> bool,
    mut read: impl AsyncFnMut(Option<Cursor>) -> Result<Page<T>, StoreError>,
) -> Result<Found<T>, StoreError> {
    let (mut found, mut after) = (Found::default(), None);
    loop {
        let page = read(after).await?;
        found.items.extend(page.items.into_iter().filter(&is_wanted));
        found.refuse(page.refused);
        after = page.next;
        if found.items.len() > at_most {
            found.items.truncate(at_most);
            found.more = true;
            return Ok(found);
        }
        if after.is_none() {
            return Ok(found);
        }
    }
}

/// Records that were found.
#[derive(Debug, Serialize)]
pub(crate) struct Found<T> {
    pub(crate) items: Vec<T>,
    pub(crate) refused: Vec<Refused>,
    /// There are others, beyond the limit.
    pub(crate) more: bool,
}

impl<T> Default for Found<T> {
    fn default() -> Self {
        Self { items: Vec::new(), refused: Vec::new(), more: false }
    }
}

impl<T> Found<T> {
    pub(crate) fn refuse(&mut self, refused: Vec<(String, Refusal)>) {
        self.refused.extend(refused.into_iter().map(|(record, refusal)| Refused { record, refusal }));
    }

    /// All of a listing.
    pub(crate) fn of(page: Page<T>) -> Self {
        let mut found = Self { items: page.items, ..Self::default() };
        found.refuse(page.refused);
        found
    }

    /// The same with other items.
    pub(crate) fn map<U>(self, to: impl FnMut(T) -> U) -> Found<U> {
        let Self { items, refused, more } = self;
        Found { items: items.into_iter().map(to).collect(), refused, more }
    }

    /// Returns a listing as people read it: a table, or that there is nothing, and the notes below.
    pub(crate) fn text(
        &self,
        look: &OpenNamespace,
        nothing: &str,
        table: impl FnOnce(&[T]) -> String,
    ) -> String {
        let namespace = one_line(look.namespace().as_str());
        let text = match &self.items[..] {
            [] => format!("{nothing} in namespace {namespace} of {}.\n", look.place.name),
            items => table(items),
        };
        text + &self.notes()
    }

    /// Returns the notes below a table: the records that cannot be read, and whether there are more.
    pub(crate) fn notes(&self) -> String {
        let mut text = String::new();
        for Refused { record, refusal } in &self.refused {
            let _ = writeln!(text, "{}: {}", one_line(record), one_line(&refusal.to_string()));
        }
        if self.more {
            let _ = writeln!(text, "There are more: --limit shows them.");
        }
        text
    }
}

/// A text as it was said, or a dash.
pub(crate) fn said(text: Option<&impl ToString>) -> String {
    text.map_or_else(|| "-".to_owned(), |text| one_line(&text.to_string()))
}
