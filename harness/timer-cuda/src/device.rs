//! The device: graph replays or eager calls on one stream, timed by events.

use proofhouse_schema::timing::Launch;
use proofhouse_timer::{
    ClockKind, Device, DeviceCall, DeviceError, EscapeLimit, EventReasons, Invalid, LoadedCode,
    Properties, Rotation,
};

use crate::cuda::Cuda;
use crate::driver::{Driven, Driver, DriverError};
use crate::events::{EventPool, Stamp};
use crate::graphs::{Graphs, failure_in};
use crate::handle::Stream;
use crate::kernels::{Kernels, VECTOR_BYTES};
use crate::memory::Allocation;
use crate::sensors::{NvmlSensors, SensorError, Sensors, Snapshot};
use crate::stopwatch::Stopwatch;
use crate::stream::OwnedStream;
use crate::telemetry::Row;
use crate::witness::Witness;
use crate::work::{CudaWork, sets_of};

/// Resolution of an event's time that CUDA documents, in nanoseconds.
pub const EVENT_RESOLUTION_NS: f64 = 500.0;
/// What a device-wide wait may last beyond its own cost, in nanoseconds, and as a fraction. Right
/// after the work of a region it costs up to 4 us on an H200, although alone it costs 0.4 us.
const ESCAPE: (f64, f64) = (5_000.0, 0.05);
/// Waits behind the cost of one, and behind the overhead of a spin.
const REPETITIONS: usize = 15;
/// The first lead-in, and the longest, in nanoseconds.
const LEAD_IN_NS: (f64, f64) = (50_000.0, 1_000_000.0);
/// A lead-in lasts this many times the longest that handing a region over took so far.
const LEAD_IN_FACTOR: f64 = 1.25;
/// The time over which a multiprocessor's clock is counted, in nanoseconds.
const CLOCK_NS: u64 = 20_000;
/// The spin behind which the overhead of another is measured, in nanoseconds.
const LONG_SPIN_NS: u64 = 20_000;
/// Bytes that the clock kernel writes, and the read kernel may.
const SCRATCH_BYTES: u64 = 256;

/// Where the driver puts an instance of a graph decides some of its speed.
pub const INSTANCES: u32 = 4;

/// How a device is opened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Replays of a graph, or calls from the host.
    pub launch: Launch,
    /// The stream of all calls; none for one of the device's own.
    pub stream: Option<Stream>,
    /// Bytes of the L2 cache where the caller knows better; none for what the device says.
    pub l2_bytes: Option<u64>,
    /// How often a captured graph is instantiated; replays take the instances in turn.
    pub instances: u32,
}

impl Options {
    /// A device's own stream, its own word for its cache, and as many instances as a measurement takes.
    #[must_use]
    pub const fn new(launch: Launch) -> Self {
        Self { launch, stream: None, l2_bytes: None, instances: INSTANCES }
    }
}

/// Work on a CUDA device, as the timer asks for it.
#[derive(Debug)]
pub struct CudaDevice<W, D: Driver = Cuda> {
    pub(crate) driver: D,
    pub(crate) work: W,
    pub(crate) launch: Launch,
    pub(crate) stream: Stream,
    _own_stream: Option<OwnedStream<D>>,
    l2_bytes: u64,
    pub(crate) graphs: Graphs<D>,
    pub(crate) kernels: Kernels<D>,
    stopwatch: Stopwatch<D>,
    events: EventPool<D>,
    scratch: Allocation<D>,
    evictor: Option<Allocation<D>>,
    sensors: Result<Box<dyn Sensors>, SensorError>,
    rows: Vec<Row>,
    idle_wait_ns: f64,
    lead_in_ns: f64,
    lead_in_begun_ns: Option<u64>,
    exposed: u64,
    settled_ns: Option<f64>,
    spin_overhead_ns: f64,
}

