"""--weights of keel-generate and keel-eval: matrices kept as bf16 or q8_0, rounded as files of these types are."""
import array
import json
import math
import struct
import subprocess
import time

from keel_tools import ToolTest, tool
from model_folders import llama_config, random_tensors, shapes, write_model
from train_memory import Watch, is_sanitized

TYPES = ("fp32", "bf16", "q8_0")
# Rows of 40, 72 and 24: no multiples of 32.
CONFIG = llama_config(hidden_size=40, intermediate_size=72, head_dim=12)


def fp32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def q8_0(row):
    """A row as ggml's reference rounds it, and what that is worth."""
    worth = []
    for begin in range(0, len(row), 32):
        block = row[begin:begin + 32]
        d = fp32(max(map(abs, block)) / 127)
        inverse = fp32(1 / d) if d else 0.0
        (scale,) = struct.unpack("<e", struct.pack("<e", d))
        for x in block:
            y = fp32(x * inverse)
            worth.append(scale * math.copysign(math.floor(abs(y) + 0.5), y))
    return worth


def bf16(row):
    """The nearest bf16 of each, of two equally near the even one."""
    words = array.array("I", array.array("f", row).tobytes())
    rounded = array.array("I", ((w + 0x7FFF + (w >> 16 & 1)) & 0xFFFF0000 for w in words))
    return array.array("f", rounded.tobytes()).tolist()


def rounded(tensors, rule):
    """Matrices replaced by what their rounded weights are worth."""
    result = {}
    for name, (dtype, shape, raw) in tensors.items():
        if len(shape) == 2:
            values, n = array.array("f", raw), shape[1]
            raw = array.array("f", sum((rule(values[i:i + n].tolist()) for i in range(0, len(values), n)), [])).tobytes()
        result[name] = (dtype, shape, raw)
    return result


class Weights(ToolTest):
    TEXT = "the cat sat at the mat and that was that. " * 8

    def setUp(self):
        super().setUp()
        self.model = write_model(self.dir / "model", CONFIG)
        (self.dir / "text.txt").write_text(self.TEXT)

    def tokens(self, model, *arguments):
        done = self.check("keel-generate", model, "--prompt", "the cat", "--prompt", " and that was", "--max-tokens", 20, "--ignore-eos",
                          "--json", *arguments)
        return [json.loads(line)["tokens"] for line in done.stdout.splitlines()]

    def nats(self, model, *arguments):
        done = self.check("keel-eval", model, "--text", self.dir / "text.txt", "--json", *arguments)
        return json.loads(done.stdout)["nats_per_token"]

    def test_rounded_weights_are_those_of_the_rule(self):
        for name, rule in (("bf16", bf16), ("q8_0", q8_0)):
            with self.subTest(weights=name):
                folder = write_model(self.dir / name, CONFIG, tensors=rounded(random_tensors(CONFIG), rule))
                # What is rounded already stays the same, to the bit; kept as fp32 it only multiplies in another order.
                kept = self.nats(self.model, "--weights", name)
                self.assertEqual(self.nats(folder, "--weights", name), kept)
                self.assertAlmostEqual(self.nats(folder), kept, delta=2e-6)
                self.assertNotAlmostEqual(self.nats(self.model), kept, delta=2e-6)
                self.assertAlmostEqual(self.nats(self.model), kept, delta=0.1)
                self.assertEqual(self.tokens(folder, "--weights", name), self.tokens(self.model, "--weights", name))

    def test_the_same_for_any_number_of_threads(self):
        for name in TYPES:
            with self.subTest(weights=name):
                first = self.tokens(self.model, "--weights", name, "--threads", 1)
                for extra in (("--threads", 2), ("--threads", 3), ("--batch-sequences", 1)):
                    self.assertEqual(self.tokens(self.model, "--weights", name, *extra), first)

    def test_reports_and_tables_say_which(self):
        self.check("keel-generate", self.model, "--prompt", "the", "--max-tokens", 1, "--report", self.dir / "g.json", "--weights", "q8_0")
        self.check("keel-generate", self.model, "--prompt", "the", "--max-tokens", 1, "--report", self.dir / "f.json")
        table = self.check("keel-eval", self.model, "--text", self.dir / "text.txt", "--report", self.dir / "e.json", "--weights", "bf16").stdout
        self.assertIn("weights bf16", table)
        said = [json.loads((self.dir / name).read_text())["config"]["weights"] for name in ("g.json", "f.json", "e.json")]
        self.assertEqual(said, ["q8_0", "fp32", "bf16"])

    def test_benchmarks_say_which(self):
        path = self.dir / "bench" / "lambada" / "lambada_test.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text("".join(json.dumps({"text": f"It is the light of the {word}"}) + "\n" for word in ("sun", "moon")))
        arguments = [self.model, "--tasks", "lambada_openai", "--data", self.dir / "bench", "--weights", "q8_0"]
        self.assertIn("weights q8_0", self.check("keel-eval", *arguments, "--report", self.dir / "r.json").stdout)
        report = json.loads((self.dir / "r.json").read_text())
        self.assertEqual((report["config"]["weights"], report["results"]["keel"]["weights"]), ("q8_0", "q8_0"))

    def test_other_types_are_refused(self):
        for program in ("keel-generate", "keel-eval"):
            for wrong in ("q4_0", "FP32", ""):
                self.assertIn("--weights", self.check(program, self.model, "--weights", wrong, code=2).stderr)

    def test_broken_weights_stay_broken(self):
        tensors = random_tensors(CONFIG)
        dtype, shape, raw = tensors["lm_head.weight"]
        tensors["lm_head.weight"] = (dtype, shape, raw[:400] + struct.pack("<f", float("nan")) + raw[404:])
        folder = write_model(self.dir / "broken", CONFIG, tensors=tensors)
        for name in TYPES:
            self.assertIn("not finite", self.check("keel-generate", folder, "--prompt", "the", "--weights", name, code=5).stderr)


class Memory(ToolTest):
    def test_no_more_than_the_weights_of_their_type(self):
        """While they are read, one matrix of the file is resident beside them, not all of it."""
        if is_sanitized():
            self.skipTest("the sanitizer's own memory would be counted")
        config = llama_config(hidden_size=512, intermediate_size=2048, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=8, head_dim=64)
        some = array.array("f", (math.sin(i) / 16 for i in range(1 << 16))).tobytes() * (config["hidden_size"] * 2048 >> 16)
        tensors = {name: ("F32", shape, some[:4 * math.prod(shape)]) for name, shape in shapes(config).items()}
        folder = write_model(self.dir / "model", config, tensors=tensors)
        weights = sum(math.prod(shape) for shape in shapes(config).values())
        self.assertGreater(weights, 30e6)
        for name, bytes_each in (("fp32", 4), ("bf16", 2), ("q8_0", 34 / 32)):
            process = subprocess.Popen([tool("keel-generate"), str(folder), "--prompt", "the", "--max-tokens", "20", "--ignore-eos", "--weights", name],
                                       stdout=subprocess.DEVNULL)
            watch = Watch(process.pid)
            while process.poll() is None:
                watch.look()
                time.sleep(0.002)
            self.assertEqual(process.returncode, 0)
            beside = watch.resident - weights * bytes_each  # programs and libraries, mapped, included
            print(f"{name}: weights {weights * bytes_each / 1e6:.1f} MB, beside them {beside / 1e6:.1f} MB", flush=True)
            self.assertLess(beside, 60e6)
