//! The picture as numbers, for collectors of metrics.

use std::{fmt::Write, sync::Arc};

use axum::{
    Extension,
    extract::State,
    http::header,
    response::{IntoResponse, Response},
};
use tenure_look::{Liveness, Picture, ScheduleState};

use crate::{
    Shared,
    address::Base,
    answer::{Form, Problem},
};

pub(crate) async fn health() -> &'static str {
    "ok\n"
}

pub(crate) async fn metrics(State(shared): State<Arc<Shared>>, Extension(base): Extension<Base>) -> Response {
    match shared.ui.pictures.get().await {
        Err(error) => Problem::from(error).answer(Form::Json, &base),
        Ok(picture) => {
            let text = text(&picture);
            ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
        }
    }
}

fn text(picture: &Picture) -> String {
    let (overview, troubled) = (picture.overview(), picture.troubled());
    let mut text = Text::default();
    text.family("tenure_picture_time_seconds", "When the store was read last, by its clock.");
    text.sample("tenure_picture_time_seconds", &[], overview.now.as_millis() / 1000);
    text.family("tenure_picture_stale", "1 if the store does not answer, so that the rest is old.");
    text.sample("tenure_picture_stale", &[], i64::from(overview.trouble.is_some()));
    text.family(
        "tenure_picture_unreadable",
        "1 for each part that the store refuses to read: it is old, or not there.",
    );
    for area in overview.unreadable.keys() {
        text.sample("tenure_picture_unreadable", &[("part", &area.to_string())], 1);
    }
    text.family("tenure_instances", "Instances by their state; instances that have ended count for an hour.");
    let instances = picture.instances();
    for life in [Liveness::Alive, Liveness::Silent, Liveness::Dead, Liveness::Closed] {
        let count = instances.iter().filter(|one| one.life == life).count();
        text.sample("tenure_instances", &[("state", life.as_str())], count);
    }
    text.family("tenure_spread_members", "Members of a spread.");
    for one in &overview.spreads {
        text.sample("tenure_spread_members", &[("spread", one.spread.as_str())], one.members);
    }
    text.family("tenure_spread_tasks", "Tasks of a spread by their state.");
    for one in &overview.spreads {
        let spread = one.spread.as_str();
        for (state, count) in [
            ("held", one.held),
            ("resting", one.resting),
            ("orphan", one.orphans),
            ("never_ran", one.never_ran),
        ] {
            text.sample("tenure_spread_tasks", &[("spread", spread), ("state", state)], count);
        }
    }
    text.family("tenure_schedule_overdue_seconds", "Time for which a tick has been due and not run.");
    for one in &troubled {
        if let ScheduleState::Overdue { by } = one.state(picture.ttl()) {
            let name = one.status.record.id.name.as_str();
            text.sample("tenure_schedule_overdue_seconds", &[("schedule", name)], by.as_secs());
        }
    }
    text.family("tenure_schedule_failures", "Runs of a schedule that failed in a row.");
    for one in troubled.iter().filter(|one| one.status.failures > 0) {
        let name = one.status.record.id.name.as_str();
        text.sample("tenure_schedule_failures", &[("schedule", name)], one.status.failures);
    }
    text.family("tenure_lock_waiters", "Waiters for a lock, as far as the queue was read.");
    for queue in picture.queues() {
        let key = queue.lock.record.id.key.as_str();
        text.sample("tenure_lock_waiters", &[("key", key)], queue.queue.waiters.len());
    }
    text.family("tenure_records_refused", "Records that cannot be used.");
    text.sample("tenure_records_refused", &[], overview.refused.len());
    text.0
}

#[derive(Default)]
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} gauge");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.0.push_str(name);
        for (at, (label, value)) in labels.iter().enumerate() {
            let value = value.replace('\\', r"\\").replace('"', r#"\""#).replace('\n', r"\n");
            let _ = write!(self.0, "{}{label}=\"{value}\"", if at == 0 { '{' } else { ',' });
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_within_their_quotes() {
        let mut text = Text::default();
        text.sample("m", &[("a", "x\"} 1\nm 2 \\"), ("b", "y")], 3);
        assert_eq!(text.0, "m{a=\"x\\\"} 1\\nm 2 \\\\\",b=\"y\"} 3\n");
    }
}
