/* The operators on CUDA, for programs in any language; the library is libproofhouse_bridge.
 *
 * Generated from kernels/bridge/src by `cargo run -p proofhouse-bridge --example regenerate`; do not edit.
 *
 * Every struct begins with its size: set it to sizeof, another size is refused. Fields named reserved are zero. Functions
 * that return int32_t return a proofhouse_status; after any other than PROOFHOUSE_STATUS_OK, proofhouse_last_error says
 * on the same thread what was wrong. Handles are tickets: only the library knows what they stand for.
 * Every function may be called from any thread, and leaves the thread's current CUDA context as it was.
 */

#ifndef PROOFHOUSE_KERNELS_H
#define PROOFHOUSE_KERNELS_H
#define PROOFHOUSE_KERNELS_VERSION "b25af0754021a68ff6db824d2b1b39f0b0c001ba2305f222f998aa421d306b5c"

#include <stddef.h>
#include <stdint.h>

// Most axes of a tensor.
#define PROOFHOUSE_MOST_AXES 4

// Most dimensions, parameters or tensors of a call, each.
#define PROOFHOUSE_MOST_ENTRIES 16

// Bytes of a name, the closing zero included.
#define PROOFHOUSE_NAME_BYTES 64

// Bytes of a path, the closing zero included.
#define PROOFHOUSE_PATH_BYTES 4096

// Bytes of the text in proofhouse_error, the closing zero included.
#define PROOFHOUSE_TEXT_BYTES 1024

// How a call ended.
//
// 0 is success; 1 to 99 is what the interface itself refuses, 100 to 199 what the operator's contract refuses, 200 to
// 299 what the device, its driver or its compiler could not do. New numbers may come, none changes its meaning.
enum proofhouse_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // It worked.
  PROOFHOUSE_STATUS_OK = 0,
  // A pointer that the call needs is null.
  PROOFHOUSE_STATUS_NULL_ARGUMENT = 1,
  // A pointer is not aligned as its type asks.
  PROOFHOUSE_STATUS_MISALIGNED_ARGUMENT = 2,
  // A struct begins with another size than this library's.
  PROOFHOUSE_STATUS_WRONG_SIZE = 3,
  // A text is too long or not UTF-8.
  PROOFHOUSE_STATUS_BAD_TEXT = 4,
  // A handle is not open, or of another kind.
  PROOFHOUSE_STATUS_BAD_HANDLE = 5,
  // There are more entries than a call can have.
  PROOFHOUSE_STATUS_TOO_MANY = 6,
  // A number stands for nothing, or a reserved field is not zero.
  PROOFHOUSE_STATUS_UNKNOWN_VALUE = 7,
  // A name is given twice.
  PROOFHOUSE_STATUS_DUPLICATE = 8,
  // A tensor has no axis, or more than a descriptor holds.
  PROOFHOUSE_STATUS_BAD_RANK = 9,
  // A stride is negative.
  PROOFHOUSE_STATUS_NEGATIVE_STRIDE = 10,
  // The caller's buffer is too small; it holds the beginning.
  PROOFHOUSE_STATUS_NO_ROOM = 11,
  // The stream is being captured and the call was not prepared before.
  PROOFHOUSE_STATUS_NOT_PREPARED = 12,
  // The cache is full of operators that graphs were captured with.
  PROOFHOUSE_STATUS_CACHE_FULL = 13,
  // A dimension that must be at least one is zero.
  PROOFHOUSE_STATUS_ZERO_DIMENSION = 100,
  // A size or an address overflows.
  PROOFHOUSE_STATUS_OVERFLOW = 101,
  // A tensor's shape does not follow from the call's dimensions.
  PROOFHOUSE_STATUS_LENGTH_MISMATCH = 102,
  // A tensor or parameter has another type than the contract says.
  PROOFHOUSE_STATUS_DTYPE_MISMATCH = 103,
  // Strides that rows cannot have: elements of a row apart, rows that overlap, or no one distance between rows.
  PROOFHOUSE_STATUS_BAD_STRIDE = 104,
  // The span ends before the last element.
  PROOFHOUSE_STATUS_STORAGE_TOO_SHORT = 105,
  // An address is not a multiple of the element's size.
  PROOFHOUSE_STATUS_MISALIGNED = 106,
  // An address is null.
  PROOFHOUSE_STATUS_NULL_POINTER = 107,
  // A tensor that is written shares memory with another.
  PROOFHOUSE_STATUS_OVERLAP = 108,
  // A value is out of range.
  PROOFHOUSE_STATUS_OUT_OF_RANGE = 109,
  // A value is NaN or infinite.
  PROOFHOUSE_STATUS_NOT_FINITE = 110,
  // A dimension, parameter or tensor is absent.
  PROOFHOUSE_STATUS_MISSING = 111,
  // A name or a tensor is not part of the contract.
  PROOFHOUSE_STATUS_UNKNOWN = 112,
  // The contract or the kernels do not cover this.
  PROOFHOUSE_STATUS_UNSUPPORTED = 113,
  // The driver or the compiler is not installed, or not found.
  PROOFHOUSE_STATUS_LIBRARY_MISSING = 200,
  // A call of the driver failed.
  PROOFHOUSE_STATUS_DRIVER = 201,
  // There is no such device.
  PROOFHOUSE_STATUS_NO_DEVICE = 202,
  // The device is older than the kernels.
  PROOFHOUSE_STATUS_UNSUPPORTED_DEVICE = 203,
  // A call of the compiler failed.
  PROOFHOUSE_STATUS_COMPILER = 204,
  // A kernel does not compile.
  PROOFHOUSE_STATUS_COMPILE = 205,
  // The folder of compiled kernels cannot be used.
  PROOFHOUSE_STATUS_CACHE_FOLDER = 206,
  // A launch is larger than a grid can be.
  PROOFHOUSE_STATUS_TOO_LARGE = 207,
  // The operator has no kernel here.
  PROOFHOUSE_STATUS_NO_KERNEL = 208,
  // Another failure on the device's side; the text says which.
  PROOFHOUSE_STATUS_DEVICE_FAILURE = 209,
  // The library panicked, which is a defect of it; the text says where it can.
  PROOFHOUSE_STATUS_PANIC = 300,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum proofhouse_status proofhouse_status;
