//! `tenure status`: the troubles, the worst first, on one screen.

use clap::Args;
use serde::Serialize;
use tenure_look::{Grade, Limits, Verdict, ago};

use crate::{
    check::{self, State},
    common::Common,
    exit::Failure,
    out,
    see::look::OpenNamespace,
};

/// Troubles that twenty lines have room for.
const SHOWN: usize = 9;

#[derive(Args, Debug)]
#[command(after_help = "\
Exits with 0 if all is well or passes by itself, 1 for a warning, 2 if something is critical, 3 if
the store cannot be read. A warning has lasted for longer than its longest pause, concerns more
than 1 % of the tasks, or does not end by itself, as the pause of a schedule.")]
pub(crate) struct Status {
    /// Show all troubles, however many lines it takes
    #[arg(long)]
    all: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    state: State,
    code: u8,
    #[serde(flatten)]
    verdict: &'a Verdict,
}

pub(crate) async fn run(common: &Common, status: Status) -> Result<u8, Failure> {
    let (verdict, all) = match read(common).await {
        Ok(read) => read,
        Err(failure) => return check::unknown(common, &failure),
    };
    let state = State::of(verdict.worst().unwrap_or(Grade::Passing));
    let document = Document { state, code: state.code(), verdict: &verdict };
    let shown = if status.all { usize::MAX } else { SHOWN - usize::from(!verdict.unread.is_empty()) };
    out::print(common, &document, || text(&verdict, shown, &all))?;
    Ok(state.code())
}

/// Returns the verdict, and the command that shows all of it.
async fn read(common: &Common) -> Result<(Verdict, String), Failure> {
    let look = OpenNamespace::open(common).await?;
    let picture = look.picture().await;
    look.close().await;
    let picture = picture?;
    Ok((picture.verdict_by(&Limits::default()), picture.command(&["status", "--all"], "")))
}

fn text(verdict: &Verdict, shown: usize, all: &str) -> String {
    let mut lines = vec![format!("{}: {}", verdict.head(), verdict.sums())];
    for one in verdict.troubles.iter().take(shown) {
        let (grade, says, command) = (one.grade.as_str(), &one.says, &one.command);
        let since = one
            .untold(verdict.now)
            .map(|since| format!(" ({})", ago(since, verdict.now)))
            .unwrap_or_default();
        lines.push(format!("{grade:<8}  {says}{since}\n          -> {command}"));
    }
    if verdict.troubles.len() > shown {
        lines.push(format!("and {} more: {all}", verdict.troubles.len() - shown));
    }
    if !verdict.unread.is_empty() {
        lines.push(verdict.unread.join(", "));
    }
    lines.join("\n") + "\n"
}
