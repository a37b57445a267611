//! Where records come from: an evidence folder, or records made for a benchmark.

use std::error::Error;

use proofhouse_evidence::{Folder, Stored};
use proofhouse_schema::evidence::BlobRef;
use proofhouse_schema::samples::Samples;

/// Why a source could not give something.
pub type SourceError = Box<dyn Error + Send + Sync>;

/// Something that holds evidence.
pub trait Source {
    /// The file of every record, relative to the evidence folder, in an order that stays.
    ///
    /// A file's name carries its digest, so a name that was seen once is a record that was read once.
    ///
    /// # Errors
    /// When the records cannot be listed at all.
    fn files(&self) -> Result<Vec<String>, SourceError>;

    /// Reads and checks one record.
    ///
    /// # Errors
    /// When its bytes are not readable, not canonical, not of a known schema, or not those of its name.
    fn load(&self, file: &str) -> Result<Stored, SourceError>;

    /// Reads and checks one blob of samples.
    ///
    /// # Errors
    /// When it is missing, its bytes are not those of its name, or it is not a sample blob.
    fn samples(&self, blob: &BlobRef) -> Result<Samples, SourceError>;
}

impl Source for Folder {
    /// What is odd in the folder is left out here; `Folder::gaps` tells it.
    fn files(&self) -> Result<Vec<String>, SourceError> {
        Ok(self.survey()?.files)
    }

    fn load(&self, file: &str) -> Result<Stored, SourceError> {
        Ok(self.read(file)?)
    }

    fn samples(&self, blob: &BlobRef) -> Result<Samples, SourceError> {
        Ok(Folder::samples(self, blob)?)
    }
}