#else
typedef int32_t proofhouse_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Element types, for the fields named dtype.
enum proofhouse_dtype
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // IEEE binary32.
  PROOFHOUSE_DTYPE_F32 = 1,
  // IEEE binary16.
  PROOFHOUSE_DTYPE_F16 = 2,
  // The upper half of a binary32.
  PROOFHOUSE_DTYPE_BF16 = 3,
  // OCP E4M3FN.
  PROOFHOUSE_DTYPE_F8E4M3 = 4,
  // Signed 32-bit integer.
  PROOFHOUSE_DTYPE_I32 = 5,
  // Signed 64-bit integer.
  PROOFHOUSE_DTYPE_I64 = 6,
  // Unsigned byte.
  PROOFHOUSE_DTYPE_U8 = 7,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum proofhouse_dtype proofhouse_dtype;
#else
typedef uint32_t proofhouse_dtype;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Types of parameters, for the field kind of proofhouse_param.
enum proofhouse_param_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // A real number, in the field real.
  PROOFHOUSE_PARAM_KIND_FLOAT = 1,
  // An integer, in the field integer.
  PROOFHOUSE_PARAM_KIND_INT = 2,
  // A switch, in the field integer: 0 or 1.
  PROOFHOUSE_PARAM_KIND_BOOL = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum proofhouse_param_kind proofhouse_param_kind;
#else
typedef uint32_t proofhouse_param_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// An open device; a ticket that is looked up and never followed.
typedef struct proofhouse_device proofhouse_device;

// A prepared operator; a ticket that is looked up and never followed.
typedef struct proofhouse_operator proofhouse_operator;

