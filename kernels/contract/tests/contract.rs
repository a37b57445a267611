//! The catalog's data agrees with itself, and calls are refused for the right reason.

use std::collections::BTreeSet;

use proofhouse_contract::conformance::compact_cases;
use proofhouse_contract::{
    AlignedBytes, Call, CallPlan, Dtype, ErrorKind, Layout, Mode, ParamValue, Rule, TensorLayout,
    TensorMut, TensorView, catalog, find_operator, run_oracle,
};

fn rms_norm(rows: u64, hidden: u64) -> Call {
    Call::new("rms_norm", Dtype::F16, &[("rows", rows), ("hidden", hidden)], &[])
        .expect("a catalog name")
}

#[test]
fn the_catalog_names_the_eight_operators() {
    let names: Vec<_> = catalog().iter().map(|spec| spec.name).collect();
    assert_eq!(
        names,
        [
            "rms_norm",
            "add_rms_norm",
            "rms_norm_dynamic_fp8",
            "silu_and_mul",
            "greedy_logprob",
            "selected_logprob_rank",
            "topk_logprobs",
            "min_p"
        ]
    );
    let error = find_operator("softmax").expect_err("not in the catalog");
    assert_eq!(error.kind, ErrorKind::Unknown);
    assert!(error.to_string().contains("softmax") && error.to_string().contains("min_p"));
}

#[test]
fn names_are_unique_and_defaults_are_admitted() {
    for spec in catalog() {
        let names: Vec<_> = spec
            .tensors
            .iter()
            .map(|tensor| tensor.name)
            .chain(spec.params.iter().map(|param| param.name))
            .chain(spec.dims.iter().map(|dim| dim.name))
            .collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{}", spec.name);
        for param in spec.params {
            assert_eq!(param.domain.admits(param.default), Ok(()), "{} {}", spec.name, param.name);
        }
        for case in compact_cases(spec) {
            let refusals = spec.refusals(&case.call);
            let names: BTreeSet<_> = refusals.iter().map(|refusal| refusal.name.as_ref()).collect();
            assert_eq!(names.len(), refusals.len(), "{}", spec.name);
        }
    }
}

#[test]
fn every_output_has_a_tolerance_with_a_reason() {
    for spec in catalog() {
        let case = &compact_cases(spec)[0];
        for tensor in case.call.outputs() {
            let tolerance = spec.tolerance(&case.call, tensor.name).expect("an output");
            assert!(tolerance.reason.len() > 40, "{} {}", spec.name, tensor.name);
            if let Rule::Within { ulps, abs_floor } = tolerance.rule {
                assert!(ulps > 0 && abs_floor.is_finite() && abs_floor >= 0.0);
            }
        }
        let unknown = spec.tolerance(&case.call, "nothing").expect_err("no such tensor");
        assert_eq!(unknown.kind, ErrorKind::Unknown);
    }
}

#[test]
fn traffic_counts_every_tensor_once_and_in_place_twice() {
    let traffic = rms_norm(10, 64).traffic().expect("valid");
    assert_eq!((traffic.read_bytes, traffic.written_bytes), (10 * 64 * 2 + 64 * 2, 10 * 64 * 2));
    let dims = [("rows", 10), ("hidden", 64)];
    let in_place = Call::new("add_rms_norm", Dtype::F32, &dims, &[]).expect("a catalog name");
    let traffic = in_place.traffic().expect("valid");
    assert_eq!((traffic.read_bytes, traffic.written_bytes), (2 * 2560 + 256, 2 * 2560));
    let on = [("add-residual", ParamValue::Bool(true))];
    let optional = |params: &[_]| {
        let call = Call::new("rms_norm_dynamic_fp8", Dtype::F16, &dims, params).expect("a name");
        call.traffic().expect("valid").read_bytes
    };
    assert_eq!(optional(&on) - optional(&[]), 10 * 64 * 2);
}

#[test]
fn calls_are_refused_with_the_argument_at_fault() {
    let refused = |call: Call| {
        let error = call.validate().expect_err("an invalid call");
        (error.kind, error.argument.into_owned())
    };
    let mut call = rms_norm(1, 1);
    call.dims.remove("hidden");
    assert_eq!(refused(call), (ErrorKind::Missing, "hidden".to_owned()));
    let mut call = rms_norm(1, 1);
    call.dims.insert("width".to_owned(), 1);
    assert_eq!(refused(call), (ErrorKind::Unknown, "width".to_owned()));
    let mut call = rms_norm(1, 1);
    call.params.insert("epsilon".to_owned(), ParamValue::Float(1.0));
    assert_eq!(refused(call), (ErrorKind::Unknown, "epsilon".to_owned()));
    assert_eq!(refused(rms_norm(1, 0)), (ErrorKind::ZeroDimension, "hidden".to_owned()));
    assert_eq!(refused(rms_norm(1 << 40, 1 << 40)), (ErrorKind::Overflow, "x".to_owned()));
    assert!(rms_norm(0, 4).validate().is_ok());
}

