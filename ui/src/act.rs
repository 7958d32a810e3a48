//! Actions: each with a reason, by a form of this page.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension, Form, Json,
    extract::{Path, State},
    http::{HeaderMap, HeaderName, StatusCode, header},
    response::{IntoResponse, Response},
};
use maud::{Markup, html};
use serde::{Deserialize, Serialize};
use tenure::{
    elect,
    model::{
        Holder, Key, Kind, LockId, Request, RunNow, ScheduleId, ScheduleName, SessionId, SessionRecord,
        SpreadName, Term, Why,
    },
    picture::one_line,
    store::{Instruction, LockSeen, News, Refusal, Revocation, RevokeAnswer, ScheduleSeen},
};

use crate::{
    Shared,
    access::{Visitor, random, same},
    address::Base,
    answer::{self, Around, Problem},
    page,
};

/// Time that an action may take.
const LIMIT: Duration = Duration::from_secs(10);

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
            Self::Pause => ("Pause", "No tick of it is run until it is resumed. A run that is on goes on."),
            Self::Resume => (
                "Resume",
                "Its ticks are run again. Those within the pause are not made up for. Why goes into the log alone.",
            ),
            Self::Run => ("Run now", "It is run once besides its ticks, by whoever has it."),
            Self::Drain => {
                ("Drain", "It gives its tasks and schedules to others, one after the other, and takes none.")
            }
            Self::Undrain => ("Undrain", "It accepts tasks again."),
            Self::PutBack => ("Put back", "It is tried again at once. Why goes into the log alone."),
            Self::Release => ("Release", "Its holder is asked to give it back: its job is told to stop."),
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
}

/// A button that asks for a reason first; nothing where nothing may be done.
pub(crate) fn form(around: &Around, verb: Verb, fields: &[(&str, &str)]) -> Markup {
    let (word, does) = verb.words();
    html! {
        @if let Some(csrf) = &around.may_act {
            details.act id=(format!("act-{}", verb.path().trim_start_matches("/act/"))) {
                summary { (word) }
                form method="post" action=(around.base.link(verb.path(), &[])) {
                    p { (does) }
                    input type="hidden" name="csrf" value=(csrf);
                    input type="hidden" name="back" value=(around.here);
                    @for (name, value) in fields { input type="hidden" name=(name) value=(value); }
                    p {
                        label { "Why " input name="why" maxlength="500" required autocomplete="off"; } " "
                        button { (word) }
                    }
                }
            }
        }
    }
}

pub(crate) async fn act(
    State(shared): State<Arc<Shared>>,
    Extension(base): Extension<Base>,
    Extension(visitor): Extension<Visitor>,
    headers: HeaderMap,
    Path(verb): Path<String>,
    fields: Result<Form<Fields>, axum::extract::rejection::FormRejection>,
) -> Response {
    let wanted = answer::Form::wanted(&headers);
    let done = async {
        let verb: Verb = serde_json::from_value(serde_json::Value::String(verb.clone()))
            .map_err(|_| Problem::not_found(format!("there is no action {verb:?}")))?;
        let Form(fields) = fields.map_err(|error| Problem::bad(error.body_text()))?;
        let by = allowed(&shared, visitor, &headers, &fields)?;
        let operator = Operator { shared: &shared, by, why: reason(&fields.why)? };
        let (said, news) = operator.act(verb, &fields).await?;
        // The next screen shows it.
        shared.ui.pictures.notice(news);
        shared.cache.clear().await;
        tracing::info!(by = operator.by.as_str(), why = operator.why.as_str(), "{said}");
        Ok::<_, Problem>((said, fields.back))
    };
    match done.await {
        Err(problem) => problem.answer(wanted, &base),
        Ok((said, _)) if wanted == answer::Form::Json => {
            Json(serde_json::json!({ "done": true, "said": said })).into_response()
        }
        Ok((said, back)) => page::done(&base, &said, &back).into_response(),
    }
}