// How the last call on this thread ended.
typedef struct proofhouse_error {
  // sizeof this struct.
  uint32_t size;
  // A proofhouse_status; PROOFHOUSE_STATUS_OK where the last call worked.
  int32_t status;
  // Row of a bad value in the device's memory; -1 where there is none.
  int64_t row;
  // Bytes of the whole text, the closing zero included; proofhouse_last_error_text gives all of it.
  uint64_t text_bytes;
  // The operator's name; empty where none is involved.
  char operator_name[PROOFHOUSE_NAME_BYTES];
  // The dimension, parameter, tensor or argument at fault; empty where none is.
  char argument[PROOFHOUSE_NAME_BYTES];
  // What went wrong, what was found and what is accepted, cut where it is longer. UTF-8 with a closing zero.
  char text[PROOFHOUSE_TEXT_BYTES];
} proofhouse_error;

// Which device to open, and with what. Zero every field that is not used.
typedef struct proofhouse_open_options {
  // sizeof this struct.
  uint32_t size;
  // Number of the device in CUDA's order; used where uuid is NULL.
  uint32_t ordinal;
  // Identity of the device, as nvidia-smi writes it ("GPU-" and a UUID); NULL for the ordinal.
  const char *uuid;
  // Folder of libnvrtc; NULL where the loader finds it. The first library a process loads stays in use.
  const char *nvrtc_folder;
  // Folder that compiled kernels are kept in; NULL to keep none.
  const char *kernel_folder;
  // Most operators that proofhouse_enqueue keeps prepared, up to 4096; 0 for 256.
  uint32_t most_cached;
  // Zero.
  uint32_t reserved;
} proofhouse_open_options;

// What a device is.
typedef struct proofhouse_device_description {
  // sizeof this struct.
  uint32_t size;
  // Major number of the compute capability.
  uint32_t compute_major;
  // Minor number of the compute capability.
  uint32_t compute_minor;
  // Multiprocessors.
  uint32_t multiprocessors;
  // Bytes of memory.
  uint64_t memory_bytes;
  // Bytes of the second-level cache.
  uint64_t l2_bytes;
  // The device's name, cut where it is longer, with a closing zero.
  char name[PROOFHOUSE_NAME_BYTES];
  // The device's identity, as nvidia-smi writes it, with a closing zero.
  char uuid[PROOFHOUSE_NAME_BYTES];
} proofhouse_device_description;

// A dimension of a call.
typedef struct proofhouse_dim {
  // sizeof this struct.
  uint32_t size;
  // Zero.
  uint32_t reserved;
  // The dimension's name in the contract, such as "rows".
  const char *name;
  // Its extent, in elements.
  uint64_t extent;
} proofhouse_dim;

// A parameter of a call.
typedef struct proofhouse_param {
  // sizeof this struct.
  uint32_t size;
  // A proofhouse_param_kind.
  uint32_t kind;
  // The parameter's name in the contract, such as "eps".
  const char *name;
  // The value of a FLOAT.
  double real;
  // The value of an INT or a BOOL.
  int64_t integer;
} proofhouse_param;

// A tensor in the device's memory.
//
// Elements of the last axis lie side by side, and the axes before it are rows with one distance between neighbors.
// Strides of axes of one element or none do not matter.
typedef struct proofhouse_tensor {
  // sizeof this struct.
  uint32_t size;
  // A proofhouse_dtype.
  uint32_t dtype;
  // Address of the first element, in the device's memory.
  uint64_t address;
  // Bytes from the address on that belong to the tensor's storage: no element may reach past them.
  uint64_t span_bytes;
  // Number of axes, from 1 to PROOFHOUSE_MOST_AXES.
  uint32_t rank;
  // Zero.
  uint32_t reserved;
  // Extents, outermost axis first, in elements; what stands behind the rank is not read.
  uint64_t shape[PROOFHOUSE_MOST_AXES];
  // Distances between neighbors along each axis, in elements, none negative.
  int64_t strides[PROOFHOUSE_MOST_AXES];
} proofhouse_tensor;

// A call of an operator: what to compute, how large, and on which tensors.
typedef struct proofhouse_call {
  // sizeof this struct.
  uint32_t size;
  // The activations' proofhouse_dtype.
  uint32_t dtype;
  // The operator's name in the contract, such as "rms_norm".
  const char *operator_name;
  // The call's dimensions, every one that the operator has, in any order.
  const struct proofhouse_dim *dims;
  // The call's parameters, in any order; one that is absent has its default. NULL for none.
  const struct proofhouse_param *params;
  // The call's tensors, in the contract's calling order. NULL for none where a function allows that.
  const struct proofhouse_tensor *tensors;
  // Number of dimensions.
  uint32_t dim_count;
  // Number of parameters.
  uint32_t param_count;
  // Number of tensors.
  uint32_t tensor_count;
  // Zero.
  uint32_t reserved;
} proofhouse_call;