impl<W: CudaWork> CudaDevice<W> {
    /// Opens the device of a driver for `work`, with NVML's sensors where there are any.
    ///
    /// # Errors
    /// A [`DriverError`].
    pub fn new(cuda: &Cuda, work: W, options: Options) -> Result<Self, DriverError> {
        let facts = cuda.facts();
        let sensors = NvmlSensors::open(&facts.uuid);
        let sensors = sensors.map(|nvml| Box::new(nvml) as Box<dyn Sensors>);
        let l2_bytes = options.l2_bytes.unwrap_or(facts.l2_bytes);
        Self::with_driver(
            cuda,
            work,
            options,
            Chip { multiprocessors: facts.multiprocessors, l2_bytes },
            sensors,
        )
    }
}

/// What a device needs to know of its chip.
#[derive(Clone, Copy, Debug)]
pub struct Chip {
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of the L2 cache.
    pub l2_bytes: u64,
}

impl<W: CudaWork, D: Driver> CudaDevice<W, D> {
    /// Opens a device over any driver.
    ///
    /// # Errors
    /// A [`DriverError`].
    pub fn with_driver(
        driver: &D,
        work: W,
        options: Options,
        chip: Chip,
        sensors: Result<Box<dyn Sensors>, SensorError>,
    ) -> Result<Self, DriverError> {
        let kernels = Kernels::load(driver, chip.multiprocessors)?;
        let scratch = Allocation::new(driver, SCRATCH_BYTES)?;
        let (stream, own_stream) = match options.stream {
            Some(stream) => (stream, None),
            None => {
                let own = OwnedStream::new(driver)?;
                (own.handle(), Some(own))
            }
        };
        let stopwatch = Stopwatch::new(driver, &kernels, stream)?;
        let events = EventPool::new(driver, stream)?;
        let mut device = Self {
            driver: driver.clone(),
            work,
            launch: options.launch,
            stream,
            _own_stream: own_stream,
            l2_bytes: chip.l2_bytes,
            graphs: Graphs::new(driver, stream, options.instances),
            kernels,
            stopwatch,
            events,
            scratch,
            evictor: None,
            sensors,
            rows: Vec::new(),
            idle_wait_ns: 0.0,
            lead_in_ns: LEAD_IN_NS.0,
            lead_in_begun_ns: None,
            exposed: 0,
            settled_ns: None,
            spin_overhead_ns: 0.0,
        };
        device.idle_wait_ns = device.measure_idle_wait()?;
        device.spin_overhead_ns = device.measure_spin_overhead()?;
        Ok(device)
    }

    /// The work, for what is not timing.
    pub fn work_mut(&mut self) -> &mut W {
        &mut self.work
    }

    /// The stream of all calls.
    #[must_use]
    pub fn stream(&self) -> Stream {
        self.stream
    }

    /// What the captured graph holds; none before the first capture and for eager calls.
    #[must_use]
    pub fn witness(&self) -> Option<&Witness> {
        self.graphs.witness()
    }

    /// What was read after the last `count` samples, or fewer where there are fewer.
    #[must_use]
    pub fn last_rows(&self, count: usize) -> &[Row] {
        &self.rows[self.rows.len().saturating_sub(count)..]
    }

    /// Forgets what was read so far.
    pub fn clear_rows(&mut self) {
        self.rows.clear();
    }

    /// Why there is no telemetry beside the multiprocessor's clock, if there is none.
    #[must_use]
    pub fn telemetry_missing(&self) -> Option<&SensorError> {
        self.sensors.as_ref().err()
    }

    /// Clocks, power limit and processes now; none without sensors.
    pub fn snapshot(&mut self) -> Option<Snapshot> {
        self.sensors.as_mut().ok().map(|sensors| sensors.snapshot())
    }

    /// Regions so far whose beginning was reached before they were handed over whole, so that they
    /// hold some launch time.
    #[must_use]
    pub fn exposed_regions(&self) -> u64 {
        self.exposed
    }

    /// Cost of a device-wide wait when nothing runs, in nanoseconds.
    #[must_use]
    pub fn idle_wait_ns(&self) -> f64 {
        self.idle_wait_ns
    }

    /// What a spin of no length adds to a region, in nanoseconds.
    #[must_use]
    pub fn spin_overhead_ns(&self) -> f64 {
        self.spin_overhead_ns
    }

    /// Bytes of device memory that are free.
    ///
    /// # Errors
    /// A [`DriverError`].
    pub fn free_bytes(&self) -> Result<u64, DriverError> {
        self.driver.free_bytes()
    }

