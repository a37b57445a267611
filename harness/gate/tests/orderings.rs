//! Orders with known answers: planted wins, ties, flips, crossovers, absences, and everything that keeps a cell from a rank.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod judging;

use judging::{Seen as Cell, Speeds, control, facts, id, retime, timed};
use proofhouse_gate::orderings::{Orderings, Seen, newest};
use proofhouse_schema::canonical::Digest;
use proofhouse_schema::evidence::{Attempt, CellRecord, Ending, Observation};
use proofhouse_schema::ids::ProviderId;
use proofhouse_schema::ordering::{CellOrdering, Crossover, GateOrdering, Ranking};
use proofhouse_schema::probe::Probe;
use proofhouse_schema::real::Real;
use proofhouse_schema::timing::Cache;
use proofhouse_schema::units::Wide;
use proofhouse_schema::verdict::{Require, Speed, Verdict};
use proptest::prelude::*;

const PLAIN: f64 = 0.004;

/// A cell of so many rows in which each baseline takes so many times as long as `cpu`.
fn cell(rows: u64, ratios: &[(&str, f64)]) -> Cell {
    replicated(rows, ratios, 5)
}

fn replicated(rows: u64, ratios: &[(&str, f64)], replicates: u32) -> Cell {
    let speeds = Speeds { ratios, replicates, require: Require::Measured, noise: PLAIN };
    let mut seen = timed(&speeds);
    seen.record.cell = format!("rows={rows} hidden=64 F32 contiguous normal");
    seen.record.case.dims.insert("rows".to_owned(), rows);
    seen
}

fn ordered(cells: &[Cell]) -> Vec<GateOrdering> {
    let mut orderings = Orderings::default();
    for cell in cells {
        orderings.add(&Seen {
            digest: &Digest::of(cell.record.cell.as_bytes()),
            record: &cell.record,
            samples: cell.samples.as_ref(),
            fault: None,
            session: cell.session.as_ref(),
        });
    }
    orderings.finish()
}

fn only(cells: &[Cell]) -> GateOrdering {
    let mut found = ordered(cells);
    assert_eq!(found.len(), 1, "one gate in one place");
    found.remove(0)
}

fn ranks(ranking: &Ranking) -> Vec<(&str, u32)> {
    ranking.standings.iter().map(|s| (s.provider.as_str(), s.rank)).collect()
}

fn speed(ranking: &Ranking, a: &str, b: &str) -> Speed {
    let found =
        ranking.pairs.iter().map(|pair| &pair.comparison).find(|comparison| {
            (comparison.candidate.as_str(), comparison.baseline.as_str()) == (a, b)
        });
    found.unwrap().speed
}

#[test]
fn a_planted_order_is_found_with_every_pair() {
    let gate = only(&[cell(3, &[("numpy", 2.0), ("onnxruntime", 1.3)])]);
    let ranking = &gate.cells[0].ranking;
    assert_eq!(ranks(ranking), [("cpu", 1), ("onnxruntime", 2), ("numpy", 3)]);
    assert_eq!(ranking.pairs.len(), 3, "baselines are compared with one another, too");
    assert_eq!(speed(ranking, "numpy", "onnxruntime"), Speed::Loss);
    assert!(ranking.pairs.iter().all(|pair| pair.holds));
    let third = &ranking.standings[2];
    let ratio = third.to_first.as_ref().unwrap().comparison.estimate.as_ref().unwrap();
    assert!((ratio.ratio.0 - 2.0).abs() < 0.02 && ratio.low.0 < ratio.ratio.0, "{ratio:?}");
    assert!((third.time.as_ref().unwrap().p50_ns.0 - 20_000.0).abs() < 200.0);
    assert_eq!((third.version.as_str(), gate.place.as_str()), ("1.0", "a CPU"));
}

