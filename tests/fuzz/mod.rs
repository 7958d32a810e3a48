//! The properties that `scripts/fuzz` searches for hours, for some thousand cases.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed, also in its helpers")]

mod properties;

use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{RngSeed, TestCaseError, TestRunner},
};

/// Holds the property for so many inputs, at least a tenth of which must have said something.
fn holds(cases: u32, longest: usize, property: fn(&[u8]) -> bool) {
    // The same inputs in every run: others are for `scripts/fuzz`.
    let rng_seed = RngSeed::Fixed(1);
    let config = ProptestConfig { cases, rng_seed, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new(config);
    let telling = std::cell::Cell::new(0);
    let held = runner.run(&vec(any::<u8>(), 0..longest), |bytes| {
        // The panic of a property that does not hold, or of what it tried.
        let says = std::panic::catch_unwind(|| property(&bytes));
        let says = says.map_err(|_| TestCaseError::fail("it panicked, as printed above"))?;
        telling.set(telling.get() + u32::from(says));
        Ok(())
    });
    held.unwrap_or_else(|error| panic!("{error}"));
    assert!(telling.get() * 10 > cases, "{} of {cases} said something: that proves little", telling.get());
}

#[test]
fn any_document_in_the_place_of_any_record_is_read_as_what_it_is_or_refused() {
    holds(6_000, 400, properties::documents);
}

#[test]
fn any_configuration_is_refused_by_name_or_keeps_every_rule() {
    holds(3_000, 200, properties::config);
}

#[test]
fn any_name_is_refused_or_comes_back_as_it_was() {
    holds(3_000, 600, properties::names);
}

#[test]
fn any_expression_is_refused_in_one_line_or_has_instants_that_rise() {
    holds(3_000, 300, properties::expressions);
}
