//! The header is what the definitions give, compiles as C and C++, and lays its structs out as Rust does.
//!
//! A compiler is needed: without one nothing would be shown, so its absence is a failure.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod generate;

use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;

use proofhouse_bridge::layout::{
    CallC, CountersC, DeviceC, DimC, DtypeC, ErrorC, OpenOptionsC, ParamC, ParamKindC, TensorC,
};
use proofhouse_bridge::status::Status;
use proofhouse_bridge::{HEADER, VERSION_DEFINE, version, version_of};
use tempfile::TempDir;

fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include")
}

#[test]
fn the_committed_header_is_what_the_definitions_give() {
    assert!(
        HEADER == generate::header(),
        "include/proofhouse_kernels.h is stale: `cargo run -p proofhouse-bridge --example regenerate` writes it again"
    );
}

#[test]
fn the_version_in_the_header_is_its_digest_and_what_the_library_says() {
    let line = HEADER.lines().find(|line| line.starts_with(VERSION_DEFINE)).unwrap();
    let written = line.trim_start_matches(VERSION_DEFINE).trim_matches('"');
    assert_eq!(written, version_of(HEADER));
    assert_eq!(written, version().to_str().unwrap());
    let other = HEADER.replace("uint32_t rank", "uint64_t rank");
    assert_ne!(written, version_of(&other));
}

/// Compiles a source, with the header's folder, to a program; what it must say is in `arguments`.
fn compile(
    compiler: &str,
    folder: &TempDir,
    name: &str,
    source: &str,
    arguments: &[&str],
) -> PathBuf {
    let (file, program) = (folder.path().join(name), folder.path().join(format!("{name}.out")));
    std::fs::write(&file, source).unwrap();
    let output = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I"])
        .arg(include())
        .arg("-o")
        .arg(&program)
        .arg(&file)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{compiler} is needed to compile the header: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{compiler} {arguments:?}: {said}");
    program
}

fn output_of(program: &Path) -> String {
    let output = Command::new(program).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

const EMPTY: &str = "#include \"proofhouse_kernels.h\"\nint main(void) { return 0; }\n";

#[test]
fn the_header_compiles_as_c11_and_as_c_plus_plus_17_without_a_warning() {
    let folder = TempDir::new().unwrap();
    output_of(&compile("cc", &folder, "empty.c", EMPTY, &["-std=c11"]));
    output_of(&compile("cc", &folder, "empty.c", EMPTY, &["-std=c99"]));
    output_of(&compile("c++", &folder, "empty.cc", EMPTY, &["-std=c++17"]));
}

/// `name size` and `name.field offset` of a struct; every field must be named.
macro_rules! describe {
    ($lines:ident, $program:ident, $($type:ident as $name:literal { $($field:ident),* $(,)? })*) => {$(
        let all = |value: $type| { let $type { $($field: _),* } = value; };
        let _ = all;
        writeln!($lines, "{} {}", $name, size_of::<$type>()).unwrap();
        writeln!($program, "  printf(\"{0} %zu\\n\", sizeof(struct {0}));", $name).unwrap();
        $(
            let (field, offset) = (stringify!($field), offset_of!($type, $field));
            writeln!($lines, "{}.{field} {offset}", $name).unwrap();
            writeln!(
                $program,
                "  printf(\"{0}.{field} %zu\\n\", offsetof(struct {0}, {field}));",
                $name
            )
            .unwrap();
        )*
    )*};
}

#[test]
fn every_struct_has_the_same_size_and_offsets_in_c_as_in_rust() {
    let mut lines = String::new();
    let mut program =
        "#include <stdio.h>\n#include \"proofhouse_kernels.h\"\nint main(void) {\n".to_owned();
    describe!(lines, program,
        OpenOptionsC as "proofhouse_open_options" {
            size, ordinal, uuid, nvrtc_folder, kernel_folder, most_cached, reserved,
        }
        DeviceC as "proofhouse_device_description" {
            size, compute_major, compute_minor, multiprocessors, memory_bytes, l2_bytes, name, uuid,
        }
        DimC as "proofhouse_dim" { size, reserved, name, extent }
        ParamC as "proofhouse_param" { size, kind, name, real, integer }
        TensorC as "proofhouse_tensor" {
            size, dtype, address, span_bytes, rank, reserved, shape, strides,
        }
        CallC as "proofhouse_call" {
            size, dtype, operator_name, dims, params, tensors, dim_count, param_count, tensor_count,
            reserved,
        }
        CountersC as "proofhouse_counter_values" {
            size, reserved, launches, refusals, failures, preparations, cache_hits, evictions,
        }
        ErrorC as "proofhouse_error" { size, status, row, text_bytes, operator_name, argument, text }
    );
    for (name, number) in [
        ("PROOFHOUSE_DTYPE_F8E4M3", DtypeC::F8E4m3 as u32),
        ("PROOFHOUSE_DTYPE_BF16", DtypeC::Bf16 as u32),
        ("PROOFHOUSE_PARAM_KIND_BOOL", ParamKindC::Bool as u32),
    ] {
        writeln!(lines, "{name} {number}").unwrap();
        writeln!(program, "  printf(\"{name} %d\\n\", (int){name});").unwrap();
    }
    for status in (0..1000).filter_map(Status::of_code) {
        let name = format!("PROOFHOUSE_STATUS_{}", status.name().to_str().unwrap().to_uppercase());
        writeln!(lines, "{name} {}", status as i32).unwrap();
        writeln!(program, "  printf(\"{name} %d\\n\", (int){name});").unwrap();
    }
    program.push_str("  return 0;\n}\n");
    let structs = HEADER.matches("typedef struct proofhouse_").count();
    let opaque = HEADER.matches("typedef struct proofhouse_device proofhouse_device;").count()
        + HEADER.matches("typedef struct proofhouse_operator proofhouse_operator;").count();
    let described =
        lines.lines().filter(|line| line.starts_with("proofhouse_") && !line.contains('.'));
    assert_eq!((opaque, structs - opaque), (2, described.count()), "a struct is not described");
    let folder = TempDir::new().unwrap();
    assert_eq!(output_of(&compile("cc", &folder, "c.c", &program, &["-std=c11"])), lines);
    assert_eq!(output_of(&compile("c++", &folder, "c.cc", &program, &["-std=c++17"])), lines);
}

#[test]
fn a_c_program_links_the_library_and_is_told_what_is_wrong() {
    // The library lies beside this test's own program.
    let libraries = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let path = libraries.to_str().unwrap();
    let arguments =
        ["-std=c11", &format!("-L{path}"), "-lproofhouse_bridge", &format!("-Wl,-rpath,{path}")];
    let folder = TempDir::new().unwrap();
    let program = compile("cc", &folder, "caller.c", include_str!("caller/caller.c"), &arguments);
    assert_eq!(
        output_of(&program),
        "version: same\nnull: null_argument\nsize: wrong_size\nall: linked\n"
    );
}

#[test]
fn the_c_program_names_every_function_of_the_header() {
    let caller = include_str!("caller/caller.c");
    let mut functions = 0;
    for line in HEADER.lines().filter(|line| !line.starts_with("//")) {
        let Some((front, _)) = line.split_once('(') else { continue };
        let name = front.rsplit([' ', '*']).next().unwrap();
        if name.starts_with("proofhouse_") {
            functions += 1;
            assert!(caller.contains(&format!("(any){name},")), "{name} is not linked");
        }
    }
    assert_eq!(functions, 18);
}
