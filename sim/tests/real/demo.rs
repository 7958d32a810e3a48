//! `cargo demo`: a fleet on a file, of which one process is killed, one is frozen, and one is closed; judged as all
//! rounds are, for people who look on.

use std::time::Duration;

use tenure::{clock::Moment, model::SessionId};
use tenure_sim::Violation;
use tokio::time::sleep;

use crate::{
    audit::{Audit, Folder},
    court::PROVEN,
    fleet::{Fleet, Plan, Way, now},
    holder::{FILE, Pace, config},
    record::Record,
};

const MEMBERS: usize = 5;
const TASKS: usize = 100;
/// Time between two looks, and looks between two pictures.
const LOOK: Duration = Duration::from_millis(25);
const FRAME: u32 = 8;
/// After so long a change has come to nothing.
const PATIENCE: Duration = Duration::from_secs(60);
/// Columns of any terminal, and lines about what happened.
const WIDTH: usize = 80;
const TOLD: usize = 9;

/// Promises that are kept by all that the history shows, and the checkers of each.
const PROMISES: [(&str, &[&str]); 5] = [
    ("no two processes work at a task at once", &["exclusion", "early cancel", "closing"]),
    ("each holder of a task has a larger term than the one before", &["terms rise"]),
    (
        "no process works at a task that the store has not given to it",
        &["unknown starts nothing", "event order", "spreading"],
    ),
    ("no process loses its tasks before its ttl is over, unless it is proven dead", &["no theft", "proof"]),
    ("every tick of the schedule runs, and once", &["ticks"]),
];

/// A promise, and whether it was kept.
#[derive(Debug)]
struct Verdict {
    promise: &'static str,
    is_tried: bool,
    broken: Vec<String>,
}

impl Verdict {
    const fn new(promise: &'static str) -> Self {
        Self { promise, is_tried: false, broken: Vec::new() }
    }

    fn text(&self) -> String {
        let word = match (self.broken.is_empty(), self.is_tried) {
            (false, _) => "BROKEN",
            (true, true) => "held",
            (true, false) => "not tried",
        };
        let mut lines = vec![format!("  {word:<9} {}", self.promise)];
        lines.extend(self.broken.iter().map(|line| format!("            {line}")));
        lines.join("\n")
    }
}

/// Way to show what happens.
pub(crate) enum Screen {
    /// A picture, drawn anew over the lines of the one before.
    Picture(usize),
    Lines(Box<dyn FnMut(&str)>),
}

pub(crate) struct Show {
    fleet: Fleet,
    screen: Screen,
    begun: Moment,
    time: Duration,
    looks: u32,
    told: Vec<String>,
    shares: Vec<usize>,
    /// Members that were closed.
    closed: Vec<usize>,
    /// Killed ones, by whomever, with their sessions.
    killed: Vec<(usize, SessionId)>,
    others_kill: bool,
    /// The one that was frozen, if it was not killed then.
    frozen: Option<SessionId>,
    takeovers: Verdict,
    expiries: Verdict,
    evenness: Verdict,
    _folder: Folder,
}

impl Show {
    /// Plays all of it. Returns whether every promise was kept.
    pub(crate) async fn play(time: Duration, screen: Screen) -> bool {
        let folder = Folder::new("demo");
        let file = folder.0.join("tenure.db");
        let record = Record::File(Audit::new(&file).await);
        let plan = Plan {
            seed: 1,
            members: MEMBERS,
            keys: 0,
            tasks: TASKS,
            database: String::new(),
            one_time: true,
            pace: Pace::Shown,
            ills: Vec::new(),
            with_guards: false,
        };
        let way = Way { uri: format!("{FILE}{}", file.display()), namespace: None };
        let begun = now();
        let mut show = Self {
            fleet: Fleet::start(plan, record, vec![way; MEMBERS]).await,
            screen,
            begun,
            time,
            looks: 0,
            told: Vec::new(),
            shares: vec![0; MEMBERS],
            closed: Vec::new(),
            killed: Vec::new(),
            others_kill: false,
            frozen: None,
            takeovers: Verdict::new("tasks of a killed process run elsewhere at once: its death is proven"),
            expiries: Verdict::new("tasks of a frozen process run elsewhere after its ttl"),
            evenness: Verdict::new("after each change all tasks run, shared evenly"),
            _folder: folder,
        };
        show.plays().await;
        show.ends().await
    }

