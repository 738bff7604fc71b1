"""What a run depends on and what goes on from where: inputs that move, lengths, time limits, the place of output, memory."""
import hashlib
import json
import shutil
import signal
import subprocess
import time

from keel_files import write_megatron
from keel_tools import tool
from test_train import TrainTest, config


class Going(TrainTest):
    def start(self, extra, out="run", name="train.json", **keywords):
        """A long run, in training."""
        process = subprocess.Popen([tool("keel-train"), *map(str, self.arguments(out, ["--steps", "1000000", *extra], name))],
                                   stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, **keywords)
        self.addCleanup(process.kill)  # of a test that fails
        metrics = self.dir / out / "metrics.jsonl"
        for _ in range(3000):
            if process.poll() is not None or (metrics.exists() and metrics.read_text()):
                break
            time.sleep(0.01)
        return process

    def stop(self, process, number=signal.SIGTERM):
        process.send_signal(number)
        stderr = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 128 + number, stderr)
        return stderr

    def files(self, out="run"):
        return {p: p.read_bytes() for p in sorted((self.dir / out).rglob("*")) if p.is_file() and p.name != "lock"}

    def run_json(self, out="run"):
        return json.loads((self.dir / out / "run.json").read_text())


class Inputs(Going):
    def data_set(self, tokenizer="tok.json", tokens=4000):
        folder = self.dir / "set"
        folder.mkdir(exist_ok=True)
        write_megatron(folder / "train-00000", [[i % 61 for i in range(tokens)]])
        (folder / tokenizer).write_text("the tokenizer")
        (folder / "tokenizer_config.json").write_text("{}")
        files = {kind: {"bytes": (folder / f"train-00000.{kind}").stat().st_size, "xxh3": "0" * 16} for kind in ("bin", "idx")}
        manifest = {"schema": "keel.tokens/1", "version": "0", "dtype": "int32",
                    "tokenizer": {"file": tokenizer, "sha256": hashlib.sha256(b"the tokenizer").hexdigest(), "vocab_size": 61},
                    "shards": [{"name": "train-00000", "tokens": tokens, "documents": 1, **files}]}
        (folder / "manifest.json").write_text(json.dumps(manifest))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)  # its manifest is no whole one
        return ["--data", folder]

    def test_tokenizer_is_read_once(self):
        process = self.start(self.data_set())
        for name in ("tok.json", "tokenizer_config.json"):
            (self.dir / "set" / name).unlink()
        self.stop(process)
        saved = max((self.dir / "run" / "checkpoints").iterdir())
        self.assertEqual((saved / "tok.json").read_text(), "the tokenizer")
        self.assertEqual((saved / "tokenizer_config.json").read_text(), "{}")

    def test_tokenizer_with_the_name_of_a_checkpoints_file(self):
        for name in ("config.json", "trainer.json", "optimizer-1.safetensors"):
            with self.subTest(name=name):
                self.assertIn(name, self.train(extra=self.data_set(name), code=3).stderr)
                self.assertFalse((self.dir / "run").exists())

    def test_init_may_go_away_while_training(self):
        self.train("first", ["--steps", "1"])
        process = self.start(["--init", self.dir / "first"])
        shutil.rmtree(self.dir / "first")
        stderr = self.stop(process)
        self.assertRegex(stderr, r"starts from the weights of .*first.*step-00000001; optimiser")
        inputs = {i["path"].split("/")[-1]: i for i in self.report()["inputs"]}
        self.assertEqual(len(inputs["model.safetensors"]["xxh3"]), 16)

    def test_init_from_the_run_that_would_be_replaced(self):
        self.train("run", ["--steps", "1"])
        before = self.files()
        (self.dir / "link").symlink_to(self.dir / "run")
        for init in ("run", "run/", "link", "run/checkpoints/step-00000001"):
            with self.subTest(init=init):
                self.assertIn("--init lies in the run", self.train("run", ["--init", f"{self.dir}/{init}", "--force"], code=2).stderr)
                self.assertEqual(self.files(), before)
        (self.dir / "link").unlink()

    def test_init_under_another_spelling(self):
        self.train("first", ["--steps", "1"])
        self.train("run", ["--init", self.dir / "first", "--steps", "2"])
        self.train("run", ["--init", f"{self.dir}/./first/", "--steps", "3", "--resume"])
        shutil.rmtree(self.dir / "first")
        self.train("run", ["--init", f"{self.dir}/first/", "--steps", "4", "--resume"])
        self.train("run", ["--init", self.dir / "other", "--steps", "5", "--resume"], code=2)

    def test_plan_of_a_run_that_goes_on(self):
        self.train("first", ["--steps", "1"])
        process = self.start(["--init", self.dir / "first", "--set", "checkpoint.every_steps=1", "--set", "checkpoint.keep_last=2"])
        while len(list((self.dir / "run" / "checkpoints").iterdir())) < 2:
            time.sleep(0.01)
        shutil.rmtree(self.dir / "first")
        self.stop(process)
        process = self.start(["--resume", "--set", "checkpoint.every_steps=1", "--set", "checkpoint.keep_last=2", "--init", self.dir / "first"])
        result = self.check("keel-train", "--out", self.dir / "run", "--resume", "--plan", "--override", "checkpoint.every_steps=100")
        self.assertIn("parameters", result.stdout)
        self.stop(process)

    def test_data_that_moved(self):
        self.train("run", ["--steps", "4"])
        for name in ("data", "val"):
            for end in (".bin", ".idx"):
                (self.dir / (name + end)).rename(self.dir / f"new-{name}{end}")
        new = ["--data", self.dir / "new-data", "--val-data", self.dir / "new-val"]
        self.train("run", [*new, "--steps", "6", "--resume"])
        overrides = {o["key"]: o for o in self.run_json()["overrides"]}
        self.assertEqual(json.loads(overrides["data.path"]["after"]), str(self.dir / "new-data"))
        self.assertEqual(self.run_json()["config"]["data"]["path"], str(self.dir / "new-data"))
        self.train("run", ["--steps", "8", "--resume"])  # the first command again, with the old names
        for name in ("data", "val"):
            for end in (".bin", ".idx"):
                (self.dir / f"new-{name}{end}").rename(self.dir / (name + end))
        self.train("run", ["--steps", "10", "--resume"])  # it moved back
        write_megatron(self.dir / "other", [[i % 61 for i in range(2000)]])
        before = self.files()
        error = self.train("run", ["--data", self.dir / "other", "--resume"], code=2).stderr
        self.assertRegex(error, r"data\.path is .*/data\" in the run and .*other")
        self.assertEqual(self.files(), before)


