use std::{ffi::OsString, fmt::Write as _};

use expect_test::expect;

use super::*;

const S: Duration = Duration::from_secs(1);

fn config() -> ElectConfig {
    ElectConfig::new("shop", "pod-7").unwrap()
}

fn from_toml(fields: &str) -> Result<ElectConfig, String> {
    let named = format!("namespace = \"shop\"\nholder = \"pod-7\"\n{fields}");
    toml::from_str(&named).map_err(|error| error.message().to_owned())
}

fn from_json(fields: serde_json::Value) -> Result<ElectConfig, String> {
    serde_json::from_value(fields).map_err(|error| error.to_string())
}

fn from_variables(variables: &[(&str, &str)]) -> Result<ElectConfig, String> {
    let named = [("TENURE_NAMESPACE", "shop"), ("TENURE_HOLDER", "pod-7")];
    let all = named.iter().chain(variables).map(|(name, value)| (name.into(), value.into()));
    env::read("TENURE_", all).map_err(|error| error.to_string())
}

fn refused(config: &ElectConfig) -> String {
    config.validate().expect_err("it breaks a rule").to_string()
}

// ----- numbers

#[test]
fn the_defaults_are_those_of_the_design() {
    let config = config();
    config.validate().unwrap();
    assert_eq!(config.ttl(), 30 * S);
    assert_eq!(config.stop_grace(), 5 * S);
    assert_eq!(config.margin(), 800 * MS);
    // The timeline: cancelled at 24.2 s, ended at 29.2 s.
    assert_eq!(24_200 * MS + config.stop_grace(), 29_200 * MS);
    assert_eq!(29_200 * MS + config.margin(), config.ttl());
    assert_eq!(from_toml("").unwrap(), config);
}

#[test]
fn a_takeover_within_three_seconds_is_one_line_in_every_form() {
    let json = serde_json::json!({ "namespace": "shop", "holder": "pod-7", "takeover_within": "3s" });
    let coded = config().takeover_within(3 * S);
    coded.validate().unwrap();
    for config in [
        from_toml("takeover_within = \"3s\"").unwrap(),
        from_json(json).unwrap(),
        from_variables(&[("TENURE_TAKEOVER_WITHIN", "3s")]).unwrap(),
    ] {
        assert_eq!((config.ttl(), config.refresh_duration()), (2400 * MS, 2400 * MS));
        assert_eq!(config.refresh_interval(), 400 * MS);
        assert_eq!(config.hold_duration(), 2 * S);
        assert_eq!((config.stop_grace(), config.margin()), (400 * MS, 248 * MS));
        assert_eq!(config, coded);
    }
    let written = toml::to_string(&coded).unwrap();
    assert!(written.contains("takeover_within = \"3s\"") && !written.contains("refresh_"), "{written}");
    assert_eq!(toml::from_str::<ElectConfig>(&written).unwrap(), coded);
}

#[test]
fn any_time_that_is_allowed_for_a_takeover_keeps_every_rule_and_leaves_a_fifth_for_the_taking() {
    for time in [S, 1001 * MS, 1999 * MS, 3 * S, 10 * S, 37_501 * MS, 60 * S, 3600 * S, 24 * 3600 * S] {
        let config = config().takeover_within(time).with_retention_sessions(30 * DAY);
        config.validate().unwrap_or_else(|error| panic!("{error}"));
        assert!(config.ttl() <= time * 4 / 5 && config.ttl() >= time * 3 / 4, "{time:?}");
        assert!(config.refresh_interval() * 6 <= config.ttl(), "{time:?}");
    }
}

