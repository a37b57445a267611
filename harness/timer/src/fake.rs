//! A device made of numbers: a scripted clock, and a fault at any call one likes.
//!
//! Nothing here reads a clock, so that tests of everything built on the timer are exact.
//! Each method of [`Device`] counts as one device call; [`FakeDevice::log`] lists them, and
//! [`FakeDevice::fault_at`] breaks the one at an index.

use crate::device::{
    ClockKind, Device, DeviceCall, DeviceError, EscapeLimit, EventReasons, LoadedCode, Properties,
    Rotation,
};
use crate::sample::Invalid;

/// Cost of one reading of the fake's clock, in nanoseconds.
pub const STAMP_NS: f64 = 20.0;
const RESTORE_NS: f64 = 500.0;
const EVICT_NS: f64 = 2_000.0;

/// What goes wrong at one device call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The method fails; applies to every method.
    Error,
    /// The elapsed time is zero.
    ZeroTime,
    /// The elapsed time is negative.
    NegativeTime,
    /// The elapsed time is no number.
    NanTime,
    /// The elapsed time is infinite.
    InfiniteTime,
    /// The elapsed time is a hundredth of a nanosecond.
    ImpossiblyFast,
    /// The elapsed time is larger than what passes on the host.
    LongerThanWall,
    /// The host's clock reads earlier than before.
    HostClockBack,
    /// A call loads code.
    LoadsCode,
    /// The clocks are held back.
    Throttles,
    /// The calls are captured and hold no kernel.
    NoKernels,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Self; 11] = [
        Self::Error,
        Self::ZeroTime,
        Self::NegativeTime,
        Self::NanTime,
        Self::InfiniteTime,
        Self::ImpossiblyFast,
        Self::LongerThanWall,
        Self::HostClockBack,
        Self::LoadsCode,
        Self::Throttles,
        Self::NoKernels,
    ];

    /// True when the fault can happen in that method.
    #[must_use]
    pub fn applies_to(self, call: DeviceCall) -> bool {
        match self {
            Self::Error => true,
            Self::ZeroTime
            | Self::NegativeTime
            | Self::NanTime
            | Self::InfiniteTime
            | Self::ImpossiblyFast
            | Self::LongerThanWall => call == DeviceCall::Elapsed,
            Self::HostClockBack => call == DeviceCall::HostNow,
            Self::LoadsCode => call == DeviceCall::Call,
            Self::Throttles => call == DeviceCall::EventReasons,
            Self::NoKernels => call == DeviceCall::Prepare,
        }
    }
}

/// The scripted device.
#[derive(Clone, Debug)]
pub struct FakeDevice {
    call_ns: f64,
    clock_ns: f64,
    stamp_ns: f64,
    properties: Properties,
    faults: Vec<(usize, Fault)>,
    log: Vec<DeviceCall>,
    sets: Vec<u32>,
    restores: Vec<u32>,
    evicted_bytes: u64,
    code: u64,
    jit: Option<(usize, f64)>,
    drift_per_call: f64,
    cooling: Option<(usize, f64)>,
    first_slot: Option<(usize, f64)>,
    slot_calls: usize,
    slot_position: u32,
    memoised: Option<f64>,
    noise: Option<(u64, f64)>,
    step_ns: f64,
    escaped_ns: f64,
    late_host: Option<(u32, f64)>,
    punctual_host: Option<(u32, f64)>,
    waits: u32,
    pending_reasons: EventReasons,
    resolution_ns: Option<f64>,
    settled_ns: Option<f64>,
}

impl FakeDevice {
    /// A device whose every call takes `call_ns` nanoseconds, with a cache of one MiB.
    #[must_use]
    pub fn steady(call_ns: f64) -> Self {
        Self {
            call_ns,
            clock_ns: 1_000_000.0,
            stamp_ns: STAMP_NS,
            properties: Properties {
                clock: ClockKind::Host,
                last_level_cache_bytes: 1 << 20,
                escape_limit: Some(EscapeLimit { floor_ns: 2_000.0, fraction: 0.05 }),
            },
            faults: Vec::new(),
            log: Vec::new(),
            sets: Vec::new(),
            restores: Vec::new(),
            evicted_bytes: 0,
            code: 1,
            jit: None,
            drift_per_call: 0.0,
            cooling: None,
            first_slot: None,
            slot_calls: 0,
            slot_position: 0,
            memoised: None,
            noise: None,
            step_ns: 1.0,
            escaped_ns: 0.0,
            late_host: None,
            punctual_host: None,
            waits: 1,
            pending_reasons: EventReasons::default(),
            resolution_ns: None,
            settled_ns: None,
        }
    }

    /// Breaks the device call at `index` (see [`Self::log`]) when the fault applies to it.
    #[must_use]
    pub fn fault_at(mut self, index: usize, fault: Fault) -> Self {
        self.faults.push((index, fault));
        self
    }

