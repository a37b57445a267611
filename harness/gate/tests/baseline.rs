//! Every rule of a speed verdict has a record that turns it red, and an honest one that stays green.

#![allow(clippy::unwrap_used, reason = "tests")]

mod judging;

use judging::{Seen, Speeds, control, fast, id, pass, timed, turns};
use proofhouse_gate::judge::{IncomparableError, contract_of, ensure_comparable, satisfies};
use proofhouse_schema::evidence::{Finding, Outcome, Purpose};
use proofhouse_schema::gate::Inputs;
use proofhouse_schema::probe::Probe;
use proofhouse_schema::real::Real;
use proofhouse_schema::timing::Cache;
use proofhouse_schema::units::{Bytes, Nanos, Wide};
use proofhouse_schema::verdict::{Require, Speed, Verdict};

fn speeds(seen: &Seen) -> Vec<Speed> {
    seen.judge().comparisons.iter().map(|comparison| comparison.speed).collect()
}

fn against(ratio: f64, require: Require, replicates: u32) -> Seen {
    timed(&Speeds { ratios: &[("numpy", ratio)], replicates, require, noise: 0.004 })
}

#[test]
fn a_win_against_every_baseline_passes() {
    let honest = timed(&fast());
    let body = honest.judge();
    assert_eq!(body.verdict, Verdict::Pass, "{:?}", body.reasons);
    assert_eq!(speeds(&honest), [Speed::Win, Speed::Win]);
    assert_eq!(body.comparisons[0].baseline_version, "1.0");
    let ratio = body.comparisons[0].estimate.as_ref().unwrap().ratio.0;
    assert!((ratio - 2.0).abs() < 0.02, "{ratio}");
}

#[test]
fn one_replicate_leads_or_trails_and_never_wins_or_loses() {
    for (ratio, speed, verdict) in [
        (2.0, Speed::Lead, Verdict::Pass),
        (1.0, Speed::Even, Verdict::Fail),
        (0.5, Speed::Trail, Verdict::Fail),
    ] {
        let seen = against(ratio, Require::Win, 1);
        assert_eq!((speeds(&seen), seen.judge().verdict), (vec![speed], verdict));
    }
}

#[test]
fn requirements_decide_what_a_speed_is_worth() {
    let verdicts =
        |require| [2.0, 1.0, 0.5].map(|ratio| against(ratio, require, 5).judge().verdict);
    assert_eq!(verdicts(Require::Win), [Verdict::Pass, Verdict::Fail, Verdict::Fail]);
    assert_eq!(verdicts(Require::NoLoss), [Verdict::Pass, Verdict::Pass, Verdict::Fail]);
    assert_eq!(verdicts(Require::Measured), [Verdict::Pass; 3]);
}

#[test]
fn noise_that_cannot_decide_is_inconclusive() {
    let noisy =
        Speeds { ratios: &[("numpy", 1.04)], replicates: 3, require: Require::Win, noise: 0.3 };
    turns(&timed(&noisy), Verdict::Inconclusive, "across-margin", |_| ());
}

#[test]
fn an_interval_across_the_upper_margin_is_no_loss_and_no_win() {
    let close = |require| {
        timed(&Speeds { ratios: &[("numpy", 1.03)], replicates: 5, require, noise: 0.02 })
    };
    turns(&close(Require::Win), Verdict::Inconclusive, "across-margin", |_| ());
    turns(&close(Require::NoLoss), Verdict::Pass, "not-slower", |_| ());
    turns(&close(Require::NoLoss), Verdict::Inconclusive, "across-margin", |seen| {
        // The noise floor is above the margin: not even "no loss" may be said.
        seen.session().controls[0].estimate.as_mut().unwrap().high = Real(1.08);
    });
}

#[test]
fn missing_samples_are_invalid() {
    let honest = timed(&fast());
    turns(&honest, Verdict::Invalid, "no-samples", |seen| seen.samples = None);
    turns(&honest, Verdict::Invalid, "no-samples", |seen| {
        seen.samples.as_mut().unwrap().rows.clear();
    });
    turns(&honest, Verdict::Invalid, "no-samples", |seen| {
        seen.samples.as_mut().unwrap().providers[1] = id("torch");
    });
    turns(&honest, Verdict::Invalid, "no-samples", |seen| {
        for row in &mut seen.samples.as_mut().unwrap().rows {
            row.measured = false;
        }
    });
    turns(&honest, Verdict::Invalid, "samples-disagree", |seen| {
        seen.samples.as_mut().unwrap().rows.pop();
    });
    turns(&honest, Verdict::Invalid, "replicate-missing", |seen| {
        seen.baseline().arms.retain(|arm| arm.provider != id("numpy") || arm.replicate != 4);
    });
    turns(&honest, Verdict::Invalid, "replicate-missing", |seen| {
        seen.baseline().arms.retain(|arm| arm.provider != id("cpu"));
    });
    turns(&honest, Verdict::Invalid, "replicate-twice", |seen| {
        let again = seen.baseline().arms[0].clone();
        seen.baseline().arms.push(again);
    });
}

