//! Actions: each with a reason, by a form of this page.

use std::sync::Arc;

use axum::{
    Extension, Form, Json,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use maud::{Markup, html};
use serde::{Deserialize, Serialize};
use tenure::{
    model::{
        Holder, Key, Kind, LockId, Namespace, ScheduleId, ScheduleName, SessionId, SpreadName, Term, Why,
    },
    store::{News, ScheduleRecord, ScheduleSeen},
};
use tenure_look::{NotDone, Operator, one_line};

use crate::{
    Shared,
    access::Visitor,
    address::Base,
    answer::{self, Problem, RenderContext},
    page,
    tokens::{random, same},
};

/// Token that proves a form to be of this page: another site cannot read it.
#[derive(Debug)]
pub(crate) struct Csrf(String);

impl Csrf {
    pub(crate) fn new() -> Self {
        Self(random())
    }

    pub(crate) fn token(&self) -> &str {
        &self.0
    }
}

/// Action that a form asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verb {
    Pause,
    Resume,
    Run,
    Drain,
    Undrain,
    PutBack,
    Release,
}

impl Verb {
    const fn path(self) -> &'static str {
        match self {
            Self::Pause => "/act/pause",
            Self::Resume => "/act/resume",
            Self::Run => "/act/run",
            Self::Drain => "/act/drain",
            Self::Undrain => "/act/undrain",
            Self::PutBack => "/act/put-back",
            Self::Release => "/act/release",
        }
    }

    /// Returns the text of the button, and a description of its effect.
    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Pause => {
                ("Pause", "None of its ticks is run until it is resumed. A run in progress continues.")
            }
            Self::Resume => (
                "Resume",
                "Its ticks are run again. Ticks within the pause are not run later. The reason goes into the log alone.",
            ),
            Self::Run => ("Run now", "It is run once besides its ticks, by the instance that owns it."),
            Self::Drain => (
                "Drain",
                "It gives its tasks and schedules to other instances, one after the other, and takes none.",
            ),
            Self::Undrain => ("Undrain", "It accepts tasks again."),
            Self::PutBack => ("Put back", "It is tried again at once. The reason goes into the log alone."),
            Self::Release => ("Release", "Its holder is asked to release it: its job is asked to stop."),
        }
    }
}

/// The fields of a form.
#[derive(Debug, Deserialize)]
pub(crate) struct Fields {
    csrf: String,
    #[serde(default)]
    why: String,
    #[serde(default)]
    back: String,
    name: Option<String>,
    session: Option<String>,
    kind: Option<String>,
    key: Option<String>,
    term: Option<String>,
    /// State for which the form was opened: another one is not meant.
    seen: Option<String>,
}

/// A button that names whom it concerns and asks for a reason first; nothing where nothing may be done.
pub(crate) fn form(context: &RenderContext, verb: Verb, whom: &str, fields: &[(&str, &str)]) -> Markup {
    let (word, does) = verb.words();
    let whom = one_line(whom);
    let button = match verb {
        Verb::Release => format!("Ask {whom} to release"),
        Verb::PutBack => format!("Put {whom} back"),
        Verb::Run => format!("Run {whom} now"),
        _ => format!("{word} {whom}"),
    };
    html! {
        @if let Some(csrf) = &context.may_act {
            details.act id=(format!("act-{}", verb.path().trim_start_matches("/act/"))) {
                summary { (word) }
                form method="post" action=(context.base.link(verb.path(), &[])) {
                    p { (does) }
                    input type="hidden" name="csrf" value=(csrf);
                    input type="hidden" name="back" value=(context.here);
                    @for (name, value) in fields { input type="hidden" name=(name) value=(value); }
                    p {
                        label { "Why " input name="why" maxlength="500" required autocomplete="off"; } " "
                        button { (button) }
                    }
                    p.changed role="alert" {}
                }
            }
        }
    }
}

/// Returns the state of a schedule that its forms are opened for.
pub(crate) fn state_of(schedule: &ScheduleRecord) -> String {
    match schedule.pause.as_ref().filter(|pause| pause.is_on()) {
        Some(pause) => format!("paused by {} since {}", one_line(pause.by.as_str()), pause.since),
        None => "not paused".to_owned(),
    }
}