#[test]
fn the_candidates_pairs_are_the_judges_comparisons() {
    let seen = cell(3, &[("numpy", 2.0), ("onnxruntime", 1.3)]);
    let gate = only(std::slice::from_ref(&seen));
    for judged in seen.judge().comparisons {
        let own = |pair: &&proofhouse_schema::ordering::Pair| {
            pair.comparison.candidate == judged.candidate
                && pair.comparison.baseline == judged.baseline
        };
        let pair = gate.cells[0].ranking.pairs.iter().find(own).unwrap();
        assert_eq!(pair.comparison, judged);
    }
}

#[test]
fn a_tie_is_a_shared_rank() {
    let gate = only(&[cell(3, &[("numpy", 1.0), ("onnxruntime", 1.5)])]);
    let ranking = &gate.cells[0].ranking;
    let mut found = ranks(ranking);
    found.sort_unstable();
    assert_eq!(found, [("cpu", 1), ("numpy", 1), ("onnxruntime", 2)]);
    assert_eq!(speed(ranking, "cpu", "numpy"), Speed::Parity);
    assert_eq!(ranking.standings[0].not_separated.len(), 1);
    assert!(ranking.standings[2].not_separated.is_empty());
}

#[test]
fn a_difference_under_the_noise_floor_is_a_tie() {
    let mut seen = cell(3, &[("numpy", 1.05)]);
    assert_eq!(ranks(&only(std::slice::from_ref(&seen)).cells[0].ranking)[1].1, 2);
    let mut loud = control(0.0, 1.0, Speed::Inconclusive, true);
    loud.estimate.as_mut().unwrap().high = Real(1.08);
    seen.session().controls = vec![loud];
    let gate = only(&[seen]);
    assert!((gate.cells[0].noise_floor.0 - 0.08).abs() < 1e-9);
    assert_eq!(ranks(&gate.cells[0].ranking), [("cpu", 1), ("numpy", 1)]);
    assert_eq!(speed(&gate.cells[0].ranking, "cpu", "numpy"), Speed::Inconclusive);
}

#[test]
fn a_session_that_does_not_see_a_slowdown_calls_no_tie_and_the_rank_is_shared_all_the_same() {
    let mut seen = cell(3, &[("numpy", 1.0), ("onnxruntime", 1.5)]);
    seen.session().controls[1] = control(0.05, 1.0, Speed::Inconclusive, false);
    let gate = only(&[seen]);
    for ranking in [&gate.cells[0].ranking, &gate.overall.as_ref().unwrap().ranking] {
        assert_eq!(speed(ranking, "cpu", "numpy"), Speed::Inconclusive);
        assert_eq!(speed(ranking, "cpu", "onnxruntime"), Speed::Win);
        let ranks: Vec<u32> = ranking.standings.iter().map(|standing| standing.rank).collect();
        assert_eq!(ranks, [1, 1, 2]);
    }
}

#[test]
fn one_replicate_leads_and_trails_and_never_wins_or_loses() {
    let gate = only(&[
        replicated(3, &[("numpy", 2.0), ("onnxruntime", 1.0)], 1),
        replicated(5, &[("numpy", 2.0), ("onnxruntime", 1.0)], 1),
    ]);
    let overall = &gate.overall.as_ref().unwrap();
    assert_eq!(overall.replicates, 1);
    for ranking in gate.cells.iter().map(|c| &c.ranking).chain([&overall.ranking]) {
        for pair in &ranking.pairs {
            let said = pair.comparison.speed;
            assert!(!matches!(said, Speed::Win | Speed::Loss | Speed::Parity), "{said}");
        }
        assert_eq!(speed(ranking, "cpu", "numpy"), Speed::Lead);
    }
}

#[test]
fn the_order_effect_and_the_ratio_in_each_order_are_told() {
    let mut seen = cell(3, &[("numpy", 2.0)]);
    // Whoever runs second is slower by a tenth.
    retime(&mut seen, |_, row| if row.position == 0 { 1.0 } else { 1.1 });
    let gate = only(&[seen]);
    let pair = &gate.cells[0].ranking.pairs[0];
    let (first, second) = (pair.candidate_first.unwrap().0, pair.candidate_second.unwrap().0);
    assert!((first - 2.2).abs() < 0.03 && (second - 2.0 / 1.1).abs() < 0.03, "{first} {second}");
    let effect = pair.comparison.estimate.as_ref().unwrap().order_effect.as_ref().unwrap();
    assert!((effect.effect.0 - 1.21).abs() < 0.02, "{effect:?}");
    assert_eq!(pair.comparison.speed, Speed::Win, "in either order it is far outside the margin");
}

