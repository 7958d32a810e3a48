//! The signatures of the contract's operations, for those who write them all in the same way.

/// Writes methods of a [`Store`](crate::store::Store): all that have a limit, or those that are named.
///
/// For each of them it calls a macro of the caller's with its signature, but for the limit. What stands
/// in parentheses behind a name comes before the signature.
///
/// Not part of the stable interface: a method that the contract gains is one that this macro writes.
#[doc(hidden)]
#[macro_export]
macro_rules! store_methods {
    ($each:ident) => {
        $crate::store_methods! {
            $each:
            open beat observe declare sessions take release wait stop_waiting waiters
            places set_value locks list_locks held_by revoke define instruct schedules
            list_schedules delete_schedule claim finish history purge_runs purge
        }
    };
    ($each:ident: $($method:ident)+) => {
        $($crate::store_methods! { @$method $each })+
    };
    ($each:ident: $($method:ident($($with:tt)+);)+) => {
        $($crate::store_methods! { @$method $each ($($with)+) })+
    };
    (@open $each:ident $($with:tt)*) => {
        $each! { $($with)* open(open: $crate::store::Open) -> $crate::store::SessionSeen }
    };
    (@beat $each:ident $($with:tt)*) => {
        $each! { $($with)* beat(beat: $crate::store::BeatWrite) -> $crate::store::SessionSeen }
    };
    (@observe $each:ident $($with:tt)*) => {
        $each! {
            $($with)* observe(
                sessions: Vec<$crate::model::SessionId>
            ) -> Vec<$crate::store::SessionSeen>
        }
    };
    (@declare $each:ident $($with:tt)*) => {
        $each! {
            $($with)* declare(
                declaration: $crate::store::Declaration
            ) -> $crate::store::SessionSeen
        }
    };
    (@sessions $each:ident $($with:tt)*) => {
        $each! {
            $($with)* sessions(
                namespace: $crate::model::Namespace,
                after: Option<$crate::store::Cursor>,
                at_most: usize
            ) -> $crate::store::Page<$crate::model::SessionRecord>
        }
    };
    (@take $each:ident $($with:tt)*) => {
        $each! {
            $($with)* take(
                takes: Vec<$crate::store::Take>,
                dead: Vec<$crate::model::SessionId>
            ) -> Vec<$crate::store::TakeAnswer>
        }
    };
    (@release $each:ident $($with:tt)*) => {
        $each! {
            $($with)* release(
                releases: Vec<$crate::store::Release>
            ) -> Vec<$crate::store::ReleaseAnswer>
        }
    };
    (@wait $each:ident $($with:tt)*) => {
        $each! { $($with)* wait(waits: Vec<$crate::store::Wait>) -> () }
    };
    (@stop_waiting $each:ident $($with:tt)*) => {
        $each! {
            $($with)* stop_waiting(
                waits: Vec<($crate::model::LockId, $crate::model::SessionId, $crate::model::Ticket)>
            ) -> ()
        }
    };
    (@waiters $each:ident $($with:tt)*) => {
        $each! { $($with)* waiters(lock: $crate::model::LockId, at_most: usize) -> $crate::store::Line }
    };
    (@places $each:ident $($with:tt)*) => {
        $each! {
            $($with)* places(
                places: Vec<($crate::model::LockId, $crate::model::SessionId, $crate::model::Ticket)>
            ) -> Vec<bool>
        }
    };
    (@set_value $each:ident $($with:tt)*) => {
        $each! { $($with)* set_value(set: $crate::store::SetValue) -> $crate::store::SetAnswer }
    };
    (@locks $each:ident $($with:tt)*) => {
        $each! { $($with)* locks(locks: Vec<$crate::model::LockId>) -> Vec<$crate::store::LockSeen> }
    };
    (@list_locks $each:ident $($with:tt)*) => {
        $each! {
            $($with)* list_locks(
                namespace: $crate::model::Namespace,
                kind: Option<$crate::model::Kind>,
                after: Option<$crate::store::Cursor>,
                at_most: usize
            ) -> $crate::store::Page<$crate::model::LockRecord>
        }
    };
    (@held_by $each:ident $($with:tt)*) => {
        $each! {
            $($with)* held_by(
                session: $crate::model::SessionId,
                after: Option<$crate::store::Cursor>,
                at_most: usize
            ) -> $crate::store::Page<$crate::store::Held>
        }
    };
    (@revoke $each:ident $($with:tt)*) => {
        $each! {
            $($with)* revoke(
                revocation: $crate::store::Revocation
            ) -> $crate::store::RevokeAnswer
        }
    };
    (@define $each:ident $($with:tt)*) => {
        $each! { $($with)* define(define: $crate::store::Define) -> $crate::store::ScheduleSeen }
    };
    (@instruct $each:ident $($with:tt)*) => {
        $each! {
            $($with)* instruct(
                schedule: $crate::model::ScheduleId,
                instruction: $crate::store::Instruction
            ) -> $crate::store::ScheduleSeen
        }
    };
    (@schedules $each:ident $($with:tt)*) => {
        $each! {
            $($with)* schedules(
                schedules: Vec<$crate::model::ScheduleId>
            ) -> Vec<$crate::store::ScheduleSeen>
        }
    };
    (@list_schedules $each:ident $($with:tt)*) => {
        $each! {
            $($with)* list_schedules(
                namespace: $crate::model::Namespace,
                after: Option<$crate::store::Cursor>,
                at_most: usize
            ) -> $crate::store::Page<$crate::model::ScheduleRecord>
        }
    };
    (@delete_schedule $each:ident $($with:tt)*) => {
        $each! { $($with)* delete_schedule(schedule: $crate::model::ScheduleId) -> bool }
    };
    (@claim $each:ident $($with:tt)*) => {
        $each! { $($with)* claim(claim: $crate::store::Claim) -> $crate::store::ClaimAnswer }
    };
    (@finish $each:ident $($with:tt)*) => {
        $each! { $($with)* finish(finish: $crate::store::FinishRun) -> $crate::store::ClaimAnswer }
    };
    (@history $each:ident $($with:tt)*) => {
        $each! {
            $($with)* history(
                schedule: $crate::model::ScheduleId,
                after: Option<$crate::store::Cursor>,
                at_most: usize
            ) -> $crate::store::RunPage
        }
    };
    (@purge_runs $each:ident $($with:tt)*) => {
        $each! {
            $($with)* purge_runs(
                schedule: $crate::model::ScheduleId,
                older_than: ::std::time::Duration,
                keep: usize
            ) -> $crate::store::RunPage
        }
    };
    (@purge $each:ident $($with:tt)*) => {
        $each! {
            $($with)* purge(
                namespace: $crate::model::Namespace,
                retention: $crate::store::Retention,
                after: Option<$crate::store::Cursor>
            ) -> $crate::store::Purged
        }
    };
}
