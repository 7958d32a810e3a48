//! The conformance suite: one test for every property of the [contract](tenure::store::Store).
//!
//! The author of a store runs it with [`conformance_tests!`](conformance_tests). Each property is a function that
//! takes a [`Fixture`] and panics if the store does not keep it; its name is the property. Properties do not disturb
//! one another: they may run at the same time, on one store, on one server.
//!
//! No test here looks at a clock of the machine it runs on. Times of the store are compared with each other only, and
//! what needs the store's clock to go on is asked again until it has.
//!
//! | subject | what the store must keep |
//! |---|---|
//! | [`sessions`] | opened once, beaten upward, observed in order, listed with the dead |
//! | [`deaths`] | declared on a ground that holds, once, for ever |
//! | [`locks`] | take, takeover, closing ([R4](tenure::store#rules-of-safety), [R7](tenure::store#rules-of-safety)) |
//! | [`releases`] | release, hand-over ([R6](tenure::store#rules-of-safety)) |
//! | [`terms`] | terms rise ([R5](tenure::store#rules-of-safety)); the last holders are remembered |
//! | [`races`] | every step is atomic |
//! | [`batches`] | answered key by key; repeated, dropped, out of time |
//! | [`texts`] | any text and any byte, up to the limits; kinds and namespaces do not meet |
//! | [`values`] | set by the holder, under its term |
//! | [`listings`] | reads and pages |
//! | [`queue`] | first come, first served |
//! | [`revoke`] | asked, or taken away |
//! | [`schedules`] | defined by their owner, held back and wanted by any instance |
//! | [`runs`], [`purge_runs`] | a tick is claimed and ended once; the mark never goes back |
//! | [`last_runs`] | the ends of several ledgers are read at once |
//! | [`entries`] | ticks, orders, and ticks that were not run stand side by side |
//! | [`purge`], [`abandoned`] | only unneeded records, and all of them |
//! | [`hints`] | they come, and are right |
//! | [`dedicated`] | a connection of its own leads to the same records |
//!
//! Not tested here: records that were written by hand or by another version (each store writes its records in
//! its own way), that an answer outlives the failure of a server ([R11](tenure::store#rules-of-safety)), and
//! everything that needs a clock to be turned.

#![allow(clippy::missing_panics_doc, reason = "every property panics if it is broken: that is its only use")]

/// A record of the contract with other values in some fields: it may have more of them in a later version.
macro_rules! with {
    ($record:expr; $($field:ident: $value:expr),+ $(,)?) => {{
        let mut record = $record;
        $(record.$field = $value;)+
        record
    }};
}

pub mod abandoned;
pub mod batches;
pub mod deaths;
pub mod dedicated;
pub mod entries;
mod fixture;
pub mod hints;
pub mod last_runs;
pub mod listings;
pub mod locks;
pub mod purge;
pub mod purge_runs;
pub mod queue;
pub mod races;
pub mod releases;
pub mod revoke;
pub mod runs;
pub mod schedules;
pub mod sessions;
pub mod terms;
pub mod texts;
pub mod values;

pub use fixture::{Fixture, LIMIT, TTL};

