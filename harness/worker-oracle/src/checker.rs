//! The checker's verbs: catalog, pose, judge, qualify, release.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use proofhouse_contract::spec::NanRule;
use proofhouse_contract::{Call, CallPlan, ValueClass};
use proofhouse_schema::canonical;
use proofhouse_schema::evidence::QualificationScore;
use proofhouse_schema::gate::{CaseSpec, Expect, Inputs};
use proofhouse_schema::ids::{OperatorName, ProviderId};
use proofhouse_schema::protocol::{
    Capabilities, Judge, Judged, Pose, Posed, Prepare, Reply, Request,
};
use proofhouse_worker::{Decline, Description, Tensor, Worker};

use crate::catalog::{self, find_refusal, rule_in_words};
use crate::contents::{self, InputFiles};
use crate::convert::{from_dtype, from_param, to_call};
use crate::error::CheckerError;
use crate::image::tensor_refs;
use crate::judge::PosedCase;
use crate::master::{Master, Masters, check_size};
use crate::spread;

/// The checker: cases that are posed, and what they are made of.
#[derive(Debug, Default)]
pub struct Checker {
    posed: BTreeMap<String, (PathBuf, PosedCase)>,
    masters: Masters,
    files: InputFiles,
    /// The gates folder of the last request that named one.
    gates: PathBuf,
}

impl Checker {
    /// Makes a case's tensors in its file.
    ///
    /// # Errors
    /// Any [`CheckerError`].
    pub fn pose(&mut self, request: &Pose) -> Result<Posed, CheckerError> {
        let spec = &request.spec;
        let mut call = to_call(spec.operator.as_str(), spec.dtype, &spec.dims, &spec.params)?;
        let mut refusal = None;
        if let Expect::Refusal { name, .. } = &spec.expect {
            let (refused, found) = find_refusal(&call, name)?;
            call = refused;
            refusal = Some(found);
        }
        self.gates = PathBuf::from(&request.gates);
        let mut master = self.master(&call, spec, request.contents)?;
        if let Some(row) = request.row {
            master = Rc::new(master.single_row(row, spec.layout.parse()?)?);
        }
        if let Some(refusal) = &refusal {
            master = Rc::new(spoiled(&master, refusal)?);
        }
        let image = master.image(request.poison)?;
        let mut plan = image.plan(&master);
        if let Some(refusal) = &refusal {
            refusal.apply(&mut plan);
        }
        let path = PathBuf::from(&request.file);
        image.write(&path)?;
        let case = PosedCase { master, image, refusal: refusal.is_some() };
        let posed = describe(request, &case, &plan, &path)?;
        self.posed.insert(request.case.clone(), (path, case));
        Ok(posed)
    }

    fn master(
        &mut self,
        call: &Call,
        spec: &CaseSpec,
        contents: u32,
    ) -> Result<Rc<Master>, CheckerError> {
        check_size(call, spec.layout.parse()?)?;
        let key = canonical::digest(&(spec, contents))?;
        let (files, gates) = (&mut self.files, &self.gates);
        self.masters.get(key, || {
            let tensors = contents::make(call, spec, gates, contents, files)?;
            Ok(Master::new(call.clone(), tensors))
        })
    }

    /// Judges a posed case's file.
    ///
    /// # Errors
    /// [`CheckerError::UnknownCase`], [`CheckerError::Read`], [`CheckerError::FileReplaced`], and those of judging.
    pub fn judge(&self, request: &Judge) -> Result<Judged, CheckerError> {
        let (path, case) = self
            .posed
            .get(&request.case)
            .ok_or_else(|| CheckerError::UnknownCase(request.case.clone()))?;
        let (posed, header) = (&case.image.bytes, case.image.header);
        let bytes = spread::read(path, posed.len())
            .map_err(|source| CheckerError::Read { path: path.clone(), source })?
            .filter(|bytes| bytes[..header] == posed[..header])
            .ok_or_else(|| CheckerError::FileReplaced { path: path.clone() })?;
        case.judge(&request.case, &bytes, &request.rows)
    }

    /// Runs the mutation battery on a case.
    ///
    /// # Errors
    /// Those of posing and judging; an input file is looked for in the gates folder of the last request that named one.
    pub fn qualify(&mut self, spec: &CaseSpec) -> Result<QualificationScore, CheckerError> {
        let call = to_call(spec.operator.as_str(), spec.dtype, &spec.dims, &spec.params)?;
        let master = self.master(&call, spec, 0)?;
        let other = self.master(&call, spec, 1)?;
        crate::qualify::qualify(&master, &other, &scratch_file())
    }
}