#[test]
fn summaries_that_are_not_those_of_the_samples_are_invalid() {
    let honest = timed(&fast());
    turns(&honest, Verdict::Invalid, "samples-disagree", |seen| {
        seen.baseline().arms[0].block_median_ns[3] = Real(5.0);
    });
    turns(&honest, Verdict::Invalid, "samples-disagree", |seen| {
        seen.baseline().arms[0].positions[3] += 1;
    });
    turns(&honest, Verdict::Invalid, "samples-disagree", |seen| {
        seen.baseline().arms[0].positions.pop();
    });
    turns(&honest, Verdict::Invalid, "samples-disagree", |seen| {
        seen.samples.as_mut().unwrap().rows[1].position += 1;
    });
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        turns(&honest, Verdict::Invalid, "bad-sample", |seen| {
            seen.samples.as_mut().unwrap().rows[0].elapsed_ns = bad;
        });
    }
    turns(&honest, Verdict::Invalid, "bad-sample", |seen| {
        seen.samples.as_mut().unwrap().rows[0].calls = 0;
    });
}

#[test]
fn swapped_labels_are_invalid() {
    turns(&timed(&fast()), Verdict::Invalid, "samples-disagree", |seen| {
        seen.samples.as_mut().unwrap().providers.swap(0, 1);
    });
}

#[test]
fn an_untrustworthy_arm_is_invalid_and_a_remembered_result_fails() {
    let honest = timed(&fast());
    let plant = |code: &'static str, arm: usize| {
        move |seen: &mut Seen| {
            let detail = "a planted fault".to_owned();
            seen.baseline().arms[arm].invalid.push(Finding { code: code.into(), detail });
        }
    };
    turns(&honest, Verdict::Invalid, "module-loaded", plant("module-loaded", 0));
    turns(&honest, Verdict::Invalid, "module-loaded", plant("module-loaded", 1));
    turns(&honest, Verdict::Fail, "cached-result", plant("cached-result", 0));
    turns(&honest, Verdict::Invalid, "cached-result", plant("cached-result", 1));
}

#[test]
fn clocks_that_disagree_are_invalid() {
    let honest = timed(&fast());
    let scale = |supervisor: f64, worker: f64| {
        move |seen: &mut Seen| {
            for arm in &mut seen.baseline().arms {
                arm.supervisor_wall_ns = Nanos(arm.supervisor_wall_ns.0 * supervisor);
                arm.worker_wall_ns = Nanos(arm.worker_wall_ns.0 * worker);
            }
        }
    };
    turns(&honest, Verdict::Invalid, "clock-disagrees", scale(0.5, 1.0));
    turns(&honest, Verdict::Invalid, "clock-disagrees", scale(10.0, 1.0));
    turns(&honest, Verdict::Invalid, "clock-disagrees", scale(1.0, 1.5));
    turns(&honest, Verdict::Invalid, "clock-disagrees", scale(1.0, 0.5));
    turns(&honest, Verdict::Invalid, "clock-disagrees", scale(1.0, f64::NAN));
    turns(&honest, Verdict::Invalid, "clock-disagrees", scale(0.0, 1.0));
}

#[test]
fn a_worker_that_waits_for_its_core_is_honest_and_one_that_reports_a_tenth_is_not() {
    // 12 turns of 3 to 6 ms, each with so many milliseconds beside the account.
    let account = |supervisor_ms: f64, share: f64| {
        let mut seen = timed(&fast());
        for row in &mut seen.samples.as_mut().unwrap().rows {
            row.elapsed_ns *= share;
            row.calls = 1;
        }
        let samples = seen.samples.clone().unwrap();
        for arm in &mut seen.baseline().arms {
            let index = samples.providers.iter().position(|p| *p == arm.provider).unwrap();
            let own = samples.rows.iter().filter(|row| {
                usize::from(row.provider) == index && u32::from(row.replicate) == arm.replicate
            });
            arm.worker_wall_ns = Nanos(own.map(|row| row.elapsed_ns).sum::<f64>() * 1.01);
            for median in &mut arm.block_median_ns {
                median.0 *= share * 100.0;
            }
            arm.supervisor_wall_ns = Nanos(arm.worker_wall_ns.0 / share + supervisor_ms * 12e6);
        }
        seen.judge().verdict
    };
    assert_eq!(account(0.2, 1.0), Verdict::Pass);
    assert_eq!(account(2.0, 1.0), Verdict::Pass);
    assert_eq!(account(8.0, 1.0), Verdict::Invalid);
    assert_eq!(account(0.2, 0.1), Verdict::Invalid);
}

