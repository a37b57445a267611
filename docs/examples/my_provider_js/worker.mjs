// The same provider in JavaScript, with no library: it is checked, but not timed.
import fs from "node:fs";
import net from "node:net";
import readline from "node:readline";

const socket = net.connect(process.env.PROOFHOUSE_SOCKET);
const cases = new Map();

function say(seq, verb, fields) {
  const line = { nonce: process.env.PROOFHOUSE_NONCE, seq, provider: "my_provider_js", verb, ...fields };
  socket.write(JSON.stringify(line) + "\n");
}

function rmsNorm({ tensors, params }) {
  const [x, w, y] = ["x", "w", "y"].map((name) => tensors.find((tensor) => tensor.name === name));
  const file = fs.openSync(x.file, "r+"); // all tensors of a case lie in one file here
  const read = (t) => { const b = Buffer.alloc(t.span); fs.readSync(file, b, 0, t.span, t.offset); return b; };
  const [inputs, gains, outputs] = [read(x), read(w), read(y)];
  for (let row = 0; row < x.shape[0]; row++) {
    const at = (tensor, column) => 4 * (row * tensor.strides[0] + column);
    let sum = 0;
    for (let i = 0; i < x.shape[1]; i++) sum += inputs.readFloatLE(at(x, i)) ** 2;
    const inverse = 1 / Math.sqrt(sum / x.shape[1] + params.eps);
    for (let i = 0; i < x.shape[1]; i++)
      outputs.writeFloatLE(inputs.readFloatLE(at(x, i)) * inverse * gains.readFloatLE(4 * i), at(y, i));
  }
  fs.writeSync(file, outputs, 0, y.span, y.offset);
  fs.closeSync(file);
}

const answers = {
  prepare: (request) => { cases.set(request.case, request); return ["prepared", { case: request.case }]; },
  check: (request) => { rmsNorm(cases.get(request.case)); return ["checked", { case: request.case }]; },
  release: (request) => { cases.delete(request.case); return ["released", { case: request.case }]; },
  witness: () => ["witnessed", {}],
  bye: () => ["bye", {}],
};

say(0, "hello", {
  protocol: 1, version: "1", pid: process.pid, language: "javascript " + process.version,
  operators: { rms_norm: ["F32"] }, capabilities: { strided: true },
});
for await (const line of readline.createInterface({ input: socket })) {
  const request = JSON.parse(line);
  try {
    say(request.seq, ...answers[request.verb](request));
  } catch (error) {
    say(request.seq, "failed", { detail: String(error) });
  }
  if (request.verb === "bye") socket.end(() => process.exit(0));
}