/// Returns the name to record, if the visitor may act and the form is of this page.
fn allowed(
    shared: &Shared,
    visitor: Visitor,
    headers: &HeaderMap,
    fields: &Fields,
) -> Result<Holder, Problem> {
    let forbidden = |why: &str| Problem::new(StatusCode::FORBIDDEN, why);
    let Some(operator) = &shared.ui.actions else {
        return Err(forbidden("nothing may be changed here: actions are not allowed"));
    };
    if !same(&fields.csrf, shared.csrf.token()) {
        return Err(forbidden("this form is not of this page, or of its last start: load the page again"));
    }
    if is_foreign(headers) {
        return Err(forbidden("this form comes from another site"));
    }
    Ok(visitor.name.unwrap_or_else(|| operator.clone()))
}

/// A browser says that a form is not of this page. Behind a proxy, only its first word for that is to be relied upon.
fn is_foreign(headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    match (text(HeaderName::from_static("sec-fetch-site")), text(header::ORIGIN), text(header::HOST)) {
        (Some(site), ..) => site != "same-origin",
        (None, Some(origin), Some(host)) => origin.split_once("://").map(|(_, origin)| origin) != Some(host),
        (None, ..) => false,
    }
}

fn reason(why: &str) -> Result<Why, Problem> {
    let why = why.trim();
    if why.is_empty() {
        return Err(Problem::bad("say why: others want to know"));
    }
    Why::new(why).map_err(|error| Problem::bad(format!("why: {error}")))
}

/// Returns a conflict: the state is not as the form had it.
fn conflict(says: String) -> Problem {
    Problem::new(StatusCode::CONFLICT, says)
}

fn refused(what: &str, name: &str, refusal: &Refusal) -> Problem {
    conflict(format!("the record of {what} {name:?} cannot be used: {refusal}"))
}

struct Operator<'a> {
    shared: &'a Shared,
    by: Holder,
    why: Why,
}

fn field<'a>(value: Option<&'a String>, name: &str) -> Result<&'a str, Problem> {
    value.map(String::as_str).ok_or_else(|| Problem::bad(format!("the form has no field {name}")))
}