    fn measure_idle_wait(&self) -> Driven<f64> {
        self.driver.device_wait()?;
        let mut waits = Vec::with_capacity(REPETITIONS);
        for _ in 0..REPETITIONS {
            let from = self.host_ns()?;
            self.driver.device_wait()?;
            waits.push(self.host_ns()?.saturating_sub(from));
        }
        waits.sort_unstable();
        Ok(waits[waits.len() / 2] as f64)
    }

    fn host_ns(&self) -> Driven<u64> {
        self.driver.host_now_ns().map_err(|error| DriverError {
            call: "host clock",
            code: error.code.unwrap_or(-1),
            name: "unreadable".to_owned(),
            text: error.message,
        })
    }

    fn measure_spin_overhead(&self) -> Driven<f64> {
        let kernels = &self.kernels;
        let alone =
            self.stopwatch.median(REPETITIONS, &mut |stream| kernels.spin(LONG_SPIN_NS, stream))?;
        let followed = self.stopwatch.median(REPETITIONS, &mut |stream| {
            kernels.spin(LONG_SPIN_NS, stream)?;
            kernels.spin(0, stream)
        })?;
        Ok((followed - alone).max(0.0))
    }

    /// Cycles and nanoseconds of a multiprocessor's clock now, and the first step of the global
    /// timer in nanoseconds.
    ///
    /// # Errors
    /// A [`DriverError`].
    pub fn count_cycles(&self) -> Result<[u64; 3], DriverError> {
        self.kernels.sm_clock(self.scratch.address(), CLOCK_NS, self.stream)?;
        let end = self.events.record()?;
        self.events.wait(end)?;
        let mut bytes = [0; 24];
        self.driver.download(self.scratch.address(), &mut bytes)?;
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        Ok([word(0), word(8), word(16)])
    }

    fn grow_evictor(&mut self, bytes: u64) -> Driven<u64> {
        let bytes = bytes.next_multiple_of(VECTOR_BYTES);
        if let Some(evictor) = &self.evictor
            && evictor.bytes() >= bytes
        {
            return Ok(evictor.address());
        }
        self.evictor = None;
        let evictor = Allocation::new(&self.driver, bytes)?;
        // Once, because memory that was never written may be served without reading it.
        self.driver.fill(evictor.address(), 0x5a, bytes, self.stream)?;
        Ok(self.evictor.insert(evictor).address())
    }

    fn enqueue(&mut self, set: u32) -> Result<(), DeviceError> {
        let enqueued = self.work.enqueue(set, self.stream);
        enqueued.map_err(|failure| failure_in(DeviceCall::Call, failure).on_set(set))
    }

    /// Lengthens the next lead-in to what handing over took, and counts a region whose beginning
    /// was reached before it was handed over.
    fn handed_over(&mut self) -> Result<(), DeviceError> {
        let Some(begun_ns) = self.lead_in_begun_ns.take() else { return Ok(()) };
        if self.events.reached_last().map_err(|error| error.in_call(DeviceCall::Call))? {
            self.exposed += 1;
        }
        let took_ns = self.driver.host_now_ns()?.saturating_sub(begun_ns) as f64;
        self.lead_in_ns = self.lead_in_ns.max(LEAD_IN_FACTOR * took_ns).min(LEAD_IN_NS.1);
        Ok(())
    }
}

impl<W: CudaWork, D: Driver> Device for CudaDevice<W, D> {
    type Stamp = Stamp;

    fn properties(&self) -> Properties {
        Properties {
            clock: ClockKind::Device,
            last_level_cache_bytes: self.l2_bytes,
            escape_limit: Some(EscapeLimit {
                floor_ns: ESCAPE.0 + self.idle_wait_ns,
                fraction: ESCAPE.1,
            }),
        }
    }

    fn resolution_ns(&self) -> Option<f64> {
        Some(EVENT_RESOLUTION_NS)
    }

    fn prepare(&mut self, rotation: Rotation) -> Result<Option<Invalid>, DeviceError> {
        match self.launch {
            Launch::Graph => self.graphs.prepare(rotation, &mut self.work),
            Launch::Eager => Ok(None),
        }
    }

