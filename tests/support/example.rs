//! Paths of the examples that were built with a test.

use std::path::{Path, PathBuf};

/// Path of an example in the build this test is of.
pub(crate) fn binary(example: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.ancestors().nth(2).unwrap().join("examples");
    let binary = folder.join(format!("{example}{}", std::env::consts::EXE_SUFFIX));
    let written = |path: &Path| path.metadata().and_then(|file| file.modified()).ok();
    // Of an example in several files the first one stands for the others.
    let sources = [format!("{example}.rs"), format!("{example}/main.rs")];
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .flat_map(|folder| sources.each_ref().map(|source| folder.join("examples").join(source)))
        .find_map(|source| written(&source));
    // `cargo test` builds the examples, `cargo test --test …` does not.
    assert!(
        source.is_some() && written(&binary) >= source,
        "{} is missing or old: cargo build --all-features --examples",
        binary.display()
    );
    binary
}
