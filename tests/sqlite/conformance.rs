//! Every property of the contract.

use tenure::store::sqlite::SqliteOptions;

use crate::folder::{Folder, InFolder};

tenure_conformance::conformance_tests!(InFolder::store(Folder::in_memory(), &SqliteOptions::new()));