// What was counted of an operator on a device since it was opened or the counters were reset.
typedef struct proofhouse_counter_values {
  // sizeof this struct.
  uint32_t size;
  // Zero.
  uint32_t reserved;
  // Launches put into a stream. One that was captured counts once, however often its graph runs; a call without rows
  // launches nothing and counts nothing.
  uint64_t launches;
  // Calls that were refused: by this interface, by the contract, or for a bad value that a check found.
  uint64_t refusals;
  // Calls that failed on the device's side, or panicked.
  uint64_t failures;
  // Operators that were prepared, for the cache or for a handle.
  uint64_t preparations;
  // Calls that found their operator in the cache.
  uint64_t cache_hits;
  // Operators that left the cache to make room.
  uint64_t evictions;
} proofhouse_counter_values;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the header that the library was built with: compare it with PROOFHOUSE_KERNELS_VERSION and go no
// further where they differ. The text lives as long as the library.
const char *proofhouse_version(void);

// The name of a status, such as "storage_too_short"; "no_such_status" for a number that is none. The text lives as long
// as the library.
const char *proofhouse_status_name(int32_t status);

// How the last call on this thread ended. Like proofhouse_last_error_text, proofhouse_version and
// proofhouse_status_name it leaves that as it is; every other function sets it.
//
// The caller promises:
// `error` is null or leads to a writable struct that begins with its size.
int32_t proofhouse_last_error(struct proofhouse_error *error);

// Copies the whole text of the thread's last error, UTF-8 with a closing zero; empty where the last call worked.
//
// `needed`, where it is not NULL, gets the bytes of the whole text. NO_ROOM where `capacity` is less: then `out` holds
// the beginning, with a closing zero. `out` may be NULL with a capacity of 0, to ask for the size.
//
// The caller promises:
// `out` is null or has room for `capacity` bytes; `needed` is null or writable.
int32_t proofhouse_last_error_text(char *out,
                                   size_t capacity,
                                   size_t *needed);

// How many CUDA devices there are.
//
// The caller promises:
// `count` is null or writable.
int32_t proofhouse_device_count(uint32_t *count);

// Opens a device, by its number or its identity; its primary context is retained. `*device` is NULL unless it works.
//
// Every open device has counters and a cache of its own; close it with proofhouse_device_close.
//
// The caller promises:
// `options` is null or leads to a struct that begins with its size, whose texts end with a zero; `device` is null or
// writable.
int32_t proofhouse_device_open(const struct proofhouse_open_options *options,
                               struct proofhouse_device **device);

// Describes an open device.
//
// The caller promises:
// `description` is null or leads to a writable struct that begins with its size.
int32_t proofhouse_device_describe(const struct proofhouse_device *device,
                                   struct proofhouse_device_description *description);

// Closes a device and forgets what its cache keeps. Operators that were prepared for handles stay open, and with them
// the device's context.
//
// Graphs that were captured with operators of the cache must be gone.
int32_t proofhouse_device_close(struct proofhouse_device *device);

// Compiles, loads and allocates what a call needs, once, for any number of launches. `*prepared` is NULL unless it works.
//
// The tensors say where operands will lie: their shapes and strides are checked, and their alignment decides which
// kernel is made ready. Without tensors (a count of 0) the kernel is made ready for contiguous ones at aligned
// addresses. It waits for the device, and must not be called while a stream is captured.
//
// The caller promises:
// `call` is null or leads to a struct that begins with its size; so is what it points to, by the counts in it; names
// end with a zero. `prepared` is null or writable.
int32_t proofhouse_operator_prepare(const struct proofhouse_device *device,
                                    const struct proofhouse_call *call,
                                    struct proofhouse_operator **prepared);