#[test]
fn an_order_effect_that_could_change_the_call_leaves_a_tie() {
    let mut seen = cell(3, &[("numpy", 1.06)]);
    retime(&mut seen, |_, row| if row.position == 0 { 1.0 } else { 1.1 });
    let gate = only(&[seen]);
    assert_eq!(ranks(&gate.cells[0].ranking), [("cpu", 1), ("numpy", 1)]);
}

#[test]
fn the_overall_order_is_the_geometric_mean_over_cells() {
    let gate = only(&[
        cell(3, &[("numpy", 2.0), ("onnxruntime", 1.2)]),
        cell(5, &[("numpy", 8.0), ("onnxruntime", 1.2)]),
    ]);
    let overall = gate.overall.unwrap();
    assert_eq!(ranks(&overall.ranking), [("cpu", 1), ("onnxruntime", 2), ("numpy", 3)]);
    assert_eq!((overall.cells.len(), overall.replicates), (2, 5));
    let to_first = overall.ranking.standings[2].to_first.as_ref().unwrap();
    let estimate = to_first.comparison.estimate.as_ref().unwrap();
    assert!((estimate.ratio.0 - 4.0).abs() < 0.04, "{estimate:?}");
    assert!(estimate.low.0 < estimate.ratio.0 && estimate.replicates.len() == 5);
    let best = gate.against_best.unwrap();
    assert!((best.estimate.ratio.0 - 1.2).abs() < 0.01 && best.cells == 2, "{best:?}");
    assert!(best.worst.starts_with("rows="));
}

#[test]
fn the_loudest_session_decides_what_is_called_over_a_gate() {
    let (quiet, mut loud) = (cell(1, &[("numpy", 1.05)]), cell(2, &[("numpy", 1.05)]));
    loud.session().controls[0].estimate.as_mut().unwrap().high = Real(1.08);
    let gate = only(&[quiet.clone(), loud]);
    assert_eq!(speed(&gate.cells[0].ranking, "cpu", "numpy"), Speed::Win);
    let overall = gate.overall.unwrap();
    assert_eq!(speed(&overall.ranking, "cpu", "numpy"), Speed::Inconclusive);
    assert_eq!(ranks(&only(&[quiet]).overall.unwrap().ranking), [("cpu", 1), ("numpy", 2)]);
}

#[test]
fn a_cell_that_calls_a_pair_the_other_way_round_is_a_flip() {
    let gate =
        only(&[cell(1, &[("numpy", 3.0)]), cell(2, &[("numpy", 0.5)]), cell(3, &[("numpy", 1.0)])]);
    assert_eq!(ranks(&gate.overall.unwrap().ranking), [("cpu", 1), ("numpy", 2)]);
    assert_eq!(gate.flips.len(), 1, "a tie is no flip: {:?}", gate.flips);
    let flip = &gate.flips[0];
    assert!(flip.cell.starts_with("rows=2 "));
    assert_eq!((flip.faster.as_str(), flip.slower.as_str()), ("numpy", "cpu"));
    assert!((flip.ratio.0 - 2.0).abs() < 0.02 && flip.overall.0 < 1.0, "{flip:?}");
}

fn along_rows(gate: &GateOrdering) -> &Crossover {
    assert_eq!(gate.crossovers.len(), 1, "{:?}", gate.crossovers);
    let found = &gate.crossovers[0];
    assert_eq!(found.dimension, "rows");
    assert_eq!(found.held, "hidden=64 F32 contiguous normal");
    found
}

