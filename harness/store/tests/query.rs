//! SQL of a user: what is answered, what is refused, how it is written.
#![allow(clippy::unwrap_used, reason = "a test's helper fails as the test does")]

use proofhouse_store::synthetic::Synthetic;
use proofhouse_store::{Format, Store, StoreError, table};
use serde_json::{Value, json};

fn filled() -> Store {
    let mut store = Store::in_memory().unwrap();
    store.ingest(&Synthetic { cells: 3, samples: 100 }).unwrap();
    store
}

fn written(store: &Store, sql: &str, format: Format) -> String {
    let mut out = Vec::new();
    store.write_query(sql, format, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn the_example_of_the_documentation_runs() {
    let mut index = Store::in_memory().unwrap();
    index.ingest(&Synthetic { cells: 2, samples: 100 }).unwrap();
    let text = written(&index, "SELECT cell, verdict FROM cells ORDER BY cell", Format::Csv);
    assert!(text.starts_with("cell,verdict\r\nrows=1 hidden=1024 BF16 contiguous normal,pass\r\n"));
    assert!(index.query("DELETE FROM verdicts").is_err());
}

#[test]
fn every_way_to_ask_is_answered() {
    let store = filled();
    for (sql, rows) in [
        ("SELECT gate FROM evidence", 3),
        ("select gate from evidence; -- and a comment", 3),
        ("FROM evidence", 3),
        ("WITH a AS (SELECT 1 AS x) SELECT * FROM a", 1),
        ("VALUES (1), (2)", 2),
        ("SELECT provider, median(per_call_ns) FROM samples WHERE measured GROUP BY ALL", 2),
        ("SHOW TABLES", 17),
        ("DESCRIBE controls", 9),
        ("SUMMARIZE controls", 9),
        ("SELECT 1 WHERE false", 0),
    ] {
        let found = store.query(sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        assert_eq!(found.rows.len(), rows, "{sql}");
    }
}

#[test]
fn whatever_would_change_something_is_refused_before_it_runs() {
    let store = filled();
    for sql in [
        "DROP TABLE samples",
        "DELETE FROM samples",
        "INSERT INTO claims VALUES ('a', 'b', 1, NULL, NULL, 'c')",
        "UPDATE evidence SET gate = 'x'",
        "CREATE TABLE t (x INTEGER)",
        "CREATE VIEW v AS SELECT 1",
        "ATTACH '/tmp/other.duckdb'",
        "COPY samples TO '/tmp/out.csv'",
        "SET memory_limit = '1GB'",
        "PRAGMA database_size",
        "INSTALL httpfs",
        "CALL pragma_version()",
        "BEGIN",
    ] {
        let error = store.query(sql).unwrap_err();
        assert!(matches!(error, StoreError::NotAQuery { .. }), "{sql}: {error:?}");
    }
    assert_eq!(store.count("samples").unwrap(), 300);
}

#[test]
fn more_than_one_statement_is_refused_whatever_they_are() {
    let store = filled();
    assert!(matches!(store.query("SELECT 1; SELECT 2"), Err(StoreError::Statements { count: 2 })));
    assert!(matches!(store.query("  "), Err(StoreError::Statements { count: 0 })));
    for sql in ["SELECT 1; DROP TABLE samples", "SELECT 1); DROP TABLE samples; --"] {
        assert!(store.query(sql).is_err(), "{sql}");
    }
    assert_eq!(store.count("samples").unwrap(), 300);
}

#[test]
fn a_query_reaches_no_other_file() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret.csv");
    std::fs::write(&secret, "a\n1\n").unwrap();
    let mut store = Store::open(&folder.path().join("index.duckdb")).unwrap();
    store.ingest(&Synthetic { cells: 1, samples: 10 }).unwrap();
    for store in [&store, &filled()] {
        for sql in [
            format!("SELECT * FROM read_csv('{}')", secret.display()),
            format!("FROM '{}'", secret.display()),
            format!("SELECT * FROM read_text('{}')", secret.display()),
        ] {
            let error = store.query(&sql).unwrap_err();
            assert!(matches!(error, StoreError::Query(_)), "{sql}: {error:?}");
        }
    }
}

#[test]
fn text_that_is_no_sql_and_a_wrong_name_say_where() {
    let store = filled();
    match store.query("SELEC 1").unwrap_err() {
        StoreError::Syntax { message } => assert!(message.contains("SELEC"), "{message}"),
        other => panic!("{other:?}"),
    }
    match store.query("SELECT * FROM evidnce").unwrap_err() {
        StoreError::Query(source) => {
            assert!(source.to_string().contains("Did you mean \"evidence\""), "{source}");
            assert!(
                std::error::Error::source(&source).is_none(),
                "nothing more is said beneath it"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_type_has_a_json_form() {
    let store = filled();
    let sql = "SELECT 1::TINYINT AS a, 2.5::FLOAT AS b, 'nan'::DOUBLE AS c, 170141183460469231731::HUGEINT AS d,
        sum(3) AS e, 1.25::DECIMAL(9, 2) AS f, DATE '2024-02-29' AS g, TIMESTAMP '2024-02-29 12:00:00' AS h,
        [1, 2] AS i, {'x': 1, 'y': ['z']} AS j, NULL AS k, true AS l, '\\xAA'::BLOB AS m, MAP {'p': 1} AS n,
        INTERVAL 3 DAY AS o, '{\"q\": null}'::JSON AS p, 9007199254740993::BIGINT AS q";
    let found = store.query(sql).unwrap();
    let expected: Vec<Value> = vec![
        json!(1),
        json!(2.5),
        json!({"real": "nan"}),
        json!("170141183460469231731"),
        json!(3),
        json!(1.25),
        json!("2024-02-29"),
        json!("2024-02-29 12:00:00"),
        json!([1, 2]),
        json!({"x": 1, "y": ["z"]}),
        Value::Null,
        json!(true),
        json!("\\xAA"),
        json!({"p": 1}),
        json!("3 days"),
        json!({"q": null}),
        json!(9_007_199_254_740_993_i64),
    ];
    assert_eq!(found.rows, [expected]);
}

#[test]
fn the_order_that_was_asked_for_is_kept_in_every_format() {
    let store = filled();
    let sql = "SELECT record, digest FROM evidence ORDER BY record DESC";
    let found = store.query(sql).unwrap();
    let numbers: Vec<i64> = found.rows.iter().map(|row| row[0].as_i64().unwrap()).collect();
    assert_eq!(numbers, [2, 1, 0]);
    assert!(
        written(&store, "SELECT record FROM evidence ORDER BY record DESC", Format::Csv)
            .starts_with("record\r\n2\r\n1\r\n0\r\n")
    );
}

#[test]
fn a_table_aligns_numbers_to_the_right_and_counts_rows() {
    let store = filled();
    let sql =
        "SELECT * FROM (VALUES ('cpu', 1234.56789, 7), ('numpy', 0.5, 12)) t(provider, p50_ns, n)";
    let expected = "\
provider   p50_ns   n
--------  -------  --
cpu       1234.57   7
numpy         0.5  12
(2 rows)
";
    assert_eq!(written(&store, sql, Format::Table), expected);
    assert!(table(&store.query("SELECT 1 AS x").unwrap()).ends_with("(1 row)\n"));
}

#[test]
fn csv_quotes_what_needs_it_and_json_parses_again() {
    let store = filled();
    let sql = "SELECT 'a\"b,c' AS x, NULL AS y, 'line\nbreak' AS x";
    assert_eq!(written(&store, sql, Format::Csv), "x,y,x_2\r\n\"a\"\"b,c\",,\"line\nbreak\"\r\n");
    let parsed: Value = serde_json::from_str(&written(&store, sql, Format::Json)).unwrap();
    assert_eq!(parsed, json!([{"x": "a\"b,c", "y": null, "x_2": "line\nbreak"}]));
    assert_eq!(written(&store, "SELECT 1 WHERE false", Format::Json), "[]\n");
}

#[test]
fn control_characters_do_not_reach_a_terminal() {
    let store = filled();
    let shown = written(&store, "SELECT chr(27) || '[2J' AS x", Format::Table);
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
}

#[test]
fn parquet_goes_to_its_file_and_is_read_back_by_duckdb() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::open(&folder.path().join("it's an index.duckdb")).unwrap();
    store.ingest(&Synthetic { cells: 3, samples: 100 }).unwrap();
    let to = folder.path().join("out.parquet");
    store.export_parquet("SELECT * FROM samples", &to).unwrap();
    let mut bytes = Vec::new();
    store.write_query("SELECT * FROM samples", Format::Parquet, &mut bytes).unwrap();
    assert_eq!(&bytes[..4], b"PAR1");
    let left: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains("scratch") || name.contains("partial"))
        .collect();
    assert_eq!(left, Vec::<String>::new());

    let reader = duckdb::Connection::open_in_memory().unwrap();
    let sql = format!("SELECT count(*) FROM read_parquet('{}')", to.display());
    let rows: i64 = reader.query_row(&sql, [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 300);
}

#[test]
fn parquet_to_a_folder_that_is_not_there_and_from_memory_are_typed_errors() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(&folder.path().join("index.duckdb")).unwrap();
    let error =
        store.export_parquet("SELECT 1", &folder.path().join("no/out.parquet")).unwrap_err();
    assert!(matches!(error, StoreError::Unwritable { .. }), "{error}");
    let error =
        filled().export_parquet("SELECT 1", &folder.path().join("out.parquet")).unwrap_err();
    assert!(matches!(error, StoreError::Unwritable { .. }), "{error}");
    let error = store.export_parquet("DROP TABLE samples", &folder.path().join("x")).unwrap_err();
    assert!(matches!(error, StoreError::NotAQuery { .. }), "{error}");
}

#[test]
fn a_read_only_index_answers_and_exports() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index.duckdb");
    let mut store = Store::open(&path).unwrap();
    store.ingest(&Synthetic { cells: 3, samples: 100 }).unwrap();
    drop(store);
    let store = Store::open_read_only(&path).unwrap();
    assert_eq!(store.query("FROM evidence").unwrap().rows.len(), 3);
    store.export_parquet("FROM evidence", &folder.path().join("e.parquet")).unwrap();
    assert!(store.query("DROP TABLE samples").is_err());
}

#[test]
fn an_unknown_format_is_told_the_known_ones() {
    let error = "xml".parse::<Format>().unwrap_err();
    assert!(error.contains("table, csv, json, parquet"), "{error}");
}

#[test]
fn nan_and_infinities_have_one_form_in_json_however_deep_they_lie() {
    let store = filled();
    let sql = "SELECT 'nan'::DOUBLE AS a, '-inf'::FLOAT AS b, ['inf'::DOUBLE, 1.5] AS c,
        {'x': 'nan'::FLOAT, 'y': 'NaN'} AS d, MAP {'k': '-inf'::DOUBLE} AS e,
        ['nan'::DOUBLE]::DOUBLE[1] AS f, '{\"real\": \"nan\"}'::JSON AS g";
    let (nan, inf, minus) =
        (json!({"real": "nan"}), json!({"real": "inf"}), json!({"real": "-inf"}));
    let expected = json!([{
        "a": nan, "b": minus, "c": [inf, 1.5], "d": {"x": nan, "y": "NaN"}, "e": {"k": minus},
        "f": [nan], "g": nan,
    }]);
    let parsed: Value = serde_json::from_str(&written(&store, sql, Format::Json)).unwrap();
    assert_eq!(parsed, expected);
    let plain = "SELECT 'nan'::DOUBLE AS a, '-inf'::FLOAT AS b, 'inf'::DOUBLE AS c";
    assert_eq!(written(&store, plain, Format::Csv), "a,b,c\r\nnan,-inf,inf\r\n");
    assert!(written(&store, plain, Format::Table).contains("nan  -inf  inf"));
}
