//! Drawing. Everything that colour says, a word or a shape says, too.

pub(crate) mod bar;
pub(crate) mod hour;
pub(crate) mod matrix;
pub(crate) mod runs;
pub(crate) mod tables;
pub(crate) mod text;
