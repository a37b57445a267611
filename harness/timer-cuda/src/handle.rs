//! The driver's handles as numbers of their own types.
//!
//! A handle is only a name: the module that made it knows when it is gone.
#![allow(unsafe_code, reason = "a handle from outside is taken on trust")]

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct $name(usize);

        impl $name {
            /// The handle of an object that somebody else made.
            ///
            /// # Safety
            /// It is the driver's handle of a living object of this kind, in the context that the
            /// timer uses, and the object lives as long as the handle is used.
            #[must_use]
            pub const unsafe fn from_raw(raw: usize) -> Self {
                Self(raw)
            }

            /// The driver's own value.
            #[must_use]
            pub const fn raw(self) -> usize {
                self.0
            }

            pub(crate) const fn new(raw: usize) -> Self {
                Self(raw)
            }
        }
    };
}

handle! {
    /// A stream (`CUstream`).
    Stream
}
handle! {
    /// A captured graph (`CUgraph`).
    Graph
}
handle! {
    /// A graph that can be launched (`CUgraphExec`).
    GraphExec
}
handle! {
    /// An event (`CUevent`).
    Event
}
handle! {
    /// A kernel (`CUfunction`).
    Function
}
