//! The rows that reports are made of.

use std::collections::{BTreeMap, HashMap};

use duckdb::Row;
use proofhouse_schema::canonical::{CanonicalError, Digest};
use proofhouse_schema::evidence::{Attempt, CellRecord, Record, SessionRecord, Summary};
use proofhouse_schema::gate::Level;
use proofhouse_schema::ids::ProviderId;
use proofhouse_schema::real::Real;
use proofhouse_schema::report::{CellRow, ReportModel, SamplePoint};
use proofhouse_schema::verdict::{Reason, Verdict, VerdictBody};

use crate::error::{StoreError, doing};
use crate::scope;
use crate::store::Store;

/// Which records a report is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Selection<'a> {
    /// The newest record of each gate, cell and candidate.
    Latest,
    /// These records, e.g. those that one run made or used again.
    Records(&'a [Digest]),
    /// Every record of these sessions.
    Sessions(&'a [Digest]),
}

/// What a report says besides its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heading {
    /// The title.
    pub title: String,
    /// When it is made, RFC 3339 in UTC.
    pub generated: String,
    /// The tool's version.
    pub tool: String,
    /// How many samples of one provider in one cell are kept for the scatter plot, thinned evenly.
    pub points: u32,
}

impl Store {
    /// Everything that a report on `selection` says, its cells sorted by operator, gate kind, gate and cell.
    ///
    /// A cell without a verdict is `invalid` with the reason `not-judged`: nothing is guessed towards pass.
    ///
    /// # Errors
    /// [`StoreError::UnknownEvidence`] for a record that is asked for by its digest and not there,
    /// [`StoreError::BadBody`], [`StoreError::Database`].
    pub fn report(
        &self,
        selection: Selection<'_>,
        heading: Heading,
    ) -> Result<ReportModel, StoreError> {
        let found = self.select(selection)?;
        if let Selection::Records(asked) = selection {
            let there: HashMap<&str, ()> = found.iter().map(|f| (f.digest.as_str(), ())).collect();
            if let Some(digest) = asked.iter().find(|d| !there.contains_key(d.as_str())) {
                return Err(StoreError::UnknownEvidence { digest: digest.clone() });
            }
        }
        let numbers: Vec<String> = found.iter().map(|f| f.record.to_string()).collect();
        let numbers = numbers.join(", ");
        let mut times = self.times(&numbers)?;
        let mut points = self.points(&numbers, heading.points)?;
        let mut cells = Vec::with_capacity(found.len());
        for found in found {
            let times = times.remove(&found.record).unwrap_or_default();
            let samples = points.remove(&found.record).unwrap_or_default();
            cells.push(row(found, times, samples)?);
        }
        cells.sort_by(|a, b| {
            let place = |c: &CellRow| (c.operator.clone(), c.kind, c.gate.clone());
            (place(a), &a.cell, &a.provider).cmp(&(place(b), &b.cell, &b.provider))
        });
        let sessions = self.sessions_of(&cells)?;
        let Heading { title, generated, tool, .. } = heading;
        Ok(ReportModel { title, generated, tool, sessions, cells })
    }

