//! The signatures of the contract's operations, for stores that write them all in the same way.

/// Writes methods of a [`Store`](crate::store::Store), without repeating their signatures.
///
/// - `store_methods! { to inner: open beat }` passes these on to the store in the field `inner`.
/// - `store_methods!(each)` calls the macro `each` with the signature of every method that has a limit, but
///   for that: `each! { open(open: Open) -> SessionSeen }`.
/// - `store_methods! { each: open beat }` does so for these methods.
/// - `store_methods! { each: open(some words); beat(others); }` puts what stands in the parentheses before
///   the signature: `each! { (some words) open(open: Open) -> SessionSeen }`.
///
/// Not part of the stable interface: whenever the contract gains a method, this macro writes one more.
#[doc(hidden)]
#[macro_export]
macro_rules! store_methods {
    (to $store:ident: $($method:ident)+) => {
        $($crate::store_methods! { @$method [$crate::store_methods] @pass_on $store })+
    };
    (@pass_on $store:ident $method:ident($($argument:ident: $type:ty),+) -> $answer:ty) => {
        fn $method(
            &self,
            $($argument: $type,)+
            limit: ::std::time::Duration
        ) -> $crate::store::Answer<'_, $answer> {
            self.$store.$method($($argument,)+ limit)
        }
    };
    ($each:ident) => {
        $crate::store_methods! {
            $each:
            open beat observe declare sessions take release wait stop_waiting waiters
            places set_value locks list_locks held_by latest_grants revoke define instruct schedules
            list_schedules delete_schedule claim finish history last_runs purge_runs purge
        }
    };
    ($each:ident: $($method:ident)+) => {
        $($crate::store_methods! { @$method [$each] })+
    };
    ($each:ident: $($method:ident($($with:tt)+);)+) => {
        $($crate::store_methods! { @$method [$each] ($($with)+) })+
    };
    (@open [$($each:tt)+] $($with:tt)*) => {
        $($each)+! { $($with)* open(open: $crate::store::Open) -> $crate::store::SessionSeen }
    };
    (@beat [$($each:tt)+] $($with:tt)*) => {
        $($each)+! { $($with)* beat(beat: $crate::store::BeatWrite) -> $crate::store::SessionSeen }
    };
    (@observe [$($each:tt)+] $($with:tt)*) => {
        $($each)+! {
            $($with)* observe(
                sessions: Vec<$crate::model::SessionId>
            ) -> Vec<$crate::store::SessionSeen>
        }
    };
    (@declare [$($each:tt)+] $($with:tt)*) => {
        $($each)+! {
            $($with)* declare(
                declaration: $crate::store::Declaration
            ) -> $crate::store::SessionSeen
        }
    };
    (@sessions [$($each:tt)+] $($with:tt)*) => {
        $($each)+! {
            $($with)* sessions(
                namespace: $crate::model::Namespace,
                after: Option<$crate::store::Cursor>,
                at_most: usize
            ) -> $crate::store::Page<$crate::store::SessionRecord>
        }
    };
    (@take [$($each:tt)+] $($with:tt)*) => {
        $($each)+! {
            $($with)* take(
                takes: Vec<$crate::store::Take>,
                dead: Vec<$crate::model::SessionId>
            ) -> Vec<$crate::store::TakeAnswer>
        }
    };
    (@release [$($each:tt)+] $($with:tt)*) => {
        $($each)+! {
            $($with)* release(
                releases: Vec<$crate::store::Release>
            ) -> Vec<$crate::store::ReleaseAnswer>
        }
    };
    (@wait [$($each:tt)+] $($with:tt)*) => {
        $($each)+! { $($with)* wait(waits: Vec<$crate::store::Wait>) -> () }
    };
    (@stop_waiting [$($each:tt)+] $($with:tt)*) => {
        $($each)+! {
            $($with)* stop_waiting(
                waits: Vec<($crate::model::LockId, $crate::model::SessionId, $crate::store::Ticket)>
            ) -> ()
        }
    };
    (@waiters [$($each:tt)+] $($with:tt)*) => {
        $($each)+! { $($with)* waiters(lock: $crate::model::LockId, at_most: usize) -> $crate::store::Queue }
    };
    (@places [$($each:tt)+] $($with:tt)*) => {
        $($each)+! {
            $($with)* places(
                places: Vec<($crate::model::LockId, $crate::model::SessionId, $crate::store::Ticket)>
            ) -> Vec<bool>
        }
    };
    (@set_value [$($each:tt)+] $($with:tt)*) => {
        $($each)+! { $($with)* set_value(set: $crate::store::SetValue) -> $crate::store::SetAnswer }
    };
    (@locks [$($each:tt)+] $($with:tt)*) => {
        $($each)+! { $($with)* locks(locks: Vec<$crate::model::LockId>) -> Vec<$crate::store::LockSeen> }
    };
    (@list_locks [$($each:tt)+] $($with:tt)*) => {
        $($each)+! {
            $($with)* list_locks(
                namespace: $crate::model::Namespace,
                kind: Option<$crate::model::Kind>,
                after: Option<$crate::store::Cursor>,
                at_most: usize
            ) -> $crate::store::Page<$crate::store::LockRecord>
        }
    };
    (@held_by [$($each:tt)+] $($with:tt)*) => {
        $($each)+! {
            $($with)* held_by(
                session: $crate::model::SessionId,
                after: Option<$crate::store::Cursor>,
                at_most: usize
            ) -> $crate::store::Page<$crate::store::Held>
        }
    };
    (@latest_grants [$($each:tt)+] $($with:tt)*) => {
        $($each)+! {
            $($with)* latest_grants(
                sessions: Vec<$crate::model::SessionId>,
                at_most: usize
            ) -> Vec<$crate::store::LockRecord>
        }
    };
    (@revoke [$($each:tt)+] $($with:tt)*) => {
        $($each)+! {
            $($with)* revoke(
                revocation: $crate::store::Revocation
            ) -> $crate::store::RevokeAnswer
        }
    };
    (@define [$($each:tt)+] $($with:tt)*) => {
        $($each)+! { $($with)* define(define: $crate::store::Define) -> $crate::store::ScheduleSeen }
    };
    (@instruct [$($each:tt)+] $($with:tt)*) => {
        $($each)+! {
            $($with)* instruct(
                schedule: $crate::model::ScheduleId,
                instruction: $crate::store::Instruction
            ) -> $crate::store::ScheduleSeen
        }
    };
    (@schedules [$($each:tt)+] $($with:tt)*) => {
        $($each)+! {
            $($with)* schedules(
                schedules: Vec<$crate::model::ScheduleId>
            ) -> Vec<$crate::store::ScheduleSeen>
        }
    };
    (@list_schedules [$($each:tt)+] $($with:tt)*) => {
        $($each)+! {
            $($with)* list_schedules(
                namespace: $crate::model::Namespace,
                after: Option<$crate::store::Cursor>,
                at_most: usize
            ) -> $crate::store::Page<$crate::store::ScheduleRecord>
        }
    };
    (@delete_schedule [$($each:tt)+] $($with:tt)*) => {
        $($each)+! { $($with)* delete_schedule(schedule: $crate::model::ScheduleId) -> bool }
    };
    (@claim [$($each:tt)+] $($with:tt)*) => {
        $($each)+! { $($with)* claim(claim: $crate::store::Claim) -> $crate::store::ClaimAnswer }
    };
    (@finish [$($each:tt)+] $($with:tt)*) => {
        $($each)+! { $($with)* finish(finish: $crate::store::FinishRun) -> $crate::store::ClaimAnswer }
    };
    (@history [$($each:tt)+] $($with:tt)*) => {
        $($each)+! {
            $($with)* history(
                schedule: $crate::model::ScheduleId,
                after: Option<$crate::store::Cursor>,
                at_most: usize
            ) -> $crate::store::RunPage
        }
    };
    (@last_runs [$($each:tt)+] $($with:tt)*) => {
        $($each)+! {
            $($with)* last_runs(
                schedules: Vec<$crate::model::ScheduleId>,
                at_most: usize
            ) -> Vec<$crate::store::Page<$crate::model::RunRecord>>
        }
    };
    (@purge_runs [$($each:tt)+] $($with:tt)*) => {
        $($each)+! {
            $($with)* purge_runs(
                schedule: $crate::model::ScheduleId,
                older_than: ::std::time::Duration,
                keep: usize
            ) -> $crate::store::RunPage
        }
    };
    (@purge [$($each:tt)+] $($with:tt)*) => {
        $($each)+! {
            $($with)* purge(
                namespace: $crate::model::Namespace,
                retention: $crate::model::Retention,
                after: Option<$crate::store::Cursor>
            ) -> $crate::store::Purged
        }
    };
}
