//! `tenure check-config`: the settings that result from options, variables and the file, and where each comes from.

use std::time::Duration;

use clap::Args;
use serde::Serialize;

use crate::{
    common::Common,
    exit::Failure,
    out::{self, Table},
    place::StoreUri,
    settings::Settings,
};

/// Check the settings without touching the store, and show where each comes from
#[derive(Args, Debug)]
pub(crate) struct CheckConfig {}

#[derive(Debug, Serialize)]
struct Row {
    setting: &'static str,
    value: String,
    /// `option`, `variable`, `file`, `derived` from others, or `default`.
    from: &'static str,
}

pub(crate) fn run(common: &Common, _: CheckConfig) -> Result<u8, Failure> {
    let settings = Settings::of(common)?;
    let rows = rows(&settings)?;
    let document = serde_json::json!({ "items": rows, "refused": [], "more": false });
    out::print(common, &document, || {
        let mut table = Table::new(["SETTING", "VALUE", "FROM"]);
        for row in &rows {
            table.row([row.setting, row.value.as_str(), row.from]);
        }
        table.render()
    })?;
    Ok(0)
}

fn rows(settings: &Settings) -> Result<Vec<Row>, Failure> {
    let config = &settings.config;
    let store = match StoreUri::of(settings.store.as_ref())? {
        StoreUri::Sqlite(path) => format!("sqlite:{}", path.display()),
        StoreUri::Mongo(uri) => crate::place::without_secrets(&uri),
    };
    let time = |time: Duration| humantime::format_duration(time).to_string();
    let values = [
        ("store", store),
        ("namespace", config.namespace().to_string()),
        ("holder", config.holder().to_string()),
        ("refresh_interval", time(config.refresh_interval())),
        ("refresh_duration", time(config.refresh_duration())),
        ("hold_duration", time(config.hold_duration())),
        ("ttl", time(config.ttl())),
        ("stop_grace", time(config.stop_grace())),
        ("margin", time(config.margin())),
        ("poll_interval", time(config.poll_interval())),
        ("settle", time(config.settle())),
        ("retention.locks", time(config.retention_locks())),
        ("retention.runs", time(config.retention_runs())),
        ("retention.run_entries", config.retention_run_entries().to_string()),
        ("retention.sessions", time(config.retention_sessions())),
    ];
    let row = |(setting, value)| Row { setting, value, from: settings.source(setting).word() };
    Ok(values.into_iter().map(row).collect())
}