    /// The record whose digest begins with `prefix`; none when there is none or more than one.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn find(&self, prefix: &str) -> Result<Option<Digest>, StoreError> {
        let failed = "looking for a record";
        let sql = "SELECT digest FROM evidence WHERE starts_with(digest, ?) LIMIT 2";
        let mut statement = self.connection.prepare(sql).map_err(doing(failed))?;
        let found: Vec<String> = statement
            .query_map([prefix], |row| row.get(0))
            .and_then(Iterator::collect)
            .map_err(doing(failed))?;
        match found.as_slice() {
            [one] => Digest::parse(one).map(Some).map_err(bad(one)),
            _ => Ok(None),
        }
    }

    /// The whole record with this digest.
    ///
    /// # Errors
    /// [`StoreError::UnknownEvidence`], [`StoreError::BadBody`], [`StoreError::Database`].
    pub fn cell(&self, digest: &Digest) -> Result<CellRecord, StoreError> {
        let found = self.select(Selection::Records(std::slice::from_ref(digest)))?;
        let unknown = || StoreError::UnknownEvidence { digest: digest.clone() };
        found.first().ok_or_else(unknown)?.cell()
    }

    /// The whole records with these digests, by the digest. One that is not there is left out.
    ///
    /// # Errors
    /// [`StoreError::BadBody`], [`StoreError::Database`].
    pub fn cells(&self, digests: &[Digest]) -> Result<BTreeMap<Digest, CellRecord>, StoreError> {
        let mut cells = BTreeMap::new();
        for found in self.select(Selection::Records(digests))? {
            let digest = Digest::parse(&found.digest).map_err(bad(&found.digest))?;
            cells.insert(digest, found.cell()?);
        }
        Ok(cells)
    }

    /// The processes that took part in these records, by the record. One that is not there has none.
    ///
    /// # Errors
    /// [`StoreError::BadBody`], [`StoreError::Database`].
    pub fn attempts(
        &self,
        digests: &[Digest],
    ) -> Result<BTreeMap<Digest, Vec<Attempt>>, StoreError> {
        let cells = self.cells(digests)?.into_iter();
        Ok(cells.map(|(digest, cell)| (digest, cell.attempts)).collect())
    }

    fn select(&self, selection: Selection<'_>) -> Result<Vec<Found>, StoreError> {
        let failed = "selecting records";
        let list = |digests: &[Digest]| {
            let quoted: Vec<String> = digests.iter().map(|d| format!("'{d}'")).collect();
            if quoted.is_empty() { "NULL".to_owned() } else { quoted.join(", ") }
        };
        let filter = match selection {
            Selection::Latest => "e.digest IN (SELECT digest FROM latest_cells)".to_owned(),
            Selection::Records(digests) => format!("e.digest IN ({})", list(digests)),
            Selection::Sessions(digests) => format!("e.session IN ({})", list(digests)),
        };
        let sql = format!(
            "SELECT e.record, e.digest, e.file, e.body, v.body FROM evidence e
             LEFT JOIN current_verdicts v ON v.evidence = e.digest WHERE {filter}"
        );
        let mut statement = self.connection.prepare(&sql).map_err(doing(failed))?;
        let found = statement.query_map([], Found::read).and_then(Iterator::collect);
        found.map_err(doing(failed))
    }

    fn times(&self, records: &str) -> Result<HashMap<i32, Times>, StoreError> {
        let failed = "summarizing samples";
        let mut times: HashMap<i32, Times> = HashMap::new();
        if records.is_empty() {
            return Ok(times);
        }
        let sql = format!(
            "SELECT record, provider, count(*), min(per_call_ns), quantile_cont(per_call_ns, 0.1),
                    quantile_cont(per_call_ns, 0.5), quantile_cont(per_call_ns, 0.9), max(per_call_ns),
                    avg(per_call_ns), coalesce(stddev_samp(per_call_ns), 0) / avg(per_call_ns)
             FROM samples WHERE measured AND record IN ({records}) GROUP BY record, provider"
        );
        let mut statement = self.connection.prepare(&sql).map_err(doing(failed))?;
        let rows = statement
            .query_map([], |row| {
                let count = u64::try_from(row.get::<_, i64>(2)?).unwrap_or_default();
                let real = |at| row.get(at).map(Real);
                let summary = Summary {
                    count,
                    min_ns: real(3)?,
                    p10_ns: real(4)?,
                    p50_ns: real(5)?,
                    p90_ns: real(6)?,
                    max_ns: real(7)?,
                    mean_ns: real(8)?,
                    cv: real(9)?,
                };
                Ok((row.get::<_, i32>(0)?, row.get::<_, String>(1)?, summary))
            })
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(doing(failed))?;
        for (record, provider, summary) in rows {
            times.entry(record).or_default().insert(provider_id(provider)?, summary);
        }
        Ok(times)
    }

    fn points(
        &self,
        records: &str,
        bound: u32,
    ) -> Result<HashMap<i32, Vec<SamplePoint>>, StoreError> {
        let failed = "thinning samples";
        let mut points: HashMap<i32, Vec<SamplePoint>> = HashMap::new();
        if records.is_empty() || bound == 0 {
            return Ok(points);
        }
        let sql = format!(
            "SELECT record, provider, replicate, block, position, per_call_ns FROM (
                 SELECT *, rowid AS place, row_number() OVER arm AS number, count(*) OVER whole AS size
                 FROM samples WHERE measured AND record IN ({records})
                 WINDOW whole AS (PARTITION BY record, provider), arm AS (whole ORDER BY rowid)
             ) WHERE number * {bound} // size <> (number - 1) * {bound} // size ORDER BY place"
        );
        let mut statement = self.connection.prepare(&sql).map_err(doing(failed))?;
        let rows = statement
            .query_map([], |row| {
                let place = (row.get(2)?, row.get(3)?, row.get(4)?);
                Ok((row.get::<_, i32>(0)?, row.get::<_, String>(1)?, place, row.get(5)?))
            })
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(doing(failed))?;
        for (record, provider, (replicate, block, position), per_call_ns) in rows {
            let provider = provider_id(provider)?;
            let point = SamplePoint { provider, replicate, block, position, per_call_ns };
            points.entry(record).or_default().push(point);
        }
        Ok(points)
    }

    fn sessions_of(
        &self,
        cells: &[CellRow],
    ) -> Result<BTreeMap<Digest, SessionRecord>, StoreError> {
        let failed = "reading sessions";
        let wanted: std::collections::BTreeSet<&str> =
            cells.iter().map(|cell| cell.session.as_str()).collect();
        let mut statement =
            self.connection.prepare("SELECT digest, body FROM sessions").map_err(doing(failed))?;
        let rows = statement
            .query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(doing(failed))?;
        let mut sessions = BTreeMap::new();
        for (digest, body) in
            rows.into_iter().filter(|(digest, _)| wanted.contains(digest.as_str()))
        {
            if let Record::Session(session) = parse(&digest, &body)? {
                sessions.insert(Digest::parse(&digest).map_err(bad(&digest))?, *session);
            }
        }
        Ok(sessions)
    }
}