#[test]
fn a_domain_says_what_is_wrong_with_a_value_and_reads_as_what_it_accepts() {
    let domain = |operator: &str, param: &str| {
        find_operator(operator).expect("a name").param(param).expect("a parameter").domain
    };
    let (eps, k) = (domain("rms_norm", "eps"), domain("topk_logprobs", "k"));
    for (value, expected) in [
        (ParamValue::Float(1e-300), Ok(())),
        (ParamValue::Float(0.0), Err(ErrorKind::OutOfRange)),
        (ParamValue::Float(f64::NAN), Err(ErrorKind::NotFinite)),
        (ParamValue::Float(f64::INFINITY), Err(ErrorKind::NotFinite)),
        (ParamValue::Int(1), Err(ErrorKind::DtypeMismatch)),
    ] {
        assert_eq!(eps.admits(value), expected, "{value}");
    }
    for (value, expected) in [
        (ParamValue::Int(1), Ok(())),
        (ParamValue::Int(128), Ok(())),
        (ParamValue::Int(0), Err(ErrorKind::OutOfRange)),
        (ParamValue::Int(129), Err(ErrorKind::OutOfRange)),
        (ParamValue::Float(4.0), Err(ErrorKind::DtypeMismatch)),
    ] {
        assert_eq!(k.admits(value), expected, "{value}");
    }
    assert_eq!(eps.to_string(), "finite and above 0");
    assert_eq!(k.to_string(), "from 1 to 128, at most vocab");
    assert_eq!((eps.most_dim(), k.most_dim()), (None, Some("vocab")));
}

#[test]
fn sizes_at_the_edge_of_the_address_space_are_refused_and_never_wrap() {
    let sizes = [("rows", 1), ("hidden", (1 << 61) - 1)];
    let call = Call::new("add_rms_norm", Dtype::F32, &sizes, &[]).expect("a catalog name");
    call.validate().expect("each tensor by itself fits");
    let error = call.traffic().expect_err("three of them do not");
    assert_eq!((error.kind, error.argument.as_ref()), (ErrorKind::Overflow, "w"));

    let mut plan = rms_norm(1, 4).plan(Layout::Contiguous).expect("valid");
    plan.tensors[2].address = plan.tensors[0].address;
    plan.tensors[2].layout.row_stride = u64::MAX;
    let error = plan.validate().expect_err("y lies on x");
    assert_eq!((error.kind, error.argument.as_ref()), (ErrorKind::Overlap, "y"));
}

#[test]
fn windows_of_one_packed_matrix_do_not_overlap_but_neighbors_in_them_do() {
    let mut plan = rms_norm(3, 4).plan(Layout::Packed { side: 4 }).expect("valid");
    let (x, y) = (plan.tensors[0].address, 2);
    // y in the columns right of x: the same rows, other columns.
    plan.tensors[y].address = x;
    plan.tensors[y].layout.offset = 8;
    plan.tensors[y].bytes += 8;
    plan.validate().expect("disjoint columns");
    plan.tensors[y].layout.offset = 7;
    let error = plan.validate().expect_err("one shared column");
    assert_eq!((error.kind, error.argument.as_ref()), (ErrorKind::Overlap, "y"));
    plan.tensors[y].layout.offset = 8;
    plan.tensors[y].layout.row_stride += 1;
    plan.tensors[y].bytes += 8;
    assert_eq!(plan.validate().expect_err("strides differ").kind, ErrorKind::Overlap);
}

#[test]
fn missing_and_surplus_operands_are_refused_before_anything_is_read() {
    let call = rms_norm(1, 4);
    let bytes = AlignedBytes::new(8, 0);
    let mut out = AlignedBytes::new(8, 7);
    let x = TensorView::new(TensorLayout::contiguous(Dtype::F16, &[1, 4]), bytes.as_slice());
    let w = TensorView::new(TensorLayout::contiguous(Dtype::F16, &[4]), bytes.as_slice());
    let mut outputs = [TensorMut {
        layout: TensorLayout::contiguous(Dtype::F16, &[1, 4]),
        bytes: out.as_mut_slice(),
    }];
    let inputs = [x.clone(), w.clone(), w.clone()];
    let error =
        run_oracle(&call, Mode::Checked, &inputs[..1], &mut outputs).expect_err("w is missing");
    assert_eq!((error.kind, error.argument.as_ref()), (ErrorKind::Missing, "w"));
    let error = run_oracle(&call, Mode::Checked, &inputs, &mut outputs).expect_err("one too many");
    assert_eq!((error.kind, error.argument.as_ref()), (ErrorKind::Unknown, "operands"));
    let plan = CallPlan::of_operands(&call, &inputs[..2], &outputs).expect("the right number");
    assert_eq!(plan.tensors.len(), 3);
    assert_eq!(out.as_slice(), [7; 8]);
}
