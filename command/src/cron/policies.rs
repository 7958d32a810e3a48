//! Policies for ticks that are late, overlap or fail, from options.

use clap::{Args, ValueEnum};
use tenure::schedule::{Misfire, OnCrash, Overlap, Retries, ScheduleBuilder};

use crate::{exit::Failure, times};

/// Options for ticks that are late, overlap or fail.
#[derive(Args, Clone, Debug)]
pub(crate) struct Policies {
    /// Ticks that were not run in time: run none of them, the latest, or all
    #[arg(long, value_enum, default_value_t = Late::One, value_name = "WHICH", help_heading = "Ticks")]
    misfire: Late,

    /// Maximum lateness of a tick that still runs [default: 1m for none, else 7d]
    #[arg(long, value_name = "TIME", help_heading = "Ticks")]
    misfire_window: Option<String>,

    /// A tick that is due while the run before it continues: skip it, queue it, or cancel that run
    #[arg(long, value_enum, default_value_t = Meeting::Skip, value_name = "RULE", help_heading = "Ticks")]
    overlap: Meeting,

    /// A run whose instance died: begin it again, or not
    #[arg(long, value_enum, default_value_t = Crash::Again, value_name = "RULE", help_heading = "Ticks")]
    on_crash: Crash,

    /// Maximum tries of a tick: with 1, a tick that fails is not tried again
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000), allow_negative_numbers = true, help_heading = "Ticks")]
    retries: u32,

    /// Rest before the second try; later ones double
    #[arg(long, default_value = "1s", value_name = "TIME", help_heading = "Ticks")]
    retry_after: String,

    /// End a run that takes longer
    #[arg(long, value_name = "TIME", help_heading = "Ticks")]
    timeout: Option<String>,

    /// Start later by a part of this, which the name decides
    #[arg(long, value_name = "TIME", help_heading = "Ticks")]
    spread_over: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Late {
    None,
    One,
    All,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Meeting {
    Skip,
    Queue,
    Cancel,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Crash {
    Again,
    Never,
}

/// Ticks of one outage that are run, at most.
const AT_MOST: u32 = 1000;
const MINUTE: std::time::Duration = std::time::Duration::from_secs(60);
const WEEK: std::time::Duration = std::time::Duration::from_secs(7 * 24 * 60 * 60);

impl Policies {
    pub(super) fn apply(&self, builder: ScheduleBuilder) -> Result<ScheduleBuilder, Failure> {
        let window = self.misfire_window.as_deref();
        let window = window.map(|text| times::duration("--misfire-window", text)).transpose()?;
        let misfire = match self.misfire {
            Late::None => Misfire::Skip { tolerance: window.unwrap_or(MINUTE) },
            Late::One => Misfire::One { window: window.unwrap_or(WEEK) },
            Late::All => Misfire::All { window: window.unwrap_or(WEEK), at_most: AT_MOST },
        };
        let overlap = match self.overlap {
            Meeting::Skip => Overlap::Skip,
            Meeting::Queue => Overlap::Queue,
            Meeting::Cancel => Overlap::Cancel,
        };
        let on_crash = match self.on_crash {
            Crash::Again => OnCrash::default(),
            Crash::Never => OnCrash::AtMostOnce,
        };
        let first = times::duration("--retry-after", &self.retry_after)?;
        let usual = Retries::default();
        let retries = Retries { tries: self.retries, first, longest: usual.longest.max(first) };
        let mut builder = builder.misfire(misfire).overlap(overlap).on_crash(on_crash).retries(retries);
        if let Some(timeout) = &self.timeout {
            builder = builder.timeout(times::duration("--timeout", timeout)?);
        }
        if let Some(spread) = &self.spread_over {
            builder = builder.spread_over(times::duration("--spread-over", spread)?);
        }
        Ok(builder)
    }
}
