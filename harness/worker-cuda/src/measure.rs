//! `measure` on the device: a case under the timer, over private sets of its tensors.

use proofhouse_schema::device::{Reuse, Telemetry};
use proofhouse_schema::evidence::Finding;
use proofhouse_schema::protocol::{Measure, Measured, Phase};
use proofhouse_schema::timing::Launch;
use proofhouse_schema::units::Nanos;
use proofhouse_timer::host::monotonic_raw_ns;
use proofhouse_timer::{
    Device as _, DeviceError, MeasureError, Sample, Timer, TurnInputs, TurnOutcome, TurnRequest,
    Warm,
};
use proofhouse_timer_cuda::{Cell, CudaDevice, DevicePlan, Options, columns, device_plan};
use proofhouse_worker::Decline;
use proofhouse_worker::reasons::{check_request, finding, untrusted};

use crate::image::{Images, driver};
use crate::open::OpenedCuda;
use crate::sets::Sets;

/// A case that is warm.
#[derive(Debug)]
pub(crate) struct Timed {
    warm: Warm<CudaDevice<Sets>>,
    chosen: DevicePlan,
    launch: Launch,
}

/// What one request gave.
#[derive(Default)]
struct Taken {
    calls: u32,
    sets: u32,
    elapsed_ns: Vec<f64>,
    enqueue_ns: Vec<f64>,
    untimed_ns: f64,
    invalid: Vec<Finding>,
    telemetry: Telemetry,
    kernels: Vec<String>,
    reuse: Option<Reuse>,
    retaken: u32,
}

/// Answers a request; `fresh` makes the first set of a warm-up.
pub(crate) fn measure(
    opened: &OpenedCuda,
    timed: &mut Option<Timed>,
    images: &Images,
    request: &Measure,
    planted: f64,
    fresh: impl FnOnce() -> Result<Sets, Decline>,
) -> Result<Measured, Decline> {
    check_request(request)?;
    let start_ns = now_ns()?;
    let before = modules()?;
    let taken = match request.phase {
        Phase::Warm => warm_up(opened, timed, request, fresh)?,
        Phase::Turn => turn(timed, images, request, planted)?,
    };
    let after = modules()?;
    Ok(Measured {
        case: request.case.clone(),
        phase: request.phase,
        block: request.block,
        position: request.position,
        calls: taken.calls,
        sets: taken.sets,
        timed: Nanos(taken.elapsed_ns.iter().sum()),
        elapsed_ns: taken.elapsed_ns,
        untimed: Nanos(taken.untimed_ns),
        wall: Nanos((now_ns()? - start_ns) as f64),
        modules: [before, after],
        invalid: taken.invalid,
        enqueue_ns: taken.enqueue_ns,
        telemetry: taken.telemetry,
        kernels: taken.kernels,
        reuse: taken.reuse,
        retaken: taken.retaken,
    })
}

fn warm_up(
    opened: &OpenedCuda,
    timed: &mut Option<Timed>,
    request: &Measure,
    fresh: impl FnOnce() -> Result<Sets, Decline>,
) -> Result<Taken, Decline> {
    *timed = None;
    let sets = fresh()?;
    let (footprint_bytes, in_place) = (sets.footprint(), sets.in_place());
    let options = Options::new(request.launch);
    let mut device = CudaDevice::new(&opened.cuda, sets, options).map_err(|e| driver(&e))?;
    let call_ns = match device.guess_call_ns(in_place) {
        Ok(call_ns) => call_ns,
        Err(error) => return nothing(&error, Taken::default()),
    };
    let chosen = device_plan(&Cell {
        footprint_bytes,
        in_place,
        cache: request.cache,
        launch: request.launch,
        min_sample_ns: request.min_sample_ns,
        call_ns,
        l2_bytes: device.properties().last_level_cache_bytes,
        free_bytes: device.free_bytes().map_err(|error| driver(&error))?,
        reuse_bytes: request.footprint,
    });
    device.sync().map_err(|error| failed(&error))?;
    let stream = device.stream();
    device.work_mut().grow(&chosen.plan, stream)?;
    let sets = chosen.plan.buffer_sets();
    let warmed = Timer::new(device, &chosen.plan).and_then(Timer::calibrate).and_then(|t| t.warm());
    match warmed {
        Ok(warm) => {
            let calls = warm.calls();
            let settled = warm.warm_up_samples().iter().filter(|sample| sample.calls == calls);
            let elapsed_ns = settled.map(|sample| sample.elapsed_ns).collect();
            let launch = request.launch;
            let reuse = Some(chosen.reuse);
            *timed = Some(Timed { warm, chosen, launch });
            Ok(Taken { calls, sets, elapsed_ns, reuse, ..Taken::default() })
        }
        Err(error) => nothing(&error, Taken { sets, ..Taken::default() }),
    }
}

