//! Runs the kernels on a device with no other file: agreement with the contract, then times.
//!
//! `probe [--out FILE] [--cache FOLDER] [--nvrtc FOLDER] [--only correctness|conformance|times]
//! [--compile ARCH]`; with `--compile` the kernels of a later run are compiled into the cache, with no device.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program for people at a terminal")]

mod agreement;
mod chains;
mod graph;
mod times;

use std::path::PathBuf;
use std::time::Instant;

use proofhouse_cuda::{Arch, Build, Runtime, Target, Toolchain, compile_all};
use serde_json::json;

struct Options {
    out: Option<PathBuf>,
    cache: Option<PathBuf>,
    toolchain: Toolchain,
    only: Option<String>,
    compile: Option<Arch>,
}

fn options() -> Options {
    let mut options = Options {
        out: None,
        cache: None,
        toolchain: Toolchain::default(),
        only: None,
        compile: None,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().unwrap_or_else(|| panic!("{name} needs a value"));
        match name.as_str() {
            "--out" => options.out = Some(value.into()),
            "--cache" => options.cache = Some(value.into()),
            "--nvrtc" => options.toolchain.nvrtc = Some(value.into()),
            "--only" => options.only = Some(value),
            "--compile" => {
                let number: u32 = value.trim_start_matches("sm_").parse().unwrap();
                options.compile = Some(Arch::new(number / 10, number % 10).unwrap());
            }
            _ => panic!("unknown option {name}"),
        }
    }
    options
}

/// The device that `--compile` compiles for, but for its architecture.
const fn expected(arch: Arch) -> Target {
    Target { arch, multiprocessors: 132, l2_bytes: 60 << 20 }
}

/// Compiles ahead on two threads; the cache is of files, so they share nothing.
fn compile_ahead(options: &Options, arch: Arch) -> usize {
    let target = expected(arch);
    let mut builds = agreement::builds(target);
    builds.extend(times::builds(target));
    let (left, right): (Vec<_>, Vec<_>) = builds.into_iter().partition(|build| {
        ["rms_norm", "silu_and_mul", "greedy_logprob"].contains(&build.call.operator.name)
    });
    let compile = |builds: &[Build]| {
        compile_all(&options.toolchain, options.cache.clone(), target, builds)
            .unwrap_or_else(|error| panic!("{error}"))
    };
    let reports = std::thread::scope(|scope| {
        let other = scope.spawn(|| compile(&right));
        let mut reports = compile(&left);
        reports.extend(other.join().unwrap());
        reports
    });
    for report in &reports {
        let kernel = &report.kernel;
        if kernel.spill_store_bytes + kernel.stack_bytes > 0 {
            println!("spills: {} {kernel:?}", report.variant);
        }
    }
    reports.len()
}

fn main() {
    let options = options();
    let started = Instant::now();
    if let Some(arch) = options.compile {
        let variants = compile_ahead(&options, arch);
        println!("{variants} variants in {:.1} s", started.elapsed().as_secs_f64());
        return;
    }
    let runtime = Runtime::open(0, &options.toolchain, options.cache.clone())
        .unwrap_or_else(|error| panic!("{error}"));
    println!("{:?} {}", runtime.device(), runtime.compiler());
    let wanted = |part: &str| options.only.as_deref().is_none_or(|only| only == part);
    let mut failures = 0;
    let mut record = serde_json::Map::new();
    record.insert("device".to_owned(), json!(format!("{:?}", runtime.device())));
    if wanted("correctness") {
        let (failed, report) = agreement::run(&runtime);
        failures += failed;
        record.insert("correctness".to_owned(), report);
        let (failed, report) = chains::run(&runtime);
        failures += failed;
        record.insert("chains".to_owned(), report);
        println!("-- correctness done at {:.1} s", started.elapsed().as_secs_f64());
    }
    if wanted("conformance") {
        let (failed, report) = agreement::conformance(&runtime);
        failures += failed;
        record.insert("conformance".to_owned(), report);
        println!("-- conformance done at {:.1} s", started.elapsed().as_secs_f64());
    }
    if wanted("times") {
        record.insert("times".to_owned(), times::run(&runtime));
        println!("-- times done at {:.1} s", started.elapsed().as_secs_f64());
    }
    if let Some(out) = options.out {
        std::fs::write(out, serde_json::to_vec_pretty(&record).unwrap()).unwrap();
    }
    println!("{failures} failures in {:.1} s", started.elapsed().as_secs_f64());
    std::process::exit(i32::from(failures > 0));
}
