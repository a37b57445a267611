//! Providers in order, as a person reads them.

use proofhouse_report::{crossover_sentence, flip_sentence, plain};
use proofhouse_schema::ordering::{
    CellOrdering, Crossover, GateOrdering, OverallOrdering, Pair, Ranking, Standing, UnrankedCell,
};
use proofhouse_schema::real::Real;
use proofhouse_schema::units::Nanos;
use proofhouse_schema::verdict::Speed;

use super::{Paint, Table, counted};

/// Cells that are named in a row; how many more there are is told.
const NAMED: usize = 4;

/// Every cell of a gate: the providers in order, or why there is no order.
pub fn cells(gate: &GateOrdering, paint: Paint) -> String {
    let mut text = format!("{}\n", heading(gate, paint));
    for cell in &gate.cells {
        text.push_str(&format!("\n  {}\n", about(cell, paint)));
        text.push_str(&standings(&cell.ranking, paint));
        for (provider, why) in &cell.absent {
            text.push_str(&format!("  {} took no part: {}\n", provider, plain(why)));
        }
    }
    text.push('\n');
    text
}

/// A gate as a whole: the overall order, who was absent where, flips, crossovers, cells without an order.
pub fn gates(gate: &GateOrdering, paint: Paint) -> String {
    let mut text = format!("{}\n", heading(gate, paint));
    match &gate.overall {
        Some(overall) => text.push_str(&overall_table(gate, overall, paint)),
        None if gate.cells.is_empty() => text.push_str("  no cell could be ranked\n"),
        None => {
            text.push_str("  no overall order: there is no cell in which all providers took part\n")
        }
    }
    for absence in &gate.absences {
        let cells: Vec<&str> = absence.cells.keys().map(String::as_str).collect();
        let why = absence.cells.values().next().map_or("", String::as_str);
        let (count, names) = (counted(cells.len() as u64, "cell"), some_of(&cells));
        text.push_str(&format!(
            "  {} was absent from {count}: {names} ({})\n",
            absence.provider,
            plain(why)
        ));
    }
    for flip in &gate.flips {
        text.push_str(&format!("  flips in {}\n", flip_sentence(flip)));
    }
    let own = |crossover: &&Crossover| {
        !crossover.turns.is_empty()
            || [&crossover.left, &crossover.right].contains(&&gate.candidate)
    };
    for crossover in gate.crossovers.iter().filter(own) {
        text.push_str(&format!(
            "  {}
",
            crossover_sentence(crossover)
        ));
    }
    gate.unranked.iter().for_each(|cell| text.push_str(&not_ranked(cell, paint)));
    text.push('\n');
    text
}

fn heading(gate: &GateOrdering, paint: Paint) -> String {
    let contract = gate.timing.as_ref().map_or("no contract".to_owned(), |timing| {
        let margin = 100.0 * timing.margin;
        format!("{}, margin {margin} %", timing.contract)
    });
    let gate_name = paint.bold(gate.gate.as_str());
    format!("{gate_name}  {} on {}, {contract}", gate.candidate, plain(&gate.place))
}

fn about(cell: &CellOrdering, paint: Paint) -> String {
    let facts = format!(
        "{}, {}, noise floor {:.1} %, evidence {}",
        cell.grade.as_str(),
        counted(u64::from(cell.replicates), "replicate"),
        100.0 * cell.noise_floor.0,
        cell.evidence.short()
    );
    format!("{}  {}", paint.bold(&plain(&cell.cell)), paint.faint(&facts))
}

/// The table of one order.
fn standings(ranking: &Ranking, paint: Paint) -> String {
    let timed = ranking.standings.iter().any(|standing| standing.time.is_some());
    let mut heads = vec!["  rank", "provider"];
    heads.extend(timed.then_some(">time/call"));
    heads.extend(["time over the first's", "says", ">ran first", ">second", "order effect"]);
    heads.push("not separated from");
    let mut table = Table::new(&heads);
    for standing in &ranking.standings {
        table.painted(row(ranking, standing, timed, paint));
    }
    table.render(|head| paint.faint(head))
}

