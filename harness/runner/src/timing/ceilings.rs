//! Ceilings: how fast memory can be read, written and copied, on one pinned core of the host or on a device.

use std::collections::BTreeMap;
use std::time::Instant;

use proofhouse_schema::device::DeviceKind;
use proofhouse_schema::probe::Probe;
use proofhouse_schema::protocol::{Reply, Request};
use proofhouse_schema::real::Real;

use crate::attempt::{Loss, Placement};
use crate::context::Context;

/// Rounds of each; the best counts, for a ceiling is what can be reached.
const ROUNDS: usize = 5;
/// The most bytes of one buffer.
const MOST: usize = 256 << 20;
const LEAST: usize = 32 << 20;

/// Measures the ceilings on one core with buffers beyond the last-level cache where memory allows.
pub(super) fn measure(core: usize, cache_bytes: Option<u64>) -> BTreeMap<String, Probe<Real>> {
    let cache = usize::try_from(cache_bytes.unwrap_or(0)).unwrap_or(MOST);
    let bytes = (2 * cache.min(MOST)).clamp(LEAST, MOST);
    let measured = std::thread::spawn(move || {
        let mut set = rustix::thread::CpuSet::new();
        set.set(core);
        rustix::thread::sched_setaffinity(None, &set).map(|()| rates(bytes))
    });
    let names = ["copy_bytes_per_s", "read_bytes_per_s", "write_bytes_per_s"];
    let rates = match measured.join() {
        Ok(Ok(rates)) => rates.map(|rate| Probe::Known(Real(rate))),
        Ok(Err(error)) => names.map(|_| Probe::Unavailable(error.to_string())),
        Err(_) => names.map(|_| Probe::Unavailable("the measuring thread failed".to_owned())),
    };
    names.into_iter().map(str::to_owned).zip(rates).collect()
}

/// Asks a worker of ours for the ceilings of its device, in a process of its own: a candidate that told them itself could
/// lower the floor that holds its times.
pub(super) async fn of_device(
    context: &Context,
    device: DeviceKind,
) -> BTreeMap<String, Probe<Real>> {
    let named = |name: &str| format!("{device}_{name}");
    let unknown = |why: String| {
        let name = named("copy_bytes_per_s");
        BTreeMap::from([(name, Probe::Unavailable(why))])
    };
    let own = context.plan.homes.values().find(|home| home.is_own_worker());
    let Some(provider) = own.map(|home| home.provider.id.clone()) else {
        return unknown("no provider here is our own worker, which knows them".to_owned());
    };
    let placement = Placement { threads: 1, device, ..Placement::default() };
    let mut worker = match context.start(&provider, &placement).await {
        Ok(worker) => worker,
        Err((loss, _)) => return unknown(loss.to_string()),
    };
    let reply = worker.ask(Request::Ceilings).await;
    // The attempt is not recorded: the session is not a cell.
    match reply {
        Ok(Reply::Ceilings { measured }) => {
            worker.end().await;
            let probe = |(name, value): (String, f64)| (named(&name), Probe::Known(Real(value)));
            measured.into_iter().map(probe).collect()
        }
        Ok(other) => {
            worker.end().await;
            unknown(format!("{provider} answered {}", crate::socket::reply_verb(&other)))
        }
        Err(loss) => {
            let why = loss.to_string();
            if loss != Loss::Interrupted {
                context.health.suspect(device);
            }
            worker.lose(&loss).await;
            unknown(why)
        }
    }
}

/// Copy (bytes read plus bytes written), read, write, in bytes a second.
fn rates(bytes: usize) -> [f64; 3] {
    let mut from = vec![1_u64; bytes / 8];
    let mut to = vec![2_u64; bytes / 8];
    let copy = best(|| to.copy_from_slice(&from));
    let mut sum = 0_u64;
    let read = best(|| sum = sum.wrapping_add(total(&from)));
    std::hint::black_box(sum);
    let mut value = 0;
    let write = best(|| {
        value += 1;
        from.fill(value);
    });
    std::hint::black_box((&from, &to));
    [2.0 * bytes as f64 / copy, bytes as f64 / read, bytes as f64 / write]
}

fn total(values: &[u64]) -> u64 {
    values.iter().fold(0_u64, |sum, value| sum.wrapping_add(*value))
}

/// The least time of several rounds, in seconds.
fn best(mut round: impl FnMut()) -> f64 {
    let mut least = f64::INFINITY;
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        round();
        least = least.min(begun.elapsed().as_secs_f64());
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ceiling_is_a_positive_rate_or_a_reason() {
        let allowed = rustix::thread::sched_getaffinity(None).unwrap();
        let core = (0..1024).find(|core| allowed.is_set(*core)).unwrap();
        let ceilings = measure(core, Some(1 << 20));
        assert_eq!(ceilings.len(), 3);
        assert!(ceilings.values().all(|c| c.known().is_some_and(|rate| rate.0 > 1e8)));
        let nowhere = measure(1023, None);
        assert!(nowhere.values().all(|c| c.known().is_none()));
    }
}
