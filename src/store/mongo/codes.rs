//! What an error of the driver or of the server says of an operation: whether it was applied, and whether to
//! try again. In doubt, nothing is known, and it is worth another try.

use std::error::Error as _;

use mongodb::error::{Error as DriverError, ErrorKind};

use super::words;
use crate::error::Applied;

pub(super) const DUPLICATE_KEY: i32 = 11_000;

const BAD_VALUE: i32 = 2;
const FAILED_TO_PARSE: i32 = 9;
const USER_NOT_FOUND: i32 = 11;
const UNAUTHORIZED: i32 = 13;
const TYPE_MISMATCH: i32 = 14;
const AUTHENTICATION_FAILED: i32 = 18;
const COMMAND_NOT_FOUND: i32 = 59;
const INVALID_OPTIONS: i32 = 72;
const MECHANISM_UNAVAILABLE: i32 = 334;
const NOT_WRITABLE_PRIMARY: i32 = 10_107;
const NOT_PRIMARY_NO_SECONDARY_OK: i32 = 13_435;

/// Whether somebody has to change something before what failed so can succeed.
pub(super) fn is_lasting(error: &DriverError) -> bool {
    !classify(error).1
}

/// Whether the server refuses whoever this client is, or is not whom it trusts: with another password or
/// certificate it may be right again.
pub(super) fn refuses_the_client(error: &DriverError) -> bool {
    let is_login = matches!(&*error.kind, ErrorKind::Authentication { .. });
    is_login && is_lasting(error) || words::is_of_a_certificate(error)
}

/// What an error of the driver says of the operation.
pub(super) fn classify(error: &DriverError) -> (Applied, bool) {
    match &*error.kind {
        // Nothing was sent.
        ErrorKind::ServerSelection { message, .. } => (Applied::No, !words::is_of_another_set(message)),
        // The name may come: that of a pod is known once it runs.
        ErrorKind::DnsResolve { .. } => (Applied::No, true),
        ErrorKind::Authentication { .. } => (Applied::No, is_worth_another_login(error)),
        ErrorKind::InvalidArgument { .. }
        | ErrorKind::InvalidTlsConfig { .. }
        | ErrorKind::IncompatibleServer { .. }
        | ErrorKind::Shutdown => (Applied::No, false),
        // Refused before anything was done.
        ErrorKind::Command(command) => match command.code {
            NOT_WRITABLE_PRIMARY | NOT_PRIMARY_NO_SECONDARY_OK => (Applied::No, true),
            UNAUTHORIZED
            | AUTHENTICATION_FAILED
            | BAD_VALUE
            | FAILED_TO_PARSE
            | TYPE_MISMATCH
            | COMMAND_NOT_FOUND
            | INVALID_OPTIONS => (Applied::No, false),
            _ => (Applied::Unknown, true),
        },
        _ => (Applied::Unknown, true),
    }
}

/// The driver calls every login that failed by one name, also that at a server which is starting, stepping
/// down or shutting down. What the server said stands behind it.
fn is_worth_another_login(error: &DriverError) -> bool {
    let Some(source) = error.source() else { return false };
    let said = source.downcast_ref::<DriverError>();
    let said = said.or_else(|| source.downcast_ref::<Box<DriverError>>().map(|boxed| &**boxed));
    match said.map(|said| &*said.kind) {
        Some(ErrorKind::Command(command)) => !refuses_a_login(command.code),
        Some(_) => true,
        None => false,
    }
}

/// Whether the server has understood who it is, and says no: the same login fails again.
fn refuses_a_login(code: i32) -> bool {
    matches!(
        code,
        AUTHENTICATION_FAILED
            | USER_NOT_FOUND
            | UNAUTHORIZED
            | BAD_VALUE
            | FAILED_TO_PARSE
            | TYPE_MISMATCH
            | COMMAND_NOT_FOUND
            | INVALID_OPTIONS
            | MECHANISM_UNAVAILABLE
    )
}

/// Whether an error of one statement tells of the document it was to change: then the other statements of its
/// command are done, and this one fails again. Everything else tells of the server, of its disk, of a timeout:
/// it may pass, and what became of the command is unknown.
///
/// The server has names for what may happen anywhere, with numbers below 1,000. What one expression or one
/// operator refuses has a number above 10,000, where a few states of the server have theirs, too.
pub(super) fn is_of_the_document(code: i32) -> bool {
    match code {
        // BadValue, FailedToParse, TypeMismatch, PathNotViable, ConflictingUpdateOperators,
        // DollarPrefixedFieldName, InvalidIdField, EmptyFieldName, DottedFieldName, ImmutableField,
        // DocumentValidationFailure, DurationOverflow.
        BAD_VALUE | FAILED_TO_PARSE | TYPE_MISMATCH | 28 | 40 | 52 | 53 | 56 | 57 | 66 | 121 | 159 => true,
        // LegacyNotPrimary, NotWritablePrimary, InterruptedAtShutdown, Interrupted,
        // InterruptedDueToReplStateChange, StaleConfig, NotPrimaryNoSecondaryOk, NotPrimaryOrSecondary,
        // OutOfDiskSpace.
        10_058
        | NOT_WRITABLE_PRIMARY
        | 11_600..=11_602
        | 13_388
        | NOT_PRIMARY_NO_SECONDARY_OK
        | 13_436
        | 14_031 => false,
        _ => code >= 10_000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_of_the_server_are_not_told_of_a_document() {
        for code in [
            6, 7, 13, 24, 46, 50, 64, 79, 89, 91, 100, 112, 117, 133, 134, 189, 202, 239, 246, 262, 290, 317,
            365, 384, 9001, 10_058, 10_107, 11_600, 11_601, 11_602, 13_388, 13_435, 13_436, 14_031,
        ] {
            assert!(!is_of_the_document(code), "{code}");
        }
        for code in [2, 9, 14, 28, 40, 52, 66, 121, 159, 10_334, 16_006, 17_280, 17_419, 40_234, 5_107_200] {
            assert!(is_of_the_document(code), "{code}");
        }
    }
}