// Puts one launch of a prepared operator into a stream: no wait, no allocation; it can be captured into a graph.
//
// `tensors` are the call's, in the contract's calling order, with the shapes that it was prepared for; addresses and
// strides may change from launch to launch. Tensors of another alignment than the prepared one compile another kernel the
// first time. Launches of one operator share its workspace: they go into one stream, or wait for each other, graphs
// included.
//
// The caller promises:
// `tensors` is null or leads to `tensor_count` structs that begin with their size. Each span is memory of the device
// until the launch, and every graph that holds it, is over. `stream` is a CUstream of the device's primary context, or
// NULL for its default stream.
int32_t proofhouse_operator_enqueue(const struct proofhouse_operator *prepared,
                                    const struct proofhouse_tensor *tensors,
                                    uint32_t tensor_count,
                                    void *stream);

// As proofhouse_operator_enqueue, but waits, and reports the first value in the device's memory that the contract does
// not accept (an id out of range, a NaN among logits) with its row. Not for a stream that is being captured.
//
// The caller promises:
// As for proofhouse_operator_enqueue.
int32_t proofhouse_operator_check(const struct proofhouse_operator *prepared,
                                  const struct proofhouse_tensor *tensors,
                                  uint32_t tensor_count,
                                  void *stream);

// How many kernels one launch of a prepared operator has, which is the nodes that it adds to a graph; 0 for a call
// without rows.
//
// The caller promises:
// `count` is null or writable.
int32_t proofhouse_operator_kernel_count(const struct proofhouse_operator *prepared,
                                         uint32_t *count);

// Copies the name of a kernel of a prepared operator, as a graph's node has it and a profiler shows it.
//
// `out`, `capacity` and `needed` are as for proofhouse_last_error_text.
//
// The caller promises:
// `out` is null or has room for `capacity` bytes; `needed` is null or writable.
int32_t proofhouse_operator_kernel_name(const struct proofhouse_operator *prepared,
                                        uint32_t index,
                                        char *out,
                                        size_t capacity,
                                        size_t *needed);

// Closes a prepared operator and frees its workspace. Graphs that were captured with it must be gone.
int32_t proofhouse_operator_close(struct proofhouse_operator *prepared);

// Puts one launch of a call into a stream, with the operator that the device's cache keeps for it.
//
// A call is looked up by operator, dtype, dimensions, parameters and stream, and prepared the first time (the default
// stream of each thread, CU_STREAM_PER_THREAD, is a stream of its own). The cache holds
// most_cached operators (proofhouse_open_options); for one more, the one that was used the longest ago leaves. Finish
// a stream's work before its handle is used for another stream.
//
// While the stream is captured nothing is prepared: a call that was not made in this stream before is NOT_PREPARED, and
// one that was is to have tensors of the same alignment as then. Nor are calls that are new to be made in other streams
// meanwhile: CUDA may end a capture when memory is allocated beside it.
// What a capture uses is the graph's from then on. It counts towards most_cached, never leaves, and stream launches get
// another; when nothing else is left, new calls are refused with CACHE_FULL until proofhouse_cache_clear. Graphs
// that were captured from one stream share it: their runs wait for each other.
//
// The caller promises:
// As for proofhouse_operator_prepare and proofhouse_operator_enqueue.
int32_t proofhouse_enqueue(const struct proofhouse_device *device,
                           const struct proofhouse_call *call,
                           void *stream);

// Forgets every operator that the device's cache keeps; it waits for the device where memory is freed. Graphs that were
// captured with them must be gone.
int32_t proofhouse_cache_clear(const struct proofhouse_device *device);

// What was counted on a device of an operator, or of all calls where `operator_name` is NULL: calls that name no
// operator of the contract are part of the latter only.
//
// The caller promises:
// `operator_name` is null or ends with a zero; `counters` is null or leads to a writable struct that begins with its size.
int32_t proofhouse_counters(const struct proofhouse_device *device,
                            const char *operator_name,
                            struct proofhouse_counter_values *counters);

// Sets all counters of a device to zero.
int32_t proofhouse_counters_reset(const struct proofhouse_device *device);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PROOFHOUSE_KERNELS_H */