    fn lead_in(&mut self) -> Result<(), DeviceError> {
        if self.launch == Launch::Eager {
            // The host's pace is part of what eager calls are timed for.
            return Ok(());
        }
        self.lead_in_begun_ns = Some(self.driver.host_now_ns()?);
        // Bounded above, and positive, so the cast is exact enough.
        let spun = self.kernels.spin(self.lead_in_ns as u64, self.stream);
        spun.map_err(|error| error.in_call(DeviceCall::LeadIn))
    }

    fn settled(&mut self, sample_ns: f64) -> Result<(), DeviceError> {
        self.settled_ns = Some(sample_ns);
        Ok(())
    }

    fn stamp(&mut self) -> Result<Stamp, DeviceError> {
        self.events.record().map_err(|error| error.in_call(DeviceCall::Stamp))
    }

    fn elapsed_ns(&mut self, from: Stamp, to: Stamp) -> Result<f64, DeviceError> {
        self.events.elapsed_ns(from, to)
    }

    fn host_now_ns(&mut self) -> Result<u64, DeviceError> {
        self.driver.host_now_ns()
    }

    fn call(&mut self, set: u32) -> Result<(), DeviceError> {
        self.enqueue(set)
    }

    fn run_calls(&mut self, rotation: Rotation) -> Result<(), DeviceError> {
        match self.launch {
            Launch::Graph => {
                self.graphs.launch(rotation)?;
                self.handed_over()
            }
            Launch::Eager => sets_of(rotation).try_for_each(|set| self.enqueue(set)),
        }
    }

    fn slow_down(&mut self, _from: Stamp, fraction: f64) -> Result<(), DeviceError> {
        let Some(settled_ns) = self.settled_ns else {
            let text = "how long a region lasts is not known before the warm-up has settled";
            return Err(DeviceError::new(DeviceCall::SlowDown, text));
        };
        let wanted_ns = (fraction * settled_ns - self.spin_overhead_ns).max(0.0);
        // What is cut is below one nanosecond.
        let spun = self.kernels.spin(wanted_ns as u64, self.stream);
        spun.map_err(|error| error.in_call(DeviceCall::SlowDown))
    }

    fn restore(&mut self, set: u32) -> Result<(), DeviceError> {
        let restored = self.work.restore(set, self.stream);
        restored.map_err(|failure| failure_in(DeviceCall::Restore, failure).on_set(set))
    }

    fn restore_all(&mut self, sets: u32) -> Result<(), DeviceError> {
        self.graphs.restore(sets, &mut self.work)
    }

    fn evict(&mut self, bytes: u64) -> Result<(), DeviceError> {
        let failed = |error: DriverError| error.in_call(DeviceCall::Evict);
        let address = self.grow_evictor(bytes).map_err(failed)?;
        self.driver.reset_persisting_cache().map_err(failed)?;
        // It only reads: dirty lines are written back here, and none are left behind.
        let bytes = bytes.next_multiple_of(VECTOR_BYTES);
        let read = self.kernels.read(address, bytes, self.scratch.address(), self.stream);
        read.map_err(failed)
    }

    fn sync(&mut self) -> Result<(), DeviceError> {
        self.driver.device_wait().map_err(|error| error.in_call(DeviceCall::Sync))
    }

    fn loaded_code(&mut self) -> Result<LoadedCode, DeviceError> {
        self.driver.loaded_code()
    }

    fn event_reasons(&mut self) -> Result<EventReasons, DeviceError> {
        let counted = self.count_cycles();
        let [cycles, ns, _] = counted.map_err(|error| error.in_call(DeviceCall::EventReasons))?;
        if cycles == 0 || ns == 0 {
            let text = format!("a multiprocessor's clock counted {cycles} cycles in {ns} ns");
            return Err(DeviceError::new(DeviceCall::EventReasons, text));
        }
        let reading = self.sensors.as_mut().map(|sensors| sensors.read()).unwrap_or_default();
        self.rows.push(Row { sm_mhz: cycles as f64 * 1e3 / ns as f64, reading });
        Ok(EventReasons(reading.reasons.unwrap_or(0)))
    }
}
