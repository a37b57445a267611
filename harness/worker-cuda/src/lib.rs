//! The worker that runs our CUDA operators: `kernels/cuda` behind the protocol, provider id `cuda`.
//!
//! A case's files are copied whole to the device and back, guards, gaps and poison with them, so that the checker sees
//! there what it would see on the host. Timed calls run over private copies of the tensors.
//!
//! | module | what it does |
//! |---|---|
//! | `open` | the device, through the kernels' runtime and the timer's driver |
//! | `image` | a case's files on the device |
//! | `bound` | a launch beside what it borrows |
//! | `sets` | private copies that timed calls rotate through |
//! | `measure` | warm-ups and turns |
//! | `cases` | the requests of the protocol |

#[allow(unsafe_code, reason = "launches that live beside the memory they borrow")]
mod bound;
mod cases;
mod image;
mod measure;
mod open;
mod sets;

pub use cases::CudaCases;
pub use open::{OpenedCuda, Place, StartError, canary};