type Times = BTreeMap<ProviderId, Summary>;

/// A record and its current verdict, as they are in the index.
pub(crate) struct Found {
    pub(crate) record: i32,
    pub(crate) digest: String,
    pub(crate) file: String,
    pub(crate) body: String,
    pub(crate) verdict: Option<String>,
}

impl Found {
    fn read(row: &Row<'_>) -> Result<Found, duckdb::Error> {
        Ok(Found {
            record: row.get(0)?,
            digest: row.get(1)?,
            file: row.get(2)?,
            body: row.get(3)?,
            verdict: row.get(4)?,
        })
    }

    pub(crate) fn cell(&self) -> Result<CellRecord, StoreError> {
        match parse(&self.digest, &self.body)? {
            Record::Cell(cell) => Ok(*cell),
            _ => Err(not_that(&self.digest)),
        }
    }

    fn verdict(&self) -> Result<Option<VerdictBody>, StoreError> {
        let Some(body) = &self.verdict else { return Ok(None) };
        match parse(&self.digest, body)? {
            Record::Verdict(verdict) => Ok(Some(*verdict)),
            _ => Err(not_that(&self.digest)),
        }
    }
}

fn row(found: Found, times: Times, samples: Vec<SamplePoint>) -> Result<CellRow, StoreError> {
    let cell = found.cell()?;
    let judged = match found.verdict()? {
        Some(verdict) => verdict,
        None => not_judged(&found, &cell)?,
    };
    Ok(CellRow {
        shape: scope::shape_words(&cell.cell, &cell.case),
        values: scope::value_words(&cell.case),
        max_ulp: scope::max_ulp(&cell),
        contract: cell.gate.timing.as_ref().map(|timing| scope::contract_words(&timing.contract)),
        traffic: cell.traffic.map(|traffic| (traffic.read, traffic.written)),
        evidence: Digest::parse(&found.digest).map_err(bad(&found.digest))?,
        file: found.file,
        gate: cell.gate.id,
        kind: cell.gate.kind,
        operator: cell.gate.operator,
        cell: cell.cell,
        dtype: cell.case.dtype,
        layout: cell.case.layout,
        provider: cell.candidate.id,
        verdict: judged.verdict,
        reasons: judged.reasons,
        grade: judged.grade,
        required: judged.required,
        comparisons: judged.comparisons,
        times,
        samples,
        session: cell.session,
        reproduce: cell.reproduce,
    })
}

fn not_judged(found: &Found, cell: &CellRecord) -> Result<VerdictBody, StoreError> {
    let detail = "the evidence has no verdict: the run ended between the two; judge it again";
    Ok(VerdictBody {
        schema: cell.schema.clone(),
        evidence: Digest::parse(&found.digest).map_err(bad(&found.digest))?,
        gate: cell.gate.id.clone(),
        cell: cell.cell.clone(),
        provider: cell.candidate.id.clone(),
        judge: String::new(),
        verdict: Verdict::Invalid,
        reasons: vec![Reason::new("not-judged", detail)],
        comparisons: Vec::new(),
        grade: cell.grade,
        required: cell.gate.level == Level::Required,
    })
}

fn parse(digest: &str, body: &str) -> Result<Record, StoreError> {
    serde_json::from_str(body).map_err(CanonicalError::Shape).map_err(bad(digest))
}

fn bad(digest: &str) -> impl FnOnce(CanonicalError) -> StoreError + '_ {
    move |source| StoreError::BadBody { digest: digest.to_owned(), source }
}

fn not_that(digest: &str) -> StoreError {
    StoreError::BadBody { digest: digest.to_owned(), source: CanonicalError::NotCanonical }
}

fn provider_id(text: String) -> Result<ProviderId, StoreError> {
    ProviderId::new(text.clone()).map_err(|_| not_that(&text))
}
