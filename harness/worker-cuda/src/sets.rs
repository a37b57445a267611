//! Buffer sets on the device: private copies of a case's tensors that timed calls rotate through.

use std::rc::Rc;

use proofhouse_contract::CallPlan;
use proofhouse_cuda::Prepared;
use proofhouse_schema::catalog::Role;
use proofhouse_schema::protocol::Prepare;
use proofhouse_timer::Plan;
use proofhouse_timer::host::CallFailure;
use proofhouse_timer_cuda::{ALIGNMENT, Arena, CudaWork, DeviceBuffer, DriverError, Stream};
use proofhouse_worker::Decline;
use proofhouse_worker::descriptor::rows;

use crate::bound::Bound;
use crate::image::{Images, driver};
use crate::open::OpenedCuda;

/// What outputs hold before a turn whose outputs are published, so that a call that writes nothing shows.
const TURN_POISON: u8 = 0xa5;

/// The sets of a case, and what they started from.
#[derive(Debug)]
pub(crate) struct Sets {
    case: Prepare,
    plan: CallPlan,
    prepared: Rc<Prepared>,
    arena: Arena,
    sets: Vec<Bound<Vec<DeviceBuffer>>>,
    /// Sets of the timer in a row that are one of these.
    dwell: u32,
    /// What each tensor held in the file when the sets were made or renewed. Hundreds of sets come from here faster
    /// than over the bus.
    originals: Vec<DeviceBuffer>,
}

impl Sets {
    /// One set with the contents of the case's files; `plan` is the one that was accepted for them.
    pub(crate) fn new(
        opened: &OpenedCuda,
        case: &Prepare,
        plan: &CallPlan,
        prepared: &Rc<Prepared>,
        images: &Images,
    ) -> Result<Self, Decline> {
        let mut sets = Self {
            case: case.clone(),
            plan: plan.clone(),
            prepared: Rc::clone(prepared),
            arena: Arena::new(&opened.cuda),
            sets: Vec::new(),
            dwell: 1,
            originals: Vec::new(),
        };
        let contents = read_all(case, images)?;
        sets.originals = sets.cut(&contents)?;
        let first = sets.cut(&contents)?;
        sets.bind(first)?;
        Ok(sets)
    }

    /// A copy of each tensor, at the same distance from an aligned address as in the file.
    fn cut(&mut self, contents: &[Vec<u8>]) -> Result<Vec<DeviceBuffer>, Decline> {
        let mut buffers = self.pieces()?;
        for (buffer, bytes) in buffers.iter_mut().zip(contents) {
            buffer.upload(bytes).map_err(|error| driver(&error))?;
        }
        Ok(buffers)
    }

    /// Memory for each tensor.
    fn pieces(&mut self) -> Result<Vec<DeviceBuffer>, Decline> {
        let (arena, tensors) = (&mut self.arena, &self.case.tensors);
        tensors
            .iter()
            .map(|tensor| arena.cut(tensor.span, tensor.offset % ALIGNMENT).map_err(|e| driver(&e)))
            .collect()
    }

    fn bind(&mut self, buffers: Vec<DeviceBuffer>) -> Result<(), Decline> {
        let mut plan = self.plan.clone();
        for (tensor, buffer) in plan.tensors.iter_mut().zip(&buffers) {
            tensor.address = buffer.address();
        }
        self.sets.push(Bound::new(&self.prepared, &plan, buffers)?);
        Ok(())
    }

    /// Makes the sets of a plan; their copies are enqueued. The caller has waited for the device since the sets were made
    /// or reloaded.
    pub(crate) fn grow(&mut self, plan: &Plan, stream: Stream) -> Result<(), Decline> {
        self.dwell = plan.dwell;
        let count = plan.buffer_sets();
        while self.sets.len() < count as usize {
            let mut buffers = self.pieces()?;
            for (buffer, original) in buffers.iter_mut().zip(&self.originals) {
                buffer.copy_from(original, stream).map_err(|error| driver(&error))?;
            }
            self.bind(buffers)?;
        }
        Ok(())
    }

    /// Reads what the files hold now. The sets have it after [`Self::renew`].
    pub(crate) fn reload(&mut self, images: &Images) -> Result<(), Decline> {
        for (original, bytes) in self.originals.iter_mut().zip(read_all(&self.case, images)?) {
            original.upload(&bytes).map_err(|error| driver(&error))?;
        }
        Ok(())
    }

    /// Enqueues copies of what is read to every set, at the same addresses; outputs are left as they are. The caller has
    /// waited for the device since [`Self::reload`].
    pub(crate) fn renew(&mut self, stream: Stream) -> Result<(), Decline> {
        for set in 0..self.sets.len() {
            self.copy(set, |role| role != Role::Out, stream).map_err(|error| driver(&error))?;
        }
        Ok(())
    }

    /// Enqueues copies of the originals of these roles to one of the sets.
    fn copy(
        &mut self,
        index: usize,
        wanted: impl Fn(Role) -> bool,
        stream: Stream,
    ) -> Result<(), DriverError> {
        let buffers = self.sets[index].owner_mut().iter_mut().zip(&self.originals);
        for ((buffer, original), tensor) in buffers.zip(&self.case.tensors) {
            if wanted(tensor.role) {
                buffer.copy_from(original, stream)?;
            }
        }
        Ok(())
    }

    /// Poisons every output in every set.
    pub(crate) fn poison_outputs(&mut self, stream: Stream) -> Result<(), Decline> {
        for set in &mut self.sets {
            for (index, buffer) in set.owner_mut().iter_mut().enumerate() {
                if self.case.tensors[index].role == Role::Out {
                    buffer.fill(TURN_POISON, stream).map_err(|error| driver(&error))?;
                }
            }
        }
        Ok(())
    }

    /// Copies what a call on set `set` wrote into the case's files, row by row, gaps left alone.
    pub(crate) fn publish(&self, set: u32, images: &Images) -> Result<(), Decline> {
        for (index, tensor) in self.case.tensors.iter().enumerate() {
            if tensor.role == Role::In {
                continue;
            }
            let buffer = &self.sets[self.index(set)].owner()[index];
            let mut bytes = vec![0; buffer.len() as usize];
            buffer.download(&mut bytes).map_err(|error| driver(&error))?;
            for row in rows(tensor) {
                images.write(index, row.start as u64, &bytes[row])?;
            }
        }
        Ok(())
    }

    /// Which of these a set of the timer is.
    fn index(&self, set: u32) -> usize {
        (set / self.dwell) as usize
    }

    /// Bytes that one call touches.
    pub(crate) fn footprint(&self) -> u64 {
        self.case.tensors.iter().map(|tensor| tensor.span).sum()
    }

    /// Whether calls change their inputs.
    pub(crate) fn in_place(&self) -> bool {
        self.case.tensors.iter().any(|tensor| tensor.role == Role::InOut)
    }
}

fn read_all(case: &Prepare, images: &Images) -> Result<Vec<Vec<u8>>, Decline> {
    case.tensors.iter().enumerate().map(|(index, tensor)| images.read(index, tensor)).collect()
}

impl CudaWork for Sets {
    fn enqueue(&mut self, set: u32, stream: Stream) -> Result<(), CallFailure> {
        self.sets[self.index(set)]
            .enqueue(stream)
            .map_err(|error| CallFailure { code: 1, message: error.to_string() })
    }

    fn restore(&mut self, set: u32, stream: Stream) -> Result<(), CallFailure> {
        self.copy(self.index(set), |role| role == Role::InOut, stream)
            .map_err(|error| CallFailure { code: 2, message: error.to_string() })
    }
}
