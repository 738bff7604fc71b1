"""A small training run, the same on every device."""

import array
import hashlib
import json
import shutil
import subprocess
import time

STEPS = 20
CONFIG = {"model": {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 4, "num_attention_heads": 2,
                    "num_key_value_heads": 1, "residual_scheme": "keel"},
          "data": {"sequence_length": 32, "format": "nanogpt"},
          "train": {"steps": STEPS, "batch_sequences": 8, "micro_batch_sequences": 4, "seed": 3},
          "optimizer": {"learning_rate": 0.003},
          "schedule": {"name": "constant"},
          "checkpoint": {"every_steps": STEPS // 2}}


def write_inputs(folder):
    tokens, state = array.array("H"), 1
    for i in range(20000):
        state = (state * 1664525 + 1013904223) % 2**32
        tokens.append((7 * i + (state >> 30)) % 256)
    (folder / "tokens.bin").write_bytes(tokens.tobytes())
    (folder / "train.json").write_text(json.dumps(CONFIG))


def losses_of(out):
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def digest(out):
    """Of weights and optimiser state after the last step."""
    folder = out / "checkpoints" / f"step-{STEPS:08d}"
    return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in sorted(folder.glob("*.safetensors"))}


class Training:
    """Runs of one program on the inputs in `data`, with a time limit for all together."""

    def __init__(self, program, data, environment, seconds):
        self.program, self.data, self.environment = program, data, environment
        self.end = time.monotonic() + seconds

    def run(self, out, device, precision, *extra):
        """Its losses."""
        command = [*self.program, "--config", self.data / "train.json", "--data", self.data / "tokens.bin", "--out", out,
                   "--progress", "none", "--device", device, "--set", f"train.precision={precision}", *extra]
        result = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=self.environment,
                                timeout=max(1, self.end - time.monotonic()))
        if result.returncode != 0:
            raise RuntimeError(f"keel-train --device {device}, {precision}: exit code {result.returncode}: "
                               f"{result.stderr.strip()[-400:]}")
        return losses_of(out)

    def resume_differs(self, whole, device, precision):
        """Goes on from half way of a run that is there; whether any bit of the two differs."""
        parts = whole.with_name(whole.name + "-parts")
        shutil.copytree(whole, parts)
        shutil.rmtree(parts / f"checkpoints/step-{STEPS:08d}")
        (parts / "report.json").unlink(missing_ok=True)
        losses = self.run(parts, device, precision, "--resume")
        return digest(whole) != digest(parts) or losses_of(whole) != losses