/// The case with a refusal's bad value in its memory.
fn spoiled(
    master: &Master,
    refusal: &proofhouse_contract::Refusal,
) -> Result<Master, CheckerError> {
    let mut tensors = master.tensors.clone();
    for tensor in &mut tensors {
        refusal.apply_to_memory(&master.call, tensor)?;
    }
    Ok(Master::new(master.call.clone(), tensors))
}

fn describe(
    request: &Pose,
    case: &PosedCase,
    plan: &CallPlan,
    path: &Path,
) -> Result<Posed, CheckerError> {
    let call = &case.master.call;
    let traffic = call.traffic()?;
    let mut tolerance = BTreeMap::new();
    for output in call.outputs() {
        let applied = call.operator.tolerance(call, output.name)?;
        let words = format!("{}: {}", rule_in_words(&applied.rule), applied.reason);
        tolerance.insert(output.name.to_owned(), words);
    }
    let changed = plan.call.dtype != call.dtype;
    Ok(Posed {
        case: request.case.clone(),
        tensors: tensor_refs(plan, path),
        dtype: changed.then(|| from_dtype(plan.call.dtype)),
        device_faults: has_device_faults(&request.spec, &case.master)?,
        dims: plan.call.dims.clone(),
        params: plan.call.params.iter().map(|(n, v)| (n.clone(), from_param(*v))).collect(),
        inputs: case.input_digests(),
        bytes_read: traffic.read_bytes,
        bytes_written: traffic.written_bytes,
        tolerance,
    })
}

/// Whether the inputs hold a value that checked mode refuses. Seeded ones do in one class only; a file's are looked at.
fn has_device_faults(spec: &CaseSpec, master: &Master) -> Result<bool, CheckerError> {
    if spec.expect != Expect::Outputs {
        return Ok(false);
    }
    match &spec.inputs {
        Inputs::Seeded { values, .. } => Ok(values == ValueClass::Nan.name()
            && master.call.operator.nan == NanRule::RefusedWhenChecked),
        Inputs::File { .. } => master.is_refused_when_checked(),
    }
}

/// A file for the battery: in memory where there is such a folder.
fn scratch_file() -> PathBuf {
    let shared = Path::new("/dev/shm");
    let folder = if shared.is_dir() { shared.to_owned() } else { std::env::temp_dir() };
    folder.join(format!("proofhouse-qualify-{}", std::process::id()))
}

impl Worker for Checker {
    fn describe(&self) -> Description {
        let operators = proofhouse_contract::catalog().iter().filter_map(|spec| {
            let dtypes = spec.dtypes.iter().map(|dtype| from_dtype(*dtype)).collect();
            Some((OperatorName::new(spec.name).ok()?, dtypes))
        });
        Description {
            provider: ProviderId::new("oracle").expect("a valid id"),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            packages: BTreeMap::new(),
            operators: operators.collect(),
            capabilities: Capabilities { checker: true, ..Capabilities::default() },
            device: None,
        }
    }

    fn bind<'a>(
        &mut self,
        _case: &Prepare,
        _tensors: Vec<Tensor<'a>>,
    ) -> Result<Box<dyn proofhouse_worker::Call + 'a>, Decline> {
        Err(Decline::Unsupported("the checker does not run operators for others".to_owned()))
    }

    fn answer(&mut self, request: &Request) -> Option<Reply> {
        let (case, reply) = match request {
            Request::Catalog => ("catalog", catalog::export().map(|c| Reply::Catalog(Box::new(c)))),
            Request::Pose(pose) => (pose.case.as_str(), self.pose(pose).map(Reply::Posed)),
            Request::Judge(judge) => (judge.case.as_str(), self.judge(judge).map(Reply::Judged)),
            Request::Qualify { case, gates } => {
                self.gates = PathBuf::from(gates);
                ("qualify", self.qualify(case).map(Reply::Qualified))
            }
            Request::Release { case } => {
                let known = self.posed.remove(case).is_some();
                return known.then(|| Reply::Released { case: case.clone() });
            }
            _ => return None,
        };
        Some(reply.unwrap_or_else(|error| match Decline::from(error) {
            // Only a case can be refused; that a posed one cannot be judged is a failure.
            Decline::Refused(error) if !matches!(request, Request::Pose(_)) => {
                Reply::Failed { detail: Decline::Refused(error).to_string() }
            }
            decline => decline.into_reply(case),
        }))
    }
}