#[test]
fn a_crossover_is_called_where_both_sides_are() {
    let gate = only(&[
        cell(1, &[("numpy", 2.0)]),
        cell(8, &[("numpy", 1.5)]),
        cell(64, &[("numpy", 1.0)]),
        cell(512, &[("numpy", 0.5)]),
    ]);
    let found = along_rows(&gate);
    assert_eq!((found.left.as_str(), found.right.as_str()), ("cpu", "numpy"));
    assert_eq!(found.turns.len(), 1);
    let turn = &found.turns[0];
    assert_eq!((turn.before.as_str(), turn.until), ("cpu", 8));
    assert_eq!((turn.after.as_str(), turn.from), ("numpy", 512));
    assert_eq!(turn.undecided, [64]);
    assert!(!found.exploratory);
}

#[test]
fn a_crossover_without_a_call_on_both_sides_is_undecided() {
    // Below the margin of 3 %: it seems to turn, and nothing says so.
    let gate = only(&[cell(1, &[("numpy", 2.0)]), cell(8, &[("numpy", 0.97)])]);
    let found = along_rows(&gate);
    assert!(found.turns.is_empty(), "{found:?}");
    assert_eq!(found.points[1].faster, None);
}

#[test]
fn a_pair_that_keeps_its_order_or_ends_in_a_tie_has_no_crossover() {
    for last in [1.5, 1.0, 0.998] {
        let gate = only(&[cell(1, &[("numpy", 2.0)]), cell(8, &[("numpy", last)])]);
        assert!(gate.crossovers.is_empty(), "{last}: {:?}", gate.crossovers);
    }
}

#[test]
fn cells_that_differ_in_more_than_one_thing_are_no_series() {
    let mut other = cell(8, &[("numpy", 0.5)]);
    other.record.cell = "rows=8 hidden=64 F32 contiguous uniform".to_owned();
    let gate = only(&[cell(1, &[("numpy", 2.0)]), other]);
    assert!(gate.crossovers.is_empty());
}

fn absent(rows: u64) -> Cell {
    let mut seen = cell(rows, &[("numpy", 2.0), ("onnxruntime", 1.3)]);
    let gone = id("onnxruntime");
    seen.baseline().arms.retain(|arm| arm.provider != gone);
    seen.baseline().timed.remove(&gone);
    seen.baseline().absent.insert(gone, "it is not installed".to_owned());
    seen.samples.as_mut().unwrap().rows.retain(|row| row.provider != 2);
    let rows = seen.samples.as_ref().unwrap().rows.len() as u64;
    seen.baseline().samples.rows = rows;
    seen
}

#[test]
fn an_absent_provider_is_named_and_the_overall_order_is_over_the_cells_that_it_took_part_in() {
    let gate = only(&[cell(1, &[("numpy", 2.0), ("onnxruntime", 1.3)]), absent(2)]);
    assert_eq!(ranks(&gate.cells[1].ranking), [("cpu", 1), ("numpy", 2)]);
    let overall = gate.overall.as_ref().unwrap();
    assert_eq!(overall.cells, ["rows=1 hidden=64 F32 contiguous normal"]);
    assert_eq!(overall.ranking.standings.len(), 3);
    assert_eq!(gate.absences.len(), 1);
    let (cell, why) = gate.absences[0].cells.first_key_value().unwrap();
    assert!(cell.starts_with("rows=2 ") && why == "it is not installed");
}

#[test]
fn without_a_cell_in_which_all_took_part_there_is_no_overall_order() {
    let mut other = cell(1, &[("torch", 2.0)]);
    other.record.gate.baselines = vec![id("torch")];
    let gate = only(&[other, absent(2)]);
    assert_eq!(gate.cells.len(), 2);
    assert!(gate.overall.is_none());
    // Each was missing where the other took part; onnxruntime was missing by its own reason.
    let missing: Vec<&str> = gate.absences.iter().map(|a| a.provider.as_str()).collect();
    assert_eq!(missing, ["numpy", "onnxruntime", "torch"]);
}