    async fn plays(&mut self) {
        let pids: Vec<_> = (0..MEMBERS).map(|member| self.pid(member).to_string()).collect();
        let ttl = config(0, Pace::Shown).refresh_duration();
        let pids = pids.join(", ");
        self.tell(&format!("{MEMBERS} processes start on a SQLite file, with a ttl of {ttl:?}: pids {pids}"));
        self.settles("start", self.begun).await;

        self.comes_to(15).await;
        let member = self.busiest();
        let killed = now();
        self.tell(&format!("{} is killed (kill -9), with {} tasks", self.name(member), self.shares[member]));
        self.killed.extend(self.fleet.session(member).map(|session| (member, session)));
        self.fleet.kill(member).await;
        self.takeovers.is_tried = self.settles("kill", killed).await;
        self.all_join(30).await;

        self.comes_to(40).await;
        let member = self.busiest();
        self.fleet.freeze_between_writes(member).await;
        let frozen = now();
        self.frozen = self.fleet.session(member);
        self.tell(&format!(
            "{} is frozen (kill -STOP), with {} tasks",
            self.name(member),
            self.shares[member]
        ));
        let are_taken_over = self.settles("freeze", frozen).await;
        self.comes_to(62).await;
        if self.fleet.process_of(member).is_some_and(|(_, is_frozen)| is_frozen) {
            let thawed = now();
            self.fleet.thaw(member);
            self.tell(&format!("{} goes on (kill -CONT)", self.name(member)));
            self.expiries.is_tried = are_taken_over;
            self.settles("thaw", thawed).await;
        } else {
            self.frozen = None;
        }

        self.comes_to(72).await;
        let member = self.busiest();
        let closed = now();
        self.tell(&format!("{} closes, and gives its {} tasks away", self.name(member), self.shares[member]));
        self.fleet.close(member).await;
        self.closed.push(member);
        self.settles("close", closed).await;
        self.all_join(82).await;
        self.comes_to(93).await;
    }

    /// Starts all that do not run, at that time.
    async fn all_join(&mut self, hundredths: u32) {
        self.comes_to(hundredths).await;
        let joined = now();
        for member in
            (0..MEMBERS).filter(|member| self.fleet.process_of(*member).is_none()).collect::<Vec<_>>()
        {
            self.fleet.run(member);
            self.closed.retain(|closed| *closed != member);
            self.tell(&format!("{} joins", self.name(member)));
        }
        self.settles("join", joined).await;
    }

    /// Judges it. Returns whether every promise was kept.
    async fn ends(mut self) -> bool {
        self.look().await;
        self.draw();
        for member in 0..MEMBERS {
            if self.fleet.process_of(member).is_some_and(|(_, is_frozen)| is_frozen) {
                self.fleet.thaw(member);
            }
        }
        self.tell("all close");
        let violation = self.fleet.end().await;
        let court = &self.fleet.court;
        for (member, session) in &self.killed {
            let how = match court.ground(*session) {
                Some(PROVEN) => None,
                Some(ground) => Some(format!("somebody waited for its ttl ({ground})")),
                None => (!self.others_kill).then(|| "nobody has seen its death".to_owned()),
            };
            if let Some(how) = how.filter(|_| !court.is_given_up(*session)) {
                self.takeovers.broken.push(format!("pod-{member}: {how}"));
            }
        }
        if self.frozen.is_some_and(|session| court.ground(session) == Some(PROVEN)) {
            self.expiries.broken.push("a process that stood still was proven dead".to_owned());
        }
        let entries = court.entries();
        let mut verdicts = judged(violation.as_ref(), self.fleet.ticks() > 0);
        verdicts.extend([self.takeovers, self.expiries, self.evenness]);
        println!("\nWhat was promised, and what {entries} events show:\n");
        for verdict in &verdicts {
            println!("{}", verdict.text());
        }
        if let Some(violation) = violation {
            println!("\n{violation}");
        }
        // A process that somebody else kills may be missing for a step of the script.
        let is_kept = verdicts
            .iter()
            .all(|verdict| verdict.broken.is_empty() && (verdict.is_tried || self.others_kill));
        println!("\n{}", if is_kept { "Every promise held." } else { "A promise was broken." });
        is_kept
    }

