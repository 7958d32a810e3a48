//! `tenure schema`: the needs of a database, for administrators who prepare it by hand.

use clap::{Args, ValueEnum};

use crate::{common::Common, exit::Failure, out, place::StoreUri, settings::Settings};

/// Print the indexes and the least rights that the store needs, ready to paste
///
/// For MongoDB: a script for mongosh, run by an administrator. A SQLite file needs no preparation.
#[derive(Args, Debug)]
pub(crate) struct Schema {
    /// Database [default: that of the store's URI, or tenure]
    #[arg(long, value_name = "NAME")]
    database: Option<String>,

    /// Role to print: the full one with the indexes, or that of a user who only looks
    #[arg(long, value_enum, default_value_t = Role::Full, value_name = "ROLE")]
    role: Role,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Role {
    Full,
    Reader,
}

pub(crate) fn run(common: &Common, schema: &Schema) -> Result<u8, Failure> {
    let settings = Settings::of(common)?;
    let place = match (&schema.database, &settings.store) {
        // A named database means a server.
        (Some(_), None) => StoreUri::Mongo(String::new()),
        (_, uri) => StoreUri::of(uri.as_ref())?,
    };
    let script = match place {
        StoreUri::Sqlite(path) => {
            let purpose = match schema.role {
                Role::Full => "use",
                Role::Reader => "look into",
            };
            format!(
                "-- {} needs no preparation: tenure makes the file and its tables at the first use.\n\
                 -- To {purpose} it, a user needs the rights to read and write the file and its folder. For a group,\n\
                 -- chgrp and chmod 2770 the folder before the first use.\n",
                path.display()
            )
        }
        #[cfg(feature = "mongodb")]
        StoreUri::Mongo(uri) => script(schema.database.clone(), &uri, schema.role),
        #[cfg(not(feature = "mongodb"))]
        StoreUri::Mongo(_) => return Err(crate::place::no_driver()),
    };
    out::print(common, &serde_json::json!({ "script": script }), || script.clone())?;
    Ok(0)
}

#[cfg(feature = "mongodb")]
fn script(database: Option<String>, uri: &str, role: Role) -> String {
    use tenure::store::mongo::{MongoOptions, index_script, role_script};

    let database = database.or_else(|| database_of(uri)).unwrap_or_else(|| "tenure".to_owned());
    let options = MongoOptions::new().read_only(role == Role::Reader);
    let script = role_script(&database, &options);
    match role {
        Role::Full => format!("{}\n{script}", index_script(&database, &options)),
        Role::Reader => script,
    }
}

/// The database that a connection string names.
#[cfg(feature = "mongodb")]
fn database_of(uri: &str) -> Option<String> {
    let (_, rest) = uri.split_once("://")?;
    let (_, path) = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest).split_once('/')?;
    let database = path.split('?').next().unwrap_or_default();
    (!database.is_empty()).then(|| database.to_owned())
}

#[cfg(all(test, feature = "mongodb"))]
mod tests {
    use super::*;

    #[test]
    fn the_database_is_that_of_the_uri() {
        for (uri, database) in [
            ("mongodb://a,b/shop?replicaSet=rs0", Some("shop")),
            ("mongodb://u:p%40ss@a/shop", Some("shop")),
            ("mongodb://a/?replicaSet=rs0", None),
            ("mongodb://a", None),
        ] {
            assert_eq!(database_of(uri).as_deref(), database, "{uri}");
        }
    }
}