/// Makes a test of every property of the contract, from one expression that builds the store.
///
/// The expression is evaluated once for each test, in an async function, and gives an `Arc` of the
/// store. A store that gives no hints leaves them out with `without hints:`; `hints only:` is the rest. The tests use tokio's
/// runtime of many threads (features `macros` and `rt-multi-thread`).
///
/// ```
/// # #[allow(unused)]
/// mod conformance {
///     use std::sync::Arc;
///     use tenure::store::MemoryStore;
///
///     tenure_conformance::conformance_tests!(Arc::new(MemoryStore::default()));
/// }
///
/// # #[allow(unused)]
/// mod without_hints {
///     # use std::sync::Arc;
///     # use tenure::store::MemoryStore;
///     # async fn standalone_server() -> Arc<MemoryStore> { Arc::default() }
///     tenure_conformance::conformance_tests!(without hints: standalone_server().await);
/// }
/// ```
#[macro_export]
macro_rules! conformance_tests {
    (@subject [$store:expr] $subject:ident: $($property:ident)+) => {
        mod $subject {
            #[allow(unused_imports)]
            use super::*;

            $(
                #[::tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $property() {
                    let fixture = $crate::Fixture::new($store);
                    $crate::$subject::$property(&fixture).await;
                }
            )+
        }
    };
    // list begins
    (without hints: $store:expr) => {
        $crate::conformance_tests! { @subject [$store] sessions:
            an_opened_session_is_as_it_was_asked_for
            opening_again_with_the_same_nonce_changes_nothing
            opening_with_another_nonce_finds_the_session_that_is_there
            opening_again_after_a_beat_changes_nothing
            a_session_buried_before_it_opened_is_found_dead
            opening_a_dead_session_again_finds_it_dead
            of_openings_that_race_one_is_kept
            a_beat_writes_its_number_and_nonce
            a_late_beat_changes_nothing
            a_beat_says_since_when_the_program_stands_still
            a_beat_sent_again_is_recognised
            a_beat_never_inserts
            a_beat_of_a_dead_session_changes_nothing
            shares_are_replaced_only_when_they_are_given
            sessions_are_observed_in_the_order_asked_for
            many_sessions_are_observed_at_once
            sessions_are_listed_page_by_page_with_the_dead
            a_namespace_without_sessions_lists_none
        }
        $crate::conformance_tests! { @subject [$store] deaths:
            a_beat_that_was_watched_buries_its_session
            the_latest_of_many_beats_buries_its_session
            a_beat_that_was_not_watched_saves_its_session
            of_a_beat_and_a_declaration_that_race_one_counts
            a_session_found_missing_gets_a_tombstone
            a_tombstone_is_inserted_only_if_there_is_no_session
            only_a_missing_session_gets_a_tombstone
            a_session_without_a_presence_is_never_proven_dead
            a_session_whose_presence_is_kept_is_not_proven_dead
            an_operator_may_end_it_at_once
            only_the_first_declaration_is_kept
            only_the_first_tombstone_is_kept
            of_declarations_that_race_one_is_kept
            dead_is_for_ever
            a_session_beats_on_after_declarations_that_failed
        }
        $crate::conformance_tests! { @subject [$store] locks:
            a_lock_without_a_record_is_taken
            a_take_of_a_held_lock_changes_nothing
            a_take_sent_again_gets_the_same_term
            a_take_sent_again_does_not_undo_a_new_value
            a_take_for_an_earlier_ticket_changes_nothing
            a_take_for_a_later_ticket_starts_a_new_term
            a_take_that_names_the_dead_holder_takes_over
            a_take_that_does_not_name_the_dead_holder_changes_nothing
            naming_the_dead_does_not_disturb_the_living
            a_lock_delay_closes_the_lock_of_the_dead
            a_lock_delay_ends
            a_lock_may_be_closed_for_ever
            a_lock_released_for_later_is_closed_to_all
            a_lock_released_for_later_opens_again
        }
        $crate::conformance_tests! { @subject [$store] releases:
            a_release_keeps_the_record_and_its_term
            a_release_by_anybody_else_does_nothing
            a_release_of_a_lock_without_a_record_does_nothing
            a_release_sent_again_does_nothing
            a_hand_over_grants_the_lock_as_the_waiter_asked
            a_hand_over_may_stay_in_the_session
            a_lock_that_is_wanted_is_not_released_unasked
            a_mark_goes_with_a_release_to_nobody
        }
        $crate::conformance_tests! { @subject [$store] terms:
            the_term_rises_with_every_change_of_holder
            terms_rise_also_within_one_tick_of_the_clock
            the_last_holders_are_remembered
        }
        $crate::conformance_tests! { @subject [$store] races:
            of_takes_that_race_one_wins
            repeats_of_a_take_that_race_get_one_term
            of_takeovers_that_race_one_wins
            of_releases_that_race_one_counts
            batches_that_race_take_each_key_once
            a_lock_has_one_holder_at_a_time
        }
        $crate::conformance_tests! { @subject [$store] batches:
            a_batch_of_takes_mixes_outcomes_and_keeps_the_order
            a_batch_of_a_thousand_is_taken_and_released
            a_batch_of_releases_mixes_outcomes
            a_batch_may_name_a_lock_twice
            an_empty_batch_does_nothing
            a_call_without_time_is_answered_soon_and_may_be_sent_again
            a_call_that_was_dropped_may_be_sent_again
        }
        $crate::conformance_tests! { @subject [$store] texts:
            any_text_is_a_key_of_its_own
            any_text_may_be_said_of_a_lock
            saying_nothing_is_not_an_empty_saying
            a_value_may_have_any_bytes_up_to_the_limit
            kinds_do_not_meet
            namespaces_do_not_meet
            large_numbers_come_back_as_they_were
        }
        $crate::conformance_tests! { @subject [$store] values:
            the_holder_sets_and_clears_its_value
            a_value_set_again_is_set
            a_late_value_changes_nothing
            only_the_holder_sets_a_value
            a_lock_nobody_holds_has_no_value
            a_value_goes_with_its_holder
        }
        $crate::conformance_tests! { @subject [$store] listings:
            locks_are_read_in_the_order_asked_for
            reading_changes_nothing
            locks_are_listed_page_by_page_by_kind_and_key
            a_kind_without_locks_lists_none
            keys_of_a_session_are_listed_latest_first
            a_listing_goes_on_where_items_have_gone
            a_cursor_of_another_store_is_refused_as_one_or_read_as_a_place
            the_list_of_a_sessions_keys_follows_every_change
            the_latest_grants_of_sessions_come_largest_term_first
            the_latest_grants_of_hundreds_of_sessions_are_found
            the_latest_grants_follow_every_change
        }
        $crate::conformance_tests! { @subject [$store] queue:
            waiters_stand_in_the_order_they_came
            only_so_many_waiters_are_read
            places_are_found_in_the_order_asked_for
            an_entry_that_is_there_keeps_its_place
            each_ticket_of_a_session_has_its_place
            leaving_passes_over_those_who_do_not_stand_there
            a_waiter_that_comes_again_stands_at_the_end
            a_batch_stands_in_many_queues
            waiting_marks_the_lock_and_changes_nothing_else
        }
        $crate::conformance_tests! { @subject [$store] revoke:
            a_request_comes_with_every_beat_until_it_was_heard
            hearing_names_lock_and_term
            a_late_beat_hears_nothing
            asking_twice_is_asking_once
            asking_takes_nothing_away
            a_session_that_is_dead_or_missing_cannot_be_asked
            requests_beyond_the_limit_are_refused_until_some_are_heard
            force_takes_a_lock_away
            force_takes_one_lock_only
            an_order_to_drain_is_kept_until_it_is_taken_back
            force_names_a_term
            force_needs_a_holder
            reopening_opens_what_is_kept_closed
            reopening_names_a_term_that_nobody_has_followed
        }
        $crate::conformance_tests! { @subject [$store] schedules:
            a_definition_is_there_afterwards
            the_same_definition_again_changes_nothing
            other_policies_keep_the_timing_and_since_when
            another_timing_counts_from_then_on
            a_timing_in_other_words_counts_from_when_the_one_before_did
            schedules_are_listed_by_name
            a_schedule_that_is_deleted_leaves_nothing
            the_pauses_before_the_last_one_are_remembered
            an_owner_of_a_smaller_term_defines_nothing
            an_owner_of_an_equal_or_larger_term_defines
            of_definitions_that_race_the_latest_owners_stands
            a_pause_is_kept_from_its_first_moment
            a_pause_ends_once
            after_a_pause_there_may_be_another
            orders_stand_in_the_order_of_their_instants
            an_order_given_twice_is_one
            an_order_that_ran_is_gone
            orders_beyond_the_limit_are_refused_until_some_have_run
            of_orders_that_race_none_is_lost
            a_schedule_nobody_defined_may_be_instructed
            an_instruction_to_a_schedule_leaves_the_rest
            a_purge_raises_the_mark_and_leaves_the_rest
            a_record_is_no_mark
            schedules_are_read_in_the_order_asked_for
            any_text_may_be_said_of_a_schedule
        }
        $crate::conformance_tests! { @subject [$store] runs:
            a_tick_nobody_claimed_is_granted
            a_claim_sent_again_is_recognised
            a_claimed_tick_is_granted_to_nobody_else
            a_claim_replaces_the_attempt_it_names
            an_attempt_that_did_not_begin_is_claimed_again_under_its_number
            a_claim_in_place_of_nobody_is_granted
            an_attempt_that_succeeded_is_not_replaced
            an_attempt_that_was_the_last_is_not_replaced
            of_claims_that_race_one_wins
            an_attempt_ends_as_it_says
            an_end_may_become_the_last
            an_attempt_ends_once
            only_the_attempt_on_record_ends
            a_tick_nobody_claimed_cannot_end
            a_history_is_listed_latest_first
            schedules_do_not_meet
            a_schedule_that_never_ran_has_no_history
        }
        $crate::conformance_tests! { @subject [$store] entries:
            ticks_that_are_not_run_are_written_finished
            ticks_that_are_not_run_are_told_once
            entries_of_one_instant_do_not_meet
            an_entry_that_is_replaced_is_replaced_as_a_whole
            entries_are_listed_last_first
            entries_are_purged_first_to_last
        }
        $crate::conformance_tests! { @subject [$store] last_runs:
            the_last_runs_are_those_a_history_begins_with
            a_ledger_asked_for_twice_is_answered_twice
            many_ledgers_are_read_at_once
            the_last_runs_follow_a_purge
        }
        $crate::conformance_tests! { @subject [$store] purge_runs:
            young_runs_are_not_purged
            the_latest_runs_are_kept
            the_mark_never_goes_back
            a_claim_does_not_look_at_the_mark
            a_purge_keeps_to_its_schedule
            a_purge_of_nothing_leaves_no_mark
        }
        $crate::conformance_tests! { @subject [$store] purge:
            a_dead_session_is_purged_with_its_places_in_the_queue
            a_session_that_died_lately_is_kept
            a_dead_session_that_a_lock_names_is_kept
            the_living_are_never_purged
            held_locks_and_young_terms_are_never_purged
            a_purge_keeps_to_its_namespace
            a_purge_of_nothing_removes_nothing
        }
        $crate::conformance_tests! { @subject [$store] abandoned:
            a_lock_of_the_dead_becomes_free_and_keeps_its_term
            a_lock_of_one_that_died_lately_is_kept
            a_lock_of_the_dead_with_a_delay_is_closed
            a_lock_is_freed_of_the_dead_only
            a_dead_session_with_a_thousand_locks_is_purged
            a_purge_gets_past_a_thousand_dead_that_stay
            places_of_the_dead_go_however_lately_they_died
        }
        $crate::conformance_tests! { @subject [$store] dedicated:
            a_dedicated_store_has_the_same_records
        }
    };
    (hints only: $store:expr) => {
        $crate::conformance_tests! { @subject [$store] hints:
            a_listener_is_told_to_resync_first
            a_topic_that_is_added_is_heard
            every_change_of_a_task_is_hinted
            a_waiter_gets_a_hint_of_a_release
            a_hint_names_a_task_that_gets_a_waiter
            the_value_of_a_schedule_is_hinted
            news_of_a_member_are_hinted
            a_holder_that_is_asked_for_a_lock_gets_a_hint
            a_beat_gives_no_hint
            instructions_to_a_schedule_give_a_hint
            a_run_gives_no_hint
            every_listener_hears_the_same
        }
    };
    ($store:expr) => {
        $crate::conformance_tests! { without hints: $store }
        $crate::conformance_tests! { hints only: $store }
    };
    // list ends
}

