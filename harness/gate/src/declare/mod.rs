//! From TOML to a resolved gate, in stages, with a type per stage.
//!
//! [`written`] is a file as a person wrote it, with the place of every value; [`spec`] is what it means by itself;
//! [`mod@resolve`] binds it to catalog, providers and profiles and spells every cell out. Each stage notes everything that
//! is wrong before it gives up. What is wrong is data ([`fault`]); how it looks is [`render`]'s.

mod domain;
mod exclude;
pub mod fault;
pub mod folder;
mod nearest;
mod product;
pub mod profiles;
pub mod provider;
mod reader;
mod real;
pub mod render;
pub mod resolve;
pub mod sited;
pub mod spec;
mod tensor_file;
mod tensors;
pub mod written;

pub use fault::{DeclarationError, DeclarationErrors, Fault, SourceFile};
pub use folder::{Declarations, DiskFolder, FileSource, read_catalog};
pub use profiles::parse_profiles;
pub use provider::{bind_provider, parse_provider};
pub use render::Style;
pub use resolve::{Bindings, resolve};
pub use spec::GateSpec;
