//! Notice of what plain `cargo test` leaves out: one test that it shows as ignored.

#[test]
#[cfg(not(feature = "mongodb"))]
#[ignore = "the tests on real servers need the feature `mongodb`: cargo test --workspace --all-features"]
fn tests_on_real_servers() {
    panic!("they are not in this build: run cargo test --workspace --all-features");
}