#[cfg(test)]
mod tests {
    /// The list of the macro is written by hand; this sees to it that nothing is left out.
    #[test]
    fn every_property_is_in_the_list() {
        let list = include_str!("lib.rs");
        let listed: Vec<_> = list.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        let subjects = [
            include_str!("abandoned.rs"),
            include_str!("batches.rs"),
            include_str!("deaths.rs"),
            include_str!("dedicated.rs"),
            include_str!("entries.rs"),
            include_str!("hints.rs"),
            include_str!("last_runs.rs"),
            include_str!("listings.rs"),
            include_str!("locks.rs"),
            include_str!("purge.rs"),
            include_str!("purge_runs.rs"),
            include_str!("queue.rs"),
            include_str!("races.rs"),
            include_str!("releases.rs"),
            include_str!("revoke.rs"),
            include_str!("runs.rs"),
            include_str!("schedules.rs"),
            include_str!("sessions.rs"),
            include_str!("terms.rs"),
            include_str!("texts.rs"),
            include_str!("values.rs"),
        ];
        let modules = list.lines().filter(|line| line.starts_with("pub mod ")).count();
        assert_eq!(subjects.len(), modules, "every module of properties is looked at");
        for property in subjects.iter().flat_map(|text| text.split("\npub async fn ").skip(1)) {
            let name = property.split('(').next().unwrap();
            assert!(listed.contains(&name), "{name} is not in the list of conformance_tests!");
        }
    }
}