fn row(
    ranking: &Ranking,
    standing: &Standing,
    timed: bool,
    paint: Paint,
) -> Vec<(String, Option<String>)> {
    let shared = ranking.standings.iter().filter(|s| s.rank == standing.rank).count() > 1;
    let rank = format!("  {}{}", standing.rank, if shared { "=" } else { "" });
    let time = standing.time.as_ref().map(|t| Nanos(t.p50_ns.0).to_string());
    let says = speed_of(ranking, standing);
    let (ratio, by_order, effect) = match &standing.to_first {
        // The pair's candidate is the first in the list, so its second place is this one's first.
        Some(pair) => (interval(pair), (pair.candidate_second, pair.candidate_first), order(pair)),
        None => (String::new(), (None, None), String::new()),
    };
    let number = |value: Option<Real>| value.map_or(String::new(), |v| format!("{:.3}", v.0));
    let tied: Vec<&str> = standing.not_separated.iter().map(|id| id.as_str()).collect();
    let name = plain(&format!("{} {}", standing.provider, standing.version));
    let mut cells = vec![(rank, None), (name, None)];
    cells.extend(timed.then(|| (time.unwrap_or_default(), None)));
    cells.extend([
        (ratio, None),
        (says.as_str().to_owned(), Some(paint.speed(says, says.as_str()))),
        (number(by_order.0), None),
        (number(by_order.1), None),
        (effect, None),
        (tied.join(", "), None),
    ]);
    cells
}

/// What is said of a provider: against the first, and of the first itself what is said against all others.
fn speed_of(ranking: &Ranking, standing: &Standing) -> Speed {
    match &standing.to_first {
        Some(pair) => seen_from_the_other_side(pair.comparison.speed),
        None => {
            let others = ranking.standings.iter().filter_map(|other| other.to_first.as_ref());
            let mut said = others.map(|pair| pair.comparison.speed);
            let first = said.next().unwrap_or(Speed::Inconclusive);
            let all = said.all(|speed| speed == first);
            if all && matches!(first, Speed::Win | Speed::Lead) {
                first
            } else {
                Speed::Inconclusive
            }
        }
    }
}

fn seen_from_the_other_side(speed: Speed) -> Speed {
    match speed {
        Speed::Win => Speed::Loss,
        Speed::Loss => Speed::Win,
        Speed::Lead => Speed::Trail,
        Speed::Trail => Speed::Lead,
        Speed::Parity | Speed::Even | Speed::Inconclusive => speed,
    }
}

fn interval(pair: &Pair) -> String {
    let estimate = pair.comparison.estimate.as_ref();
    estimate.map_or_else(String::new, |e| {
        format!("{:.3}x [{:.3}, {:.3}]", e.ratio.0, e.low.0, e.high.0)
    })
}

fn order(pair: &Pair) -> String {
    let effect = pair.comparison.estimate.as_ref().and_then(|e| e.order_effect.as_ref());
    // Ratio when this one ran first over ratio when it ran second: the pair's, turned round.
    effect.map_or_else(String::new, |e| {
        format!("{:.3} [{:.3}, {:.3}]", 1.0 / e.effect.0, 1.0 / e.high.0, 1.0 / e.low.0)
    })
}

fn overall_table(gate: &GateOrdering, overall: &OverallOrdering, paint: Paint) -> String {
    let pairs = &overall.ranking.pairs;
    let called = pairs.iter().filter(|pair| is_called(pair)).count();
    let holding = pairs.iter().filter(|pair| pair.holds).count();
    let replicates = counted(u64::from(overall.replicates), "replicate");
    let mut text = format!(
        "  geometric means over {} of {}, {replicates}; {called} of {} called, {holding} of them hold together at 5 %\n",
        overall.cells.len(),
        counted(gate.cells.len() as u64, "ranked cell"),
        counted(pairs.len() as u64, "pair"),
    );
    text.push_str(&standings(&overall.ranking, paint));
    if let Some(best) = &gate.against_best {
        let e = &best.estimate;
        text.push_str(&format!(
            "  {} against the best other of each of {}: {:.3}x [{:.3}, {:.3}], least in {}\n",
            gate.candidate,
            counted(u64::from(best.cells), "cell"),
            e.ratio.0,
            e.low.0,
            e.high.0,
            plain(&best.worst)
        ));
    }
    text
}

fn is_called(pair: &Pair) -> bool {
    matches!(pair.comparison.speed, Speed::Win | Speed::Loss | Speed::Lead | Speed::Trail)
}

fn not_ranked(cell: &UnrankedCell, paint: Paint) -> String {
    let word = paint.verdict(cell.verdict, cell.verdict.as_str());
    let (first, more) = (cell.reasons.first(), cell.reasons.len().saturating_sub(1));
    let reason = first.map_or("no reason is recorded", |reason| reason.detail.as_str());
    let more = if more == 0 { String::new() } else { format!(" (and {more} more)") };
    let (name, evidence) = (plain(&cell.cell), cell.evidence.short());
    format!("  not ranked: {name}, {word}, evidence {evidence}: {}{more}\n", plain(reason))
}

fn some_of(names: &[&str]) -> String {
    let shown = names.iter().take(NAMED).map(|name| plain(name)).collect::<Vec<_>>().join("; ");
    match names.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
