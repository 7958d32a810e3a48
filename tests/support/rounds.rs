//! How much more is to be done than the test command does.

/// `TENURE_ROUNDS`: the rounds of what takes long are so many times as many.
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
