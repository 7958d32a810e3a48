//! Names that look like a slip of another.

/// Number of letters that may be wrong in a name that is taken for another. `TENURE_STORE`, which is the
/// command's own, is three from any field.
const NEAR: usize = 2;

/// Returns the names that are nearest to this one, if any are near at all.
pub(super) fn names(name: &str, known: impl Iterator<Item = String>) -> Vec<String> {
    let near: Vec<_> = known.map(|known| (distance(name, &known), known)).collect();
    let least = near.iter().map(|(distance, _)| *distance).min().unwrap_or(usize::MAX);
    let near = near.into_iter().filter(|(distance, _)| *distance == least && least <= NEAR);
    near.map(|(_, known)| known).collect()
}

/// Number of letters that must be added, left out or changed to make one of the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<_> = other.chars().collect();
    // A row for each letter of the first: the distance of what was read of it to each beginning of the other.
    let mut row: Vec<_> = (0..=other.len()).collect();
    for (count, letter) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], count + 1);
        for (at, wanted) in other.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *wanted);
            diagonal = row[at + 1];
            row[at + 1] = changed.min(diagonal + 1).min(row[at] + 1);
        }
    }
    row[other.len()]
}