    /// Loads code, and takes `cost_ns` longer, at call number `call` on a buffer set.
    #[must_use]
    pub fn jit_on_call(mut self, call: usize, cost_ns: f64) -> Self {
        self.jit = Some((call, cost_ns));
        self
    }

    /// Makes each call slower than the last by the fraction `per_call` of the first.
    #[must_use]
    pub fn drifting(mut self, per_call: f64) -> Self {
        self.drift_per_call = per_call;
        self
    }

    /// Makes the first `calls` calls of the device's life `factor` times slower.
    #[must_use]
    pub fn slow_start(mut self, calls: usize, factor: f64) -> Self {
        self.cooling = Some((calls, factor));
        self
    }

    /// Makes the first `calls` calls after [`Self::begin_slot`] with position zero `factor` times
    /// slower.
    #[must_use]
    pub fn first_slot_penalty(mut self, calls: usize, factor: f64) -> Self {
        self.first_slot = Some((calls, factor));
        self
    }

    /// Says at which position of a block the next turn is.
    pub fn begin_slot(&mut self, position: u32) {
        self.slot_position = position;
        self.slot_calls = 0;
    }

    /// Makes a call on the set of the call before take only `factor` of its time.
    #[must_use]
    pub fn memoised(mut self, factor: f64) -> Self {
        self.memoised = Some(factor);
        self
    }

    /// Adds uniform noise of up to the fraction `amplitude`, from a seed.
    #[must_use]
    pub fn noisy(mut self, seed: u64, amplitude: f64) -> Self {
        self.noise = Some((seed, amplitude));
        self
    }

    /// Makes the clock advance in steps of `step_ns`.
    #[must_use]
    pub fn coarse_clock(mut self, step_ns: f64) -> Self {
        self.step_ns = step_ns;
        self
    }

    /// Makes readings of the clock free, so that a coarse clock shows no step between two of them.
    #[must_use]
    pub fn free_stamps(mut self) -> Self {
        self.stamp_ns = 0.0;
        self
    }

    /// Says that the clock counts in ticks of `resolution_ns`.
    #[must_use]
    pub fn with_resolution(mut self, resolution_ns: f64) -> Self {
        self.resolution_ns = Some(resolution_ns);
        self
    }

    /// The time of a sample that the warm-up told, if it ended well.
    #[must_use]
    pub fn settled_ns(&self) -> Option<f64> {
        self.settled_ns
    }

    /// Leaves `escaped_ns` of work running after each region, which the device-wide wait sees.
    #[must_use]
    pub fn escaping(mut self, escaped_ns: f64) -> Self {
        self.escaped_ns = escaped_ns;
        self
    }

    /// Lets the device-wide wait after every so many regions last longer by so many nanoseconds, as on a host that is busy
    /// elsewhere.
    #[must_use]
    pub fn late_host(mut self, every: u32, by_ns: f64) -> Self {
        self.late_host = Some((every, by_ns));
        self
    }

    /// From now on, holds the host up after every region but each `every`th.
    pub fn be_punctual_only_each(&mut self, every: u32, late_by_ns: f64) {
        self.punctual_host = Some((every, late_by_ns));
    }

    /// Holds the clocks back now, which the next question about event reasons tells.
    pub fn throttle(&mut self, reasons: EventReasons) {
        self.pending_reasons = reasons;
    }

    /// Sets what the device says of itself.
    #[must_use]
    pub fn with_properties(mut self, properties: Properties) -> Self {
        self.properties = properties;
        self
    }

    /// Every device call so far, in order.
    #[must_use]
    pub fn log(&self) -> &[DeviceCall] {
        &self.log
    }

    /// The buffer set of every call so far, in order.
    #[must_use]
    pub fn called_sets(&self) -> &[u32] {
        &self.sets
    }

    /// The buffer set of every restore so far, in order.
    #[must_use]
    pub fn restored_sets(&self) -> &[u32] {
        &self.restores
    }

    /// Bytes of all evicting passes so far.
    #[must_use]
    pub fn evicted_bytes(&self) -> u64 {
        self.evicted_bytes
    }

    fn enter(&mut self, call: DeviceCall) -> Result<Option<Fault>, DeviceError> {
        let index = self.log.len();
        self.log.push(call);
        let fault = self
            .faults
            .iter()
            .find(|(at, fault)| *at == index && fault.applies_to(call))
            .map(|(_, fault)| *fault);
        if fault == Some(Fault::Error) {
            return Err(DeviceError::new(call, format!("planted at device call {index}")));
        }
        Ok(fault)
    }

    fn read_clock(&mut self) -> f64 {
        self.clock_ns += self.stamp_ns;
        (self.clock_ns / self.step_ns).floor() * self.step_ns
    }

    fn cost_ns(&mut self, set: u32) -> f64 {
        let call = self.sets.len();
        let mut cost = self.call_ns * (1.0 + self.drift_per_call * call as f64);
        if let Some((calls, factor)) = self.cooling
            && call < calls
        {
            cost *= factor;
        }
        if let Some((calls, factor)) = self.first_slot
            && self.slot_position == 0
            && self.slot_calls < calls
        {
            cost *= factor;
        }
        if let Some(factor) = self.memoised
            && self.sets.last() == Some(&set)
        {
            cost *= factor;
        }
        if let Some((state, amplitude)) = &mut self.noise {
            cost *= 1.0 + *amplitude * unit(state);
        }
        cost
    }
}

