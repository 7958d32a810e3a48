//! Wrong inputs: for each the exit code, the fault as it is told, and the advice.

use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt};
#[cfg(feature = "mongodb")]
use std::{
    io::{Read, Write},
    net::TcpListener,
};

use crate::cli::{Folder, Running, bare, output, stderr, stdout, until_lines};

/// A command line, split at blanks but within `'`; the exit code; and what is said: what is wrong, what to do.
type Row = (&'static str, i32, &'static str, &'static str);

const STORE: &str = "sqlite:tenure.db";

const COMMAND_LINES: &[Row] = &[
    ("excc", 64, "unrecognized subcommand 'excc'", "'exec'"),
    ("ls --namspace a", 64, "unexpected argument '--namspace'", "'--namespace'"),
    ("exec -- true", 64, "required arguments were not provided", "--key <KEY>"),
    ("exec --key a ls -l", 64, "unexpected argument 'ls'", "write -- before the program"),
    ("exec --key a -- ./nosuch", 127, "./nosuch cannot be started", "No such file"),
    ("exec --key a --wait 30 -- true", 64, "is no length of time", "such as 30s"),
    ("exec --key a --wait 1s --nonblock -- true", 64, "'--wait <TIME>'", "cannot be used with '--nonblock'"),
    ("exec --key a -E 300 -- true", 64, "invalid value '300'", "0..=255"),
    ("exec --key '' -- true", 64, "key must not be empty", "empty"),
    ("exec --key a --kill-after 60s -- true", 64, "kill-after", "longer --refresh-duration"),
    (
        "exec --key a --stop-grace 20s -- true",
        78,
        "must fit twice",
        "refresh_duration = \"31s\" is long enough",
    ),
    ("ls --refresh-duration 3s", 78, "must fit twice", "set takeover_within = \"3s\" alone"),
    ("ls --takeover-within 500ms", 78, "takeover_within (500ms)", "between 1s and 30d"),
    ("ls --takeover-within 5s --refresh-duration 9s", 78, "are both set", "set only one of them"),
    ("man nosuch", 64, "nosuch is not a folder", "create it first"),
    ("top", 64, "is not a terminal", "--once"),
    ("exec --key -x -- true", 64, "'-x'", "stands after a =: --key=-x"),
    ("check --bogus", 3, "unexpected argument '--bogus'", "--help"),
    ("cron @daily --name 'a\u{1b}[31m' -- true", 64, "a\u{b7}[31m", "control"),
];

const SCHEDULES: &[Row] = &[
    ("cron '61 * * * *' --name a -- true", 64, "has the minute \"61\"", "from 0 to 59"),
    ("cron '* * * *' --name a -- true", 64, "has 4 fields", "must have 5"),
    ("cron '0 0 31 2 *' --name a -- true", 64, "names a day that does not exist", "2"),
    (
        "cron 30 2 * * * --name a -- true",
        64,
        "unexpected argument '2'",
        "quote the expression: \"30 2 * * *\"",
    ),
    ("next 30 2 * * *", 64, "unexpected argument '2'", "quote the expression"),
    ("cron @daily -- true", 64, "required arguments", "--name <NAME>"),
    ("cron @daily --name a", 64, "required arguments", "<CMD>"),
    ("cron @daily --name a --zone Europe/Belrin -- true", 64, "Europe/Belrin", "such as \"Europe/London\""),
    ("cron @daily --name a --overlap skipp -- true", 64, "invalid value 'skipp'", "'skip'"),
    ("cron @daily --name a --retries -1 -- true", 64, "-1", "1..=1000"),
    ("cron @daily --name a --metrics 9150 -- true", 64, "invalid value '9150'", "127.0.0.1:9150"),
    ("cron --file nosuch", 64, "the crontab nosuch cannot be read", "No such file"),
    ("cron --test --file user.crontab", 64, "user.crontab:1: the command begins with \"root\"", "remove it"),
    (
        "cron --test --file seconds.crontab",
        64,
        "seconds.crontab:1: the command begins with \"*\"",
        "@every 10s",
    ),
    ("cron --test --file four.crontab", 64, "backup", "a line has five fields, then the command"),
    ("cron --test --file shell.crontab", 64, "SHELL= names no shell", "write SHELL=/bin/sh"),
    ("cron --test --file percent.crontab", 64, "a bare %", "write \\%"),
    ("cron --test --file twice.crontab", 64, "is that of line 1, too", "write a line `# name: NAME`"),
];

const SPREADS: &[Row] = &[
    ("spread --name a --tasks nosuch -- true", 64, "the tasks in nosuch cannot be read", "No such file"),
    ("spread --name a --tasks twice.txt -- true", 64, "twice.txt:2: the task \"a\"", "listed twice"),
    (
        "spread --name a --tasks latin.txt -- true",
        64,
        "latin.txt:2: the line is not UTF-8",
        "save the file in that",
    ),
    ("spread --name a --tasks tasks.txt --cap 0 -- true", 64, "invalid value '0'", "1..=4096"),
    ("spread --name a --tasks tasks.txt --cap -1 -- true", 64, "-1", "1..=4096"),
    (
        "spread --name a --tasks tasks.txt true",
        64,
        "unexpected argument 'true'",
        "write -- before the program",
    ),
];

const STORES: &[Row] = &[
    ("ls --store postgres://a", 64, "begins with postgres:", "sqlite:PATH or mongodb://"),
    ("ls --store tenure.db", 64, "the store has to be", "sqlite:PATH or mongodb://"),
    ("ls --store sqlite:nosuch.db", 69, "there is no store at nosuch.db", "--store, TENURE_STORE"),
    ("doctor --store sqlite:nosuch.db", 69, "there is no store at nosuch.db", "--store, TENURE_STORE"),
    (
        "ls --store sqlite:tasks.txt/tenure.db",
        69,
        "tasks.txt/tenure.db cannot be looked for",
        "check the path",
    ),
    ("exec --key a --store sqlite:no/such.db -- true", 69, "no", "create it first"),
    ("ls --store sqlite:words.db", 69, "words.db", "use another path"),
    ("ls --store-file nosuch", 78, "the file nosuch with the store's URI cannot be read", "No such file"),
    ("ls --store-file nothing", 78, "the file nothing is empty", "write the store's URI into it"),
    ("ls --store-file uri --store sqlite:a", 64, "name the store twice", "set one of them"),
    ("ls --config both.toml", 78, "name the store twice", "set one of them"),
    ("ls --config file.toml --store sqlite:a", 64, "name the store twice", "set one of them"),
    ("ls --config store.toml --store-file uri", 64, "name the store twice", "set one of them"),
];

const CONFIGURATIONS: &[Row] = &[
    ("ls --config nosuch", 78, "the configuration file nosuch cannot be read", "No such file"),
    ("ls --config unknown.toml", 78, "foo is not known", "the known ones are store, store_file, namespace"),
    ("ls --config slip.toml", 78, "stor is not known", "did you mean store?"),
    ("ls --config number.toml", 78, "needs a unit", "as in \"500ms\""),
    ("ls --config bad.toml", 78, "line 1, column", "cannot be understood"),
];

const NAMES: &[Row] = &[
    ("ls --store-file uris", 78, "uris has more than one line", "leave the store's URI alone in it"),
    ("doctor --store sqlite:nosuch/x.db", 69, "nosuch is not there", "make it: mkdir -p nosuch"),
    ("show nosuch", 1, "was never held", "removed since"),
    ("spreads nosuch", 1, "nosuch", "No instance takes part"),
    ("history nosuch", 1, "nosuch", "tenure schedules"),
    ("release nosuch --yes", 64, "there is no lock, task or schedule \"nosuch\"", "lock \"known\""),
    ("put-back a --spread nosuch --yes", 64, "there is no spread \"nosuch\"", "nor any other"),
    ("pause nosuch --yes", 64, "there is no schedule \"nosuch\"", "no instance has run any schedule"),
    ("drain nosuch --yes", 64, "no instance is alive", "in this namespace"),
];

#[cfg(feature = "mongodb")]
const SERVERS: &[Row] = &[
    ("ls --store mongodb://ada:p@ss@host/", 64, "is written as a code", "password"),
    ("ls --store mongodb://host/?frob=1", 64, "it is not valid", "names and values of its options (frob)"),
    ("ls --store mongodb://127.0.0.1:1/", 69, "connection refused", "check that the server is up"),
];

const FILES: &[(&str, &[u8])] = &[
    ("user.crontab", b"5 2 * * * root backup --all\n"),
    ("seconds.crontab", b"*/10 * * * * * date\n"),
    ("four.crontab", b"30 2 * * backup --all\n"),
    ("shell.crontab", b"SHELL=\n@daily date\n"),
    ("percent.crontab", b"@daily date +%s\n"),
    ("twice.crontab", b"@daily date\n@hourly date\n"),
    ("tasks.txt", b"a\n"),
    ("comment.txt", b"# none yet\n"),
    ("twice.txt", b"a\na\n"),
    ("latin.txt", b"a\nM\xfcnchen\n"),
    (
        "words.db",
        b"no database, but some words that are longer than the header of one would be, so that it is read",
    ),
    ("nothing", b"\n"),
    ("uri", b"sqlite:tenure.db\n"),
    ("uris", b"sqlite:tenure.db\nsqlite:other.db\n"),
    ("both.toml", b"store = 'sqlite:a'\nstore_file = 'uri'\n"),
    ("file.toml", b"store_file = 'uri'\n"),
    ("store.toml", b"store = 'sqlite:tenure.db'\n"),
    ("unknown.toml", b"foo = 1\n"),
    ("slip.toml", b"stor = 'sqlite:a'\n"),
    ("number.toml", b"refresh_interval = 5\n"),
    ("bad.toml", b"holder = a b\n"),
];

fn folder(name: &str) -> Folder {
    let folder = Folder::new(name);
    for (file, text) in FILES {
        fs::write(folder.join(file), text).unwrap();
    }
    let known = output(
        bare().current_dir(folder.path()).args(["--store", STORE, "exec", "--key", "known", "--", "true"]),
    );
    assert!(known.status.success(), "{}", stderr(&known));
    folder
}

/// The words of a line, as a shell without stars would split it.
fn words(line: &str) -> Vec<&str> {
    let parts = line.split('\'').enumerate();
    let words =
        parts.flat_map(|(at, part)| if at % 2 == 1 { vec![part] } else { part.split_whitespace().collect() });
    words.collect()
}

fn check(rows: &[Row]) {
    let folder = folder("wrong");
    let mut slips = Vec::new();
    for (line, code, wrong, todo) in rows {
        let mut command = bare();
        command.current_dir(folder.path()).env("NO_COLOR", "1");
        if !line.contains("--store") && !line.contains("--config") {
            command.env("TENURE_STORE", STORE);
        }
        let refused = output(command.args(words(line)));
        let told = stdout(&refused) + &stderr(&refused);
        assert!(!told.contains(|c: char| c.is_control() && c != '\n'), "{told:?}");
        if refused.status.code() != Some(*code) || !told.contains(wrong) || !told.contains(todo) {
            slips.push(format!(
                "{line}: {:?}, not {code} with {wrong:?} and {todo:?}: {told}",
                refused.status.code()
            ));
        }
    }
    assert!(slips.is_empty(), "{}", slips.join("\n"));
    assert!(!folder.join("nosuch.db").exists(), "a path with a slip in it became a store");
}

#[test]
fn a_wrong_command_line_is_told_with_its_fault_and_advice() {
    check(&[COMMAND_LINES, SCHEDULES, SPREADS, STORES, CONFIGURATIONS, NAMES].concat());
    #[cfg(feature = "mongodb")]
    check(SERVERS);
}

#[test]
fn an_argument_that_is_too_long_or_not_utf8_is_told_with_the_limit() {
    let folder = folder("wrong-bytes");
    let refused = |part: &OsStr, option: &str| {
        let mut command = bare();
        command.current_dir(folder.path()).args(["--store", STORE, "exec", option]).arg(part);
        if option != "--key" {
            command.args(["--key", "a"]);
        }
        let refused = output(command.args(["--", "true"]));
        assert_eq!(refused.status.code(), Some(64), "{}", stderr(&refused));
        stderr(&refused)
    };
    let long = "x".repeat(2000);
    assert!(refused(long.as_ref(), "--key").contains("at most 512 are allowed"));
    let told = refused(long.as_ref(), "--why");
    assert!(told.contains("why is 2000 bytes long, at most 1024 are allowed"), "{told}");
    let told = refused(OsStr::from_bytes(b"M\xfcnchen"), "--key");
    assert!(
        told.contains("invalid UTF-8") && told.contains("names, keys and expressions are UTF-8"),
        "{told}"
    );
}

#[test]
fn a_file_without_tasks_is_told() {
    let folder = folder("wrong-none");
    let told = folder.join("told");
    let mut command = bare();
    command.current_dir(folder.path()).args(["--store", STORE]);
    command.args(["spread", "--name", "a", "--tasks", "comment.txt", "--", "true"]);
    let mut running = Running::start(command.stderr(fs::File::create(&told).unwrap()));
    let is_told = |lines: &[String]| {
        lines
            .iter()
            .any(|line| line.contains("comment.txt lists no task") && line.contains("write one per line"))
    };
    until_lines("the warning", &told, is_told);
    // The first lines come before it listens to signals.
    until_lines("the session", &told, |lines| lines.iter().any(|line| line.contains("session")));
    running.signal(rustix::process::Signal::TERM);
    assert!(running.join().success());
}

#[test]
fn a_schema_is_printed_as_json_if_that_is_wanted() {
    let printed = output(bare().args(["schema", "--store", "sqlite:a.db", "-o", "json"]));
    let printed: serde_json::Value = serde_json::from_str(&stdout(&printed)).unwrap();
    assert!(printed["script"].as_str().unwrap().contains("a.db needs no preparation"), "{printed}");
}

#[cfg(feature = "mongodb")]
#[test]
fn a_server_of_another_kind_is_told_as_such() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let refused = output(bare().args(["ls", "--store", &format!("mongodb://{address}/")]));
    assert_eq!(refused.status.code(), Some(69));
    let told = stderr(&refused);
    assert!(told.contains("this is no MongoDB server: check the host and the port"), "{told}");
}