fn turn(
    timed: &mut Option<Timed>,
    images: &Images,
    request: &Measure,
    planted: f64,
) -> Result<Taken, Decline> {
    let Some(Timed { warm, chosen: DevicePlan { plan, reuse }, launch }) = timed.as_mut() else {
        return Err(Decline::Failed("a turn was asked for before the warm-up".to_owned()));
    };
    let (calls, sets) = (warm.calls(), plan.buffer_sets());
    let known = Taken { calls, sets, reuse: Some(*reuse), ..Taken::default() };
    let stream = warm.device_mut().stream();
    let device = warm.device_mut();
    if request.refresh {
        device.work_mut().reload(images)?;
        device.sync().map_err(|error| failed(&error))?;
        device.work_mut().renew(stream)?;
    } else if request.publish {
        device.work_mut().poison_outputs(stream)?;
    }
    let outcome = warm.turn(TurnRequest {
        inputs: TurnInputs::Rotating,
        samples: Some(request.samples),
        slowdown: request.slowdown + planted,
    });
    let turn = match outcome {
        Ok(TurnOutcome::Valid(turn)) => turn,
        Ok(TurnOutcome::Invalid(turn)) => {
            return Ok(Taken { invalid: turn.reasons.iter().map(finding).collect(), ..known });
        }
        Err(error) => return nothing(&error, known),
    };
    let device = warm.device_mut();
    if request.publish
        && let Some(last) = turn.samples.last()
    {
        let set = (u64::from(last.first_set) + u64::from(last.calls) - 1) % u64::from(plan.sets);
        // The remainder is below `sets`, which fits.
        device.work_mut().publish(set as u32, images)?;
    }
    let telemetry = columns(device.last_rows(turn.samples.len()));
    device.clear_rows();
    let kernels = device.witness().map(|witness| witness.kernels.clone()).unwrap_or_default();
    let column = |of: fn(&Sample) -> f64| turn.samples.iter().map(of).collect::<Vec<f64>>();
    let rewarm_ns: f64 = turn.rewarm.iter().map(|sample| sample.elapsed_ns).sum();
    Ok(Taken {
        elapsed_ns: column(|sample| sample.elapsed_ns),
        enqueue_ns: match launch {
            Launch::Eager => column(|sample| sample.enqueue_ns as f64),
            Launch::Graph => Vec::new(),
        },
        untimed_ns: turn.totals.untimed_ns as f64 + rewarm_ns,
        telemetry,
        kernels,
        retaken: turn.totals.retaken,
        ..known
    })
}

fn nothing(error: &MeasureError, known: Taken) -> Result<Taken, Decline> {
    Ok(Taken { invalid: vec![untrusted(error)?], ..known })
}

fn failed(error: &DeviceError) -> Decline {
    Decline::Failed(error.to_string())
}

fn now_ns() -> Result<u64, Decline> {
    monotonic_raw_ns().map_err(|error| Decline::Failed(error.to_string()))
}

fn modules() -> Result<u64, Decline> {
    let code = proofhouse_timer::host::loaded_code();
    code.map(|code| code.count).map_err(|error| Decline::Failed(error.to_string()))
}
