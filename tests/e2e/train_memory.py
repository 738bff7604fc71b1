"""Runs a training and compares the memory that --plan promises with what the system sees of the process."""
import copy
import json
import os
import random
import subprocess
import time

from keel_files import write_megatron
from keel_tools import ToolTest, tool


def is_sanitized():
    """True for a program under AddressSanitizer, whose shadow memory and quarantine the system counts as the process's own."""
    with open(tool("keel-train"), "rb") as f:
        return b"__asan_init" in f.read()


class Watch:
    """The largest resident anonymous memory of a process, looked at from outside until it ends."""

    FIELDS = ("RssAnon", "RssFile", "RssShmem", "VmHWM")

    def __init__(self, pid):
        self.path = f"/proc/{pid}/status"
        self.sampled = 0  # RssAnon at a moment we looked
        self.resident = 0  # its highest resident memory ever, which the system keeps
        self.shared = 0  # what of it was files and shared memory, at most

    def look(self):
        try:
            with open(self.path) as f:
                found = {name: int(value.split()[0]) * 1024 for name, value in (line.split(":", 1) for line in f) if name in self.FIELDS}
        except OSError:
            return
        if len(found) < len(self.FIELDS):
            return  # the process is ending
        self.sampled = max(self.sampled, found["RssAnon"])
        self.resident = max(self.resident, found["VmHWM"])
        self.shared = max(self.shared, found["RssFile"] + found["RssShmem"])

    def peak(self):
        """A peak between two looks shows in the highest resident memory."""
        return max(self.sampled, self.resident - self.shared)


class TrainMemoryTest(ToolTest):
    def setUp(self):
        super().setUp()
        if is_sanitized():
            self.skipTest("the sanitizer's own memory would be counted")

    def config(self, model, sequence_length, micro_batch, steps=2, batch=None, recompute=None, **train):
        """A run of `steps`; recompute: a value of train.recompute, by default the config's own."""
        model = {"vocab_size": 300, "intermediate_size": 3 * model["hidden_size"], **model}
        train = {"steps": steps, "batch_sequences": batch or micro_batch, "micro_batch_sequences": micro_batch, **train}
        if recompute is not None:
            train["recompute"] = recompute
        return {"model": model, "data": {"sequence_length": sequence_length}, "train": train, "optimizer": {"learning_rate": 1e-3}}

    def measure(self, config, threads=1, extra=()):
        """(results.memory of the plan, largest anonymous memory seen) of one training in self.dir/run; with --resume it goes on."""
        (self.dir / "train.json").write_text(json.dumps(config))
        if not (self.dir / "data.bin").exists():
            rng = random.Random(1)
            write_megatron(self.dir / "data", [[rng.randrange(config["model"]["vocab_size"]) for _ in range(20000)]])
        arguments = ["--config", self.dir / "train.json", "--data", self.dir / "data", "--out", self.dir / "run", "--progress", "none", "--threads", threads, *extra]
        self.check("keel-train", *arguments, "--plan", "--report", self.dir / "plan.json", "--force")
        memory = json.loads((self.dir / "plan.json").read_text())["results"]["memory"]
        # Threads that spin would keep the others of a busy machine from ever getting done.
        process = subprocess.Popen([tool("keel-train"), *map(str, arguments)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
                                   env={**os.environ, "OMP_WAIT_POLICY": "passive"})
        watch = Watch(process.pid)
        while process.poll() is None:
            watch.look()
            time.sleep(0.005)
        self.assertEqual(process.returncode, 0, process.stderr.read())
        process.stderr.close()
        return memory, watch.peak()

    def check_plan(self, config, threads=1, extra=(), within=0.03):
        memory, seen = self.measure(copy.deepcopy(config), threads, extra)
        planned = memory["total_bytes"]
        print(f"planned {planned / 1e6:.1f} MB, seen {seen / 1e6:.1f} MB, {(seen / planned - 1) * 100:+.2f} %", flush=True)
        self.assertGreaterEqual(planned, 500e6)
        self.assertLessEqual(abs(seen / planned - 1), within, f"planned {memory}, seen {seen}")