/// Spoils a cell, and checks that it is listed with the reason and ranked nowhere.
fn unranked(code: &str, spoil: impl FnOnce(&mut Cell)) {
    let mut spoiled = cell(2, &[("numpy", 2.0)]);
    spoil(&mut spoiled);
    let gates = ordered(&[cell(1, &[("numpy", 2.0)]), spoiled]);
    let listed: Vec<_> = gates.iter().flat_map(|gate| &gate.unranked).collect();
    assert_eq!(listed.len(), 1, "{code}");
    let codes: Vec<&str> = listed[0].reasons.iter().map(|reason| reason.code.as_str()).collect();
    assert!(codes.contains(&code), "{code} is not among {codes:?}");
    for gate in &gates {
        assert!(gate.cells.iter().all(|cell| cell.cell.starts_with("rows=1 ")), "{code}");
        assert!(gate.overall.iter().all(|o| o.cells.len() == 1), "{code}");
    }
}

#[test]
fn what_cannot_be_judged_is_listed_with_the_reason_and_never_ranked() {
    unranked("no-samples", |seen| seen.samples = None);
    unranked("samples-disagree", |seen| {
        seen.samples.as_mut().unwrap().rows[0].elapsed_ns *= 1.5;
    });
    unranked("control-wrong", |seen| {
        seen.session().controls = vec![control(0.0, 1.2, Speed::Win, false)];
    });
    unranked("no-control", |seen| seen.session().controls.clear());
    unranked("no-control", |seen| seen.session = None);
    unranked("no-noise-floor", |seen| seen.session().controls[0].estimate = None);
    unranked("other-schema", |seen| seen.record.schema = "proofhouse/v9".to_owned());
    unranked("no-contract", |seen| seen.record.gate.timing = None);
    unranked("not-run", |seen| {
        seen.record.observation = Observation::NotRun { reason: "no device".to_owned() };
    });
    unranked("timeout", |seen| {
        seen.record.observation = Observation::Errored {
            ending: Ending::Timeout,
            provider: id("cpu"),
            detail: "it hung".to_owned(),
        };
    });
    unranked("replicate-missing", |seen| drop(seen.baseline().arms.pop()));
}

#[test]
fn an_unreadable_blob_says_why() {
    let seen = cell(2, &[("numpy", 2.0)]);
    let mut orderings = Orderings::default();
    let digest = Digest::of(b"record");
    let fault = Some("blobs/12: cannot be read");
    orderings.add(&Seen {
        digest: &digest,
        record: &seen.record,
        samples: None,
        fault,
        session: seen.session.as_ref(),
    });
    let reasons = orderings.finish().remove(0).unranked.remove(0).reasons;
    assert!(reasons.iter().any(|reason| Some(reason.detail.as_str()) == fault), "{reasons:?}");
}

#[test]
fn a_cell_that_did_not_run_belongs_to_the_one_place_of_its_gate() {
    let mut gone = cell(2, &[("numpy", 2.0)]);
    gone.record.observation = Observation::NotRun { reason: "no device".to_owned() };
    gone.session().host.cpu = Probe::Unavailable("no".to_owned());
    let gate = only(&[cell(1, &[("numpy", 2.0)]), gone]);
    assert_eq!((gate.cells.len(), gate.unranked.len()), (1, 1));
    assert_eq!(gate.unranked[0].verdict, Verdict::NotRun);
}

#[test]
fn places_contracts_and_margins_are_not_mixed() {
    let first = cell(1, &[("numpy", 2.0)]);
    let other = |change: fn(&mut Cell)| {
        let mut other = cell(2, &[("numpy", 2.0)]);
        change(&mut other);
        ordered(&[first.clone(), other]).len()
    };
    assert_eq!(other(|_| {}), 1);
    assert_eq!(other(|seen| seen.session().host.cpu = Probe::Known("another".to_owned())), 2);
    let require =
        |seen: &mut Cell| seen.record.gate.timing.as_mut().unwrap().require = Require::Win;
    assert_eq!(other(require), 1, "what is required changes no order");
    assert_eq!(other(|seen| seen.record.gate.timing.as_mut().unwrap().margin = 0.05), 2);
    assert_eq!(other(|seen| seen.record.gate.timing.as_mut().unwrap().contract.threads = 2), 2);
}

