//! A part of a whole, as a bar.

use maud::{Markup, html};

/// Draws a part of the whole, in thousandths, with its meaning in words.
pub(crate) fn bar(permille: u64, class: &str, says: &str) -> Markup {
    let width = permille.min(1000);
    html! {
        svg.bar viewBox="0 0 1000 60" preserveAspectRatio="none" role="img" aria-label=(says) {
            title { (says) }
            rect.back width="1000" height="60" {}
            rect class=(format!("fill {class}")) width=(width) height="60" {}
        }
    }
}

/// `part` of `whole` in thousandths.
pub(crate) fn permille(part: usize, whole: usize) -> u64 {
    u64::try_from(part.saturating_mul(1000) / whole.max(1)).unwrap_or(u64::MAX)
}
