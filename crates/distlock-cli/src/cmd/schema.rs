//! `distlock schema`: the tables of a store, for those who let no program create them.

use clap::ValueEnum;
use distlock::backends::postgres;

use crate::exit::{self, Failure};
use crate::{help, out};

/// Print the tables of a store, for those who let no program create them
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = help::SCHEMA_HELP)]
pub(crate) struct SchemaArgs {
    /// The store to print the tables of
    #[arg(value_enum)]
    store: TableStore,

    /// The schema to create them in
    #[arg(long, value_name = "NAME", default_value = "distlock")]
    schema: String,
}

/// A store whose tables can be created by hand.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum TableStore {
    Postgres,
}

/// Writes the statements to stdout.
pub(crate) fn run(args: &SchemaArgs) -> Result<u8, Failure> {
    let TableStore::Postgres = args.store;
    let sql = postgres::schema_sql(&args.schema);
    let sql = sql.map_err(|error| Failure::new(exit::USAGE, error.to_string()))?;
    out::print(sql.trim_end());
    Ok(0)
}
