//! NVRTC: one function from sources and options to a cubin and its log.

use std::ffi::{CStr, CString};
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;

use cudarc::nvrtc::sys;

use crate::error::CudaError;

/// A source that others include, by the name that they include it by.
pub(crate) type Header = (&'static str, &'static str);

/// What a compilation gives.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    pub(crate) cubin: Vec<u8>,
    pub(crate) log: String,
}

/// What NVRTC says of itself: major and minor number.
pub(crate) fn version() -> Result<(i32, i32), CudaError> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both pointers are to integers that live through the call.
    status("nvrtcVersion", unsafe { sys::nvrtcVersion(&mut major, &mut minor) })?;
    Ok((major, minor))
}

/// Loads NVRTC: from `folder` where one is given, and else as the loader finds it.
///
/// The first library that is loaded stays the process's.
pub(crate) fn load(folder: Option<&Path>) -> Result<(), CudaError> {
    static PRESENT: OnceLock<bool> = OnceLock::new();
    let present = *PRESENT.get_or_init(|| {
        if let Some(folder) = folder {
            preload(folder);
        }
        // SAFETY: opening the library runs its initializers, which are NVIDIA's and need nothing from us.
        unsafe { sys::is_culib_present() }
    });
    if present {
        return Ok(());
    }
    let accepted = match folder {
        Some(folder) => format!("libnvrtc.so.13 in {} or on the loader's path", folder.display()),
        None => "libnvrtc.so.13 on the loader's path, or a folder that holds it".to_owned(),
    };
    Err(CudaError::LibraryMissing { library: "libnvrtc", accepted })
}

/// Opens the libraries of a folder by their full paths, so that a later search by name finds them loaded.
fn preload(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    // The built-ins come first: the compiler looks for them by name.
    paths.sort();
    for path in paths {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("libnvrtc") && name.contains(".so") && !name.contains(".alt.") {
            // SAFETY: opening the library runs its initializers, which are NVIDIA's and need nothing from us.
            if let Ok(library) = unsafe { libloading::Library::new(&path) } {
                // It stays loaded for as long as the process lives.
                std::mem::forget(library);
            }
        }
    }
}

fn status(call: &'static str, result: sys::nvrtcResult) -> Result<(), CudaError> {
    if result == sys::nvrtcResult::NVRTC_SUCCESS {
        return Ok(());
    }
    // SAFETY: NVRTC returns a constant string for every code.
    let meaning = unsafe { CStr::from_ptr(sys::nvrtcGetErrorString(result)) };
    Err(CudaError::Nvrtc { call, meaning: meaning.to_string_lossy().into_owned() })
}

fn text(call: &'static str, text: &str) -> Result<CString, CudaError> {
    CString::new(text).map_err(|_| CudaError::Nvrtc {
        call,
        meaning: "a source or option holds a zero byte".to_owned(),
    })
}

fn texts<'a>(
    call: &'static str,
    all: impl Iterator<Item = &'a str>,
) -> Result<Vec<CString>, CudaError> {
    all.map(|one| text(call, one)).collect()
}

/// A program, destroyed with this value.
struct Program(sys::nvrtcProgram);

impl Program {
    fn create(name: &str, source: &str, headers: &[Header]) -> Result<Self, CudaError> {
        const CALL: &str = "nvrtcCreateProgram";
        let (name, source) = (text(CALL, name)?, text(CALL, source)?);
        let names = texts(CALL, headers.iter().map(|(name, _)| *name))?;
        let bodies = texts(CALL, headers.iter().map(|(_, body)| *body))?;
        let pointers = |all: &[CString]| all.iter().map(|one| one.as_ptr()).collect::<Vec<_>>();
        let (name_pointers, body_pointers) = (pointers(&names), pointers(&bodies));
        let mut program = ptr::null_mut();
        // SAFETY: every string is terminated and outlives the call, which copies them; the two arrays have as
        // many entries as the count says.
        let result = unsafe {
            sys::nvrtcCreateProgram(
                &mut program,
                source.as_ptr(),
                name.as_ptr(),
                headers.len() as i32,
                body_pointers.as_ptr(),
                name_pointers.as_ptr(),
            )
        };
        status(CALL, result)?;
        Ok(Self(program))
    }

    /// The result of compiling, which is an error also where the log is worth reading.
    fn compile(&self, options: &[String]) -> Result<(), CudaError> {
        const CALL: &str = "nvrtcCompileProgram";
        let options = texts(CALL, options.iter().map(String::as_str))?;
        let pointers: Vec<_> = options.iter().map(|one| one.as_ptr()).collect();
        // SAFETY: the program is alive, and the array has as many terminated strings as the count says.
        let result =
            unsafe { sys::nvrtcCompileProgram(self.0, pointers.len() as i32, pointers.as_ptr()) };
        status(CALL, result)
    }

    fn log(&self) -> Result<String, CudaError> {
        let mut size = 0;
        // SAFETY: the program is alive and the pointer is to an integer that lives through the call.
        status("nvrtcGetProgramLogSize", unsafe {
            sys::nvrtcGetProgramLogSize(self.0, &mut size)
        })?;
        let mut bytes = vec![0u8; size];
        // SAFETY: the buffer has the size that NVRTC asked for.
        status("nvrtcGetProgramLog", unsafe {
            sys::nvrtcGetProgramLog(self.0, bytes.as_mut_ptr().cast())
        })?;
        while bytes.last() == Some(&0) {
            bytes.pop();
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn cubin(&self) -> Result<Vec<u8>, CudaError> {
        let mut size = 0;
        // SAFETY: the program is alive and the pointer is to an integer that lives through the call.
        status("nvrtcGetCUBINSize", unsafe { sys::nvrtcGetCUBINSize(self.0, &mut size) })?;
        let mut bytes = vec![0u8; size];
        // SAFETY: the buffer has the size that NVRTC asked for.
        status("nvrtcGetCUBIN", unsafe { sys::nvrtcGetCUBIN(self.0, bytes.as_mut_ptr().cast()) })?;
        Ok(bytes)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: the program is alive and nobody uses it afterwards. There is nothing to do about a failure.
        let _ = unsafe { sys::nvrtcDestroyProgram(&mut self.0) };
    }
}

/// Compiles a source to a cubin; [`load`] must have succeeded.
pub(crate) fn compile(
    kernel: &'static str,
    source: &str,
    headers: &[Header],
    options: &[String],
) -> Result<Output, CudaError> {
    let program = Program::create(&format!("{kernel}.cu"), source, headers)?;
    let compiled = program.compile(options);
    let log = program.log()?;
    match compiled {
        Ok(()) => Ok(Output { cubin: program.cubin()?, log }),
        Err(CudaError::Nvrtc { .. }) => {
            Err(CudaError::Compile { kernel, options: options.join(" "), log })
        }
        Err(other) => Err(other),
    }
}