#[test]
fn a_takeover_in_no_time_or_beside_other_durations_is_refused() {
    let slip = |fields: &str| from_toml(fields).expect_err(fields);
    let messages = [
        refused(&config().takeover_within(999 * MS)),
        refused(&config().takeover_within(31 * DAY)),
        refused(&config().takeover_within(Duration::MAX)),
        refused(&config().takeover_within(1500 * MS + Duration::from_micros(1))),
        refused(&config().takeover_within(3 * S).with_refresh_interval(S)),
        refused(&config().takeover_within(3 * S).with_hold_duration(S)),
        slip("takeover_within = \"3s\"\nrefresh_duration = \"30s\""),
        slip("takeover_within = 3"),
        from_variables(&[("TENURE_TAKEOVER_WITHIN", "3s"), ("TENURE_HOLD_DURATION", "2s")]).unwrap_err(),
    ];
    expect![[r#"
        takeover_within (999ms) must be between 1s and 30d
        takeover_within (31d) must be between 1s and 30d
        takeover_within (213503982334601d 7h 15s 999ms 999us 999ns) must be between 1s and 30d
        takeover_within (1s 500ms 1us) must be whole milliseconds
        refresh_interval and takeover_within are both set: set only one of them
        hold_duration and takeover_within are both set: set only one of them
        refresh_duration and takeover_within are both set: set only one of them
        takeover_within (3) needs a unit, as in "500ms", "30s" or "1h 30m"
        TENURE_HOLD_DURATION and takeover_within are both set: set only one of them"#]]
    .assert_eq(&messages.join("\n"));
}

#[test]
fn a_shorter_refresh_shortens_the_ttl_too() {
    let config = config().with_refresh_interval(500 * MS).with_refresh_duration(3 * S);
    config.validate().unwrap();
    assert_eq!((config.ttl(), config.hold_duration()), (3 * S, 2500 * MS));
    assert_eq!(self::config().hold_duration(), 25 * S, "as it was always");
    // Only what was said makes it longer.
    assert_eq!(config.with_hold_duration(25 * S).ttl(), 25_500 * MS);
}

#[test]
fn a_message_names_the_field_that_was_set() {
    let long = config().with_hold_duration(Duration::from_secs(3600));
    let error = long.validate().unwrap_err();
    assert_eq!(error.field(), "hold_duration");
    assert_eq!(
        error.to_string(),
        "refresh_interval (5s) must fit twice into refresh_duration (30s) minus margin (1m 12s 300ms, derived \
         from hold_duration (1h)) and stop_grace (5s, derived from refresh_duration); \
         refresh_duration = \"1m 39s\" is long enough"
    );
    let error = config().with_margin(S).with_hold_duration(Duration::from_secs(600)).validate().unwrap_err();
    assert_eq!(
        error.to_string(),
        "margin (1s) must be at least 2 % of the ttl (10m 5s, which is hold_duration plus refresh_interval), for clocks that run at different rates"
    );
}

#[test]
fn the_ttl_protects_a_key_taken_just_before_the_next_beat() {
    let config = config().with_hold_duration(60 * S);
    assert_eq!(config.ttl(), 65 * S);
    assert_eq!(config.margin(), 1500 * MS, "2 % of the ttl, not of refresh_duration");
    assert_eq!(config.stop_grace(), 5 * S);
}

#[test]
fn derived_numbers_are_whole_milliseconds_on_the_safe_side() {
    let config = config().with_hold_duration(S).with_refresh_duration(10_001 * MS).with_refresh_interval(S);
    assert_eq!(config.stop_grace(), 1666 * MS);
    assert_eq!(config.margin(), 401 * MS, "2 % of 10001ms are 200.02ms");
    config.validate().unwrap();
}

const TAKEOVER_WITHIN: &str = "| `takeover_within` | none | In place of the next three: how soon somebody else has the locks of an instance that died |";

#[test]
fn the_page_says_what_the_code_says() {
    let (mut rows, mut names) = (String::new(), Vec::new());
    let config = config();
    let run_entries = config.retention_run_entries().to_string();
    let shown = |time| Shown(time).to_string();
    let numbers = [
        ("refresh_interval", shown(config.refresh_interval())),
        ("refresh_duration", shown(config.refresh_duration())),
        ("settle", shown(config.settle())),
        ("retention.locks", shown(config.retention_locks())),
        ("retention.runs", shown(config.retention_runs())),
        ("retention.run_entries", run_entries),
        ("retention.sessions", shown(config.retention_sessions())),
    ];
    let source = include_str!("../config.rs");
    let getters = source.split("// What the first line of each says").nth(1).unwrap();
    let getters = getters.split("\n}\n").next().unwrap();
    for getter in getters.split("    /// ").skip(1) {
        let doc = getter.lines().next().unwrap();
        let name = getter.split(" fn ").nth(1).unwrap().split('(').next().unwrap();
        let name = name.replace("retention_", "retention.");
        let (meaning, default) = match doc.split_once(" Default: ") {
            Some((meaning, default)) => (meaning, default.trim_end_matches('.')),
            None => (doc.strip_suffix(" Required.").unwrap(), "required"),
        };
        if let Some((_, number)) = numbers.iter().find(|(known, _)| *known == name) {
            assert_eq!(default, number, "the documented default of {name}");
        }
        if name == "hold_duration" {
            // It is a setter.
            writeln!(rows, "{TAKEOVER_WITHIN}").unwrap();
            names.push("takeover_within".to_owned());
        }
        writeln!(rows, "| `{name}` | {default} | {} |", meaning.trim_end_matches('.')).unwrap();
        names.push(name);
    }
    let table = format!("| field | default | meaning |\n|---|---|---|\n{rows}\n");
    let page = include_str!("../../docs/configuration.md");
    assert!(page.contains(&table), "docs/configuration.md must have this table:\n{table}");
    assert_eq!(names, read::FIELDS, "no field is left out");
}

#[test]
fn the_examples_in_the_documents_are_read() {
    let example =
        |page: &'static str| page.split("```toml\nnamespace").nth(1).unwrap().split("```").next().unwrap();
    let read = |page| toml::from_str::<ElectConfig>(&format!("namespace{}", example(page))).unwrap();
    assert_eq!(read(include_str!("../../README.md")), config(), "the defaults");
    let sooner = read(include_str!("../../docs/configuration.md"));
    assert_eq!(sooner, config().takeover_within(3 * S));
}

// ----- rules

#[test]
fn a_broken_rule_is_told_with_its_numbers() {
    let messages: Vec<_> = [
        config()
            .with_refresh_duration(15 * S)
            .with_margin(S)
            .with_stop_grace(3 * S)
            .with_refresh_interval(8 * S),
        config().with_refresh_duration(10 * S),
        config().with_margin(599 * MS),
        config().with_hold_duration(Duration::ZERO),
        config().with_hold_duration(Duration::from_nanos(1_000_000_500)),
        config().with_refresh_interval(5 * MS),
        config().with_refresh_duration(31 * DAY),
        config().with_refresh_duration(Duration::MAX),
        config().with_stop_grace(Duration::ZERO),
        config().with_margin(Duration::from_micros(800_500)),
        config().with_poll_interval(9 * MS),
        config().with_settle(Duration::from_secs(u64::MAX)),
        config().with_retention_locks(3651 * DAY),
        config().with_retention_runs(MS),
        config().with_retention_sessions(20 * S),
    ]
    .each_ref()
    .map(refused)
    .into();
    expect![[r#"
        refresh_interval (8s) must fit twice into refresh_duration (15s) minus margin (1s) and stop_grace (3s); refresh_duration = "20s" is long enough
        refresh_interval (5s) must fit twice into refresh_duration (10s) minus margin (400ms, derived from refresh_duration) and stop_grace (1s 666ms, derived from refresh_duration); or set takeover_within = "10s" alone, from which the others follow
        margin (599ms) must be at least 2 % of the ttl (30s, which is refresh_duration), for clocks that run at different rates
        hold_duration (0s) must be between 10ms and 30d
        hold_duration (1s 500ns) must be whole milliseconds
        refresh_interval (5ms) must be between 10ms and 30d
        refresh_duration (31d) must be between 10ms and 30d
        refresh_duration (213503982334601d 7h 15s 999ms 999us 999ns) must be between 10ms and 30d
        stop_grace (0s) must be between 1ms and 30d
        margin (800ms 500us) must be whole milliseconds
        poll_interval (9ms) must be between 10ms and 30d
        settle (213503982334601d 7h 15s) must be between 10ms and 30d
        retention.locks (3651d) must be between 10ms and 3650d
        retention.runs (1ms) must be between 10ms and 3650d
        retention.sessions (20s) must be at least the ttl (30s, which is refresh_duration), for as long as others may look for a session"#]]
    .assert_eq(&messages.join("\n"));
}

#[test]
fn limits_are_within_what_is_allowed() {
    for allowed in [
        config()
            .with_refresh_duration(15_800 * MS + 2 * MS)
            .with_stop_grace(5 * S)
            .with_hold_duration(S)
            .with_margin(800 * MS),
        config().with_margin(600 * MS),
        config().with_stop_grace(MS),
        config().with_settle(10 * MS).with_poll_interval(30 * DAY),
        config().with_retention_sessions(30 * S).with_retention_run_entries(0),
    ] {
        allowed.validate().unwrap_or_else(|error| panic!("{error}: {allowed:?}"));
    }
}

// ----- reading

#[test]
fn every_field_is_read_and_written_again() {
    let text = r#"
        hold_duration = "1m"
        refresh_interval = "4s 500ms"
        refresh_duration = "40 seconds"
        stop_grace = "1.5s"
        margin = "2s"
        poll_interval = "7s"
        settle = "100ms"
        [retention]
        locks = "14d"
        runs = "1h 30m"
        run_entries = 5
        sessions = "2days"
    "#;
    let expected = config()
        .with_hold_duration(60 * S)
        .with_refresh_interval(4500 * MS)
        .with_refresh_duration(40 * S)
        .with_stop_grace(1500 * MS)
        .with_margin(2 * S)
        .with_poll_interval(7 * S)
        .with_settle(100 * MS)
        .with_retention_locks(14 * DAY)
        .with_retention_runs(5400 * S)
        .with_retention_run_entries(5)
        .with_retention_sessions(2 * DAY);
    let read = from_toml(text).unwrap();
    assert_eq!(read, expected);
    let again = toml::to_string(&read).unwrap();
    assert_eq!(toml::from_str::<ElectConfig>(&again).unwrap(), expected, "{again}");
    assert_eq!(from_json(serde_json::to_value(&read).unwrap()).unwrap(), expected);

    let variables = [
        ("TENURE_HOLD_DURATION", "1m"),
        ("TENURE_REFRESH_INTERVAL", "4s 500ms"),
        ("TENURE_REFRESH_DURATION", "40 seconds"),
        ("TENURE_STOP_GRACE", "1.5s"),
        ("TENURE_MARGIN", "2s"),
        ("TENURE_POLL_INTERVAL", "7s"),
        ("TENURE_SETTLE", "100ms"),
        ("TENURE_RETENTION_LOCKS", "14d"),
        ("TENURE_RETENTION_RUNS", "1h 30m"),
        ("TENURE_RETENTION_RUN_ENTRIES", "5"),
        ("TENURE_RETENTION_SESSIONS", "2days"),
    ];
    assert_eq!(from_variables(&variables).unwrap(), expected);
}

#[test]
fn derived_settings_are_not_written_as_if_chosen() {
    expect![[r#"
        namespace = "shop"
        holder = "pod-7"
        refresh_interval = "5s"
        refresh_duration = "30s"
        settle = "200ms"

        [retention]
        locks = "7d"
        run_entries = 100
        runs = "7d"
        sessions = "1d"
    "#]]
    .assert_eq(&toml::to_string(&config()).unwrap());
}

#[test]
fn a_field_that_cannot_be_read_is_named_with_the_rule() {
    let long = format!("settle = \"{}\"", "1s ".repeat(1000));
    let messages: Vec<_> = [
        "hold_duration = 25",
        "hold_duration = \"25\"",
        "hold_duration = 2.5",
        "hold_duration = -5",
        "hold_duration = \"-5s\"",
        "hold_duration = \"\"",
        "hold_duration = \"soon\"",
        "hold_duration = \"5 fortnights\"",
        "hold_duration = true",
        "hold_duration = { seconds = 5 }",
        "settle = \"18446744073709551615s 1000000000ns\"",
        &long,
        "retention.locks = 7",
        "retention.run_entries = -1",
        "retention.run_entries = \"many\"",
        "refresh_intervall = \"5s\"",
        "retention.lock = \"5d\"",
        "retension.locks = \"5d\"",
        "colour = \"blue\"",
        "retention.colour = \"blue\"",
        "\"retention.locks\" = \"5d\"",
        "refresh_duration = \"10s\"",
    ]
    .iter()
    .map(|fields| from_toml(fields).expect_err(fields))
    .collect();
    expect![[r#"
        hold_duration (25) needs a unit, as in "500ms", "30s" or "1h 30m"
        hold_duration ("25") needs a unit, as in "500ms", "30s" or "1h 30m"
        hold_duration (2.5) needs a unit, as in "500ms", "30s" or "1h 30m"
        hold_duration (-5) needs a unit, as in "500ms", "30s" or "1h 30m"
        hold_duration ("-5s") is not a duration such as "500ms", "30s" or "1h 30m": expected number at 0
        hold_duration ("") is not a duration such as "500ms", "30s" or "1h 30m": value was empty
        hold_duration ("soon") is not a duration such as "500ms", "30s" or "1h 30m": expected number at 0
        hold_duration ("5 fortnights") is not a duration such as "500ms", "30s" or "1h 30m": unknown time unit "fortnights", supported units: ns, us/µs, ms, sec, min, hours, days, weeks, months, years (and few variations)
        hold_duration (true) must be a duration such as "500ms", "30s" or "1h 30m"
        hold_duration (a table) must be a duration such as "500ms", "30s" or "1h 30m"
        settle ("18446744073709551615s 1000000000ns") is too long for a duration such as "500ms", "30s" or "1h 30m"
        settle ("1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1"...) is too long for a duration such as "500ms", "30s" or "1h 30m"
        retention.locks (7) needs a unit, as in "500ms", "30s" or "1h 30m"
        retention.run_entries (-1) must be a number such as 100
        retention.run_entries ("many") must be a number such as 100
        refresh_intervall is not known; did you mean refresh_interval?
        retention.lock is not known; did you mean retention.locks?
        retension is not known; did you mean retention?
        colour is not known; the known ones are hold_duration, holder, margin, namespace, poll_interval, refresh_duration, refresh_interval, retention, settle, stop_grace, takeover_within
        retention.colour is not known; the known ones are locks, run_entries, runs, sessions
        retention.locks ("5d") must be in a table of its own
        refresh_interval (5s) must fit twice into refresh_duration (10s) minus margin (400ms, derived from refresh_duration) and stop_grace (1s 666ms, derived from refresh_duration); or set takeover_within = "10s" alone, from which the others follow"#]]
    .assert_eq(&messages.join("\n"));
}

#[test]
fn values_of_the_wrong_type_are_named_in_the_error() {
    let named = |mut fields: serde_json::Value| {
        fields["namespace"] = "shop".into();
        fields["holder"] = "pod-7".into();
        from_json(fields)
    };
    let messages: Vec<_> = [
        serde_json::json!({ "settle": ["200ms"] }),
        serde_json::json!({ "retention": 5 }),
        // Not by their places.
        serde_json::json!({ "retention": ["7d", "7d", 100, "1d"] }),
    ]
    .into_iter()
    .map(|fields| named(fields).unwrap_err())
    .chain([from_json(serde_json::json!(["shop", "pod-7"])).unwrap_err()])
    .collect();
    expect![[r#"
        settle (a list) must be a duration such as "500ms", "30s" or "1h 30m"
        retention (5) must be a table
        retention (a list) must be a table
        the configuration (a list) must be a table"#]]
    .assert_eq(&messages.join("\n"));
}

#[test]
fn namespace_and_holder_are_required_and_within_their_limits() {
    for (text, message) in [
        ("", "namespace is required but not set"),
        ("namespace = \"shop\"", "holder is required but not set"),
        ("namespace = \"\"\nholder = \"pod-7\"", "namespace must not be empty"),
        ("namespace = 5\nholder = \"pod-7\"", "namespace (5) must be a string"),
    ] {
        assert_eq!(toml::from_str::<ElectConfig>(text).unwrap_err().message(), message);
    }
    let none = env::read("TENURE_", []).unwrap_err();
    assert_eq!(none.to_string(), "TENURE_NAMESPACE is required but not set");
    assert_eq!(none.field(), "TENURE_NAMESPACE");
    let empty = from_variables(&[("TENURE_HOLDER", "")]).unwrap_err();
    assert_eq!(empty, "TENURE_HOLDER: holder must not be empty");
}

// ----- variables

#[test]
fn a_variable_that_looks_like_a_slip_is_an_error_and_others_are_passed_over() {
    for (name, message) in [
        ("TENURE_REFRESH_INTERVALL", "did you mean TENURE_REFRESH_INTERVAL?"),
        ("TENURE_REFESH_INTERVAL", "did you mean TENURE_REFRESH_INTERVAL?"),
        ("TENURE_HOLD", "did you mean TENURE_HOLDER?"),
        ("TENURE_holder", "did you mean TENURE_HOLDER?"),
        ("TENURE_RETENTION.LOCKS", "did you mean TENURE_RETENTION_LOCKS?"),
        ("TENURE_NAMESPACES", "did you mean TENURE_NAMESPACE?"),
    ] {
        let error = from_variables(&[(name, "5s")]).expect_err(name);
        assert_eq!(error, format!("{name} is not known; {message}"));
    }
    for name in [
        "TENURE_STORE",
        "TENURE_TEST_MONGODB_URI",
        "TENURE_SEED",
        "TENURE_LOG",
        "TENURE_",
        "TENUREHOLDER",
        "tenure_holder",
        "HOLDER",
        "TENURE_RETENTION",
    ] {
        from_variables(&[(name, "whatever")]).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn a_variable_is_named_in_what_is_said_of_it() {
    let error = from_variables(&[("TENURE_SETTLE", "5")]).unwrap_err();
    assert_eq!(error, "TENURE_SETTLE (\"5\") needs a unit, as in \"500ms\", \"30s\" or \"1h 30m\"");
}

#[cfg(unix)]
#[test]
fn a_value_that_is_not_utf_8_is_an_error_if_it_concerns_us() {
    use std::os::unix::ffi::OsStringExt;

    let broken = || OsString::from_vec(vec![b'5', 0xff]);
    let read = |name: OsString| {
        let named = [("TENURE_NAMESPACE", "shop"), ("TENURE_HOLDER", "pod-7")];
        let named = named.map(|(name, value)| (name.into(), value.into()));
        env::read("TENURE_", named.into_iter().chain([(name, broken())]))
    };
    assert_eq!(
        read("TENURE_SETTLE".into()).unwrap_err().to_string(),
        "the value of TENURE_SETTLE is not UTF-8"
    );
    assert!(read("TENURE_STORE".into()).is_ok());
    assert!(read(broken()).is_ok());
}

#[test]
fn the_process_has_variables_too() {
    let error = ElectConfig::from_env("TENURE_OF_NOBODY_").unwrap_err();
    assert_eq!(error.to_string(), "TENURE_OF_NOBODY_NAMESPACE is required but not set");
}

#[test]
fn a_name_that_breaks_a_limit_is_refused_with_its_field() {
    let error = ElectConfig::new("", "pod-7").unwrap_err();
    assert_eq!((error.field(), error.to_string().as_str()), ("namespace", "namespace must not be empty"));
    let error = ElectConfig::new("shop", "a\nb").unwrap_err();
    assert_eq!(error.field(), "holder");
}