/// Refuses what was meant for another state than there is now. Of a key, the term says it.
async fn unchanged(shared: &Shared, verb: Verb, fields: &Fields) -> Result<(), Problem> {
    let (reader, mut now) = (shared.ui.pictures.reader(), None);
    if let (Some(seen), Some(name)) = (&fields.seen, &fields.name) {
        let name = ScheduleName::new(name).map_err(Problem::bad)?;
        let id = ScheduleId { namespace: reader.namespace().clone(), name };
        if let Some(ScheduleSeen::Found(record)) = reader.seen_schedules(&[id]).await?.pop() {
            now = Some(state_of(&record)).filter(|now| now != seen);
        }
    } else if matches!(verb, Verb::Drain | Verb::Undrain) {
        let session = fields.session()?;
        let lives = reader.observe([session]).await?;
        let shares = lives.record(session).map(|record| &record.shares[..]).unwrap_or_default();
        let drains = !shares.is_empty() && shares.iter().all(|share| share.draining);
        now = (drains == (verb == Verb::Drain))
            .then(|| if drains { "draining" } else { "not draining" }.to_owned());
    }
    let says = now.map(|now| format!("it changed while you wrote: it is {now} now"));
    says.map_or(Ok(()), |says| Err(Problem::new(StatusCode::CONFLICT, says)))
}

pub(crate) async fn act(
    State(shared): State<Arc<Shared>>,
    Extension(base): Extension<Base>,
    headers: HeaderMap,
    Path(verb): Path<String>,
    fields: Result<Form<Fields>, axum::extract::rejection::FormRejection>,
) -> Response {
    let wanted = answer::Form::wanted(&headers);
    let done = async {
        let verb: Verb = serde_json::from_value(serde_json::Value::String(verb.clone()))
            .map_err(|_| Problem::not_found(format!("there is no action {verb:?}")))?;
        let Form(fields) = fields.map_err(|error| Problem::bad(error.body_text()))?;
        let by = allowed(&shared, &base.1, &fields)?;
        // A caller who hangs up drops this answer, and not the action: it is done whole, and logged.
        let done = shared.ui.begun.spawn(perform(shared.clone(), verb, by, fields)).await;
        done.unwrap_or_else(|error| Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())))
    };
    match done.await {
        Err(problem) => problem.answer(wanted, &base),
        Ok((said, _)) if wanted == answer::Form::Json => {
            Json(serde_json::json!({ "done": true, "said": said })).into_response()
        }
        Ok((said, back)) => page::done(&base, &said, &back).into_response(),
    }
}

/// Acts. Returns a sentence, and the way back.
async fn perform(
    shared: Arc<Shared>,
    verb: Verb,
    by: Holder,
    fields: Fields,
) -> Result<(String, String), Problem> {
    unchanged(&shared, verb, &fields).await?;
    let operator = shared.ui.pictures.reader().operator(by);
    let (said, news) = act_as(&operator, verb, &fields, &reason(&fields.why)?).await?;
    // The next screen shows it.
    shared.ui.pictures.notice(news);
    shared.cache.clear().await;
    shared.drawn.clear().await;
    Ok((said, fields.back))
}

/// Returns the name to record, if the visitor may act and the form is of this page.
fn allowed(shared: &Shared, visitor: &Visitor, fields: &Fields) -> Result<Holder, Problem> {
    let forbidden = |why: &str| Problem::new(StatusCode::FORBIDDEN, why);
    let Some(operator) = &shared.ui.actions else {
        return Err(forbidden("nothing may be changed here: actions are not allowed"));
    };
    if !visitor.may_act {
        return Err(forbidden("you may look, but not act"));
    }
    if !same(&fields.csrf, shared.csrf.token()) {
        return Err(forbidden(
            "this form is not from this page, or is from before its last start: load the page again",
        ));
    }
    Ok(visitor.name.as_ref().unwrap_or(operator).clone())
}

fn reason(why: &str) -> Result<Why, Problem> {
    let why = why.split_whitespace().collect::<Vec<_>>().join(" ");
    if why.is_empty() {
        return Err(Problem::bad("the reason is missing: write why, for others to read"));
    }
    Why::new(&why).map_err(|error| Problem::bad(format!("why: {error}")))
}