/// The next uniform number in [0, 1) of a 64-bit mixing sequence.
fn unit(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^= mixed >> 31;
    (mixed >> 11) as f64 / (1_u64 << 53) as f64
}

impl Device for FakeDevice {
    type Stamp = f64;

    fn properties(&self) -> Properties {
        self.properties
    }

    fn resolution_ns(&self) -> Option<f64> {
        self.resolution_ns
    }

    fn prepare(&mut self, rotation: Rotation) -> Result<Option<Invalid>, DeviceError> {
        let fault = self.enter(DeviceCall::Prepare)?;
        let empty = Invalid::NoKernels { kernels: 0, calls: rotation.calls };
        Ok((fault == Some(Fault::NoKernels)).then_some(empty))
    }

    fn lead_in(&mut self) -> Result<(), DeviceError> {
        self.enter(DeviceCall::LeadIn)?;
        Ok(())
    }

    fn settled(&mut self, sample_ns: f64) -> Result<(), DeviceError> {
        self.enter(DeviceCall::Settled)?;
        self.settled_ns = Some(sample_ns);
        Ok(())
    }

    fn stamp(&mut self) -> Result<f64, DeviceError> {
        self.enter(DeviceCall::Stamp)?;
        Ok(self.read_clock())
    }

    fn elapsed_ns(&mut self, from: f64, to: f64) -> Result<f64, DeviceError> {
        let elapsed = to - from;
        Ok(match self.enter(DeviceCall::Elapsed)? {
            Some(Fault::ZeroTime) => 0.0,
            Some(Fault::NegativeTime) => -elapsed,
            Some(Fault::NanTime) => f64::NAN,
            Some(Fault::InfiniteTime) => f64::INFINITY,
            Some(Fault::ImpossiblyFast) => 0.01,
            Some(Fault::LongerThanWall) => elapsed + 1e9,
            _ => elapsed,
        })
    }

    fn host_now_ns(&mut self) -> Result<u64, DeviceError> {
        let fault = self.enter(DeviceCall::HostNow)?;
        let now = self.read_clock() as u64;
        Ok(if fault == Some(Fault::HostClockBack) { now - 900_000 } else { now })
    }

    fn call(&mut self, set: u32) -> Result<(), DeviceError> {
        let fault = self.enter(DeviceCall::Call)?;
        let mut cost = self.cost_ns(set);
        if let Some((call, cost_ns)) = self.jit
            && call == self.sets.len()
        {
            self.code += 1;
            cost += cost_ns;
        }
        if fault == Some(Fault::LoadsCode) {
            self.code += 1;
        }
        self.clock_ns += cost;
        self.sets.push(set);
        self.slot_calls += 1;
        Ok(())
    }

    fn slow_down(&mut self, from: f64, fraction: f64) -> Result<(), DeviceError> {
        self.enter(DeviceCall::SlowDown)?;
        self.clock_ns += (self.clock_ns - from) * fraction;
        Ok(())
    }

    fn restore(&mut self, set: u32) -> Result<(), DeviceError> {
        self.enter(DeviceCall::Restore)?;
        self.clock_ns += RESTORE_NS;
        self.restores.push(set);
        Ok(())
    }

    fn evict(&mut self, bytes: u64) -> Result<(), DeviceError> {
        self.enter(DeviceCall::Evict)?;
        self.clock_ns += EVICT_NS;
        self.evicted_bytes += bytes;
        Ok(())
    }

    fn sync(&mut self) -> Result<(), DeviceError> {
        self.enter(DeviceCall::Sync)?;
        self.clock_ns += self.escaped_ns;
        // Two waits belong to a region: one before it and one after it.
        self.waits += 1;
        if let Some((every, by_ns)) = self.late_host
            && self.waits.is_multiple_of(2 * every)
        {
            self.clock_ns += by_ns;
        }
        if let Some((every, by_ns)) = self.punctual_host
            && self.waits.is_multiple_of(2)
            && !self.waits.is_multiple_of(2 * every)
        {
            self.clock_ns += by_ns;
        }
        Ok(())
    }

    fn loaded_code(&mut self) -> Result<LoadedCode, DeviceError> {
        self.enter(DeviceCall::LoadedCode)?;
        Ok(LoadedCode { count: self.code, fingerprint: self.code })
    }

    fn event_reasons(&mut self) -> Result<EventReasons, DeviceError> {
        Ok(match self.enter(DeviceCall::EventReasons)? {
            Some(Fault::Throttles) => EventReasons::SOFTWARE_THERMAL,
            _ => EventReasons::IDLE.union(std::mem::take(&mut self.pending_reasons)),
        })
    }
}
