//! The one timer: a measuring core over a small Device trait.
