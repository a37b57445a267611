//! Every type that Proofhouse serialises, canonical JSON, digests and exit codes.
