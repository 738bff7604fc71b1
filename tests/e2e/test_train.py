"""keel-train as its users meet it: whole runs, stops and resumes, misuse, bad files, full disks."""
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import time

from keel_files import read_lines, read_safetensors, write_megatron, write_safetensors
from keel_tools import ToolTest, tool

TIMINGS = ("tokens_per_second", "seconds", "peak_memory_bytes")


def config(**changes):
    """A small config; changes are dotted keys with __ for dots."""
    c = {"model": {"vocab_size": 61, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
                   "num_key_value_heads": 1},
         "data": {"sequence_length": 16},
         "train": {"steps": 12, "batch_sequences": 4, "micro_batch_sequences": 2, "seed": 3},
         "optimizer": {"learning_rate": 0.01},
         "schedule": {"name": "constant"},
         "checkpoint": {"every_steps": 4},
         "validate": {"every_steps": 5, "tokens": 100}}
    for key, value in changes.items():
        group, name = key.split("__")
        c.setdefault(group, {})[name] = value
    return c


class TrainTest(ToolTest):
    def setUp(self):
        super().setUp()
        rng = random.Random(7)
        document = lambda: [(7 * i + rng.randrange(3)) % 61 for i in range(rng.randrange(5, 60))]
        write_megatron(self.dir / "data", [document() for _ in range(60)])
        write_megatron(self.dir / "val", [document() for _ in range(10)])
        self.write_config(config())

    def write_config(self, value, name="train.json"):
        path = self.dir / name
        path.write_text(value if isinstance(value, str) else json.dumps(value, indent=1))
        return path

    def arguments(self, out="run", extra=(), name="train.json"):
        return ["--config", self.dir / name, "--data", self.dir / "data", "--val-data", self.dir / "val", "--out", self.dir / out,
                "--progress", "none", "--threads", "1", *extra]

    def train(self, out="run", extra=(), code=0, name="train.json", **keywords):
        return self.check("keel-train", *self.arguments(out, extra, name), code=code, **keywords)

    def metrics(self, out="run"):
        """metrics.jsonl without what differs from run to run."""
        return [{k: v for k, v in line.items() if k not in TIMINGS} for line in read_lines(self.dir / out / "metrics.jsonl")]

    def weights(self, out, step):
        folder = self.dir / out / "checkpoints" / f"step-{step:08d}"
        return (folder / "model.safetensors").read_bytes(), (folder / "optimizer-00000.safetensors").read_bytes()

    def report(self, out="run"):
        return json.loads((self.dir / out / "report.json").read_text())


