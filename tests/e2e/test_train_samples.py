"""validate.sample: texts that a run continues while it trains, RUN/samples.jsonl."""
import json
import random
import signal
import subprocess
import time

from keel_files import read_lines, write_megatron
from keel_tools import tool
from test_train import TrainTest, config
from tokenize_tools import MODEL

PROMPTS = ["the cat sat on", "", "a mat \u65e5\u672c"]


class Samples(TrainTest):
    def setUp(self):
        super().setUp()
        rng = random.Random(1)
        words = "the cat sat on a mat and ran to see big red sun in top hat".split()
        (self.dir / "text.txt").write_text("\n".join(" ".join(rng.choice(words) for _ in range(12)) for _ in range(300)))
        self.check("keel-tokenize", "encode", self.dir / "text.txt", "--documents", "line", "--tokenizer", MODEL, "--val-fraction", "0.1", "--out", self.dir / "set")
        c = config(validate__sample={"prompts": PROMPTS, "every_steps": 3, "tokens": 9}, checkpoint__every_steps=3, train__steps=10)
        c["model"].pop("vocab_size")
        c["optimizer"]["learning_rate"] = 0.05
        self.write_config(c)

    def arguments(self, out="run", extra=(), name="train.json"):
        return ["--config", self.dir / name, "--data", self.dir / "set", "--out", self.dir / out, "--progress", "none", "--threads", "1", *extra]

    def samples(self, out="run"):
        return read_lines(self.dir / out / "samples.jsonl")

    def text(self, out="run"):
        return (self.dir / out / "samples.jsonl").read_text()

    def test_each_prompt_every_so_many_steps_and_at_the_end(self):
        result = self.train()
        lines = self.samples()
        self.assertEqual([(line["step"], line["index"]) for line in lines], [(step, i) for step in (3, 6, 9, 10) for i in range(3)])
        self.assertEqual([line["prompt"] for line in lines[:3]], PROMPTS)
        self.assertEqual(lines[0]["tokens"], 3 * 64)
        self.assertNotEqual(lines[0]["token_ids"], lines[9]["token_ids"])
        self.assertIn("step 9, sample 1: the cat sat on|", result.stderr)
        self.assertGreater(self.report()["results"]["sample_seconds"], 0)

    def test_greedy_as_keel_generate_makes_them(self):
        self.train()
        for step in (3, 10):
            prompts = [a for prompt in PROMPTS for a in ("--prompt", prompt)]
            made = self.check("keel-generate", self.dir / "run" / "checkpoints" / f"step-{step:08d}", *prompts, "--temperature", "0",
                              "--max-tokens", "9", "--json").stdout
            made = [json.loads(line) for line in made.splitlines()]
            lines = [line for line in self.samples() if line["step"] == step]
            for key in ("text", "finish_reason", "prompt", "prompt_tokens"):
                self.assertEqual([m[key] for m in made], [line[key] for line in lines])
            self.assertEqual([m["tokens"] for m in made], [line["token_ids"] for line in lines])

    def test_training_is_the_same_without_them(self):
        self.train("with", ["--set", "validate.sample.temperature=1"])
        self.train("without", ["--set", "validate.sample.prompts=null"])
        self.assertEqual(self.metrics("with"), self.metrics("without"))
        self.assertEqual(self.weights("with", 10), self.weights("without", 10))
        self.assertFalse((self.dir / "without" / "samples.jsonl").exists())

    def test_drawn_by_the_seed_and_the_step(self):
        drawn = ["--set", "validate.sample.temperature=1.5", "--set", "optimizer.learning_rate=0"]
        self.train("a", drawn)
        self.train("b", [*drawn, "--threads", "2"])
        self.train("c", [*drawn, "--seed", "8"])
        self.assertEqual(self.text("a"), self.text("b"))
        self.assertNotEqual(self.text("a"), self.text("c"))
        first, second = ([line["token_ids"] for line in self.samples("a") if line["step"] == step] for step in (3, 6))
        self.assertNotEqual(first, second)  # the same weights, other draws
        for key, value in (("top_k", "1"), ("top_p", "0.000001")):
            self.train(key, [*drawn, "--set", f"validate.sample.{key}={value}"])
        self.train("greedy", ["--set", "optimizer.learning_rate=0"])
        self.assertEqual(self.text("top_k"), self.text("greedy"))
        self.assertEqual(self.text("top_p"), self.text("greedy"))

    def test_killed_and_resumed_at_random_moments(self):
        long = ["--steps", "300", "--set", "checkpoint.every_steps=7", "--set", "validate.sample.every_steps=2", "--set", "validate.sample.temperature=1"]
        start = time.monotonic()
        self.train("whole", long)
        seconds = time.monotonic() - start
        rng = random.Random(5)
        for number in [signal.SIGKILL] * 6 + [signal.SIGTERM] * 4:
            process = subprocess.Popen([tool("keel-train"), *map(str, self.arguments("run", [*long, "--resume"]))], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            time.sleep(rng.uniform(0, seconds / 3))
            process.send_signal(number)
            process.wait(60)
        self.train("run", [*long, "--resume"])
        self.assertEqual(self.text(), self.text("whole"))
        self.assertEqual(self.metrics(), self.metrics("whole"))
        self.assertEqual(self.weights("run", 300), self.weights("whole", 300))

    def test_lines_beyond_the_checkpoint_move_away(self):
        self.train()
        whole = self.text()
        for step in (9, 10):
            (self.dir / "run" / "checkpoints" / f"step-{step:08d}").rename(self.dir / f"gone-{step}")
        with open(self.dir / "run" / "samples.jsonl", "a") as f:
            f.write('{"step": 11, "torn')
        result = self.train("run", ["--resume"])
        self.assertIn("6 lines of samples.jsonl moved to samples.before-resume-6.jsonl", result.stderr)
        self.assertEqual(self.text(), whole)
        self.assertEqual([line["step"] for line in read_lines(self.dir / "run" / "samples.before-resume-6.jsonl")], [9] * 3 + [10] * 3)

    def test_longer_and_with_other_prompts(self):
        self.train("run", ["--steps", "7"])
        self.train("run", ["--steps", "10", "--resume", "--override", 'validate.sample.prompts=["to see"]'])
        lines = [(line["step"], line["prompt"]) for line in self.samples()]
        self.assertEqual(lines, [(step, prompt) for step in (3, 6) for prompt in PROMPTS] + [(9, "to see"), (10, "to see")])
        self.train("whole")
        self.assertEqual(self.metrics(), self.metrics("whole"))

    def test_what_cannot_be_sampled_is_refused_at_once(self):
        write_megatron(self.dir / "data", [[i % 61 for i in range(500)]])
        result = self.train("none", ["--data", self.dir / "data", "--set", "model.vocab_size=61"], code=2)
        self.assertRegex(result.stderr, r"validate\.sample\.prompts needs a tokenizer, and the data names none \(.*train\.json:\d+")
        long = json.dumps(["the cat", "the cat " * 30])
        result = self.train("none", ["--set", f"validate.sample.prompts={long}"], code=2)
        self.assertRegex(result.stderr, r"prompt 2 of validate\.sample\.prompts: \d+ tokens leave no room in a context of 16")
        for bad in ("prompts=[1]", "tokens=0", "temperature=-1", "top_p=0", "every_steps=0", "promts=[]"):
            self.train("none", ["--set", f"validate.sample.{bad}"], code=2)
        self.assertFalse((self.dir / "none").exists())

    def test_their_memory_is_planned(self):
        def planned(*extra):
            self.check("keel-train", *self.arguments(extra=["--plan", "--report", self.dir / "plan.json", "--force", *extra]))
            return json.loads((self.dir / "plan.json").read_text())["results"]
        with_them, without = planned(), planned("--set", "validate.sample.prompts=[]")
        self.assertGreater(with_them["memory"]["total_bytes"], without["memory"]["total_bytes"])
        self.assertLess(with_them["memory"]["weights_bytes"] - without["memory"]["weights_bytes"], 1000)  # not a second time
        self.assertEqual(with_them["micro_batch_sequences"], without["micro_batch_sequences"])
