"""The memory that --plan promises against what the system sees of the process."""
import json
import random
import subprocess
import time

from keel_files import write_megatron
from keel_tools import ToolTest, tool


def anonymous_bytes(pid):
    try:
        with open(f"/proc/{pid}/status") as f:
            for line in f:
                if line.startswith("RssAnon:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def is_sanitized():
    """True for a program under AddressSanitizer, whose shadow memory and quarantine the system counts as the process's own."""
    with open(tool("keel-train"), "rb") as f:
        return b"__asan_init" in f.read()


class Memory(ToolTest):
    def setUp(self):
        super().setUp()
        if is_sanitized():
            self.skipTest("the sanitizer's own memory would be counted")

    def measure(self, config):
        """(planned, largest seen) bytes of a short run."""
        rng = random.Random(1)
        write_megatron(self.dir / "data", [[rng.randrange(config["model"]["vocab_size"]) for _ in range(20000)]])
        (self.dir / "train.json").write_text(json.dumps(config))
        arguments = ["--config", self.dir / "train.json", "--data", self.dir / "data", "--progress", "none", "--threads", "2"]
        self.check("keel-train", *arguments, "--plan", "--report", self.dir / "plan.json")
        planned = json.loads((self.dir / "plan.json").read_text())["results"]["memory"]["total_bytes"]
        process = subprocess.Popen([tool("keel-train"), *map(str, arguments), "--out", str(self.dir / "run")], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        seen = 0
        while process.poll() is None:
            seen = max(seen, anonymous_bytes(process.pid))
            time.sleep(0.01)
        self.assertEqual(process.returncode, 0, process.stderr.read())
        process.stderr.close()
        return planned, seen

    def check_plan(self, config):
        planned, seen = self.measure(config)
        self.assertGreaterEqual(planned, 500e6)
        self.assertLessEqual(abs(seen / planned - 1), 0.1, f"planned {planned}, seen {seen}")

    def test_mostly_parameters(self):
        self.check_plan({"model": {"vocab_size": 16000, "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 6, "num_attention_heads": 8},
                         "data": {"sequence_length": 64}, "train": {"steps": 3, "batch_sequences": 2}, "optimizer": {"learning_rate": 1e-3}})

    def test_mostly_activations(self):
        self.check_plan({"model": {"vocab_size": 300, "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 32, "num_attention_heads": 4},
                         "data": {"sequence_length": 128}, "train": {"steps": 2, "batch_sequences": 32, "micro_batch_sequences": 32}, "optimizer": {"learning_rate": 1e-3}})
