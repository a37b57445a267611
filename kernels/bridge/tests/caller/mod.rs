//! A caller in C: calls as descriptors, and what the last error says.

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{null, null_mut, without_provenance_mut};

use proofhouse_bridge::ffi::{
    proofhouse_counters, proofhouse_enqueue, proofhouse_last_error, proofhouse_operator_enqueue,
    proofhouse_operator_prepare,
};
use proofhouse_bridge::layout::{
    CallC, CountersC, DeviceHandle, DimC, DtypeC, ErrorC, MOST_AXES, OperatorHandle, ParamC,
    ParamKindC, TensorC,
};
use proofhouse_bridge::status::Status;
use proofhouse_contract::{Call, CallPlan, Dtype, Layout, ParamValue, TensorPlan};

/// A struct that is all zeros, as a caller in C begins with, but for its size.
pub fn zeroed<T: Copy>() -> T {
    // SAFETY: the structs of the interface are numbers, pointers and arrays of them, for which zeros are a value, and
    // they begin with their size.
    unsafe {
        let mut value = std::mem::MaybeUninit::<T>::zeroed();
        value.as_mut_ptr().cast::<u32>().write(size_of::<T>() as u32);
        value.assume_init()
    }
}

pub fn number(dtype: Dtype) -> u32 {
    (match dtype {
        Dtype::F32 => DtypeC::F32,
        Dtype::F16 => DtypeC::F16,
        Dtype::BF16 => DtypeC::Bf16,
        Dtype::F8E4M3 => DtypeC::F8E4m3,
        Dtype::I32 => DtypeC::I32,
        Dtype::I64 => DtypeC::I64,
        Dtype::U8 => DtypeC::U8,
    }) as u32
}

fn tensor(plan: &TensorPlan) -> TensorC {
    let layout = &plan.layout;
    let mut tensor = TensorC {
        dtype: number(layout.dtype),
        address: if plan.address == 0 { 0 } else { plan.first_element() },
        span_bytes: plan.bytes.saturating_sub(layout.offset * layout.dtype.size() as u64),
        rank: layout.shape.len() as u32,
        ..zeroed()
    };
    tensor.shape[..layout.shape.len()].copy_from_slice(&layout.shape);
    tensor.strides[0] = layout.row_stride as i64;
    tensor.strides[layout.shape.len() - 1] = 1;
    assert!(layout.shape.len() <= 2 && MOST_AXES > 2);
    tensor
}

/// A call, and all that its descriptors point to.
pub struct Caller {
    pub operator: CString,
    pub dtype: u32,
    /// What the dimensions and parameters point to.
    pub names: Vec<CString>,
    pub dims: Vec<DimC>,
    pub params: Vec<ParamC>,
    pub tensors: Vec<TensorC>,
}

impl Caller {
    pub fn of(plan: &CallPlan) -> Self {
        let mut names = Vec::new();
        let mut keep = |name: &str| {
            names.push(CString::new(name).unwrap());
            names.last().unwrap().as_ptr()
        };
        let call = &plan.call;
        let dim = |(name, extent): (&String, &u64)| DimC {
            name: keep(name),
            extent: *extent,
            ..zeroed()
        };
        let dims = call.dims.iter().map(dim).collect();
        let param = |(name, value): (&String, &ParamValue)| {
            let param = ParamC { name: keep(name), ..zeroed() };
            match *value {
                ParamValue::Float(real) => ParamC { kind: ParamKindC::Float as u32, real, ..param },
                ParamValue::Int(integer) => {
                    ParamC { kind: ParamKindC::Int as u32, integer, ..param }
                }
                ParamValue::Bool(value) => {
                    ParamC { kind: ParamKindC::Bool as u32, integer: i64::from(value), ..param }
                }
            }
        };
        let params = call.params.iter().map(param).collect();
        Self {
            operator: CString::new(call.operator.name).unwrap(),
            dtype: number(call.dtype),
            dims,
            params,
            tensors: plan.tensors.iter().map(tensor).collect(),
            names,
        }
    }

    /// `rms_norm` in F16 over contiguous tensors.
    pub fn rms_norm(rows: u64, hidden: u64) -> Self {
        let dims = [("rows", rows), ("hidden", hidden)];
        let call = Call::new("rms_norm", Dtype::F16, &dims, &[]).unwrap();
        Self::of(&call.plan(Layout::Contiguous).unwrap())
    }

