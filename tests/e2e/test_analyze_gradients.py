"""keel-analyze gradients: at initialisation, of runs, checkpoints and model folders, and what it refuses."""
import json
import math
import signal
import subprocess
import time

from keel_files import write_megatron
from keel_tools import tool
from test_command_line import on_terminal
from test_train import TrainTest, config


class Gradients(TrainTest):
    def gradients(self, *arguments, code=0):
        result = self.check("keel-analyze", "gradients", *arguments, "--threads", "1", "--progress", "none", code=code)
        return result if code else json.loads(result.stdout)["results"]

    def initial(self, *extra):
        return self.gradients("--config", self.dir / "train.json", "--data", self.dir / "data", *extra)

    def numbers(self, results):
        """Everything computed, without what says how."""
        return {k: v for k, v in results.items() if k not in ("seconds", "micro_batch_sequences", "weights")}

    def assert_close(self, a, b, tolerance, where=""):
        if isinstance(a, dict):
            self.assertEqual(a.keys(), b.keys())
            for key in a:
                self.assert_close(a[key], b[key], tolerance, f"{where}/{key}")
        elif isinstance(a, list):
            self.assertEqual(len(a), len(b))
            for i, (x, y) in enumerate(zip(a, b)):
                self.assert_close(x, y, tolerance, f"{where}/{i}")
        elif isinstance(a, float):
            self.assertLessEqual(abs(a - b), tolerance * max(abs(a), 0.01), where)
        else:
            self.assertEqual(a, b, where)

    def test_what_a_report_holds(self):
        results = self.initial()
        self.assertEqual((results["weights"], results["scheme"], results["blocks"], results["step"]), ("initial", "keel", 2, 0))
        self.assertEqual((results["sequences"], results["tokens"], len(results["sublayers"])), (4, 64, 4))
        attention, mlp = results["sublayers"][2:]
        self.assertEqual(set(attention["weight_gradient_norm"]), {"q_proj", "k_proj", "v_proj", "o_proj", "input_layernorm", "outer_attention_layernorm"})
        self.assertEqual(set(mlp["weight_gradient_norm"]), {"gate_proj", "up_proj", "down_proj", "post_attention_layernorm", "outer_feedforward_layernorm"})
        self.assertEqual(set(results["weight_gradient_norm"]), {"embedding", "head"})
        squares = [v * v for part in [results, *results["sublayers"]] for v in part["weight_gradient_norm"].values()]
        self.assertAlmostEqual(math.sqrt(math.fsum(squares)), results["grad_norm"], delta=1e-9)
        logs = math.fsum(math.log(s["skip_gain"]) for s in results["sublayers"])
        self.assertAlmostEqual(logs, results["log_skip_product"], delta=1e-12)
        self.assertAlmostEqual(math.exp(logs), results["skip_product"], delta=1e-9)

    def test_as_the_first_step_of_training(self):
        for scheme in ("keel", "admin", "pre"):
            self.train(scheme, ["--set", f"model.residual_scheme={scheme}", "--steps", "2"])
            results = self.initial("--set", f"model.residual_scheme={scheme}")
            line = self.metrics(scheme)[0]
            self.assertEqual((results["loss"], results["grad_norm"]), (line["loss"], line["grad_norm"]))

    def test_as_the_next_step_of_a_run(self):
        self.train()
        lines = self.metrics()
        for step in (4, 8):
            results = self.gradients(self.dir / "run" / "checkpoints" / f"step-{step:08d}")
            line = next(line for line in lines if line["step"] == step + 1 and "loss" in line)
            self.assertEqual((results["weights"], results["step"]), ("checkpoint", step))
            self.assertEqual((results["loss"], results["grad_norm"]), (line["loss"], line["grad_norm"]))
        newest = self.gradients(self.dir / "run")
        self.assertEqual(newest["step"], 12)
        self.assertNotEqual(newest["loss"], self.gradients(self.dir / "run", "--step", "13")["loss"])

    def test_needs_model_data_and_batch_only(self):
        c = config()
        needed = {"model": c["model"], "data": c["data"], "train": {"batch_sequences": 4, "seed": 3, "micro_batch_sequences": 2}}
        self.write_config(needed, "needed.json")
        self.assertEqual(self.numbers(self.initial()), self.numbers(self.gradients("--config", self.dir / "needed.json", "--data", self.dir / "data")))
        plenty = config(train__tokens=5000, validate__sample={"prompts": ["x"]}, data__val_path="/nowhere", schedule__warmup_steps=99)
        del plenty["train"]["steps"]
        self.write_config(plenty)
        self.assertEqual(self.numbers(self.initial()), self.numbers(self.gradients("--config", self.dir / "needed.json", "--data", self.dir / "data")))

    def test_recomputation_and_micro_batches(self):
        for scheme in ("keel", "sandwich"):
            chosen = ["--set", f"model.residual_scheme={scheme}"]
            whole = self.numbers(self.initial(*chosen))
            for mode in ("branch", "block", "every:2"):
                self.assertEqual(self.numbers(self.initial(*chosen, "--set", f"train.recompute={mode}")), whole, mode)
            for micro in (1, 4):
                self.assert_close(self.numbers(self.initial(*chosen, "--set", f"train.micro_batch_sequences={micro}")), whole, 2e-6)

    def test_size_of_the_batch(self):
        self.assertEqual(self.initial("--sequences", "3")["sequences"], 3)
        self.assertEqual(self.initial("--sequences", "8")["micro_batch_sequences"], 2)
        first = self.initial("--sequences", "4", "--step", "0", "--set", "data.shuffle=false")
        second = self.initial("--sequences", "4", "--step", "1", "--set", "data.shuffle=false")
        both = self.initial("--sequences", "8", "--set", "data.shuffle=false")
        self.assertAlmostEqual((first["loss"] + second["loss"]) / 2, both["loss"], delta=1e-6)

    def test_a_model_folder(self):
        self.train(extra=["--set", "model.residual_scheme=pre"])
        self.check("keel-convert", self.dir / "run", self.dir / "hf", "--to", "hf")
        options = ["--data", self.dir / "data", "--sequence-length", "16", "--sequences", "4", "--step", "12", "--seed", "3", "--set", "train.micro_batch_sequences=2"]
        self.assertEqual(self.numbers(self.gradients(self.dir / "hf", *options)), self.numbers(self.gradients(self.dir / "run")))
        self.assertEqual(self.gradients(self.dir / "hf", *options[:-4], "--step", "3")["step"], 3)

    def test_table_and_files(self):
        arguments = ["gradients", "--config", self.dir / "train.json", "--data", self.dir / "data", "--progress", "none"]
        code, table = on_terminal(80, "keel-analyze", *arguments)
        self.assertEqual(code, 0)
        self.assertEqual(len(table.splitlines()), 8)
        deep = [*arguments, "--set", "model.num_hidden_layers=80"]
        code, table = on_terminal(80, "keel-analyze", *deep)
        lines = table.splitlines()
        self.assertEqual(lines[-1], "32 of 160 sublayers are shown; the report (--out, --report, --json) has all")
        self.assertLessEqual(max(map(len, lines[1:])), 80)
        rows = [int(line.split()[0]) for line in lines[2:34]]
        self.assertEqual(rows, sorted(set(rows)))
        self.assertEqual((rows[:2], rows[-2:]), ([0, 1], [158, 159]))
        out = self.dir / "gradients.json"
        printed = self.check("keel-analyze", *deep, "--out", out).stdout
        self.assertIn("|dL/dx|", printed)
        self.assertEqual(len(json.loads(out.read_text())["results"]["sublayers"]), 160)
        self.check("keel-analyze", *deep, "--out", out, code=2)
        self.check("keel-analyze", *deep, "--out", out, "--resume")
        for kept in ("train.json", "data.bin"):
            self.check("keel-analyze", *deep, "--out", self.dir / kept, "--force", code=2)

    def test_misuse(self):
        data = ["--data", self.dir / "data"]
        for arguments, code, named in (
                ([], 2, "CHECKPOINT or --config must be given"), (["--config", self.dir / "train.json"], 2, "--data must be given"),
                (["--config", self.dir / "train.json", "--data", self.dir / "none"], 4, "none"), ([self.dir / "none", *data], 4, "none"),
                ([self.dir, *data, "--sequences", "1", "--sequence-length", "16"], 3, "neither a model folder"),
                (["--config", self.dir / "train.json", *data, "--step", "-1"], 2, "--step"),
                (["--config", self.dir / "train.json", *data, "--step", "9000000000000000"], 2, "the last that can be counted"),
                (["--config", self.dir / "train.json", *data, "--sequences", "0"], 2, "--sequences"),
                (["--config", self.dir / "train.json", *data, "--set", "model.residual_scheme=kel"], 2, "did you mean 'keel'"),
                (["--config", self.dir / "train.json", *data, "--set", "train.memory_limit=1MB"], 6, "may use 1.00 MB"),
                (["--config", self.dir / "train.json", *data, "--device", "cuda"], 6, "cuda")):
            self.assertIn(named, self.gradients(*arguments, code=code).stderr)

    def test_masked_batches_and_damaged_weights(self):
        write_megatron(self.dir / "masked", [[i % 61 for i in range(400)]], [0] * 300 + [1] * 100)
        arguments = ["--config", self.dir / "train.json", "--data", self.dir / "masked", "--set", "data.shuffle=false"]
        self.assertIn("no target of step 1's batch counts", self.gradients(*arguments, "--step", "1", code=3).stderr)
        self.train()
        weights = self.dir / "run" / "checkpoints" / "step-00000012" / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-8])
        self.assertIn("step-00000012", self.gradients(weights.parent, code=3).stderr)

    def test_not_finite(self):
        self.train()
        copy = self.dir / "copy"
        self.check("keel-convert", self.dir / "run", copy, "--to", "keel")
        path = copy / "model.safetensors"
        blob = bytearray(path.read_bytes())
        blob[-4:] = b"\x00\x00\xc0\x7f"
        path.write_bytes(blob)
        out = self.dir / "nan.json"
        arguments = [copy, "--data", self.dir / "data", "--sequence-length", "16", "--sequences", "2", "--out", out]
        self.gradients(*arguments, code=5)
        results = json.loads(out.read_text())["results"]
        self.assertEqual((results["loss"], results["loss_non_finite"]), (None, "nan"))

    def test_a_signal_stops_it(self):
        command = [tool("keel-analyze"), "gradients", "--config", str(self.dir / "train.json"), "--data", str(self.dir / "data"), "--set",
                   "model.num_hidden_layers=1000", "--sequences", "4000", "--set", "train.micro_batch_sequences=40", "--out", str(self.dir / "out.json"), "--progress", "plain"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.assertIn("gradients", process.stderr.readline())
        time.sleep(0.3)
        start = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 143)
        self.assertLess(time.monotonic() - start, 5)
        self.assertFalse((self.dir / "out.json").exists())