    /// Waits until all tasks run at processes that go on, and as evenly as whole numbers allow. Returns whether they do.
    async fn settles(&mut self, change: &str, since: Moment) -> bool {
        loop {
            let (left, is_even) = (self.look().await, self.is_even());
            let took = now().since(since);
            // A task that dies with several processes stays where it is, so that others are not drawn in.
            if left == 0 && (is_even || self.others_kill) {
                self.evenness.is_tried |= is_even;
                let evenly = if is_even { "evenly " } else { "" };
                self.tell(&format!("all {TASKS} tasks run {evenly}after {took:.2?}: {:?}", self.shares));
                return true;
            }
            if took > PATIENCE {
                let how = format!("{change}: not within {PATIENCE:?}: {:?}, {left} not at work", self.shares);
                self.evenness.broken.push(how);
                return false;
            }
        }
    }

    /// Waits for that time of the show.
    async fn comes_to(&mut self, hundredths: u32) {
        while now() < self.begun + self.time * hundredths / 100 {
            self.look().await;
        }
    }

    /// Waits a moment, and looks how it stands. Answers with how many tasks run at no process that goes on.
    async fn look(&mut self) -> usize {
        sleep(LOOK).await;
        for (member, session) in self.fleet.killed_by_others().await {
            self.others_kill = true;
            self.tell(&format!("pod-{member} was killed by somebody else"));
            self.killed.extend(session.map(|session| (member, session)));
        }
        if (0..MEMBERS).all(|member| self.fleet.process_of(member).is_none_or(|(_, is_frozen)| is_frozen)) {
            for member in
                (0..MEMBERS).filter(|member| self.fleet.process_of(*member).is_none()).collect::<Vec<_>>()
            {
                self.fleet.run(member);
            }
        }
        let mut left = TASKS;
        if let Some((shares, of_none)) = self.fleet.shares().await {
            let stands_still = |member: &usize| !self.goes_on(*member);
            left = of_none + (0..MEMBERS).filter(stands_still).map(|member| shares[member]).sum::<usize>();
            self.shares = shares;
        }
        self.looks += 1;
        if self.looks.is_multiple_of(FRAME) {
            self.draw();
        }
        left
    }

    fn goes_on(&self, member: usize) -> bool {
        self.fleet.process_of(member).is_some_and(|(_, is_frozen)| !is_frozen)
    }

    fn is_even(&self) -> bool {
        let shares = || (0..MEMBERS).filter(|member| self.goes_on(*member)).map(|member| self.shares[member]);
        shares().max().unwrap_or(0) <= shares().min().unwrap_or(0) + 1
    }

    fn busiest(&self) -> usize {
        let goes_on = (0..MEMBERS).filter(|member| self.goes_on(*member));
        goes_on.max_by_key(|member| self.shares[*member]).unwrap_or(0)
    }

    fn pid(&self, member: usize) -> u32 {
        self.fleet.process_of(member).map_or(0, |(pid, _)| pid)
    }

    fn name(&self, member: usize) -> String {
        format!("pod-{member} (pid {})", self.pid(member))
    }

    fn tell(&mut self, text: &str) {
        let line = format!("{:6.1} s  {text}", now().since(self.begun).as_secs_f64());
        if let Screen::Lines(show) = &mut self.screen {
            show(&line);
        }
        self.told.push(line);
    }

    fn draw(&mut self) {
        let Screen::Picture(drawn) = self.screen else { return };
        let (since, time) = (now().since(self.begun).as_secs_f64(), self.time.as_secs_f64());
        let mut lines = vec![format!("tenure, {since:4.1} s of {time:.0} s"), String::new()];
        for member in 0..MEMBERS {
            let (pid, state) = match self.fleet.process_of(member) {
                Some((pid, false)) => (pid.to_string(), "runs"),
                Some((pid, true)) => (pid.to_string(), "frozen"),
                None if self.closed.contains(&member) => ("-".to_owned(), "closed"),
                None => ("-".to_owned(), "killed"),
            };
            lines.push(row(member, &pid, state, self.shares[member]));
        }
        let run: usize = self.shares.iter().sum();
        lines.push(format!("  {run} of {TASKS} tasks run, {} ticks ran", self.fleet.ticks()));
        lines.push("  kill -9 any of these pids: the others take over.  Ctrl-C ends it.".to_owned());
        lines.push(String::new());
        lines.extend(self.told[self.told.len().saturating_sub(TOLD)..].iter().cloned());
        let up = if drawn > 0 { format!("\x1b[{drawn}A") } else { String::new() };
        let cut = |line: &String| format!("{}\x1b[K\n", line.chars().take(WIDTH).collect::<String>());
        print!("{up}{}", lines.iter().map(cut).collect::<String>());
        self.screen = Screen::Picture(lines.len());
    }
}

