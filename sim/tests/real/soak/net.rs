//! The network of a soak: a namespace for each member of the set and for each site of the fleet, all on
//! one bridge, and rules that cut it anywhere.
//!
//! The process that does this has a network, a mount and a process namespace of its own, which
//! `scripts/soak` made for it: all of this ends with it, whatever it is that ends it.

use std::process::Command;

/// Place on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// A member of the set.
    Member(usize),
    /// Site of a part of the fleet.
    Site(usize),
}

impl Place {
    /// The name of its namespace.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Member(number) => format!("member{number}"),
            Self::Site(number) => format!("site{number}"),
        }
    }

    /// Returns the address. Other machines do not see it, so any will do.
    pub(crate) fn address(self) -> String {
        match self {
            Self::Member(number) => format!("10.0.0.{}", 11 + number),
            Self::Site(number) => format!("10.0.0.{}", 101 + number),
        }
    }

    /// Address of the harness.
    const HARNESS: &str = "10.0.0.1";
}

/// Packets that a cut swallows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// Packets to and from there.
    Both,
    /// Packets that come from there.
    From,
    /// Packets that go there.
    To,
}

/// Runs a program to its end.
///
/// # Panics
/// If it fails.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {}: {}: {said}", arguments.join(" "), output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Makes the network.
pub(crate) fn build(places: &[Place]) {
    run("ip", &["link", "set", "lo", "up"]);
    run("ip", &["link", "add", "bridge", "type", "bridge"]);
    run("ip", &["address", "add", &format!("{}/24", Place::HARNESS), "dev", "bridge"]);
    run("ip", &["link", "set", "bridge", "up"]);
    for place in places {
        let (name, address) = (place.name(), format!("{}/24", place.address()));
        run("ip", &["netns", "add", &name]);
        // Its other end is called by the name of the place, and the end inside `net`.
        run("ip", &["link", "add", &name, "type", "veth", "peer", "name", "net", "netns", &name]);
        run("ip", &["link", "set", &name, "master", "bridge", "up"]);
        run("ip", &["-n", &name, "link", "set", "lo", "up"]);
        run("ip", &["-n", &name, "address", "add", &address, "dev", "net"]);
        run("ip", &["-n", &name, "link", "set", "net", "up"]);
    }
}

/// Swallows packets between two places, at the first one.
pub(crate) fn cut(at: Place, other: Place, cut: Cut) {
    if cut != Cut::To {
        rule(at, &["-A", "INPUT", "-s", &other.address(), "-j", "DROP"]);
    }
    if cut != Cut::From {
        rule(at, &["-A", "OUTPUT", "-d", &other.address(), "-j", "DROP"]);
    }
}

fn rule(at: Place, rule: &[&str]) {
    let name = at.name();
    let command = [&["netns", "exec", &name, "iptables", "-w"], rule].concat();
    run("ip", &command);
}

/// Number of packets that the cuts of a place have swallowed.
pub(crate) fn swallowed(at: Place) -> u64 {
    let listed = run("ip", &["netns", "exec", &at.name(), "iptables", "-w", "-L", "-v", "-n", "-x"]);
    packets(&listed)
}

/// The packets of all rules that drop, as `iptables -L -v -x` lists them.
fn packets(listed: &str) -> u64 {
    let dropped = listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let dropped = dropped.filter(|words| words.get(2) == Some(&"DROP"));
    dropped.filter_map(|words| words[0].parse::<u64>().ok()).sum()
}

/// Takes all cuts of a place away.
pub(crate) fn heal(at: Place) {
    rule(at, &["-F"]);
}

#[test]
fn packets_are_counted_by_the_rules_that_drop() {
    let listed = "\
Chain INPUT (policy ACCEPT 10 packets, 99 bytes)
    pkts      bytes target     prot opt in     out     source               destination
      12     3456 DROP       0    --  *      *       10.0.0.12            0.0.0.0/0

Chain OUTPUT (policy ACCEPT 3 packets, 3 bytes)
    pkts      bytes target     prot opt in     out     source               destination
       3      156 DROP       0    --  *      *       0.0.0.0/0            10.0.0.12
";
    assert_eq!(packets(listed), 15);
}