class Lengths(Going):
    def test_steps_stand_above_tokens_of_the_config(self):
        self.write_config(config(train__steps=None, train__tokens=320))
        self.train("short", ["--steps", "3"])
        self.assertEqual(self.report("short")["results"]["steps"], 3)
        self.train("run")
        self.assertEqual(self.report()["results"]["steps"], 5)
        self.train("run", ["--steps", "6", "--resume"])
        self.assertEqual(self.report()["results"]["steps"], 6)
        self.assertIn("step 6 of 6", self.train("run", ["--resume"]).stderr)
        self.train("run", ["--resume", "--override", "train.steps=7"])
        self.assertEqual(self.report()["results"]["steps"], 7)
        self.train("both", ["--set", "train.steps=3", "--set", "train.tokens=640"], code=2)

    def test_only_the_first_value_of_a_key_is_the_commands(self):
        self.train("run", ["--steps", "2"])
        for step, rate in ((4, "1e-4"), (6, "5e-4")):
            self.train("run", ["--steps", step, "--resume", "--override", f"optimizer.learning_rate={rate}"])
        error = self.train("run", ["--steps", "8", "--resume", "--set", "optimizer.learning_rate=1e-4"], code=2).stderr
        self.assertRegex(error, r"5e-04 in the run and 1e-04 on")
        self.train("run", ["--steps", "8", "--resume"])
        self.assertEqual([line["learning_rate"] for line in self.metrics() if "loss" in line][6:], [5e-4] * 2)

    def test_messages_name_where_a_length_comes_from(self):
        self.write_config(config(schedule__name="cosine", train__steps=6))
        self.train("run", ["--steps", "8"])
        error = self.train("run", ["--resume"], code=2).stderr
        self.assertRegex(error, r"8 steps long, not 6.*train\.json:\d+:\d+\): --steps 8 keeps")
        self.assertNotIn("train.steps=6", error)
        self.assertIn("--override train.steps=N with N above 8", self.train("run", ["--resume", "--steps", "8"]).stderr)
        self.write_config(config(train__steps=4))
        self.train("constant", ["--steps", "6"])
        self.assertRegex(self.train("constant", ["--resume"], code=2).stderr, r"6 steps are done.*4.*train\.json:")
        self.assertIn("--steps N with N above 6", self.train("constant", ["--resume", "--steps", "6"]).stderr)

    def test_time_limit_counts_from_the_start(self):
        self.train("run", ["--set", "train.time_limit=0.05", "--steps", "1000"], code=7)
        self.assertEqual(self.report()["results"]["steps"], 1)  # starting takes longer, and a process does at least one step
        self.train("run", ["--set", "train.time_limit=0.05", "--steps", "1000", "--resume"], code=7)
        self.assertEqual(self.report()["results"]["steps"], 2)

    def test_time_limit_below_a_validation_comes_to_an_end(self):
        write_megatron(self.dir / "val", [[i % 61 for i in range(1000)] for _ in range(1000)])
        short = ["--steps", "1", "--set", "validate.tokens=1000000", "--set", "train.time_limit=0.05"]
        self.train("run", short, code=7)
        self.assertEqual([line for line in self.metrics() if "val_loss" in line], [])
        self.train("run", [*short, "--resume"])
        self.assertEqual(self.report()["results"]["val_step"], 1)

    def test_hangup(self):
        self.stop(self.start([]), signal.SIGHUP)
        self.assertEqual(self.report()["results"]["stopped_by"], "SIGHUP")
        ignoring = self.start([], "nohup", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        ignoring.send_signal(signal.SIGHUP)
        self.stop(ignoring)


class Place(Going):
    def test_a_run_whose_folder_another_takes_ends_and_leaves_it_alone(self):
        rarely = ["--set", "checkpoint.every_steps=1000000"]
        first = self.start(rarely)
        (self.dir / "run").rename(self.dir / "moved")
        second = self.start(rarely)
        stderr = first.communicate(timeout=60)[1]
        self.assertEqual(first.returncode, 4, stderr)
        self.assertIn("was removed or replaced while in use", stderr)
        before = set((self.dir / "run" / "checkpoints").iterdir())
        self.assertEqual(before, set(), "nothing of the first run")
        self.stop(second)

    def test_a_folder_in_use(self):
        (self.dir / "run").mkdir()
        (self.dir / "run" / "notes.txt").write_text("mine")
        self.assertIn("notes.txt", self.train(code=2).stderr)
        self.assertEqual(sorted(p.name for p in (self.dir / "run").iterdir()), ["notes.txt"])
        self.train(extra=["--force", "--steps", "1"])
        self.train(extra=["--force", "--steps", "2"])
        self.assertEqual((self.dir / "run" / "notes.txt").read_text(), "mine")

    def test_plan_and_log_say_repeats_and_disk(self):
        extra = ["--set", "checkpoint.every_steps=2", "--set", "checkpoint.keep_last=3"]
        self.train("run", [*extra, "--plan", "--report", self.dir / "plan.json"])
        results = json.loads((self.dir / "plan.json").read_text())["results"]
        tokens = (self.dir / "data.bin").stat().st_size // 4
        self.assertAlmostEqual(results["epochs"], 12 * 64 / tokens)
        self.assertEqual(results["checkpoints_bytes"], 3 * results["checkpoint_bytes"])
        stderr = self.train("run", extra).stderr
        self.assertRegex(stderr, rf"trains on 768 tokens, {12 * 64 / tokens:.2f} times the data's .*; disk: 3 checkpoints of")
        on_disk = sum(p.stat().st_size for p in (self.dir / "run" / "checkpoints").rglob("*") if p.is_file())
        self.assertLessEqual(on_disk, results["checkpoints_bytes"])

    def test_small_memory_limit_is_planned_as_it_runs(self):
        self.write_config(config(train__micro_batch_sequences="auto", train__batch_sequences=64))
        limit = ["--steps", "1", "--set", "train.memory_limit=50MB"]
        plan = self.train("run", [*limit, "--plan"]).stdout
        self.assertRegex(plan, r"micro-batch 1 of 64 sequences; the largest that fits 50\.0 MB is \d+\n +\(auto stays below")
        self.assertLessEqual(max(map(len, plan.splitlines())), 80, plan)
        self.train("run", limit)

    def test_memory_is_looked_at_before_data(self):
        write_megatron(self.dir / "data", [[61] * 500])
        self.train(extra=["--set", "train.memory_limit=1MB"], code=6)
        self.train(code=3)
