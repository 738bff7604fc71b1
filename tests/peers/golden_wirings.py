"""Every golden wiring case as a model folder, through keel-convert --to hf, opened by transformers: logits and losses
against the float64 values. Each folder gets transformers' golden.json too, with which golden_test compares keel's
logits and greedy tokens.

    golden_wirings.py GOLDEN FOLDER    GOLDEN: golden/wiring of the test data (programs in KEEL_BIN)
"""
import pathlib
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

import transformers_models as peers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from wiring_cases import wiring_cases, write_case  # noqa: E402

TOLERANCE = 1e-5
FAMILIES = {"pre": "LlamaForCausalLM", "olmo2": "Olmo2ForCausalLM"}


def documents(ids):
    """[first, end) of the runs of equal ids."""
    starts = [0] + [t for t in range(1, len(ids)) if ids[t] != ids[t - 1]] + [len(ids)]
    return list(zip(starts, starts[1:]))


def compare(golden, case, model):
    """The largest differences of the last logits and of the losses of step 0; each document is run by itself."""
    data, expected = (load_file(golden / case["files"][kind]) for kind in ("data", "expect"))
    tokens, ids = data["tokens"][0].long(), data["doc_ids"][0]
    worst = [0.0, 0.0]
    for row, document_ids in enumerate(ids.tolist()):
        for first, end in documents(document_ids if case["options"]["packed"] else [0] * len(document_ids)):
            logits = model(tokens[row:row + 1, first:end], use_cache=False).logits[0]
            nll = torch.nn.functional.cross_entropy(logits, tokens[row, first + 1:end + 1], reduction="none")
            worst[1] = max(worst[1], (nll - expected["token_loss"][row, first:end]).abs().max().item())
        worst[0] = max(worst[0], (logits[-1] - expected["logits_last"][row]).abs().max().item())
    return worst


def main():
    golden, out = map(pathlib.Path, sys.argv[1:])
    peers.be_quiet()
    count = 0
    with tempfile.TemporaryDirectory(prefix="keel-peer-") as work:
        for case in wiring_cases(golden):
            source, folder = pathlib.Path(work) / case["case"], out / ("golden-" + case["case"])
            write_case(golden, case, source, 64)
            peers.keel("keel-convert", source, folder, "--to", "hf", "--verify", "--progress", "none")
            model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, trust_remote_code=True).eval()
            wanted = FAMILIES.get(case["scheme"], "KeelForCausalLM")
            peers.expect(folder, type(model).__name__ == wanted, f"{type(model).__name__}, wanted {wanted}")
            with torch.no_grad():
                logits, loss = compare(golden, case, model)
            print(f"{case['case']:22} logits {logits:.1e}  losses {loss:.1e}", flush=True)
            peers.expect(folder, logits <= TOLERANCE and loss <= TOLERANCE, f"is off by {logits} in logits, {loss} in losses")
            peers.expect(folder, peers.write_golden(folder, trust_remote_code=True), "greedy tokens hang on rounding")
            count += 1
    peers.expect(golden, count > 0, "holds no case")


if __name__ == "__main__":
    main()