/// A member in the picture.
fn row(member: usize, pid: &str, state: &str, tasks: usize) -> String {
    let bar = "#".repeat(tasks.min(MEMBERS * 8));
    format!("  pod-{member} {pid:>9}  {state:<7} {tasks:>3} {bar}")
}

/// Verdicts of the checkers. The first that is violated ends the history.
fn judged(violation: Option<&Violation>, has_ticked: bool) -> Vec<Verdict> {
    let of = |(promise, checkers): &(&'static str, &[&'static str])| Verdict {
        is_tried: has_ticked || !checkers.contains(&"ticks"),
        ..Verdict::new(promise)
    };
    let mut verdicts: Vec<_> = PROMISES.iter().map(of).collect();
    let Some(Violation { invariant, says, .. }) = violation else { return verdicts };
    let of = PROMISES.iter().position(|(_, checkers)| checkers.contains(invariant));
    let of = of.unwrap_or_else(|| {
        verdicts.push(Verdict::new("nothing else goes wrong"));
        PROMISES.len()
    });
    verdicts[of].broken.push(format!("{invariant}: {says}"));
    verdicts
}

#[cfg(test)]
mod tests {
    use rustix::process::{Pid, Signal, kill_process};
    use tokio::sync::mpsc;

    use super::*;
    use crate::support::rounds::rounds;

    #[test]
    fn a_violation_breaks_the_promise_of_its_checker() {
        let violation = |invariant| Violation {
            invariant,
            says: "so".to_owned(),
            story: String::new(),
            seed: 1,
            at: Duration::ZERO,
            entered: 1,
            entries: Vec::new(),
        };
        assert!(judged(None, true).iter().all(|verdict| verdict.text().starts_with("  held ")));
        assert!(judged(None, false)[4].text().contains("not tried"), "no tick ran");
        for (broken, of) in [("exclusion", 0), ("proof", 3), ("another", PROMISES.len())] {
            let verdicts = judged(Some(&violation(broken)), true);
            let found: Vec<_> = verdicts.iter().map(|verdict| verdict.text().contains("BROKEN")).collect();
            assert_eq!(found.iter().position(|is_broken| *is_broken), Some(of), "{verdicts:?}");
        }
        assert!(Verdict::new("water is wet").text().contains("not tried"));
    }

    /// Kills a process of the fleet, unless it is gone: its number may be another's by now.
    fn kill(pid: u32) {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1));
        if parent == Some(&std::process::id().to_string()) {
            let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
            kill_process(pid, Signal::KILL).unwrap();
        }
    }

    /// `TENURE_ROUNDS=2` or more for most of them at once, while one is frozen.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn processes_that_somebody_else_kills_break_no_promise() {
        let (tell, mut told) = mpsc::unbounded_channel::<String>();
        let kills = async {
            let (mut pids, mut said) = (Vec::new(), String::new());
            while let Some(line) = told.recv().await {
                if let Some((_, listed)) = line.split_once(": pids ") {
                    pids = listed.split(", ").map(|pid| pid.parse().unwrap()).collect();
                }
                if line.contains("evenly") && !said.contains("evenly") {
                    kill(pids[0]);
                }
                if line.contains("is frozen") && rounds() > 1 {
                    pids[2..].iter().copied().for_each(kill);
                }
                said.push_str(&line);
                said.push('\n');
            }
            said
        };
        let screen = Screen::Lines(Box::new(move |line| drop(tell.send(line.to_owned()))));
        let (is_kept, said) = tokio::join!(Show::play(Duration::from_secs(10), screen), kills);
        assert!(is_kept, "{said}");
        assert!(said.contains("was killed by somebody else"), "{said}");
    }
}
