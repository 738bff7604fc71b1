"""A small training run, the same on every device."""

import array
import hashlib
import json
import pathlib
import shutil
import subprocess

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


def train(program, data, out, device, environment, extra=(), timeout=60):
    command = [*program, "--config", data / "train.json", "--data", data / "tokens.bin", "--out", out,
               "--progress", "none", "--device", device, *extra]
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment, timeout=timeout)
    if result.returncode != 0:
        raise RuntimeError(f"keel-train --device {device}: exit code {result.returncode}: {result.stderr.strip()[-400:]}")


def losses(out):
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def train_losses(program, data, out, device, environment, timeout=60):
    shutil.rmtree(out, ignore_errors=True)
    train(program, data, out, device, environment, timeout=timeout)
    return losses(out)


def digest(out):
    """Of weights and optimiser state after the last step."""
    folder = pathlib.Path(out) / "checkpoints" / f"step-{STEPS:08d}"
    return {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in sorted(folder.glob("*.safetensors"))}


def resume_differs(program, data, whole, device, environment, timeout=60):
    """Goes on from half way of a run that is there; whether any bit of the two differs."""
    parts = whole.with_name(whole.name + "-parts")
    shutil.copytree(whole, parts)
    shutil.rmtree(parts / f"checkpoints/step-{STEPS:08d}")
    (parts / "report.json").unlink(missing_ok=True)
    train(program, data, parts, device, environment, ["--resume"], timeout)
    return digest(whole) != digest(parts) or losses(whole) != losses(parts)
