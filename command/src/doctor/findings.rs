//! Findings: each with its level, a sentence, and advice.

use std::fmt::Write;

use serde::Serialize;

use crate::out::one_line;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Level {
    Ok,
    /// The check was not made.
    Untested,
    /// Good to know.
    Note,
    Warning,
    Bad,
}

impl Level {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Untested => "not tested",
            Self::Note => "note",
            Self::Warning => "WARNING",
            Self::Bad => "BAD",
        }
    }

    /// The colour of a terminal.
    const fn colour(self) -> &'static str {
        match self {
            Self::Ok => "32",
            Self::Untested | Self::Note => "36",
            Self::Warning => "33",
            Self::Bad => "31",
        }
    }
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) level: Level,
    pub(crate) about: &'static str,
    pub(crate) says: String,
    /// Advice, if there is any.
    pub(crate) advice: Option<String>,
}

/// All that was found, in the order in which it was looked at.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Findings {
    items: Vec<Finding>,
}

impl Findings {
    fn add(&mut self, level: Level, about: &'static str, says: String, advice: Option<String>) {
        self.items.push(Finding { level, about, says, advice });
    }

    pub(crate) fn ok(&mut self, about: &'static str, says: impl Into<String>) {
        self.add(Level::Ok, about, says.into(), None);
    }

    pub(crate) fn untested(&mut self, about: &'static str, why: impl Into<String>) {
        self.add(Level::Untested, about, why.into(), None);
    }

    #[cfg_attr(not(feature = "mongodb"), expect(dead_code, reason = "files have nothing of that kind"))]
    pub(crate) fn note(&mut self, about: &'static str, says: impl Into<String>) {
        self.add(Level::Note, about, says.into(), None);
    }

    pub(crate) fn warning(
        &mut self,
        about: &'static str,
        says: impl Into<String>,
        advice: impl Into<String>,
    ) {
        self.add(Level::Warning, about, says.into(), Some(advice.into()));
    }

    pub(crate) fn bad(&mut self, about: &'static str, says: impl Into<String>, advice: impl Into<String>) {
        self.add(Level::Bad, about, says.into(), Some(advice.into()));
    }

    /// The level of the worst of them.
    pub(crate) fn worst(&self) -> Level {
        self.items.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok)
    }

    /// A line for each, and one more with what to do.
    pub(crate) fn render(&self, colours: bool) -> String {
        let mut text = String::new();
        let wide = self.items.iter().map(|finding| finding.about.len()).max().unwrap_or(0);
        for Finding { level, about, says, advice } in &self.items {
            let word = format!("{:10}", level.word());
            let word = if colours { format!("\x1b[{}m{word}\x1b[0m", level.colour()) } else { word };
            // A text writes itself.
            let _ = writeln!(text, "{word}  {about:wide$}  {}", one_line(says));
            if let Some(advice) = advice {
                let _ = writeln!(text, "{:12}{:wide$}  -> {}", "", "", one_line(advice));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_finding_decides_and_all_are_listed() {
        let mut findings = Findings::default();
        assert_eq!(findings.worst(), Level::Ok);
        findings.ok("open", "it can be opened");
        findings.warning("disk", "1 MiB is free", "make room");
        findings.untested("clocks", "there is one");
        assert_eq!(findings.worst(), Level::Warning);
        assert_eq!(
            findings.render(false),
            "ok          open    it can be opened\nWARNING     disk    1 MiB is free\n                    \
             -> make room\nnot tested  clocks  there is one\n"
        );
        findings.bad("open", "no", "mend it");
        assert_eq!(findings.worst(), Level::Bad);
    }
}
