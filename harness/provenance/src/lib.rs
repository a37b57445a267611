//! Probes of host, source and libraries; a failed probe is a value.