impl Operator<'_> {
    /// Does it. Returns what was done in a sentence, and where that is seen.
    async fn act(&self, verb: Verb, fields: &Fields) -> Result<(String, News), Problem> {
        match verb {
            Verb::Pause => {
                let pause = Instruction::Pause { by: self.by.clone(), why: self.why.clone() };
                let (name, news) = self.instruct(fields, pause).await?;
                Ok((format!("{name:?} is paused."), news))
            }
            Verb::Resume => {
                let (name, news) = self.instruct(fields, Instruction::Resume).await?;
                Ok((format!("{name:?} is resumed."), news))
            }
            Verb::Run => {
                let at = self.shared.ui.pictures.look().now_beside([]);
                let order = RunNow { at, by: self.by.clone(), why: self.why.clone() };
                let (name, news) = self.instruct(fields, Instruction::Run(order)).await?;
                Ok((format!("{name:?} was told to run, as {at} in its history."), news))
            }
            Verb::Drain => self.drain(fields, true).await,
            Verb::Undrain => self.drain(fields, false).await,
            Verb::PutBack => self.put_back(fields).await,
            Verb::Release => self.release(fields).await,
        }
    }

    async fn instruct(&self, fields: &Fields, instruction: Instruction) -> Result<(String, News), Problem> {
        let look = self.shared.ui.pictures.look();
        let name = ScheduleName::new(field(fields.name.as_ref(), "name")?).map_err(Problem::bad)?;
        let id = ScheduleId { namespace: look.namespace().clone(), name };
        // Of one that is not known nobody would notice that it was mistyped.
        match look.seen_schedules(std::slice::from_ref(&id)).await?.pop() {
            Some(ScheduleSeen::Found(_)) => {}
            Some(ScheduleSeen::Refused(refusal)) => {
                return Err(refused("schedule", id.name.as_str(), &refusal));
            }
            Some(ScheduleSeen::Absent) | None => {
                return Err(Problem::not_found(format!("there is no schedule {:?}", id.name.as_str())));
            }
        }
        match look.store().instruct(id.clone(), instruction, LIMIT).await? {
            ScheduleSeen::Refused(refusal) => Err(refused("schedule", id.name.as_str(), &refusal)),
            ScheduleSeen::Found(_) | ScheduleSeen::Absent => Ok((id.name.to_string(), News::Schedule(id))),
        }
    }

    async fn drain(&self, fields: &Fields, drained: bool) -> Result<(String, News), Problem> {
        let look = self.shared.ui.pictures.look();
        let session: SessionId = field(fields.session.as_ref(), "session")?.parse().map_err(Problem::bad)?;
        let lives = look.observe([session]).await?;
        let gone = || conflict(format!("no instance of session {session} beats in this namespace any more"));
        let ours = |record: &&SessionRecord| record.is_alive() && record.about.namespace == *look.namespace();
        let record = lives.record(session).filter(ours).ok_or_else(gone)?;
        let (store, by, why) = (&**look.store(), self.by.clone(), self.why.clone());
        let asked = if drained {
            elect::drain(store, record, by, why, LIMIT).await?
        } else {
            elect::undrain(store, record, by, why, LIMIT).await?
        };
        let name = &record.about.holder;
        match asked {
            RevokeAnswer::Refused(refusal) => Err(refused("instance", name.as_str(), &refusal)),
            RevokeAnswer::NotHeld => Err(gone()),
            _ if drained => Ok((format!("{name} was asked to give its tasks away."), News::Asked(session))),
            _ => Ok((format!("{name} accepts tasks again."), News::Asked(session))),
        }
    }

    fn lock(&self, fields: &Fields) -> Result<(LockId, Term), Problem> {
        let kind = kind_of(field(fields.kind.as_ref(), "kind")?)?;
        let key = Key::new(field(fields.key.as_ref(), "key")?).map_err(Problem::bad)?;
        let term = field(fields.term.as_ref(), "term")?;
        let not = || Problem::bad(format!("the term {:?} is no number from 1 on", one_line(term)));
        let term = term.parse().ok().and_then(Term::try_new).ok_or_else(not)?;
        Ok((LockId { namespace: self.shared.ui.pictures.look().namespace().clone(), kind, key }, term))
    }

    fn request(&self, lock: LockId, term: Term) -> Request {
        Request { lock, term, by: self.by.clone(), why: self.why.clone() }
    }

    /// The term in the form says what was seen: what has changed hands since is not meant.
    async fn put_back(&self, fields: &Fields) -> Result<(String, News), Problem> {
        let (lock, term) = self.lock(fields)?;
        let key = lock.key.clone();
        match self.revoke(&key, Revocation::Reopen(self.request(lock.clone(), term))).await? {
            RevokeAnswer::NotHeld => {
                Err(conflict(format!("{:?} was taken since: load the page again", key.as_str())))
            }
            _ => Ok((format!("{:?} is tried again.", key.as_str()), News::Revoked(lock))),
        }
    }

    async fn release(&self, fields: &Fields) -> Result<(String, News), Problem> {
        let (lock, term) = self.lock(fields)?;
        let look = self.shared.ui.pictures.look();
        let seen = look.seen_locks(std::slice::from_ref(&lock)).await?.pop();
        let key = lock.key.clone();
        let gone = || conflict(format!("{:?} has changed hands since: load the page again", key.as_str()));
        let record = match seen {
            Some(LockSeen::Found(record)) if record.term == term => record,
            Some(LockSeen::Refused(refusal)) => return Err(refused("key", key.as_str(), &refusal)),
            _ => return Err(gone()),
        };
        let held = record.holding.ok_or_else(gone)?;
        let ask = Revocation::Ask { session: held.by.session, request: self.request(lock.clone(), term) };
        match self.revoke(&key, ask).await? {
            RevokeAnswer::Asked => {
                let said = format!("{} was asked to give {:?} back.", held.by.holder, key.as_str());
                Ok((said, News::Lock(lock)))
            }
            _ => Err(conflict(format!(
                "{} is dead and does not hear: whoever wants {:?} next takes it over",
                held.by.holder,
                key.as_str()
            ))),
        }
    }

    async fn revoke(&self, key: &Key, revocation: Revocation) -> Result<RevokeAnswer, Problem> {
        match self.shared.ui.pictures.look().store().revoke(revocation, LIMIT).await? {
            RevokeAnswer::Refused(refusal) => Err(refused("key", key.as_str(), &refusal)),
            answer => Ok(answer),
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
                "{:?} is no kind: there are lock, schedule and task:SPREAD",
                one_line(text)
            ))),
        },
    }
}