#[test]
fn only_cold_cells_have_a_memory_floor() {
    let with = |cache: Cache| {
        let mut seen = cell(1, &[("numpy", 2.0)]);
        seen.record.gate.timing.as_mut().unwrap().contract.cache = cache;
        let rate = Probe::Known(Real(4e10));
        seen.session().ceilings.insert("write_bytes_per_s".to_owned(), rate);
        only(&[seen]).cells[0].memory_floor_ns
    };
    // 1,000 bytes at 20 GB/s and 1,000 at 40.
    assert!((with(Cache::Cold).unwrap().0 - 75.0).abs() < 1e-9);
    assert_eq!(with(Cache::Hot), None);
}

fn began(mut record: CellRecord, at: u64) -> CellRecord {
    record.attempts = vec![Attempt {
        provider: id("cpu"),
        replicate: 0,
        argv: Vec::new(),
        environment: Default::default(),
        started: Wide(at),
        ended: None,
        hello: None,
        ending: None,
        stderr: String::new(),
        peak_memory: Probe::Unavailable("no".to_owned()),
        orphans: 0,
    }];
    record
}

#[test]
fn the_newest_record_of_a_cell_counts() {
    let (one, two) = (cell(1, &[("numpy", 2.0)]).record, cell(2, &[("numpy", 2.0)]).record);
    let records = [began(one.clone(), 5), began(one.clone(), 9), began(two, 1), began(one, 7)];
    assert_eq!(newest(&records.iter().collect::<Vec<_>>()), [1, 2]);
    assert!(newest(&[&judging::right_outputs().record]).is_empty(), "only timed ones");
}

/// What a ranking says, whatever the order in which its providers were named.
fn said(cell: &CellOrdering) -> Vec<(String, u32, Vec<String>)> {
    let of = |s: &proofhouse_schema::ordering::Standing| {
        let mut tied: Vec<String> = s.not_separated.iter().map(ToString::to_string).collect();
        tied.sort();
        (s.provider.to_string(), s.rank, tied)
    };
    let mut said: Vec<_> = cell.ranking.standings.iter().map(of).collect();
    said.sort();
    said
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn naming_providers_in_another_order_changes_nothing(
        times in prop::array::uniform3(0.6_f64..1.8), turn in 0..3_usize,
    ) {
        let mut ratios = vec![("a", times[0]), ("b", times[1]), ("c", times[2])];
        let before = only(&[cell(1, &ratios)]);
        ratios.rotate_left(turn);
        let mut other = cell(1, &[("a", times[0]), ("b", times[1]), ("c", times[2])]);
        other.record.gate.baselines = ratios.iter().map(|(name, _)| id(name)).collect();
        other.record.baselines = ratios.iter().map(|(name, _)| facts(name)).collect();
        other.baseline().arms.rotate_left(turn);
        prop_assert_eq!(said(&before.cells[0]), said(&only(&[other]).cells[0]));
    }

    #[test]
    fn ranks_agree_with_the_calls_of_pairs(times in prop::array::uniform3(0.9_f64..1.1)) {
        let ratios = [("a", times[0]), ("b", times[1]), ("c", times[2])];
        let gate = only(&[cell(1, &ratios)]);
        let ranking = &gate.cells[0].ranking;
        let standing = |id: &ProviderId| ranking.standings.iter().find(|s| s.provider == *id).unwrap();
        for pair in ranking.pairs.iter().map(|pair| &pair.comparison) {
            let (ours, theirs) = (standing(&pair.candidate), standing(&pair.baseline));
            match pair.speed {
                Speed::Win | Speed::Lead => prop_assert!(ours.rank < theirs.rank),
                Speed::Loss | Speed::Trail => prop_assert!(ours.rank > theirs.rank),
                _ => {
                    prop_assert!(ours.not_separated.contains(&theirs.provider));
                    prop_assert!(theirs.not_separated.contains(&ours.provider));
                }
            }
        }
        for at in 1..ranking.standings.len() {
            let (before, this) = (&ranking.standings[at - 1], &ranking.standings[at]);
            prop_assert!(this.rank == before.rank || this.rank == before.rank + 1);
        }
        prop_assert_eq!(ranking.standings[0].rank, 1);
    }
}
