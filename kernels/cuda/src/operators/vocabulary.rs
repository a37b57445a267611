//! The structures of the operators over a vocabulary, their workspace, and the word that bad values are reported in.
#![allow(unsafe_code, reason = "says that each structure is its kernel's own")]

use proofhouse_contract::{Call, CallPlan, ContractError, ErrorKind};

use super::{place, sizes};
use crate::launch::Arguments;
use crate::tuning::ChunkShape;

/// Bytes of what is known of one chunk.
const PARTIAL_BYTES: u64 = 16;
/// Bytes of a ticket counter.
const TICKET_BYTES: u64 = 4;
/// Workspaces of a prepared operator at most, and the most bytes that more than one may take.
const MOST_SLOTS: u64 = 32;
const MOST_SLOT_BYTES: u64 = 1 << 20;
/// Alignment of a workspace: another page of addresses for each.
const SLOT_ALIGNMENT: u64 = 4096;
/// Bytes of the word that bad values are reported in.
pub(crate) const STATUS_BYTES: usize = 8;
/// The word when there is no bad value.
const NO_BAD_VALUE: u64 = u64::MAX;

/// Where chunks and tickets of a launch lie: chunks of every row, then tickets of every row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Workspace {
    address: u64,
    tickets: u64,
}

impl Workspace {
    /// Bytes that a call needs; they are zero before the first launch, and every launch leaves the tickets at zero.
    pub(crate) fn bytes(call: &Call, shape: ChunkShape) -> Result<u64, ContractError> {
        let (rows, vocab) = sizes(call)?;
        let of_row = shape.chunks(vocab) * PARTIAL_BYTES + TICKET_BYTES;
        rows.checked_mul(of_row).filter(|bytes| *bytes < 1 << 60).ok_or_else(|| {
            ContractError::new(call.operator.name, "rows", ErrorKind::Overflow)
                .found(rows)
                .accepted("workspace of less than 2^60 bytes")
        })
    }

    /// How many workspaces launches take in turn, and the bytes from one to the next.
    ///
    /// A launch that begins while the one in front of it ends shares no ticket with it, and which part of the L2 cache a
    /// ticket lies in, which may decide some of a small launch's time, is evened out; that it does was not measured.
    pub(crate) fn slots(call: &Call, shape: ChunkShape) -> Result<(u64, u64), ContractError> {
        let stride = Self::bytes(call, shape)?.next_multiple_of(SLOT_ALIGNMENT).max(SLOT_ALIGNMENT);
        Ok(((MOST_SLOT_BYTES / stride).clamp(1, MOST_SLOTS), stride))
    }

    /// The workspace in memory of [`Workspace::bytes`].
    pub(crate) fn new(call: &Call, shape: ChunkShape, address: u64) -> Result<Self, ContractError> {
        let (rows, vocab) = sizes(call)?;
        Ok(Self { address, tickets: address + rows * shape.chunks(vocab) * PARTIAL_BYTES })
    }
}

/// `Arguments` of `greedy_logprob.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct GreedyArguments {
    logits: u64,
    token: u64,
    logprob: u64,
    rank: u64,
    partials: u64,
    tickets: u64,
    status: u64,
    stride: i64,
    rows: i32,
    vocab: i32,
    chunks: i32,
}

// SAFETY: the fields are those of the source, in order and kind.
unsafe impl Arguments for GreedyArguments {}

impl GreedyArguments {
    pub(super) fn gather(
        plan: &CallPlan,
        shape: ChunkShape,
        workspace: Workspace,
    ) -> Result<Self, ContractError> {
        let (rows, vocab) = sizes(&plan.call)?;
        let (logits, stride) = place(plan, "logits")?;
        Ok(Self {
            logits,
            token: place(plan, "token")?.0,
            logprob: place(plan, "logprob")?.0,
            rank: place(plan, "rank")?.0,
            partials: workspace.address,
            tickets: workspace.tickets,
            status: 0,
            stride,
            rows: rows as i32,
            vocab: vocab as i32,
            chunks: shape.chunks(vocab) as i32,
        })
    }

    pub(super) const fn set_status(&mut self, address: u64) {
        self.status = address;
    }
}