class Runs(TrainTest):
    def test_metrics_report_and_checkpoints(self):
        self.train()
        lines = self.metrics()
        self.assertEqual([line["step"] for line in lines if "loss" in line], list(range(1, 13)))
        self.assertEqual([line["step"] for line in lines if "val_loss" in line], [5, 10, 12])
        self.assertEqual(lines[0]["tokens"], 64)
        report = self.report()
        self.assertEqual(report["schema"], "keel.train/1")
        results = report["results"]
        self.assertEqual((results["status"], results["steps"], results["tokens"]), ("completed", 12, 12 * 64))
        self.assertEqual(results["final_loss"], [line for line in lines if "loss" in line][-1]["loss"])
        self.assertEqual((results["val_loss"], results["val_step"]), (lines[-1]["val_loss"], 12))
        self.assertEqual((results["overrides"], results["resumes"]), ([], []))
        self.assertNotIn("data", json.loads((self.dir / "run" / "checkpoints" / "step-00000012" / "trainer.json").read_text()))
        self.assertEqual([c[-13:] for c in results["checkpoints"]], ["step-00000004", "step-00000008", "step-00000012"])
        final = read_safetensors(self.dir / "run" / "checkpoints" / "step-00000012" / "model.safetensors")
        self.assertEqual(sum(len(values) for _, values in final.values()), results["parameters"])
        run = json.loads((self.dir / "run" / "run.json").read_text())
        self.assertEqual(run["resolved"]["micro_batch_sequences"], 2)

    def test_same_command_gives_the_same_bytes(self):
        self.train("a")
        self.train("b")
        self.assertEqual(self.metrics("a"), self.metrics("b"))
        self.assertEqual(self.weights("a", 12), self.weights("b", 12))

    def test_schemes_share_the_start_of_what_they_share(self):
        for scheme in ("keel", "keel_v1", "pre", "post"):
            self.train(scheme, ["--set", f"model.residual_scheme={scheme}", "--steps", "1", "--set", "optimizer.learning_rate=0"])
        starts = {s: read_safetensors(self.dir / s / "checkpoints" / "step-00000001" / "model.safetensors") for s in ("keel", "pre", "post")}
        for name in starts["post"]:
            if name in starts["pre"] and "proj" in name:
                self.assertEqual(starts["pre"][name], starts["post"][name], name)
                self.assertEqual(starts["pre"][name], starts["keel"][name], name)

    def test_init_from_a_run_starts_with_its_weights(self):
        self.train("first")
        config_without_model = config()
        del config_without_model["model"]
        self.write_config(config_without_model, "second.json")
        self.train("second", ["--init", self.dir / "first", "--steps", "1", "--set", "optimizer.learning_rate=0", "--set", "optimizer.weight_decay=0"], name="second.json")
        self.assertEqual(self.weights("first", 12)[0], self.weights("second", 1)[0])

    def test_accumulation_and_threads_change_rounding_only(self):
        runs = {"whole": ["--set", "train.micro_batch_sequences=4"], "single": ["--set", "train.micro_batch_sequences=1"], "threads": ["--threads", "2"]}
        for name, extra in runs.items():
            self.train(name, extra)
        first = self.metrics("whole")
        for name in ("single", "threads"):
            for a, b in zip(first, self.metrics(name)):
                for key in ("loss", "grad_norm", "val_loss"):
                    if key in a:
                        self.assertLessEqual(abs(a[key] / b[key] - 1), 1e-4, (name, a, b))

    def test_plan_and_print_config_write_nothing(self):
        result = self.check("keel-train", "--config", self.dir / "train.json", "--data", self.dir / "data", "--plan", "--report", self.dir / "plan.json")
        self.assertIn("parameters", result.stdout)
        results = json.loads((self.dir / "plan.json").read_text())["results"]
        parts = [results[f"estimated_{part}_seconds"] for part in ("train", "validate", "save")]
        self.assertAlmostEqual(results["estimated_seconds"], sum(parts), delta=1e-9)
        self.assertTrue(parts[0] > 0 and parts[1] == 0 and parts[2] > 0, parts)  # no validation data is named
        memory = results["memory"]
        self.assertEqual(memory["total_bytes"], sum(v for k, v in memory.items() if k != "total_bytes"))
        printed = self.check("keel-train", "--config", self.dir / "train.json", "--set", "train.log_every=3", "--steps", "9", "--print-config", "--origins").stdout
        self.assertRegex(printed, r"train\.steps = 9 +# flag --steps")
        self.assertRegex(printed, r"train\.log_every = 3 +# --set")
        self.assertRegex(printed, r"model\.hidden_size = 16 +# .*train\.json:\d+")
        self.assertRegex(printed, r"optimizer\.eps = 1e-08 +# default")
        self.assertFalse((self.dir / "run").exists())

    def test_plan_that_does_not_fit(self):
        result = self.train(extra=["--set", "train.memory_limit=1MB"], code=6)
        self.assertRegex(result.stderr, r"needs .* MB and may use 1\.00 MB: not even one sequence")
        self.assertFalse((self.dir / "run").exists())
        self.train(extra=["--plan", "--set", "train.memory_limit=1MB"], code=6)

    def test_non_finite_stops_with_the_last_good_weights(self):
        self.train(extra=["--set", "optimizer.learning_rate=1e30", "--set", "checkpoint.every_steps=1", "--steps", "50"], code=5)
        results = self.report()["results"]
        self.assertEqual(results["status"], "diverged")
        step = results["divergence"]["step"]
        self.assertEqual(results["divergence"]["criterion"], "nonfinite")
        self.assertEqual(max(int(c[-8:]) for c in results["checkpoints"]), step - 1)
        last = [line for line in self.metrics() if "loss" in line][-1]
        self.assertEqual(last["step"], step)
        model = read_safetensors(self.dir / "run" / "checkpoints" / f"step-{step - 1:08d}" / "model.safetensors")
        for name, (_, values) in model.items():
            self.assertTrue(all(abs(v) < float("inf") for v in values), name)

    def test_weights_that_are_not_finite_are_never_saved(self):
        self.train(extra=["--steps", "3"])
        kept = self.weights("run", 3)
        wild = ["--steps", "4", "--override", "optimizer.learning_rate=1e38", "--resume"]
        for extra in (wild, [*wild, "--override", "checkpoint.every_steps=1"]):
            result = self.train(extra=extra, code=5)
            self.assertIn("is not finite after step 4", result.stderr)
            self.assertEqual(sorted(p.name for p in (self.dir / "run" / "checkpoints").iterdir()), ["step-00000003"])
            self.assertEqual(self.weights("run", 3), kept)
            self.assertEqual(self.report()["results"]["divergence"]["step"], 4)
        # without validation it is the save that notices, at the end and at a checkpoint
        for name, every in (("end", 100), ("every", 1)):
            bare = ["--config", self.dir / "train.json", "--data", self.dir / "data", "--out", self.dir / name, "--progress", "none",
                    "--steps", "1", "--set", "optimizer.learning_rate=1e38", "--set", f"checkpoint.every_steps={every}"]
            result = self.check("keel-train", *bare, code=5)
            self.assertIn("not finite after step 1", result.stderr)
            self.assertEqual(list((self.dir / name / "checkpoints").iterdir()), [])

    def test_a_huge_loss_at_the_end_is_said(self):
        result = self.train(extra=["--set", "optimizer.learning_rate=30", "--set", "optimizer.classes.norm.learning_rate=0"])
        self.assertIn("above the 4.111", result.stderr)
        self.assertIn("diverged", self.report()["warnings"][0])

    def test_time_limit_saves_and_exits_with_7(self):
        self.train(extra=["--set", "train.time_limit=1", "--steps", "1000000"], code=7)
        done = self.report()["results"]["steps"]
        self.assertTrue((self.dir / "run" / "checkpoints" / f"step-{done:08d}").is_dir())

    def test_time_limit_and_signals_reach_the_passes_over_data(self):
        write_megatron(self.dir / "val", [[i % 61 for i in range(1000)] for _ in range(3000)])
        self.train("val", ["--steps", "1", "--set", "validate.tokens=3000000", "--set", "train.time_limit=1"], code=7)
        self.assertEqual([line for line in self.metrics("val") if "val_loss" in line], [])
        self.assertTrue((self.dir / "val" / "checkpoints" / "step-00000001").is_dir())
        with open(self.dir / "big.bin", "wb") as f:  # nanoGPT's, sparse
            f.truncate(3 << 30)
        big = ["--data", self.dir / "big.bin", "--data-format", "nanogpt", "--val-data", self.dir / "big.bin", "--set", "validate.unigram=true"]
        result = self.train("unigram", [*big, "--set", "train.time_limit=0.2"], code=7)
        self.assertNotIn("token frequencies alone", result.stderr)
        self.assertEqual(self.report("unigram")["results"]["steps"], 1)  # the limit ends the pass, and a step follows
        process = subprocess.Popen([tool("keel-train"), *map(str, self.arguments("stopped", big))], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        while not (self.dir / "stopped" / "events.jsonl").exists():
            time.sleep(0.01)
        process.terminate()
        self.assertEqual(process.wait(60), 143)
        self.assertEqual(self.report("stopped")["results"]["steps"], 0)

    def test_progress_says_that_it_validates(self):
        write_megatron(self.dir / "val", [[i % 61 for i in range(1000)] for _ in range(3000)])
        long = ["--steps", "1000000", "--set", "validate.tokens=3000000", "--set", "validate.every_steps=1", "--progress", "json"]
        process = subprocess.Popen([tool("keel-train"), *map(str, self.arguments("run", long))], stderr=subprocess.PIPE,
                                   stdout=subprocess.DEVNULL, text=True)
        lines = []
        for line in process.stderr:
            lines.append(line)
            if '"validating":' in line:
                process.terminate()
        self.assertEqual(process.wait(60), 143, lines)
        self.assertTrue(any('"validating":' in line for line in lines), lines)
        process.stderr.close()

    def test_the_last_progress_is_that_of_the_run(self):
        said = self.train(extra=["--progress", "json"]).stderr
        last = [json.loads(line) for line in said.splitlines() if '"progress":"train"' in line][-1]
        self.assertEqual((last["done"], last["total"], last["finished"]), (12, 12, True))
        self.assertIn("loss", last)
        self.assertNotIn("validating", last)

    def test_sizes_that_are_compared_differ(self):
        large = ["--set", "model.hidden_size=512", "--set", "model.intermediate_size=2048"]  # a few kB are less than a third digit
        total = json.loads(self.train(extra=[*large, "--plan", "--json"]).stdout)["memory"]["total_bytes"]
        said = self.train(extra=[*large, "--set", f"train.memory_limit={total - 1}"], code=6).stderr
        needed, allowed = re.search(r"the run needs (\S+ \S+) and may use (\S+ \S+?)[: ]", said).groups()
        self.assertNotEqual(needed, allowed)

    def test_plan_heeds_signals(self):
        wide = ["--set", "model.hidden_size=2048", "--set", "model.intermediate_size=8192", "--set", "data.sequence_length=512", "--set", "train.batch_sequences=512",
                "--set", "model.vocab_size=50000"]
        write_megatron(self.dir / "data", [[i % 61 for i in range(3000)]])
        process = subprocess.Popen([tool("keel-train"), *map(str, self.arguments("run", [*wide, "--plan"]))], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        time.sleep(0.3)
        process.terminate()
        self.assertEqual(process.wait(60), 143)

    def test_loss_mask_counts_only_its_targets(self):
        tokens = [[i % 61 for i in range(161)]]
        write_megatron(self.dir / "masked", tokens, [1 if i % 2 else 0 for i in range(161)])
        self.train(extra=["--data", self.dir / "masked", "--steps", "1"])
        masked = self.metrics()[0]["loss"]
        self.train("plain", ["--data", self.dir / "masked", "--steps", "1", "--set", "data.loss_mask=false"])
        self.assertNotEqual(masked, self.metrics("plain")[0]["loss"])
        self.train("none", ["--steps", "1", "--set", "data.loss_mask=true"], code=2)


class Resume(TrainTest):
    LONG = ["--steps", "400", "--set", "checkpoint.every_steps=7"]

    def uninterrupted(self, extra):
        self.train("whole", extra)
        return self.metrics("whole")

    def test_after_ctrl_c(self):
        whole = self.uninterrupted(self.LONG)
        interrupted = 0
        for delay in (0.15, 0.4, 0.8):
            process = subprocess.Popen([tool("keel-train"), *map(str, self.arguments("run", self.LONG + ["--resume"]))],
                                       stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
            time.sleep(delay)
            process.send_signal(signal.SIGINT)
            stderr = process.communicate(timeout=60)[1]
            self.assertIn(process.returncode, (0, 130), stderr)
            interrupted += process.returncode == 130
        self.assertGreater(interrupted, 0)
        self.train("run", self.LONG + ["--resume"])
        self.assertEqual(self.metrics(), whole)
        self.assertEqual(self.weights("run", 400), self.weights("whole", 400))

    def test_after_sigkill_at_random_moments(self):
        start = time.monotonic()
        whole = self.uninterrupted(self.LONG)
        seconds = time.monotonic() - start
        rng = random.Random(5)
        killed = 0
        for _ in range(12):
            process = subprocess.Popen([tool("keel-train"), *map(str, self.arguments("run", self.LONG + ["--resume"]))],
                                       stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            time.sleep(rng.uniform(0, seconds / 2))
            process.kill()
            killed += process.wait() == -signal.SIGKILL
            run = self.dir / "run"
            if run.exists():
                for name in os.listdir(run / "checkpoints") if (run / "checkpoints").exists() else ():
                    if re.fullmatch(r"step-\d{8}", name):
                        self.assertTrue((run / "checkpoints" / name / "manifest.json").exists(), name)
        self.assertGreater(killed, 0)
        self.train("run", self.LONG + ["--resume"])
        self.assertEqual(self.metrics(), whole)
        self.assertEqual(self.weights("run", 400), self.weights("whole", 400))

    def test_more_steps_after_a_finished_run(self):
        self.train("whole", ["--steps", "12", "--set", "train.log_every=5"])
        self.train("run", ["--steps", "7", "--set", "train.log_every=5"])
        self.train("run", ["--steps", "12", "--set", "train.log_every=5", "--resume"])
        self.assertEqual(self.metrics(), self.metrics("whole"))
        self.assertEqual(self.weights("run", 12), self.weights("whole", 12))

    def test_finished_run_changes_nothing(self):
        self.train()
        before = {p: p.read_bytes() for p in sorted((self.dir / "run").rglob("*")) if p.is_file() and p.name != "lock"}
        result = self.train(extra=["--resume"])
        self.assertIn("finished", result.stderr)
        after = {p: p.read_bytes() for p in sorted((self.dir / "run").rglob("*")) if p.is_file() and p.name != "lock"}
        self.assertEqual(before, after)

    def interrupt_validation(self, extra, step):
        """Stops a run during the validation after this step, which is long."""
        process = subprocess.Popen([tool("keel-train"), *map(str, self.arguments("run", extra))], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        metrics = self.dir / "run" / "metrics.jsonl"
        for _ in range(2000):
            if metrics.exists() and f'"step":{step},' in metrics.read_text():
                break
            time.sleep(0.01)
        process.terminate()
        self.assertEqual(process.wait(60), 143)
        self.assertEqual([line for line in self.metrics() if "val_loss" in line], [])

    def test_last_validation_is_made_up_for(self):
        write_megatron(self.dir / "val", [[i % 61 for i in range(1000)] for _ in range(1000)])
        long = ["--steps", "3", "--set", "validate.tokens=1000000"]
        self.interrupt_validation(long, 3)
        self.train("run", long + ["--resume"])
        self.train("whole", long)
        self.assertEqual(self.metrics(), self.metrics("whole"))
        results = self.report()["results"]
        self.assertEqual((results["status"], results["steps"]), ("completed", 3))
        self.assertEqual(results["val_loss"], self.report("whole")["results"]["val_loss"])
        self.assertIn("finished", self.train("run", long + ["--resume"]).stderr)
        (self.dir / "run" / "report.json").unlink()  # as if killed before it was written
        self.train("run", long + ["--resume"])
        self.assertEqual(self.report()["results"]["val_loss"], results["val_loss"])
        self.assertEqual(self.metrics(), self.metrics("whole"))

    def test_validation_is_not_logged_twice(self):
        write_megatron(self.dir / "val", [[i % 61 for i in range(1000)] for _ in range(1000)])
        long = ["--steps", "6", "--set", "validate.tokens=1000000", "--set", "validate.every_steps=3", "--set", "checkpoint.every_steps=100"]
        self.interrupt_validation(long, 3)
        process = subprocess.Popen([tool("keel-train"), *map(str, self.arguments("run", long + ["--resume"]))], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        for _ in range(6000):
            if '"step":6,' in (self.dir / "run" / "metrics.jsonl").read_text():
                break
            time.sleep(0.01)
        process.kill()
        process.wait()
        self.train("run", long + ["--resume"])
        self.train("whole", long)
        self.assertEqual(self.metrics(), self.metrics("whole"))

    def test_needs_no_other_flag(self):
        self.train("run", ["--steps", "5"])
        self.check("keel-train", "--out", self.dir / "run", "--resume", "--steps", "12", "--progress", "none", "--threads", "1")
        self.train("whole")
        self.assertEqual(self.metrics(), self.metrics("whole"))

    def test_conflicts_name_both_values(self):
        self.train("run", ["--steps", "5"])
        result = self.train("run", ["--steps", "5", "--resume", "--set", "optimizer.learning_rate=0.5"], code=2)
        self.assertIn("0.01", result.stderr)
        self.assertIn("0.5", result.stderr)
        self.write_config(config(schedule__name="cosine"), "cosine.json")
        self.train("cosine", ["--steps", "5"], name="cosine.json")
        result = self.train("cosine", ["--steps", "9", "--resume"], code=2, name="cosine.json")
        self.assertRegex(result.stderr, r"5 steps.*9")
        result = self.train("cosine", ["--steps", "9", "--resume", "--override", "train.log_every=2"], code=2, name="cosine.json")
        self.assertRegex(result.stderr, r"5 steps.*9")
        self.train("cosine", ["--steps", "5", "--resume", "--override", "train.steps=9"], name="cosine.json")

    def test_override_applies_from_here_on_and_is_recorded(self):
        self.train("run", ["--steps", "5"])
        self.check("keel-train", "--out", self.dir / "run", "--resume", "--steps", "8", "--override", "optimizer.learning_rate=0.002", "--progress", "none")
        rates = [line["learning_rate"] for line in self.metrics() if "loss" in line]
        self.assertEqual(rates, [0.01] * 5 + [0.002] * 3)
        overrides = json.loads((self.dir / "run" / "run.json").read_text())["overrides"]
        self.assertEqual([(o["from_step"], o["key"], o["before"], o["after"]) for o in overrides], [(5, "train.steps", "5", "8"), (5, "optimizer.learning_rate", "0.01", "0.002")])
        results = self.report()["results"]
        self.assertEqual(results["overrides"], overrides)
        self.assertEqual([r["from_step"] for r in results["resumes"]], [5])

    def test_of_a_run_that_started_from_another_model(self):
        self.train("pre", ["--set", "model.residual_scheme=pre", "--set", "model.rms_norm_eps=1e-6", "--set", "model.tie_word_embeddings=true", "--steps", "2"])
        changes = config()
        del changes["model"]
        self.write_config(changes, "init.json")
        init = ["--init", self.dir / "pre"]
        self.train("whole", init, name="init.json")
        self.train("run", [*init, "--steps", "5"], name="init.json")
        model = json.loads((self.dir / "run" / "run.json").read_text())["config"]["model"]
        self.assertEqual((model["residual_scheme"], model["rms_norm_eps"], model["hidden_size"]), ("pre", 1e-6, 16))
        shutil.rmtree(self.dir / "pre")  # a run that goes on needs its checkpoint only
        self.train("run", ["--steps", "12", "--resume"], name="init.json")
        self.assertEqual(self.metrics(), self.metrics("whole"))

    def test_times_are_of_the_whole_run(self):
        self.train("run", ["--steps", "8"])
        first = self.report()["results"]
        self.train("run", ["--steps", "9", "--resume"])
        second = self.report()["results"]
        for name in ("train_seconds", "startup_seconds", "validate_seconds", "save_seconds"):
            self.assertGreater(second[name], first[name], name)

    def test_without_a_directory_starts_and_says_so(self):
        result = self.train("new", ["--resume"])
        self.assertIn("step 0", result.stderr)

    def test_damaged_newest_checkpoint_is_skipped(self):
        self.train("whole")
        self.train("run")
        damaged = self.dir / "run" / "checkpoints" / "step-00000012" / "model.safetensors"
        blob = bytearray(damaged.read_bytes())
        blob[-3] ^= 1
        damaged.write_bytes(blob)
        result = self.train("run", ["--resume"])
        self.assertIn("damaged", result.stderr)
        self.assertEqual(self.metrics(), self.metrics("whole"))
        self.assertEqual(self.weights("run", 12), self.weights("whole", 12))

    def test_changed_data_is_refused(self):
        self.train("run", ["--steps", "5"])
        write_megatron(self.dir / "data", [[1, 2, 3] * 40])
        self.train("run", ["--steps", "9", "--resume"], code=3)

    def test_changed_content_of_the_same_size_is_refused(self):
        write_megatron(self.dir / "data", [[i % 61 for i in range(900)]], [1] * 900)
        self.train("run", ["--steps", "5"])
        for name in ("data.bin", "val.bin", "data.mask"):
            with self.subTest(name=name):
                path = self.dir / name
                good = path.read_bytes()
                changed = bytearray(good)
                changed[400] ^= 1
                path.write_bytes(changed)
                self.assertIn(name, self.train("run", ["--steps", "9", "--resume"], code=3).stderr)
                path.write_bytes(good)
        write_megatron(self.dir / "data", [[i % 61 for i in range(400)], [i % 61 for i in range(400, 900)]], [1] * 900)
        self.assertIn("data.idx", self.train("run", ["--steps", "9", "--resume"], code=3).stderr)
        write_megatron(self.dir / "data", [[i % 61 for i in range(900)]], [1] * 900)
        self.train("run", ["--steps", "9", "--resume"])

    def test_data_that_moved_is_the_same_data(self):
        self.train("run", ["--steps", "5"])
        for end in (".bin", ".idx"):
            (self.dir / f"data{end}").rename(self.dir / f"moved{end}")
        run = json.loads((self.dir / "run" / "run.json").read_text())
        run["config"]["data"]["path"] = str(self.dir / "moved")
        (self.dir / "run" / "run.json").write_text(json.dumps(run))
        self.check("keel-train", "--out", self.dir / "run", "--resume", "--steps", "7", "--progress", "none")


class Misuse(TrainTest):
    def test_options_and_keys(self):
        cases = {
            ("--sets", "a=1"): "--set",
            ("--set", "train.stepz=3"): "train.steps",
            ("--set", "optimzer.learning_rate=3"): "optimizer",
            ("--set", "model.residual_scheme=kel"): "keel",
            ("--set", "schedule.name=cosin"): "cosine",
            ("--set", "train.steps=many"): "train.steps",
            ("--set", "train.steps=-1"): "train.steps",
            ("--set", "train.batch_sequences=0"): "train.batch_sequences",
            ("--set", "train.micro_batch_sequences=3"): "4 sequences",
            ("--threads", "two"): "--threads",
        }
        for extra, named in cases.items():
            with self.subTest(extra=extra):
                result = self.train(extra=list(extra), code=2)
                self.assertIn(named, result.stderr)
                self.assertFalse((self.dir / "run").exists())

    def test_config_files(self):
        cases = {
            '{"train": {"steps": 3,}}': 2,
            '{"train": {"steps": 3': 2,
            '{"train": {"stepz": 3}}': 2,
            '{"train": {"steps": 3, "steps": 4}}': 2,
            "": 2,
            "[]": 2,
        }
        for text, code in cases.items():
            with self.subTest(text=text):
                self.write_config(text, "bad.json")
                result = self.train(code=code, name="bad.json")
                self.assertRegex(result.stderr, r"bad\.json(:\d+:\d+)?")
        result = self.train(code=4, name="missing.json")
        self.assertIn("missing.json", result.stderr)

    def test_position_of_a_misspelt_key(self):
        self.write_config('{\n "train": {\n  "stepz": 3\n }\n}', "bad.json")
        self.assertRegex(self.train(code=2, name="bad.json").stderr, r"bad\.json:3:3.*did you mean 'train\.steps'|did you mean.*bad\.json:3:3|bad\.json:3:3.*steps")

    def test_data_files(self):
        idx, bin_ = self.dir / "data.idx", self.dir / "data.bin"
        good_idx, good_bin = idx.read_bytes(), bin_.read_bytes()
        self.train(extra=["--data", self.dir / "nothing"], code=4)
        bin_.write_bytes(good_bin[:-4])
        self.assertIn("data.bin", self.train(code=3).stderr)
        bin_.write_bytes(good_bin)
        idx.write_bytes(good_idx[:-5])
        self.assertIn("data.idx", self.train(code=3).stderr)
        idx.write_bytes(b"")
        self.train(code=3)
        idx.write_bytes(good_idx)
        write_megatron(self.dir / "empty", [])
        self.train(extra=["--data", self.dir / "empty"], code=3)
        self.assertFalse((self.dir / "run").exists())

    def test_token_ids_beyond_the_vocabulary(self):
        write_megatron(self.dir / "data", [[5] * 100, [4] * 100, [1, 2, 3, 4, 5, 61] + [1] * 200])
        result = self.train(code=3, extra=["--set", "data.shuffle=false", "--set", "train.batch_sequences=24", "--set", "train.micro_batch_sequences=24"])
        for part in ("data.bin", "61", "document 2", "position 5"):
            self.assertIn(part, result.stderr)
        self.assertFalse((self.dir / "run").exists())
        later = ["--steps", "20", "--set", "data.shuffle=false", "--set", "train.batch_sequences=1", "--set", "train.micro_batch_sequences=1"]
        self.train("later", later, code=3)  # found in the 13th step
        self.assertEqual(len(list((self.dir / "later" / "checkpoints").iterdir())), 3)

    def test_data_and_models_that_cannot_do_leave_nothing(self):
        write_megatron(self.dir / "short", [[1] * 16])
        (self.dir / "model").mkdir()
        self.train("first", ["--steps", "1"])
        shutil.copy(self.dir / "first" / "checkpoints" / "step-00000001" / "config.json", self.dir / "model")
        write_safetensors(self.dir / "model" / "model.safetensors", {"model.norm.weight": ([16], [1.0] * 16)})
        cases = [(["--data", self.dir / "short"], 3, "short.bin"), (["--init", self.dir / "model"], 3, "embed_tokens"),
                 (["--init", self.dir / "none"], 4, "none"), (["--report", self.dir / "none" / "r.json"], 4, "none"),
                 (["--report", self.dir], 4, str(self.dir))]
        for extra, code, named in cases:
            with self.subTest(extra=extra):
                self.assertIn(named, self.train(extra=extra, code=code).stderr)
                self.assertFalse((self.dir / "run").exists())
                if "model" not in str(extra):
                    self.train(extra=[*extra, "--plan"], code=code)

    def test_reports_replace_nothing_by_mistake(self):
        self.train("first", ["--steps", "1"])
        other = self.dir / "other.json"
        other.write_text("{}")
        own = [self.dir / "train.json", self.dir / "data.bin", self.dir / "val.idx", self.dir / "first" / "run.json", self.dir / "run" / "r.json"]
        before = [path.read_bytes() for path in own[:4]]
        for force in ([], ["--force"]):
            for report in [*own, *([] if force else [other])]:
                extra = ["--init", self.dir / "first", "--report", report, *force]
                self.train(extra=extra, code=2)
                self.train(extra=[*extra, "--plan"], code=2)
        self.assertEqual([path.read_bytes() for path in own[:4]], before)
        self.assertFalse((self.dir / "run").exists())
        self.train("first", ["--resume", "--report", other])  # a command that goes on writes its report again
        self.assertEqual(json.loads(other.read_text())["schema"], "keel.train/1")

    def test_names_that_json_cannot_hold(self):
        name = os.fsdecode(b"gr\xf6\xdfe")
        for option in ("--data", "--out", "--init"):
            self.assertIn("not UTF-8", self.train(extra=[option, self.dir / name], code=2).stderr)
        self.assertFalse((self.dir / "run").exists())

    def test_damaged_data_found_later_costs_no_step(self):
        write_megatron(self.dir / "val", [[61] * 100])
        result = self.train(code=3)
        self.assertIn("val.bin", result.stderr)
        self.assertEqual(sorted(p.name for p in (self.dir / "run" / "checkpoints").iterdir()), ["step-00000004", "step-00000005"])

    def test_existing_output(self):
        self.train()
        before = (self.dir / "run" / "metrics.jsonl").read_bytes()
        result = self.train(code=2)
        self.assertIn("--resume", result.stderr)
        self.assertEqual((self.dir / "run" / "metrics.jsonl").read_bytes(), before)
        self.train(extra=["--force", "--steps", "3"])
        self.assertEqual(len([line for line in self.metrics() if "loss" in line]), 3)

    def test_two_processes_in_one_run(self):
        long = ["--steps", "100000"]
        first = subprocess.Popen([tool("keel-train"), *map(str, self.arguments("run", long))], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            for _ in range(200):
                if (self.dir / "run" / "metrics.jsonl").exists():
                    break
                time.sleep(0.05)
            result = self.train(extra=long + ["--resume"], code=4)
            self.assertIn("in use", result.stderr)
        finally:
            first.terminate()
            self.assertEqual(first.wait(60), 143)

    def test_full_disk_keeps_the_earlier_checkpoint(self):
        wide = ["--set", "model.hidden_size=64", "--set", "model.intermediate_size=128", "--set", "checkpoint.every_steps=2", "--steps", "2"]
        self.train(extra=wide)
        kept = self.weights("run", 2)
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        wide[-1] = "4"
        result = self.train(extra=wide + ["--resume"], code=4, preexec_fn=limit)
        self.assertIn("step-00000004", result.stderr)
        end = read_lines(self.dir / "run" / "events.jsonl")[-1]
        self.assertEqual((end["event"], end["status"], end["step"]), ("end", "failed", 4))
        self.assertIn("step-00000004", end["error"])
        self.assertEqual(self.weights("run", 2), kept)
        self.assertEqual(sorted(p.name for p in (self.dir / "run" / "checkpoints").iterdir()), ["step-00000002"])
        self.train(extra=wide + ["--resume"])
        self.assertEqual(len([line for line in self.metrics() if "loss" in line]), 4)

    def test_closed_and_full_stdout(self):
        read_end, write_end = os.pipe()
        os.close(read_end)
        process = subprocess.run([tool("keel-train"), "--help"], stdout=write_end, stderr=subprocess.PIPE, text=True)
        os.close(write_end)
        self.assertEqual(process.returncode, 141)
        with open("/dev/full", "w") as full:
            process = subprocess.run([tool("keel-train"), "--help"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(process.returncode, 4, process.stderr)

    def test_device_that_is_not_built_in(self):
        self.assertIn("cuda", self.train(extra=["--device", "cuda"], code=6).stderr)

    def test_sigterm_exits_with_143_after_saving(self):
        process = subprocess.Popen([tool("keel-train"), *map(str, self.arguments("run", ["--steps", "100000"]))], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        for _ in range(200):
            if (self.dir / "run" / "metrics.jsonl").exists() and read_lines(self.dir / "run" / "metrics.jsonl"):
                break
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        stderr = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 143, stderr)
        results = self.report()["results"]
        self.assertEqual((results["status"], results["stopped_by"]), ("interrupted", "SIGTERM"))
        self.assertTrue((self.dir / "run" / "checkpoints" / f"step-{results['steps']:08d}").is_dir())


class Masks(TrainTest):
    def masked(self, name, tokens, mask):
        write_megatron(self.dir / name, [tokens], mask)
        return ["--data", self.dir / name]

    def test_batch_without_a_counting_target_updates_nothing(self):
        tokens = [i % 61 for i in range(16 * 16 + 1)]
        data = [*self.masked("some", tokens, [0] * 200 + [1] * 57), "--set", "data.shuffle=false"]
        result = self.train(extra=[*data, "--steps", "2", "--progress", "plain"])
        self.assertIn("no target token counts", result.stderr)
        self.assertNotIn("nan", result.stderr + result.stdout)
        lines = [line for line in self.metrics() if "loss" in line]
        self.assertEqual([(line["loss"], line["grad_norm"]) for line in lines], [(None, None)] * 2)
        self.assertNotIn("loss_non_finite", lines[0])
        self.assertIsNone(self.report()["results"]["final_loss"])
        first = read_safetensors(self.dir / "run" / "checkpoints" / "step-00000002" / "model.safetensors")
        self.train("start", ["--steps", "1", "--set", "optimizer.learning_rate=0"])
        self.assertEqual(first, read_safetensors(self.dir / "start" / "checkpoints" / "step-00000001" / "model.safetensors"))
        self.train("all", [*data, "--steps", "4"])
        self.assertTrue(all(line["loss"] for line in self.metrics("all")[3:] if "loss" in line))

    def test_data_without_a_counting_target(self):
        data = self.masked("none", [i % 61 for i in range(161)], [1] + [0] * 160)
        for extra in ([], ["--plan"]):
            result = self.train(extra=[*data, *extra], code=3)
            self.assertRegex(result.stderr, r"no target of the training data counts.*none\.bin")
        self.assertFalse((self.dir / "run").exists())

    def test_validation_data_without_a_counting_target(self):
        self.masked("noval", [i % 61 for i in range(161)], [0] * 161)
        result = self.train(extra=["--val-data", self.dir / "noval"], code=3)
        self.assertIn("no target of the validation data counts", result.stderr)
        self.assertFalse((self.dir / "run").exists())


class Overrides(TrainTest):
    def test_of_what_is_logged_leave_the_past_alone(self):
        self.train("run", ["--steps", "6"])
        self.check("keel-train", "--out", self.dir / "run", "--resume", "--steps", "9", "--override", "train.log_every=4", "--progress", "none")
        self.assertEqual([line["step"] for line in self.metrics() if "loss" in line], [1, 2, 3, 4, 5, 6, 8, 9])

    def test_same_command_goes_on_after_an_override(self):
        self.train("run", ["--steps", "4"])
        self.check("keel-train", "--out", self.dir / "run", "--resume", "--steps", "6", "--override", "optimizer.learning_rate=0.002", "--progress", "none")
        self.train("run", ["--steps", "8", "--resume"])
        self.assertEqual([line["learning_rate"] for line in self.metrics() if "loss" in line], [0.01] * 4 + [0.002] * 4)

    def test_lines_that_earlier_settings_logged_stay(self):
        self.train("run", ["--steps", "7"])
        self.check("keel-train", "--out", self.dir / "run", "--resume", "--steps", "11", "--override", "train.log_every=4",
                   "--override", "validate.every_steps=null", "--progress", "none")
        self.train("run", ["--steps", "13", "--resume"])
        self.assertEqual([line["step"] for line in self.metrics() if "loss" in line], [1, 2, 3, 4, 5, 6, 7, 8, 12, 13])
        self.assertEqual([line["step"] for line in self.metrics() if "val_loss" in line], [5, 13])

    def test_lengths_are_recorded_and_the_same_command_goes_on(self):
        self.write_config(config(train__steps=5))
        self.train("run")
        self.train("run", ["--steps", "9", "--resume"])
        overrides = json.loads((self.dir / "run" / "run.json").read_text())["overrides"]
        self.assertEqual(overrides, [{"from_step": 5, "key": "train.steps", "before": "5", "after": "9"}])
        self.assertIn("step 9 of 9", self.train("run", ["--resume"]).stderr)  # the file still says 5
        result = self.train("run", ["--resume", "--steps", "4"], code=2)
        self.assertRegex(result.stderr, r"9 steps are done.* 4 \(--steps\)")

    def test_of_a_finished_run_say_what_would_help(self):
        self.train()
        before = (self.dir / "run" / "run.json").read_bytes()
        result = self.train(extra=["--resume", "--override", "optimizer.learning_rate=0.5", "--report", self.dir / "again.json"])
        self.assertRegex(result.stderr, r"optimizer\.learning_rate stays 0\.01.*raise train\.steps")
        self.assertEqual((self.dir / "run" / "run.json").read_bytes(), before)
        self.assertEqual(json.loads((self.dir / "again.json").read_text()), self.report())
        self.assertEqual(json.loads(self.train(extra=["--resume", "--report", "-"]).stdout), self.report())

    def test_errors_name_the_option(self):
        self.train("run", ["--steps", "2"])
        for assignment, named in (("optimizer.learning_rat=1", "learning_rate"), ("optimizer.learning_rate=x", "x"), ("train.steps", "KEY=VALUE"),
                                  ("model.hidden_size=32", "can't change"), ("optimizer.eps=1e-320", "32-bit")):
            with self.subTest(assignment=assignment):
                error = self.train("run", ["--steps", "4", "--resume", "--override", assignment], code=2).stderr
                self.assertIn("--override", error)
                self.assertNotIn("--set", error)
                self.assertIn(named, error)

    def test_memory_limit_decides_an_automatic_micro_batch_again(self):
        self.write_config(config(train__micro_batch_sequences="auto", train__batch_sequences=64, data__sequence_length=16))
        self.train("run", ["--steps", "2"])
        resolved = lambda: json.loads((self.dir / "run" / "run.json").read_text())["resolved"]["micro_batch_sequences"]
        self.assertEqual(resolved(), 64)
        limit = ["--steps", "4", "--resume", "--override", "train.memory_limit=68MB"]
        result = self.train("run", limit)
        smaller = resolved()
        self.assertLess(smaller, 64)
        self.assertIn(f"changes from 64 to {smaller} sequences", result.stderr)
        result = self.train("run", ["--steps", "6", "--resume"])
        self.assertNotIn("micro-batch", result.stderr)
        self.assertEqual(resolved(), smaller)

    def test_run_json_of_another_kind(self):
        self.train("run", ["--steps", "4"])
        path = self.dir / "run" / "run.json"
        good = path.read_text()
        for key, value in (("schema", 5), ("overrides", {}), ("resolved", []), ("resolved", {"steps": 4}), ("data", "x"), ("data", ["x"]), ("created", 1)):
            with self.subTest(key=key):
                path.write_text(json.dumps({**json.loads(good), key: value}))
                self.train("run", ["--steps", "4", "--resume"], code=3)
        path.write_text(good)
