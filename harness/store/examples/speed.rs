//! How fast the index is on this machine: `cargo run --release -p proofhouse-store --example speed`.

#![allow(clippy::print_stdout, reason = "printing is what it is for")]

use std::time::Instant;

use proofhouse_store::synthetic::{self, Synthetic};
use proofhouse_store::{Heading, Selection, Source, SourceError, Store};

const QUERIES: [&str; 3] = [
    "SELECT provider, count(*), median(per_call_ns) FROM samples WHERE measured GROUP BY provider",
    "SELECT record, provider, quantile_cont(per_call_ns, [0.1, 0.5, 0.9]) FROM samples GROUP BY ALL LIMIT 5",
    "SELECT replicate, block, avg(per_call_ns), stddev(per_call_ns) FROM samples GROUP BY ALL",
];

fn main() -> Result<(), SourceError> {
    let folder = tempfile::tempdir()?;
    let source = Synthetic { cells: 10_000, samples: 100 };
    let begun = Instant::now();
    for file in source.files()? {
        source.load(&file)?;
    }
    let made = begun.elapsed();
    let mut store = Store::open(&folder.path().join("index.duckdb"))?;
    let begun = Instant::now();
    let done = store.ingest(&source)?;
    let took = begun.elapsed();
    println!(
        "ingest {} records, {} samples: {took:.2?}, of which {made:.2?} to make them",
        done.added, done.samples
    );
    let begun = Instant::now();
    store.ingest(&source)?;
    println!("ingest again, nothing new: {:.2?}", begun.elapsed());

    let few: Vec<_> = (0..1000)
        .map(|number| Ok(synthetic::verdict(number, 100)?.evidence))
        .collect::<Result<_, proofhouse_schema::ids::IdError>>()?;
    let heading = Heading {
        title: String::new(),
        generated: String::new(),
        tool: String::new(),
        points: 100,
    };
    let begun = Instant::now();
    let cells = store.report(Selection::Records(&few), heading)?.cells.len();
    println!("rows of a report of {cells} cells: {:.2?}", begun.elapsed());

    synthetic::fill_samples(&mut store, 10_000_000)?;
    for sql in QUERIES {
        let begun = Instant::now();
        store.query(sql)?;
        println!("{:.2?}: {sql}", begun.elapsed());
    }
    Ok(())
}