/// `Arguments` of `selected_logprob_rank.cu`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct SelectedArguments {
    logits: u64,
    selected: u64,
    logprob: u64,
    rank: u64,
    partials: u64,
    tickets: u64,
    status: u64,
    stride: i64,
    rows: i32,
    vocab: i32,
    chunks: i32,
}

// SAFETY: the fields are those of the source, in order and kind.
unsafe impl Arguments for SelectedArguments {}

impl SelectedArguments {
    pub(super) fn gather(
        plan: &CallPlan,
        shape: ChunkShape,
        workspace: Workspace,
    ) -> Result<Self, ContractError> {
        let (rows, vocab) = sizes(&plan.call)?;
        let (logits, stride) = place(plan, "logits")?;
        Ok(Self {
            logits,
            selected: place(plan, "selected")?.0,
            logprob: place(plan, "logprob")?.0,
            rank: place(plan, "rank")?.0,
            partials: workspace.address,
            tickets: workspace.tickets,
            status: 0,
            stride,
            rows: rows as i32,
            vocab: vocab as i32,
            chunks: shape.chunks(vocab) as i32,
        })
    }

    pub(super) const fn set_status(&mut self, address: u64) {
        self.status = address;
    }
}

/// The first bad value that a word tells of; `selected` reads the token of a row.
pub(crate) fn decode_status<E: From<ContractError>>(
    call: &Call,
    word: u64,
    selected: impl FnOnce(u64) -> Result<i64, E>,
) -> Result<(), E> {
    if word == NO_BAD_VALUE {
        return Ok(());
    }
    let (row, column) = (word >> 32, word & 0x7fff_ffff);
    let is_logit = word >> 31 & 1 == 1;
    let error = |argument, kind| ContractError::new(call.operator.name, argument, kind).at_row(row);
    Err(if is_logit {
        error("logits", ErrorKind::NotFinite)
            .found(format_args!("NaN in column {column}"))
            .accepted("numbers and infinities")
    } else {
        let last = call.dim("vocab")?.saturating_sub(1);
        error("selected", ErrorKind::OutOfRange)
            .found(selected(row)?)
            .accepted(format_args!("0 to {last}"))
    }
    .into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proofhouse_contract::Dtype;

    fn call() -> Call {
        let dims = [("rows", 4), ("vocab", 1025)];
        Call::new("selected_logprob_rank", Dtype::F32, &dims, &[]).unwrap()
    }

    #[test]
    fn a_status_word_names_argument_row_and_value() {
        let decode =
            |word| decode_status::<ContractError>(&call(), word, |row| Ok(-7 - row as i64));
        assert_eq!(decode(u64::MAX), Ok(()));
        let nan = decode(3 << 32 | 1 << 31 | 1000).unwrap_err();
        assert_eq!(
            (nan.kind, nan.row, nan.argument.as_ref()),
            (ErrorKind::NotFinite, Some(3), "logits")
        );
        assert!(nan.found.contains("column 1000"));
        let token = decode(2 << 32).unwrap_err();
        assert_eq!((token.kind, token.row), (ErrorKind::OutOfRange, Some(2)));
        assert_eq!((token.found.as_str(), token.accepted.as_str()), ("-9", "0 to 1024"));
    }

    #[test]
    fn of_two_bad_values_the_smaller_word_is_the_first() {
        // Row before argument, the token before the logits, then the column.
        let words = [1u64 << 32, 1 << 32 | 1 << 31 | 5, 1 << 32 | 1 << 31 | 6, 2 << 32];
        assert!(words.is_sorted());
    }

    #[test]
    fn a_workspace_has_room_for_every_chunk_and_a_ticket_a_row() {
        let shape = ChunkShape { values: 32, warps: 1, overlap: crate::tuning::Overlap::Off };
        assert_eq!(Workspace::bytes(&call(), shape).unwrap(), 4 * (2 * 16 + 4));
        let workspace = Workspace::new(&call(), shape, 4096).unwrap();
        assert_eq!(workspace.tickets, 4096 + 4 * 2 * 16);
        assert_eq!(Workspace::slots(&call(), shape).unwrap(), (32, 4096));
        let mut large = call();
        large.dims.insert("rows".to_owned(), 1 << 20);
        let (slots, stride) = Workspace::slots(&large, shape).unwrap();
        assert_eq!((slots, stride), (1, 36 << 20), "a large one is not made twice");
    }
}
