//! `tenure top`: the namespace on a terminal, live. It reads what `tenure ui` reads, and no more however fast keys
//! are hit.

mod details;
mod draw;
mod list;
mod machine;
#[cfg(test)]
mod scene;
mod terminal;
mod text;
mod views;

use std::{
    io::{self, IsTerminal},
    time::{Duration, Instant},
};

use clap::Args;
use crossterm::event::EventStream;
use futures::{
    FutureExt, StreamExt,
    future::{BoxFuture, Fuse},
};
use tenure::{StoreError, model::Value};
use tenure_look::{LivePicture, Reader};
use tokio::{
    signal::unix::{SignalKind, signal},
    time::sleep,
};

use self::{
    list::Subject,
    machine::{Event, State, Step},
    terminal::{Input, Screen, said},
    views::View,
};
use super::{history, look::OpenNamespace, show};
use crate::{
    common::{Common, Form},
    exit::Failure,
    out, signals,
};

/// Time after which what one looks at is read again, at the soonest.
const FRESH: Duration = Duration::from_secs(1);
/// Runs of a ledger that are read.
const RUNS: usize = 100;
/// Columns of what goes into a file.
const COLUMNS: u16 = 200;

/// Show instances, spreads, locks, schedules and the last hour on a terminal, live
///
/// It costs the store about as much as an idle instance. The key ? shows what the columns mean, and the keys.
#[derive(Args, Debug)]
pub(crate) struct Top {
    /// View to show first
    #[arg(long, value_enum, default_value_t = View::Instances, value_name = "VIEW")]
    view: View,

    /// Show only rows with this text
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    filter: String,

    /// Print the view once and end; with --output json, the namespace at a glance
    #[arg(long)]
    once: bool,
}

pub(crate) async fn run(common: &Common, top: Top) -> Result<u8, Failure> {
    if !top.once && common.output == Form::Json {
        return Err(Failure::usage("--output json is one document: it needs --once"));
    }
    if !top.once && !io::stdout().is_terminal() {
        return Err(Failure::usage("standard output is not a terminal: add --once to print the view once"));
    }
    let ends = ends()?;
    let look = OpenNamespace::open(common).await?;
    let state = State::new(&look.place.name, top.view, &top.filter);
    let pictures = LivePicture::new((*look).clone());
    let ran = if top.once {
        once(common, state, &look).await
    } else {
        tokio::select! {
            () = ends => Ok(()),
            ran = follow(state, &pictures, out::colours(common)) => ran,
        }
    };
    look.close().await;
    ran.map(|()| 0)
}

/// Waits for a signal that ends the program: a terminal that goes says so by one, too.
fn ends() -> Result<BoxFuture<'static, ()>, Failure> {
    let ended = signals::ended()?;
    let mut hang_up = signal(SignalKind::hangup())
        .map_err(|error| Failure::failed(format!("cannot install signal handlers: {error}")))?;
    Ok(async move {
        tokio::select! {
            () = ended => {}
            _ = hang_up.recv() => {}
        }
    }
    .boxed())
}

/// Follows the namespace until the user quits.
async fn follow(mut state: State, pictures: &LivePicture, colours: bool) -> Result<(), Failure> {
    let gone = |error: io::Error| Failure::failed(format!("the terminal cannot be used: {error}"));
    let mut screen = Screen::open(colours).map_err(gone)?;
    let (columns, rows) = screen.size().map_err(gone)?;
    state.step(Event::Size(columns, rows));
    let mut came = EventStream::new();
    let mut followed = pictures.follow();
    // The last one: only what is looked at now is wanted.
    let mut reading: Fuse<BoxFuture<'_, Event>> = Fuse::terminated();
    let mut read_at: Option<Instant> = None;
    screen.draw(&state).map_err(gone)?;
    loop {
        let event = tokio::select! {
            read = followed.next() => read.map_or_else(Event::NotLoaded, Event::Picture),
            read = &mut reading => read,
            next = came.next() => match next.transpose().map_err(gone)?.as_ref().map(said) {
                None => return Ok(()),
                Some(Input::Event(event)) => event,
                Some(Input::Redraw) => {
                    screen.redraw(&state).map_err(gone)?;
                    continue;
                }
                Some(Input::Suspend) => {
                    screen.suspend(&state).map_err(gone)?;
                    continue;
                }
                Some(Input::Nothing) => continue,
            },
        };
        match state.step(event) {
            Step::Quit => return Ok(()),
            Step::Draw => {}
            Step::Ask(subject) => {
                let now = Instant::now();
                let at = next_read(read_at, now);
                read_at = Some(at);
                let look = pictures.reader();
                let later = async move {
                    sleep(at - now).await;
                    let text = read(look, &subject).await.map_err(|error| error.to_string());
                    Event::Read(subject, text)
                };
                reading = later.boxed().fuse();
            }
        }
        screen.draw(&state).map_err(gone)?;
    }
}

/// Time at which to read what the user wants to see: pictures and keys come several times a second. One that was to
/// be read later is read in place of another.
fn next_read(last: Option<Instant>, now: Instant) -> Instant {
    match last {
        Some(later) if later > now => later,
        Some(at) => now.max(at + FRESH),
        None => now,
    }
}

/// Reads the text of a command about this. A picture has no queues of tasks, and no whole ledger.
async fn read(look: &Reader, subject: &Subject) -> Result<String, StoreError> {
    match subject {
        Subject::Key(id) => {
            let mut shown = look.key(id.clone()).await?;
            if let Some(held) = shown.record.as_mut().and_then(|record| record.holding.as_mut()) {
                // Values may be secrets, and a screen stays open.
                let size = held.by.value.as_ref().map(|value| value.as_bytes().len());
                held.by.value =
                    size.and_then(|size| Value::new(format!("{size} bytes: `tenure show` prints it")).ok());
            }
            Ok(show::text(&shown, &[]))
        }
        Subject::Schedule(id) => Ok(history::table(&history::read(look, id.clone(), RUNS).await?)),
        Subject::Instance(_) | Subject::Spread(_) | Subject::Change(_) => Ok(String::new()),
    }
}

/// Prints a view, or the namespace at a glance.
async fn once(common: &Common, mut state: State, look: &OpenNamespace) -> Result<(), Failure> {
    let picture = look.picture().await?;
    let columns = crossterm::terminal::size().ok().filter(|_| io::stdout().is_terminal());
    state.step(Event::Size(columns.map_or(COLUMNS, |(columns, _)| columns), u16::MAX));
    let overview = picture.overview();
    state.step(Event::Picture(picture.into()));
    out::print(common, &overview, || draw::text(&state))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_are_read_once_a_second_however_fast_keys_are_hit() {
        let begun = Instant::now();
        let (mut last, mut reads) = (None, std::collections::BTreeSet::new());
        for key in 0..300 {
            let at = next_read(last, begun + Duration::from_millis(10) * key);
            reads.insert(at - begun);
            last = Some(at);
        }
        let seconds: Vec<_> = reads.iter().map(Duration::as_secs).collect();
        assert_eq!(seconds, [0, 1, 2, 3], "{reads:?}");
    }
}
