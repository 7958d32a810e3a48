//! Factor by which a run does more than the test command.

/// Returns `TENURE_ROUNDS`, the factor for the rounds of tests that take long.
///
/// # Panics
/// If it is no number of 1 or more.
pub(crate) fn rounds() -> u32 {
    let Ok(told) = std::env::var("TENURE_ROUNDS") else { return 1 };
    match told.parse() {
        Ok(rounds @ 1..) => rounds,
        _ => panic!("TENURE_ROUNDS is {told:?}, and has to be a number of 1 or more"),
    }
}
