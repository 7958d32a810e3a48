//! An engine that breaks a rule, to see whether the tests notice.

use tenure::sim::Flaw;

/// The flaw that `TENURE_TEST_FLAW` names.
pub(crate) fn flaw() -> Option<Flaw> {
    let name = std::env::var("TENURE_TEST_FLAW").ok()?;
    let known = [
        Flaw::EndFromAnswer,
        Flaw::StretchedTtl,
        Flaw::OwnTtl,
        Flaw::CloseUnderJob,
        Flaw::UnknownIsNo,
        Flaw::ReleaseBeforeDrain,
        Flaw::NoEarlyCancel,
        Flaw::NoCheckInPoll,
    ];
    let flaw = known.into_iter().find(|flaw| format!("{flaw:?}") == name);
    Some(flaw.unwrap_or_else(|| panic!("TENURE_TEST_FLAW={name} is none of {known:?}")))
}