fn field<'a>(value: Option<&'a String>, name: &str) -> Result<&'a str, Problem> {
    value.map(String::as_str).ok_or_else(|| Problem::bad(format!("the form has no field {name}")))
}

/// Acts. Returns a sentence, and the record that shows the effect.
async fn act_as(
    operator: &Operator,
    verb: Verb,
    fields: &Fields,
    why: &Why,
) -> Result<(String, News), Problem> {
    let news = |name| News::Schedule(ScheduleId { namespace: operator.namespace().clone(), name });
    Ok(match verb {
        Verb::Pause => {
            let name = fields.schedule()?;
            operator.pause(&name, why).await?;
            (format!("{:?} is paused.", name.as_str()), news(name))
        }
        Verb::Resume => {
            let name = fields.schedule()?;
            operator.resume(&name, why).await?;
            (format!("{:?} is resumed.", name.as_str()), news(name))
        }
        Verb::Run => {
            let name = fields.schedule()?;
            let at = operator.run(&name, why).await?;
            (format!("{:?} was asked to run, as {at} in its history.", name.as_str()), news(name))
        }
        Verb::Drain => {
            let session = fields.session()?;
            let name = operator.drain(session, why).await?;
            (format!("{name} was asked to give its tasks away."), News::Asked(session))
        }
        Verb::Undrain => {
            let session = fields.session()?;
            (format!("{} accepts tasks again.", operator.undrain(session, why).await?), News::Asked(session))
        }
        Verb::PutBack => {
            let (lock, term) = fields.lock(operator.namespace())?;
            operator.put_back(&lock, term, why).await?;
            (format!("{:?} is tried again.", lock.key.as_str()), News::Revoked(lock))
        }
        Verb::Release => {
            let (lock, term) = fields.lock(operator.namespace())?;
            let holder = operator.release(&lock, term, why).await?;
            (format!("{holder} was asked to release {:?}.", lock.key.as_str()), News::Lock(lock))
        }
    })
}

impl Fields {
    fn schedule(&self) -> Result<ScheduleName, Problem> {
        ScheduleName::new(field(self.name.as_ref(), "name")?).map_err(Problem::bad)
    }

    fn session(&self) -> Result<SessionId, Problem> {
        field(self.session.as_ref(), "session")?.parse().map_err(Problem::bad)
    }

    /// Returns the key of the form, and the term that its reader saw: a later one is not meant.
    fn lock(&self, namespace: &Namespace) -> Result<(LockId, Term), Problem> {
        let kind = kind_of(field(self.kind.as_ref(), "kind")?)?;
        let key = Key::new(field(self.key.as_ref(), "key")?).map_err(Problem::bad)?;
        let term = field(self.term.as_ref(), "term")?;
        let not = || Problem::bad(format!("the term {:?} is not a number from 1 on", one_line(term)));
        let term = term.parse().ok().and_then(Term::try_new).ok_or_else(not)?;
        Ok((LockId { namespace: namespace.clone(), kind, key }, term))
    }
}

impl From<NotDone> for Problem {
    fn from(not_done: NotDone) -> Self {
        match not_done {
            NotDone::Store(error) => error.into(),
            NotDone::Unknown(_) => Self::not_found(not_done.to_string()),
            NotDone::Changed(_) => {
                Self::new(StatusCode::CONFLICT, format!("{not_done}: load the page again"))
            }
            _ => Self::new(StatusCode::CONFLICT, not_done.to_string()),
        }
    }
}

/// A kind as an address names it: `lock`, `schedule`, or `task:SPREAD`.
pub(crate) fn kind_of(text: &str) -> Result<Kind, Problem> {
    match text {
        "lock" => Ok(Kind::Lock),
        "schedule" => Ok(Kind::Schedule),
        _ => match text.strip_prefix("task:") {
            Some(spread) => {
                SpreadName::new(spread).map(|spread| Kind::of_tasks(&spread)).map_err(Problem::bad)
            }
            None => Err(Problem::bad(format!(
                "{:?} is not a kind: write lock, schedule or task:SPREAD",
                one_line(text)
            ))),
        },
    }
}
