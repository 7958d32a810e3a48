//! Tables that several screens have.

use maud::{Markup, html};
use tenure::{model::StoreTime, store::Past};
use tenure_look::{Area, Group, KeyDetails, Picture, Refused, Severity, length, one_line};

use super::{
    hour::severity,
    text::{instant, life, name, since},
};

/// Draws the former holders of a key, the last one first.
pub(crate) fn past(past: &[Past], now: StoreTime) -> Markup {
    html! {
        @if past.is_empty() { p.quiet { "Its record has no earlier holder." } } @else {
            div.scroll {
                table {
                    caption { "Its last holders; a record remembers five" }
                    thead { tr { th scope="col" { "Holder" } th scope="col" { "From" } th scope="col" { "For" } th scope="col" { "Ended" } th scope="col" { "How" } th scope="col" { "Note" } th.number scope="col" { "Term" } } }
                    tbody {
                        @for one in past {
                            tr {
                                th scope="row" { (name(one.holder.as_str())) }
                                td { (instant(one.from)) }
                                td { (length(one.to.since(one.from))) }
                                td { (since(one.to, now)) }
                                td { (one.how.as_str()) }
                                td { @if let Some(note) = &one.note { (name(&note.to_string())) } }
                                td.number { (one.term) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Draws the waiters for a key.
pub(crate) fn waiters(look: &KeyDetails) -> Markup {
    let (waiters, is_whole, now) = (&look.waiters, look.whole, look.now);
    html! {
        @if let Some(why) = &look.waiters_unreadable { (unreadable([(&Area::Waiters, why)].into_iter())) }
        @else if waiters.is_empty() { p.quiet { "No instance waits for it." } } @else {
            div.scroll {
                table {
                    caption { "Waiters, longest first" }
                    thead { tr { th scope="col" { "Waiting" } th scope="col" { "Since" } th scope="col" { "Who" } th scope="col" { "Why" } } }
                    tbody {
                        @for (one, how) in waiters.iter().zip(&look.waiter_lives) {
                            tr {
                                th scope="row" { (name(one.by.holder.as_str())) (life(*how)) }
                                td { (since(one.since, now)) }
                                td { @if let Some(who) = &one.by.who { (name(who.as_str())) } }
                                td { @if let Some(why) = &one.by.why { (name(why.as_str())) } }
                            }
                        }
                    }
                }
            }
            @if !is_whole { p.quiet { "More waiters follow." } }
        }
    }
}

/// Changes as a list, the last one first.
pub(crate) fn changes(groups: &[Group], now: StoreTime) -> Markup {
    html! {
        @if groups.is_empty() { p.quiet { "Nothing of that kind is on record." } } @else {
            ol.changes {
                @for group in groups {
                    @let (word, rest) = group.describe();
                    @let change = &group.change;
                    li {
                        (since(change.at, now)) " "
                        @if let Some(word) = severity(change.severity()) { span class=(format!("badge {word}")) { (word) } " " }
                        @if change.severity() == Severity::Other { span.badge { (word) } " " } @else { (word) " " }
                        (name(rest.trim_end()))
                    }
                }
            }
        }
    }
}

/// Draws notices of parts that the store refuses to read.
pub(crate) fn unreadable<'a>(parts: impl Iterator<Item = (&'a Area, &'a String)>) -> Markup {
    html! {
        @for (area, why) in parts {
            p.bad { "The " (one_line(&area.to_string())) " cannot be read: " (one_line(why)) "; the rest is fresh." }
        }
    }
}

/// Draws notices of records that cannot be read, and of records that were not read yet.
pub(crate) fn gaps(picture: &Picture) -> Markup {
    let (read, cannot) = (picture.read(), picture.refused());
    let unread = picture.spread_names().difference(&read.spreads).count();
    html! {
        @if let Some(why) = picture.deaf() { p.quiet { "No hints arrive, so changes appear a little later: " (name(why)) } }
        @if !cannot.is_empty() { (refused(&cannot)) }
        @if !read.sessions { p.quiet { "Not all sessions were read yet." } }
        @if !read.locks { p.quiet { "Of the locks, only the latest grants and the locks read so far are shown." } }
        @if unread > 0 { p.quiet { "Of " (unread) " of the spreads, only the tasks read so far are shown." } }
        (unread_schedules(picture))
    }
}

/// Says how many schedules were read, unless all were.
pub(crate) fn unread_schedules(picture: &Picture) -> Markup {
    let (read, known) = picture.schedules_read();
    html! {
        @if !picture.read().schedules {
            p.quiet { (read) " of " (known) " schedules were read yet; schedules without an owner are still being looked for." }
        }
    }
}

fn refused(refused: &[Refused]) -> Markup {
    html! {
        ul.refused {
            @for one in refused { li { (name(&one.record)) ": " (name(&one.refusal.to_string())) } }
        }
    }
}
