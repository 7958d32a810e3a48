//! The server's error codes by the names it gives them, and what the codes that come in groups tell of.

pub(crate) const BAD_VALUE: i32 = 2;
pub(crate) const FAILED_TO_PARSE: i32 = 9;
const USER_NOT_FOUND: i32 = 11;
pub(crate) const UNAUTHORIZED: i32 = 13;
pub(crate) const TYPE_MISMATCH: i32 = 14;
pub(crate) const AUTHENTICATION_FAILED: i32 = 18;
const PATH_NOT_VIABLE: i32 = 28;
const CONFLICTING_UPDATE_OPERATORS: i32 = 40;
pub(crate) const NAMESPACE_EXISTS: i32 = 48;
const DOLLAR_PREFIXED_FIELD_NAME: i32 = 52;
const INVALID_ID_FIELD: i32 = 53;
const EMPTY_FIELD_NAME: i32 = 56;
const DOTTED_FIELD_NAME: i32 = 57;
pub(crate) const COMMAND_NOT_FOUND: i32 = 59;
const IMMUTABLE_FIELD: i32 = 66;
pub(crate) const INVALID_OPTIONS: i32 = 72;
pub(crate) const COMMAND_NOT_SUPPORTED: i32 = 115;
const DOCUMENT_VALIDATION_FAILURE: i32 = 121;
pub(crate) const READ_CONCERN_MAJORITY_NOT_ENABLED: i32 = 148;
const DURATION_OVERFLOW: i32 = 159;
/// The source of a query was dropped.
pub(crate) const QUERY_PLAN_KILLED: i32 = 175;
pub(crate) const NOT_IMPLEMENTED: i32 = 238;
/// Said by other servers that speak the protocol.
pub(crate) const FEATURE_NOT_SUPPORTED: i32 = 303;
const MECHANISM_UNAVAILABLE: i32 = 334;
/// The collection is another one than was named, or there is none.
pub(crate) const COLLECTION_UUID_MISMATCH: i32 = 361;
const LEGACY_NOT_PRIMARY: i32 = 10_058;
pub(crate) const NOT_WRITABLE_PRIMARY: i32 = 10_107;
pub(crate) const DUPLICATE_KEY: i32 = 11_000;
const INTERRUPTED_AT_SHUTDOWN: i32 = 11_600;
const INTERRUPTED: i32 = 11_601;
const INTERRUPTED_DUE_TO_REPL_STATE_CHANGE: i32 = 11_602;
const STALE_CONFIG: i32 = 13_388;
pub(crate) const NOT_PRIMARY_NO_SECONDARY_OK: i32 = 13_435;
const NOT_PRIMARY_OR_SECONDARY: i32 = 13_436;
const OUT_OF_DISK_SPACE: i32 = 14_031;
/// An expression names a variable that the server does not know.
pub(crate) const UNDEFINED_VARIABLE: i32 = 17_276;

/// Returns whether the server has understood the login and refuses it: the same login fails again.
pub(crate) const fn refuses_a_login(code: i32) -> bool {
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

/// Returns whether an error of one statement is about the document it was to change: then the other statements of its
/// command are done, and this one fails again. Every other error is about the server, its disk, or a
/// timeout: it may pass, and the outcome of the command is unknown.
///
/// The server has names for what may happen anywhere, with numbers below 1,000. What one expression or one
/// operator refuses has a number above 10,000, where a few states of the server have theirs, too.
pub(crate) fn is_of_the_document(code: i32) -> bool {
    match code {
        BAD_VALUE
        | FAILED_TO_PARSE
        | TYPE_MISMATCH
        | PATH_NOT_VIABLE
        | CONFLICTING_UPDATE_OPERATORS
        | DOLLAR_PREFIXED_FIELD_NAME
        | INVALID_ID_FIELD
        | EMPTY_FIELD_NAME
        | DOTTED_FIELD_NAME
        | IMMUTABLE_FIELD
        | DOCUMENT_VALIDATION_FAILURE
        | DURATION_OVERFLOW => true,
        LEGACY_NOT_PRIMARY
        | NOT_WRITABLE_PRIMARY
        | INTERRUPTED_AT_SHUTDOWN
        | INTERRUPTED
        | INTERRUPTED_DUE_TO_REPL_STATE_CHANGE
        | STALE_CONFIG
        | NOT_PRIMARY_NO_SECONDARY_OK
        | NOT_PRIMARY_OR_SECONDARY
        | OUT_OF_DISK_SPACE => false,
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