#[test]
fn timed_outputs_must_pass_the_oracle() {
    let honest = timed(&fast());
    for provider in ["cpu", "numpy"] {
        turns(&honest, Verdict::Invalid, "timed-unchecked", |seen| {
            seen.baseline().timed.remove(&id(provider));
        });
        turns(&honest, Verdict::Invalid, "timed-unchecked", |seen| {
            seen.baseline().timed.insert(id(provider), Vec::new());
        });
        turns(&honest, Verdict::Invalid, "timed-unchecked", |seen| {
            let mut failed = pass(Purpose::Timed);
            failed.outcome = Outcome::Failed("no output".into());
            seen.baseline().timed.insert(id(provider), vec![failed]);
        });
        turns(&honest, Verdict::Invalid, "out-of-tolerance", |seen| {
            let mut wrong = pass(Purpose::Timed);
            wrong.outputs[0].out_of_tolerance = 1;
            seen.baseline().timed.insert(id(provider), vec![pass(Purpose::Timed), wrong]);
        });
        turns(&honest, Verdict::Invalid, "nothing-compared", |seen| {
            let mut empty = pass(Purpose::Timed);
            empty.outputs.clear();
            seen.baseline().timed.insert(id(provider), vec![empty]);
        });
    }
}

#[test]
fn a_checker_that_was_not_shown_to_fail_leaves_no_speed() {
    turns(&timed(&fast()), Verdict::Unqualified, "checker-unqualified", |seen| {
        seen.baseline().qualification.killed -= 1;
    });
}

fn remove(seen: &mut Seen, name: &str) {
    seen.baseline().arms.retain(|arm| arm.provider != id(name));
    seen.baseline().timed.remove(&id(name));
}

#[test]
fn absent_baselines_are_named_and_the_present_ones_decide() {
    let mut honest = timed(&fast());
    remove(&mut honest, "onnxruntime");
    honest.baseline().absent.insert(id("onnxruntime"), "no network".into());
    let body = honest.judge();
    assert_eq!(body.verdict, Verdict::Pass, "{:?}", body.reasons);
    assert_eq!((body.comparisons.len(), body.reasons[0].code.as_str()), (1, "baseline-absent"));
    turns(&honest, Verdict::NotRun, "no-baseline", |seen| {
        remove(seen, "numpy");
        seen.baseline().absent.insert(id("numpy"), "no Python".into());
    });
    turns(&honest, Verdict::Invalid, "baseline-missing", |seen| {
        seen.baseline().absent.clear();
    });
    turns(&honest, Verdict::Invalid, "baseline-contradicts", |seen| {
        seen.baseline().absent.insert(id("numpy"), "no Python".into());
    });
    turns(&honest, Verdict::Invalid, "foreign-arm", |seen| {
        seen.record.gate.baselines.retain(|baseline| *baseline != id("numpy"));
        seen.record.gate.baselines.push(id("torch"));
        seen.baseline().absent.insert(id("torch"), "not installed".into());
    });
}

#[test]
fn a_provider_that_times_more_than_the_contract_is_not_compared() {
    let honest = timed(&fast());
    turns(&honest, Verdict::Invalid, "contract-differs", |seen| {
        seen.record.baselines[0].includes = vec!["allocation".into()];
    });
    turns(&honest, Verdict::Invalid, "no-contract", |seen| seen.record.gate.timing = None);
}

#[test]
fn controls_that_went_wrong_leave_nothing_to_say() {
    let honest = timed(&fast());
    turns(&honest, Verdict::Inconclusive, "no-control", |seen| seen.session = None);
    turns(&honest, Verdict::Inconclusive, "no-control", |seen| {
        seen.session().controls.retain(|control| control.name != "a-a");
    });
    for speed in [Speed::Win, Speed::Loss, Speed::Lead, Speed::Trail] {
        turns(&honest, Verdict::Inconclusive, "control-wrong", |seen| {
            seen.session().controls[0] = control(0.0, 1.0, speed, false);
        });
    }
    turns(&honest, Verdict::Inconclusive, "control-wrong", |seen| {
        seen.session().controls[1] = control(0.05, 1.05, Speed::Win, false);
    });
    turns(&honest, Verdict::Inconclusive, "under-noise-floor", |seen| {
        seen.session().controls[0] = control(0.0, 3.0, Speed::Inconclusive, true);
    });
}

