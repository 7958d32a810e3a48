//! Options of every subcommand: the store, the names, the durations, the form of the output.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Options of every subcommand.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    /// Store: `sqlite:PATH` or `mongodb://...` [default: a file in the user's state directory]
    #[arg(
        long,
        global = true,
        env = "TENURE_STORE",
        hide_env_values = true,
        value_name = "URI",
        help_heading = "Store and names"
    )]
    pub(crate) store: Option<String>,

    /// File with that URI in it, so that no password stands in the list of processes
    #[arg(
        long,
        global = true,
        env = "TENURE_STORE_FILE",
        value_name = "FILE",
        help_heading = "Store and names"
    )]
    pub(crate) store_file: Option<PathBuf>,

    /// Instances in the same namespace share keys [default: default]
    #[arg(
        long,
        global = true,
        env = "TENURE_NAMESPACE",
        value_name = "NAME",
        help_heading = "Store and names"
    )]
    pub(crate) namespace: Option<String>,

    /// Name of this instance, for people [default: the host's name and the process id]
    #[arg(long, global = true, env = "TENURE_HOLDER", value_name = "NAME", help_heading = "Store and names")]
    pub(crate) holder: Option<String>,

    /// TOML file with any of these settings
    #[arg(long, global = true, env = "TENURE_CONFIG", value_name = "FILE", help_heading = "Store and names")]
    pub(crate) config: Option<PathBuf>,

    /// Longest time until another instance takes over; sets the next two
    #[arg(
        long,
        global = true,
        env = "TENURE_TAKEOVER_WITHIN",
        value_name = "TIME",
        help_heading = "Durations"
    )]
    pub(crate) takeover_within: Option<String>,

    /// Time between heartbeats [default: 5s]
    #[arg(
        long,
        global = true,
        env = "TENURE_REFRESH_INTERVAL",
        value_name = "TIME",
        help_heading = "Durations"
    )]
    pub(crate) refresh_interval: Option<String>,

    /// Time that each heartbeat keeps a key: the ttl [default: 30s]
    #[arg(
        long,
        global = true,
        env = "TENURE_REFRESH_DURATION",
        value_name = "TIME",
        help_heading = "Durations"
    )]
    pub(crate) refresh_duration: Option<String>,

    /// Time from SIGTERM for a child to the end of its lease: maximum of --kill-after [default: a sixth of the ttl]
    #[arg(long, global = true, env = "TENURE_STOP_GRACE", value_name = "TIME", help_heading = "Durations")]
    pub(crate) stop_grace: Option<String>,

    /// Form of what is listed
    #[arg(long, short = 'o', global = true, env = "TENURE_OUTPUT", value_enum, default_value_t = Form::Table, value_name = "FORM", help_heading = "Output")]
    pub(crate) output: Form,

    /// Choose when output is coloured [default: on a terminal]
    #[arg(long, global = true, value_enum, default_value_t = Colour::Auto, value_name = "WHEN", help_heading = "Output")]
    pub(crate) color: Colour,

    /// Level of the engine's log on standard error [default: error; info for cron and spread]
    #[arg(
        long,
        global = true,
        env = "TENURE_LOG",
        value_enum,
        value_name = "LEVEL",
        help_heading = "Output"
    )]
    pub(crate) log: Option<Level>,
}

/// Form of what is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// For people.
    Table,
    /// For programs: one document, whose fields stay.
    Json,
}

/// Choice of when output is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Colour {
    Auto,
    Always,
    Never,
}

/// Level of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Deserialize, serde::Serialize)]
pub(crate) enum Level {
    Off,
    Error,
    Warn,
    Info,
    Debug,
}
