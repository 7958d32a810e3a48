//! Arguments of the command.

use std::{collections::BTreeSet, fmt, num::NonZero, ops::Range, path::PathBuf, thread};

use tenure_sim::{Paces, Plan, Trouble};

pub(crate) const USAGE: &str = "\
simulate --seeds A..B [--hours H] [--faults all|LIST] [...]

  --seeds A..B      which seeds, B not among them; A alone is one seed
  --hours H         simulated hours for each (1)
  --faults LIST     all, none, or names with commas (all); a name too many is refused with their list
  --paces P         short, default or mixed durations (by the seed: mostly default)
  --instances N     instances of a fleet (5)
  --keys N          keys they contend for (8)
  --tasks N         tasks they share out (6)
  --schedules N     schedules they run (3)
  --programs N      programs of each instance at a time (1)
  --round SECONDS   how long things go wrong before all must settle (1800)
  --every SECONDS   the longest time between two troubles (60)
  --slower N        how much more time than a busy one a program takes (24)
  --rest SECONDS    the longest pause of a program (180)
  --log FILE        a row is put into its table of simulated runs, with what the run came to
  --threads N       seeds at a time (as many as there are processors)
";

#[derive(Debug)]
pub(crate) struct Arguments {
    pub(crate) seeds: Range<u64>,
    pub(crate) threads: usize,
    pub(crate) log: Option<PathBuf>,
    paces: Option<Paces>,
    plan: Plan,
}

impl Arguments {
    /// Reads them; nothing if they ask for help.
    pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut seeds = None;
        let mut threads = thread::available_parallelism().map_or(1, NonZero::get);
        let mut paces = None;
        let (mut hours, mut plan) = (1.0, Plan::for_hours(1.0, Paces::Default));
        let mut round = 1800.0_f64;
        let (mut arguments, mut log) = (arguments, None);
        while let Some(name) = arguments.next() {
            if name == "--help" || name == "-h" {
                return Ok(None);
            }
            let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
            match &*name {
                "--seeds" => seeds = Some(seed_range(&value)?),
                "--hours" => hours = number(&name, &value)?,
                "--faults" => plan.troubles = troubles(&value)?,
                "--paces" => paces = Some(paces_of(&value)?),
                "--instances" => plan.instances = at_least_one(&name, &value)?,
                "--keys" => plan.keys = at_least_one(&name, &value)?,
                "--tasks" => plan.tasks = number(&name, &value)?,
                "--schedules" => plan.schedules = number(&name, &value)?,
                "--programs" => plan.programs = number(&name, &value)?,
                "--round" => round = number(&name, &value)?,
                "--every" => plan.trouble_every = seconds(&name, &value)?,
                "--slower" => plan.slower = number(&name, &value)?,
                "--rest" => plan.rest = seconds(&name, &value)?,
                "--threads" => threads = at_least_one(&name, &value)?,
                "--log" => log = Some(PathBuf::from(value)),
                _ => return Err(format!("`{name}` is no option")),
            }
        }
        if !(hours > 0.0 && hours <= 10_000.0) {
            return Err(format!("--hours {hours}: a number above 0 and up to 10000 is needed"));
        }
        if round.is_nan() || round <= 0.0 {
            return Err(format!("--round {round}: a number above 0 is needed"));
        }
        let plan = plan.lasting(hours, round);
        let seeds = seeds.ok_or("--seeds A..B is missing")?;
        Ok(Some(Self { seeds, threads, log, paces, plan }))
    }

    /// Plan for a seed.
    pub(crate) fn plan(&self, seed: u64) -> Plan {
        Plan { paces: self.paces.unwrap_or(Paces::of_seed(seed)), ..self.plan.clone() }
    }
}

impl fmt::Display for Arguments {
    /// For the log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults = if self.plan.troubles.len() == Trouble::ALL.len() {
            "all faults".to_owned()
        } else {
            names(&self.plan.troubles)
        };
        let Range { start, end } = self.seeds;
        let Plan { instances, keys, tasks, schedules, .. } = self.plan;
        write!(
            f,
            "{start}..{end} | {instances} instances, {keys} keys, {tasks} tasks, {schedules} schedules, {faults}"
        )
    }
}

fn names(troubles: &BTreeSet<Trouble>) -> String {
    let names: Vec<_> = troubles.iter().map(|trouble| trouble.name()).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(",") }
}

/// The arguments that have that plan run again.
pub(crate) fn replay(seed: u64, plan: &Plan) -> String {
    let faults = names(&plan.troubles);
    let hours = plan.chaos.as_secs_f64() * f64::from(plan.rounds) / 3600.0;
    format!(
        "--seeds {seed} --paces {} --hours {hours} --round {} --instances {} --keys {} --tasks {} \
         --schedules {} --programs {} --every {} --slower {} --rest {} --faults {faults}",
        plan.paces.name(),
        plan.chaos.as_secs_f64(),
        plan.instances,
        plan.keys,
        plan.tasks,
        plan.schedules,
        plan.programs,
        plan.trouble_every.as_secs_f64(),
        plan.slower,
        plan.rest.as_secs_f64(),
    )
}

fn seed_range(value: &str) -> Result<Range<u64>, String> {
    let refused = || format!("--seeds {value}: seeds are numbers, as in 1..100 or 7");
    let seed = |text: &str| text.parse::<u64>().map_err(|_| refused());
    let (first, end) = if let Some((first, end)) = value.split_once("..") {
        (seed(first)?, seed(end)?)
    } else {
        let one = seed(value)?;
        (one, one.saturating_add(1))
    };
    if first < end { Ok(first..end) } else { Err(format!("--seeds {value}: there is none in that range")) }
}

fn troubles(value: &str) -> Result<BTreeSet<Trouble>, String> {
    match value {
        "all" => Ok(Trouble::ALL.into()),
        "none" => Ok(BTreeSet::new()),
        list => list.split(',').map(|name| name.trim().parse()).collect(),
    }
}

fn paces_of(value: &str) -> Result<Paces, String> {
    let found = Paces::ALL.into_iter().find(|paces| paces.name() == value);
    found.ok_or_else(|| format!("--paces {value}: there are {}", Paces::ALL.map(Paces::name).join(", ")))
}

fn number<T: std::str::FromStr>(name: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{name} {value}: a number is needed"))
}

fn seconds(name: &str, value: &str) -> Result<std::time::Duration, String> {
    std::time::Duration::try_from_secs_f64(number(name, value)?)
        .map_err(|refused| format!("{name} {value}: {refused}"))
}

fn at_least_one(name: &str, value: &str) -> Result<usize, String> {
    match number(name, value)? {
        0 => Err(format!("{name} 0: at least one is needed")),
        some => Ok(some),
    }
}
