//! The header, made from the Rust definitions.

use std::path::Path;

use cbindgen::{
    Builder, Config, DocumentationStyle, EnumConfig, ExportConfig, Language, RenameRule, Style,
};
use proofhouse_bridge::{VERSION_DEFINE, version_of};

/// What the definitions are called in C.
const NAMES: [(&str, &str); 18] = [
    ("Status", "proofhouse_status"),
    ("DtypeC", "proofhouse_dtype"),
    ("ParamKindC", "proofhouse_param_kind"),
    ("DeviceHandle", "proofhouse_device"),
    ("OperatorHandle", "proofhouse_operator"),
    ("OpenOptionsC", "proofhouse_open_options"),
    ("DeviceC", "proofhouse_device_description"),
    ("DimC", "proofhouse_dim"),
    ("ParamC", "proofhouse_param"),
    ("TensorC", "proofhouse_tensor"),
    ("CallC", "proofhouse_call"),
    ("CountersC", "proofhouse_counter_values"),
    ("ErrorC", "proofhouse_error"),
    ("MOST_AXES", "PROOFHOUSE_MOST_AXES"),
    ("MOST_ENTRIES", "PROOFHOUSE_MOST_ENTRIES"),
    ("NAME_BYTES", "PROOFHOUSE_NAME_BYTES"),
    ("PATH_BYTES", "PROOFHOUSE_PATH_BYTES"),
    ("TEXT_BYTES", "PROOFHOUSE_TEXT_BYTES"),
];

const FRONT: &str = "\
/* The operators on CUDA, for programs in any language; the library is libproofhouse_bridge.
 *
 * Generated from kernels/bridge/src by `cargo run -p proofhouse-bridge --example regenerate`; do not edit.
 *
 * Every struct begins with its size: set it to sizeof, another size is refused. Fields named reserved are zero. Functions
 * that return int32_t return a proofhouse_status; after any other than PROOFHOUSE_STATUS_OK, proofhouse_last_error says
 * on the same thread what was wrong. Handles are tickets: only the library knows what they stand for.
 * Every function may be called from any thread, and leaves the thread's current CUDA context as it was.
 */";

/// The text of the header, its version included.
pub fn header() -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut names = ExportConfig::default();
    // Numbers of these go into plain fields, so that no number is outside of its type.
    names.include.extend(["Status", "DtypeC", "ParamKindC"].map(str::to_owned));
    names.rename.extend(NAMES.map(|(rust, c)| (rust.to_owned(), c.to_owned())));
    let config = Config {
        language: Language::C,
        header: Some(FRONT.to_owned()),
        include_guard: Some("PROOFHOUSE_KERNELS_H".to_owned()),
        sys_includes: vec!["stddef.h".to_owned(), "stdint.h".to_owned()],
        no_includes: true,
        cpp_compat: true,
        style: Style::Both,
        documentation_style: DocumentationStyle::C99,
        usize_is_size_t: true,
        enumeration: EnumConfig {
            rename_variants: RenameRule::QualifiedScreamingSnakeCase,
            ..EnumConfig::default()
        },
        export: names,
        ..Config::default()
    };
    let files = ["status.rs", "layout.rs", "ffi/mod.rs"];
    let builder = files.iter().fold(Builder::new().with_config(config), |builder, file| {
        builder.with_src(source.join(file))
    });
    let bindings = builder.generate().expect("the definitions are ones that C can have");
    let mut text = Vec::new();
    bindings.write(&mut text);
    let text = String::from_utf8(text).expect("the definitions are UTF-8");
    with_version(&text.replace("// # Safety\n", "// The caller promises:\n"))
}

/// The text with the line that holds its version, behind the include guard.
fn with_version(text: &str) -> String {
    let guard = "#define PROOFHOUSE_KERNELS_H\n";
    let (front, rest) = text.split_once(guard).expect("the header has its guard");
    let line = format!("{VERSION_DEFINE}\"{}\"\n", version_of(text));
    format!("{front}{guard}{line}{rest}")
}
