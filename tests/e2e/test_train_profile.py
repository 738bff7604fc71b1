"""train.profile_every: gradients and activations of every sublayer while a run trains, RUN/profile.jsonl."""
import json
import random
import signal
import subprocess
import time

from keel_files import read_lines
from keel_tools import tool
from test_train import TrainTest, config

SUBLAYER_KEYS = ("stream_gradient_norm", "stream_rms", "branch_rms", "stream_branch_cosine", "skip_gain")


class Profile(TrainTest):
    def setUp(self):
        super().setUp()
        self.write_config(config(train__profile_every=5, checkpoint__every_steps=2))

    def profile(self, out="run"):
        return read_lines(self.dir / out / "profile.jsonl")

    def text(self, out="run"):
        return (self.dir / out / "profile.jsonl").read_text()

    def assert_same_training(self, a, b, step=12):
        self.assertEqual(self.metrics(a), self.metrics(b))
        self.assertEqual(self.weights(a, step), self.weights(b, step))

    def test_the_first_the_last_and_every_fifth(self):
        self.train()
        lines = self.profile()
        self.assertEqual([line["step"] for line in lines], [1, 5, 10, 12])
        self.assertEqual(lines[1]["tokens"], 5 * 64)
        for key in SUBLAYER_KEYS:
            self.assertEqual(len(lines[0][key]), 5 if key in ("stream_gradient_norm", "stream_rms") else 4)
        weights = lines[0]["sublayer_weight_gradient_norm"]
        self.assertIsNone(weights["outer_attention_layernorm"][0])
        self.assertGreater(weights["outer_attention_layernorm"][1], 0)
        self.assertNotIn("non_finite", lines[0])

    def test_as_keel_analyze_says_of_the_checkpoint_before(self):
        self.train(extra=["--set", "train.profile_every=1"])
        lines = {line["step"]: line for line in self.profile()}
        for step, source in ((1, ["--config", self.dir / "train.json", "--data", self.dir / "data"]),
                             (5, [self.dir / "run" / "checkpoints" / "step-00000004"])):
            report = self.check("keel-analyze", "gradients", *source, "--threads", "1", "--progress", "none").stdout
            results = json.loads(report)["results"]
            rows, line = results["sublayers"], lines[step]
            for key in SUBLAYER_KEYS:
                last = [results["last_stream"][key]] if key in results["last_stream"] else []
                self.assertEqual(line[key], [row[key] for row in rows] + last)
            for name, norms in line["sublayer_weight_gradient_norm"].items():
                found = [{**rows[2 * m]["weight_gradient_norm"], **rows[2 * m + 1]["weight_gradient_norm"]}.get(name) for m in range(2)]
                self.assertEqual(norms, found, name)
            self.assertEqual(line["weight_gradient_norm"], results["weight_gradient_norm"])
            self.assertEqual(line["log_skip_product"], results["log_skip_product"])

    def test_training_is_the_same_without_it(self):
        for scheme in ("keel", "admin", "pre"):
            chosen = ["--set", f"model.residual_scheme={scheme}"]
            self.train(f"{scheme}-without", [*chosen, "--set", "train.profile_every=null"])
            self.assertFalse((self.dir / f"{scheme}-without" / "profile.jsonl").exists())
            for mode in ("none", "branch", "every:2"):
                out = f"{scheme}-{mode}"
                self.train(out, [*chosen, "--set", "train.profile_every=1", "--set", f"train.recompute={mode}"])
                self.assert_same_training(out, f"{scheme}-without")
                self.assertEqual(self.text(out), self.text(f"{scheme}-none"))
        self.train("threads", ["--threads", "2", "--set", "train.profile_every=1"])
        self.train("threads-without", ["--threads", "2", "--set", "train.profile_every=null"])
        self.assert_same_training("threads", "threads-without")

    def test_the_automatic_micro_batch_is_the_same_without_it(self):
        automatic = ["--set", "train.micro_batch_sequences=auto", "--set", "train.memory_limit=70MB"]
        self.train("with", [*automatic, "--set", "train.profile_every=1"])
        self.train("without", [*automatic, "--set", "train.profile_every=null"])
        self.assert_same_training("with", "without")

    def test_killed_and_resumed_at_random_moments(self):
        long = ["--steps", "300", "--set", "checkpoint.every_steps=7", "--set", "train.profile_every=2"]
        start = time.monotonic()
        self.train("whole", long)
        seconds = time.monotonic() - start
        rng = random.Random(6)
        for number in [signal.SIGKILL] * 8 + [signal.SIGTERM] * 4:
            process = subprocess.Popen([tool("keel-train"), *map(str, self.arguments("run", [*long, "--resume"]))], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            time.sleep(rng.uniform(0, seconds / 3))
            process.send_signal(number)
            process.wait(60)
        self.train("run", [*long, "--resume"])
        self.assertEqual(self.text(), self.text("whole"))
        self.assert_same_training("run", "whole", 300)

    def test_lines_beyond_the_checkpoint_move_away(self):
        self.train()
        whole = self.text()
        for step in (10, 12):
            (self.dir / "run" / "checkpoints" / f"step-{step:08d}").rename(self.dir / f"gone-{step}")
        with open(self.dir / "run" / "profile.jsonl", "a") as f:
            f.write('{"step": 15, "torn')
        result = self.train("run", ["--resume"])
        self.assertIn("2 lines of profile.jsonl moved to profile.before-resume-8.jsonl", result.stderr)
        self.assertEqual(self.text(), whole)
        self.assertEqual([line["step"] for line in read_lines(self.dir / "run" / "profile.before-resume-8.jsonl")], [10, 12])

    def test_another_period_from_here_on(self):
        self.train("run", ["--steps", "6"])
        self.train("run", ["--steps", "12", "--resume", "--override", "train.profile_every=4"])
        self.assertEqual([line["step"] for line in self.profile()], [1, 5, 8, 12])
        self.train("run", ["--steps", "20", "--resume", "--override", "train.profile_every=null"])
        self.assertEqual([line["step"] for line in self.profile()], [1, 5, 8, 12])
        self.write_config(config())
        self.train("late", ["--steps", "6"])
        self.train("late", ["--steps", "12", "--resume", "--override", "train.profile_every=5"])
        self.assertEqual([line["step"] for line in self.profile("late")], [10, 12])

    def test_a_new_run_takes_the_old_one_s_away(self):
        self.train()
        self.train("run", ["--force", "--set", "train.profile_every=null"])
        self.assertFalse((self.dir / "run" / "profile.jsonl").exists())

    def test_plan_counts_it(self):
        def workspace(every):
            self.train("none", ["--plan", "--report", self.dir / f"{every}.json", "--set", f"train.profile_every={every}"])
            return json.loads((self.dir / f"{every}.json").read_text())["results"]["memory"]["workspace_bytes"]
        self.assertGreaterEqual(workspace("3"), workspace("null") + 2 * 16 * 16 * 4)

    def test_a_step_that_is_not_finite(self):
        result = self.train(extra=["--set", "optimizer.learning_rate=1e30", "--set", "optimizer.clip=off", "--set", "train.profile_every=1"], code=5)
        self.assertIn("not finite", result.stderr)
        last = self.profile()[-1]
        self.assertEqual(last["step"], [line for line in self.metrics() if "loss" in line][-1]["step"])
        self.assertIn("non_finite", last)

    def test_bad_values(self):
        for bad in ("0", "-1", "1.5", "often"):
            self.assertIn("train.profile_every", self.train("none", ["--set", f"train.profile_every={bad}"], code=2).stderr)
