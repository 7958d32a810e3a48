//! A table for the reader.

/// Prints rows under their headings, each column as wide as its widest cell.
pub(crate) fn print(title: &str, headings: &[&str], rows: &[Vec<String>]) {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([headings[column].chars().count()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let cells = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}"));
        cells.collect::<Vec<_>>().join("  ")
    };
    println!("\n{title}\n  {}", line(headings.to_vec()));
    for row in rows {
        println!("  {}", line(row.iter().map(String::as_str).collect()));
    }
    println!();
}
