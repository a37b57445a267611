//! What the assembler says of a kernel: registers, spills, stack, shared memory.

/// What a kernel takes of a multiprocessor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelReport {
    /// The kernel's name.
    pub kernel: String,
    /// Registers of each thread.
    pub registers: u32,
    /// Bytes of the stack frame of each thread.
    pub stack_bytes: u32,
    /// Bytes stored because registers ran out.
    pub spill_store_bytes: u32,
    /// Bytes loaded because registers ran out.
    pub spill_load_bytes: u32,
    /// Bytes of static shared memory of each block.
    pub shared_bytes: u32,
    /// Barriers of each block.
    pub barriers: u32,
}

/// Reads the reports of all kernels in a log that `--ptxas-options=-v` made.
///
/// Lines that say something else are passed over.
#[must_use]
pub fn parse_log(log: &str) -> Vec<KernelReport> {
    let mut reports: Vec<KernelReport> = Vec::new();
    for line in log.lines() {
        if let Some(name) = between(line, "Compiling entry function '", "'") {
            reports.push(KernelReport {
                kernel: name.to_owned(),
                registers: 0,
                stack_bytes: 0,
                spill_store_bytes: 0,
                spill_load_bytes: 0,
                shared_bytes: 0,
                barriers: 0,
            });
        }
        let Some(report) = reports.last_mut() else {
            continue;
        };
        let facts: [(&mut u32, &str); 6] = [
            (&mut report.registers, " registers"),
            (&mut report.stack_bytes, " bytes stack frame"),
            (&mut report.spill_store_bytes, " bytes spill stores"),
            (&mut report.spill_load_bytes, " bytes spill loads"),
            (&mut report.shared_bytes, " bytes smem"),
            (&mut report.barriers, " barriers"),
        ];
        for (fact, unit) in facts {
            if let Some(number) = number_before(line, unit) {
                *fact = number;
            }
        }
    }
    reports
}

fn between<'a>(line: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(before)?;
    Some(rest.split_once(after)?.0)
}

fn number_before(line: &str, unit: &str) -> Option<u32> {
    let (before, _) = line.split_once(unit)?;
    let start = before.rfind(|letter: char| !letter.is_ascii_digit()).map_or(0, |at| at + 1);
    before[start..].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'rms_norm' for 'sm_90'
ptxas info    : Function properties for rms_norm
    8 bytes stack frame, 16 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 31 registers, used 1 barriers, 8 bytes cumulative stack size, 416 bytes smem, 592 bytes cmem[0]
ptxas info    : Compiling entry function 'other' for 'sm_90'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, 0 bytes cumulative stack size
";

    #[test]
    fn every_kernel_of_a_log_is_reported() {
        let reports = parse_log(LOG);
        assert_eq!(reports.len(), 2);
        assert_eq!(
            reports[0],
            KernelReport {
                kernel: "rms_norm".to_owned(),
                registers: 31,
                stack_bytes: 8,
                spill_store_bytes: 16,
                spill_load_bytes: 4,
                shared_bytes: 416,
                barriers: 1,
            }
        );
        assert_eq!((reports[1].kernel.as_str(), reports[1].registers), ("other", 8));
        assert_eq!((reports[1].spill_store_bytes, reports[1].barriers), (0, 0));
    }

    #[test]
    fn a_log_without_kernels_has_no_report() {
        assert!(parse_log("").is_empty());
        assert!(parse_log("ptxas info    : Used 8 registers\n").is_empty());
    }
}