#[test]
fn a_session_that_does_not_see_a_planted_slowdown_calls_no_tie() {
    let blind = |seen: &mut Seen| {
        seen.session().controls[1] = control(0.05, 1.0, Speed::Inconclusive, false);
    };
    turns(&against(1.0, Require::NoLoss, 5), Verdict::Inconclusive, "control-weak", blind);
    let mut win = timed(&fast());
    blind(&mut win);
    assert_eq!(win.judge().verdict, Verdict::Pass, "a win is seen all the same");
}

#[test]
fn a_cold_call_cannot_be_faster_than_memory() {
    let mut cold = timed(&fast());
    cold.record.gate.timing.as_mut().unwrap().contract.cache = Cache::Cold;
    assert_eq!(cold.judge().verdict, Verdict::Pass, "2,000 bytes in 10 us");
    // The largest ceiling is 2e10 bytes per second: 10 us are enough for 210,000 bytes and not for more.
    let bytes = |count: u64| {
        move |seen: &mut Seen| {
            seen.record.traffic.as_mut().unwrap().read = Bytes(count);
        }
    };
    turns(&cold, Verdict::Invalid, "faster-than-memory", bytes(220_000));
    let mut near = cold.clone();
    bytes(200_000)(&mut near);
    assert_eq!(near.judge().verdict, Verdict::Pass);
    turns(&cold, Verdict::Invalid, "no-ceiling", |seen| {
        for ceiling in seen.session().ceilings.values_mut() {
            *ceiling = Probe::Unavailable("not measured".into());
        }
    });
    let mut hot = timed(&fast());
    bytes(220_000)(&mut hot);
    assert_eq!(hot.judge().verdict, Verdict::Pass, "hot results have no memory floor");
}

#[test]
fn statistics_that_give_no_number_are_invalid() {
    turns(&timed(&fast()), Verdict::Invalid, "same-position", |seen| {
        for row in &mut seen.samples.as_mut().unwrap().rows {
            row.position = 0;
        }
        for arm in &mut seen.baseline().arms {
            arm.positions.fill(0);
        }
    });
}

#[test]
fn a_comparison_without_an_estimate_satisfies_nothing() {
    let mut comparison = timed(&fast()).judge().comparisons.remove(0);
    assert_eq!(satisfies(Require::Measured, &comparison), Verdict::Pass);
    comparison.estimate = None;
    for require in [Require::Measured, Require::NoLoss, Require::Win] {
        assert_eq!(satisfies(require, &comparison), Verdict::Invalid);
    }
}

#[test]
fn speeds_under_different_contracts_are_not_compared() {
    let left = timed(&fast()).record;
    assert_eq!(ensure_comparable(&left, &left), Ok(()));
    let differs = |part: &str, change: &dyn Fn(&mut proofhouse_schema::evidence::CellRecord)| {
        let mut right = left.clone();
        change(&mut right);
        match ensure_comparable(&left, &right) {
            Err(IncomparableError::Differs { part: found, .. }) => assert_eq!(found, part),
            other => panic!("{part}: {other:?}"),
        }
    };
    differs("timing contract", &|r| r.gate.timing.as_mut().unwrap().contract.cache = Cache::Cold);
    differs("timing contract", &|r| r.gate.timing.as_mut().unwrap().contract.threads = 2);
    differs("extents", &|r| *r.case.dims.get_mut("rows").unwrap() = 4);
    differs("layout", &|r| r.case.layout = "offset:1".into());
    differs("input distribution", &|r| {
        r.case.inputs = Inputs::Seeded { values: "uniform".into(), seed: Wide(1) };
    });
    differs("input bytes", &|r| r.inputs.clear());
    let mut silent = left.clone();
    silent.gate.timing = None;
    assert!(matches!(contract_of(&silent), Err(IncomparableError::NoSpeed { .. })));
}

#[test]
fn a_loss_in_one_order_alone_is_not_shown_to_be_none() {
    let speeds =
        Speeds { ratios: &[("numpy", 1.03)], replicates: 5, require: Require::NoLoss, noise: 0.02 };
    let judged = |effects: [f64; 5]| {
        let mut seen = timed(&speeds);
        judging::retime(&mut seen, |provider, sample| {
            let half = effects[usize::from(sample.replicate)] / 2.0;
            let sign = if sample.position == 1 { 1.0 } else { -1.0 };
            if provider.as_str() == "numpy" { f64::exp(sign * half) } else { 1.0 }
        });
        seen.judge().verdict
    };
    assert_eq!(judged([0.0; 5]), Verdict::Pass, "no loss, perhaps a win");
    assert_eq!(judged([0.02, 0.60, 0.02, 0.02, 0.02]), Verdict::Inconclusive);
}