    pub fn call(&self) -> CallC {
        let or_null = |empty: bool, pointer| if empty { null() } else { pointer };
        CallC {
            dtype: self.dtype,
            operator_name: self.operator.as_ptr(),
            dims: self.dims.as_ptr(),
            params: or_null(self.params.is_empty(), self.params.as_ptr().cast::<c_void>()).cast(),
            tensors: or_null(self.tensors.is_empty(), self.tensors.as_ptr().cast::<c_void>())
                .cast(),
            dim_count: self.dims.len() as u32,
            param_count: self.params.len() as u32,
            tensor_count: self.tensors.len() as u32,
            ..zeroed()
        }
    }

    pub fn enqueue(&self, device: *mut DeviceHandle, stream: usize) -> i32 {
        enqueue(device, &self.call(), stream)
    }

    pub fn prepare(&self, device: *mut DeviceHandle) -> (i32, *mut OperatorHandle) {
        prepare(device, &self.call())
    }

    pub fn launch(&self, operator: *mut OperatorHandle, stream: usize) -> i32 {
        let count = self.tensors.len() as u32;
        // SAFETY: the tensors are there; their memory is never touched, for there is no device.
        unsafe {
            let stream = without_provenance_mut(stream);
            proofhouse_operator_enqueue(operator, self.tensors.as_ptr(), count, stream)
        }
    }
}

pub fn enqueue(device: *mut DeviceHandle, call: *const CallC, stream: usize) -> i32 {
    // SAFETY: tests pass null, misaligned pointers, structs of another size, or whole calls; as above for memory.
    unsafe { proofhouse_enqueue(device, call, without_provenance_mut(stream)) }
}

pub fn prepare(device: *mut DeviceHandle, call: *const CallC) -> (i32, *mut OperatorHandle) {
    let mut operator = without_provenance_mut(usize::MAX);
    // SAFETY: as above.
    let status = unsafe { proofhouse_operator_prepare(device, call, &raw mut operator) };
    assert_eq!(status == Status::Ok as i32, !operator.is_null());
    (status, operator)
}

/// What the last error of this thread says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Last {
    pub status: i32,
    pub row: i64,
    pub operator: String,
    pub argument: String,
    pub text: String,
}

pub fn text_of(array: &[c_char]) -> String {
    let bytes: Vec<u8> = array.iter().map(|byte| byte.cast_unsigned()).collect();
    CStr::from_bytes_until_nul(&bytes).unwrap().to_str().unwrap().to_owned()
}

pub fn last() -> Last {
    let mut error = zeroed::<ErrorC>();
    // SAFETY: the struct is writable.
    assert_eq!(unsafe { proofhouse_last_error(&raw mut error) }, Status::Ok as i32);
    Last {
        status: error.status,
        row: error.row,
        operator: text_of(&error.operator_name),
        argument: text_of(&error.argument),
        text: text_of(&error.text),
    }
}

/// Asserts that a call was refused, and that the last error says so: its status, and operator and argument.
pub fn assert_refused(found: i32, status: Status, operator: &str, argument: &str) {
    let last = last();
    assert_eq!(found, status as i32, "{last:?}");
    assert_eq!(
        (last.status, last.operator.as_str(), last.argument.as_str()),
        (status as i32, operator, argument),
        "{last:?}"
    );
    let names = last.text.contains(argument) || last.text.contains(operator);
    // What overflows is told with what it was made of.
    let teaches = last.text.contains("accepted") || status == Status::Overflow;
    assert!(names && teaches, "{last:?}");
}

pub fn assert_ok(found: i32) {
    let last = last();
    assert_eq!((found, last.status, last.text.as_str()), (0, 0, ""), "{last:?}");
}

pub fn counters(device: *mut DeviceHandle, operator: Option<&CStr>) -> CountersC {
    let mut counters = zeroed::<CountersC>();
    let name = operator.map_or(null(), CStr::as_ptr);
    // SAFETY: the name ends with a zero and the struct is writable.
    assert_ok(unsafe { proofhouse_counters(device, name, &raw mut counters) });
    counters
}

/// A handle that was never given out.
pub fn made_up<T>() -> *mut T {
    without_provenance_mut(usize::MAX / 2)
}

pub fn nothing<T>() -> *mut T {
    null_mut()
}
