"""The tools on a GPU, which the emulated device stands for: the same numbers as on the CPU, runs that go on there and back."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import unittest

from keel_files import read_lines, read_safetensors, write_megatron, write_safetensors
from keel_tools import run, tool
from test_train import TrainTest


def doctor():
    return json.loads(run("keel-train", "--doctor", "--json").stdout)


@unittest.skipUnless(doctor()["cuda_emulated"] == "built in", "this build has no emulated device")
class Emulated(TrainTest):
    DEVICE = ["--device", "cuda-emulated"]

    def emulated(self, out="device", extra=(), code=0, **emulation):
        environment = {**os.environ, **{f"KEEL_EMULATION_{name.upper()}": value for name, value in emulation.items()}}
        return self.train(out, [*self.DEVICE, *extra], code=code, env=environment)

    def losses(self, out):
        return [line["loss"] for line in self.metrics(out) if "loss" in line]

    def assert_close(self, found, expected, tolerance):
        self.assertEqual(len(found), len(expected))
        for a, b in zip(found, expected):
            self.assertLess(abs(a - b), tolerance * abs(b))

    def test_training_follows_the_cpu(self):
        for scheme in ("keel", "pre", "post", "olmo2", "admin", "layerscale"):
            with self.subTest(scheme=scheme):
                extra = ["--set", f"model.residual_scheme={scheme}"]
                self.train(f"{scheme}-cpu", extra)
                self.emulated(f"{scheme}-device", extra)
                self.assert_close(self.losses(f"{scheme}-device"), self.losses(f"{scheme}-cpu"), 2e-5)
                for line, expected in zip(self.metrics(f"{scheme}-device"), self.metrics(f"{scheme}-cpu")):
                    self.assertEqual(line["step"], expected["step"])
                    if "val_loss" in line:
                        self.assertLess(abs(line["val_loss"] - expected["val_loss"]), 2e-5 * expected["val_loss"])

    def test_recomputation_and_bf16_activations(self):
        self.emulated("kept")
        for mode in ("branch", "block", "every:2"):
            self.emulated(mode, ["--set", f"train.recompute={mode}"])
            self.assertEqual(self.metrics(mode), self.metrics("kept"))
        self.emulated("rounded", ["--set", "train.activations=bf16"])
        self.train("rounded-cpu", ["--set", "train.activations=bf16"])
        self.assert_close(self.losses("rounded"), self.losses("rounded-cpu"), 1e-4)

    def test_the_same_bits_whatever_the_order(self):
        """Of threads and blocks, with work that runs as late as it may, and no look of the host into the device's memory."""
        self.emulated("plain", ["--steps", "6"])
        for name, emulation in (("reverse", {"order": "reverse"}), ("random", {"order": "random", "seed": "5"}),
                                ("lazy", {"streams": "lazy"}), ("guarded", {"guard": "1"})):
            with self.subTest(name):
                self.emulated(name, ["--steps", "6"], **emulation)
                self.assertEqual(self.metrics(name), self.metrics("plain"))
                self.assertEqual(self.weights(name, 6), self.weights("plain", 6))

    def test_a_run_goes_on_with_the_same_bits(self):
        self.emulated("whole")
        self.emulated("run", ["--steps", "5"])
        self.emulated("run", ["--steps", "12", "--resume"])
        self.assertEqual(self.weights("run", 12), self.weights("whole", 12))
        self.assertEqual(self.losses("run"), self.losses("whole"))

    def test_training_in_bf16(self):
        """Losses near those in fp32 (how near a step must be is for golden_test); the same bits in any order, with recomputation, and of a run that goes on."""
        bf16 = ["--set", "train.precision=bf16"]
        for scheme in ("keel", "pre", "post", "olmo2", "admin", "deepnorm", "lns"):
            with self.subTest(scheme=scheme):
                extra = ["--set", f"model.residual_scheme={scheme}"]
                self.emulated(f"{scheme}-fp32", extra)
                self.emulated(f"{scheme}-bf16", [*extra, *bf16])
                self.assert_close(self.losses(f"{scheme}-bf16"), self.losses(f"{scheme}-fp32"), 2**-6)
                self.assertNotEqual(self.losses(f"{scheme}-bf16"), self.losses(f"{scheme}-fp32"))
        for name, emulation in (("reverse", {"order": "reverse"}), ("lazy", {"streams": "lazy"}), ("guarded", {"guard": "1"})):
            with self.subTest(name):
                self.emulated(name, bf16, **emulation)
                self.assertEqual(self.metrics(name), self.metrics("keel-bf16"))
        self.emulated("again", [*bf16, "--set", "train.recompute=branch"])
        self.assertEqual(self.metrics("again"), self.metrics("keel-bf16"))
        self.emulated("run", ["--steps", "5", *bf16])
        self.emulated("run", ["--steps", "12", "--resume"])
        self.assertEqual(self.weights("run", 12), self.weights("keel-bf16", 12))

    def test_bf16_is_for_gpus(self):
        said = self.train("cpu", ["--set", "train.precision=bf16", "--device", "cpu"], code=2).stderr
        self.assertIn("train.precision bf16 is for GPUs", said)
        self.emulated("there", ["--steps", "5", "--set", "train.precision=bf16"])
        self.train("there", ["--steps", "12", "--resume", "--device", "cpu"], code=2)
        self.assertIn("--set train.precision=fp32", self.check("keel-analyze", "gradients", self.dir / "there", "--device", "cpu", code=2).stderr)
        self.check("keel-analyze", "gradients", self.dir / "there", "--device", "cpu", "--set", "train.precision=fp32")
        self.train("there", ["--steps", "12", "--resume", "--device", "cpu", "--override", "train.precision=fp32"])
        report = json.loads((self.dir / "there/report.json").read_text())["results"]
        self.assertEqual((report["device"], [resume["device"] for resume in report["resumes"]]), ("cpu", ["cpu"]))

    def test_a_run_moves_between_cpu_and_device(self):
        self.train("cpu")
        self.emulated("there", ["--steps", "5"])
        self.train("there", ["--steps", "12", "--resume", "--device", "cpu"])
        self.train("back", ["--steps", "5", "--device", "cpu"])
        self.emulated("back", ["--steps", "12", "--resume"])
        for name in ("there", "back"):
            self.assert_close(self.losses(name), self.losses("cpu"), 2e-5)

    def events(self, out):
        """events.jsonl without times and paths."""
        kept = ("event", "step", "status", "signal", "error")
        lines = read_lines(self.dir / out / "events.jsonl")
        return [{k: str(v).replace(str(self.dir / out), "") for k, v in line.items() if k in kept} for line in lines]

    def assert_ends_alike(self, extra, code):
        """The run on the device ends as that on the CPU: its lines, events, messages and checkpoints. Returns its steps."""
        said = []
        for out, train in (("cpu", self.train), ("device", self.emulated)):
            result = train(out, extra, code=code)
            said.append(re.sub(rf"{self.dir}/{out}|[0-9.]+ (s|MB|kB)\b|computes in fp32 on .*", "", result.stderr))
        self.assertEqual(said[1], said[0])
        self.assertEqual(self.events("device"), self.events("cpu"))
        found, expected = self.metrics("device"), self.metrics("cpu")
        self.assertEqual([line["step"] for line in found], [line["step"] for line in expected])
        self.assertEqual([line.keys() for line in found], [line.keys() for line in expected])
        kept = [sorted(p.name for p in (self.dir / out / "checkpoints").iterdir()) for out in ("device", "cpu")]
        self.assertEqual(kept[0], kept[1])
        return int(kept[0][-1][-8:])

    def assert_is_whole_at(self, out, step, extra=()):
        """The run's last checkpoint and its lines are those of a run of so many steps that nothing disturbed."""
        self.emulated("whole", [*extra, "--steps", step])
        self.assertTrue(self.weights(out, step) == self.weights("whole", step), out)  # no difference of bytes is shown
        self.assertEqual([line for line in self.metrics(out) if "loss" in line and line["step"] <= step],
                         [line for line in self.metrics("whole") if "loss" in line])

    def test_a_run_that_diverges(self):
        """The next step is begun on the device before the host sees that this one is not finite."""
        write_megatron(self.dir / "data", [[(7 * i) % 60 for i in range(900)]])
        wild = ["--set", "optimizer.learning_rate=1e30", "--set", "optimizer.classes.norm.learning_rate=0"]
        self.assert_ends_alike(["--set", "data.shuffle=false", *wild, "--set", "checkpoint.every_steps=1"], 5)

    def test_a_batch_that_weights_cannot_take(self):
        """Infinite where one token is met, which the fourth step sees first: what comes behind it updates nothing."""
        write_megatron(self.dir / "data", [[(7 * i) % 60 for i in range(200)] + [60] + [(7 * i) % 60 for i in range(900)]])
        write_megatron(self.dir / "val", [[(7 * i) % 60 for i in range(200)]])
        extra = ["--set", "data.shuffle=false", "--set", "checkpoint.every_steps=100", "--set", "optimizer.weight_decay=0"]
        self.train("first", [*extra, "--steps", "1"])
        checkpoint, init = self.dir / "first" / "checkpoints" / "step-00000001", self.dir / "init"
        init.mkdir()
        shutil.copy(checkpoint / "config.json", init)
        tensors = read_safetensors(checkpoint / "model.safetensors")
        shape, values = tensors["model.embed_tokens.weight"]
        values = list(values)
        values[60 * 16:61 * 16] = [3e38] * 16
        write_safetensors(init / "model.safetensors", {**tensors, "model.embed_tokens.weight": (shape, values)})
        extra += ["--init", init]
        self.assertEqual(self.assert_ends_alike(extra, 5), 3)
        self.assert_is_whole_at("device", 3, extra)

    def test_data_that_turns_out_damaged(self):
        """The seventh step cannot be read: what is begun ahead of its turn fails in its turn."""
        write_megatron(self.dir / "data", [[(7 * i) % 61 for i in range(400)] + [61] + [(7 * i) % 61 for i in range(900)]])
        self.assertEqual(self.assert_ends_alike(["--set", "data.shuffle=false", "--set", "validate.every_steps=100"], 3), 6)

    def test_interrupted_by_a_signal(self):
        self.emulated("uninterrupted", ["--steps", "30"])
        for lines, delay, graph in ((3, 0, "1"), (9, 0.004, "0")):  # within a pass, where it is no graph
            out = f"stopped{lines}"
            process = subprocess.Popen([tool("keel-train"), *map(str, self.arguments(out, [*self.DEVICE, "--steps", "30"]))],
                                       stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                       env={**os.environ, "KEEL_CUDA_GRAPH": graph})
            metrics = self.dir / out / "metrics.jsonl"
            while process.poll() is None and (not metrics.exists() or len(read_lines(metrics)) < lines):
                time.sleep(0.001)
            time.sleep(delay)
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(60), 130)
            step = self.report(out)["results"]["steps"]
            self.assertTrue(lines - 2 <= step < 30, step)
            self.assert_is_whole_at(out, step)
            self.emulated(out, ["--steps", "30", "--resume"])
            self.assertEqual(self.metrics(out), self.metrics("uninterrupted"))
            self.assertTrue(self.weights(out, 30) == self.weights("uninterrupted", 30))
            shutil.rmtree(self.dir / "whole")

    def test_limits_of_time(self):
        self.emulated("limited", ["--steps", "100000", "--set", "train.time_limit=1"], code=7)
        self.assert_is_whole_at("limited", self.report("limited")["results"]["steps"])
        self.emulated("saved", ["--set", "checkpoint.every_minutes=0.0003", "--set", "checkpoint.every_steps=1000"])
        self.assertGreater(len([event for event in self.events("saved") if event["event"] == "save"]), 1)
        self.emulated("plain")
        self.assertEqual(self.metrics("saved"), self.metrics("plain"))
        self.assertTrue(self.weights("saved", 12) == self.weights("plain", 12))

    def test_profiles_and_gradients(self):
        for out, train in (("cpu", self.train), ("device", self.emulated)):
            train(out, ["--set", "train.profile_every=6"])
        found, expected = (read_lines(self.dir / out / "profile.jsonl") for out in ("device", "cpu"))
        self.assertEqual(len(found), len(expected))
        for a, b in zip(found, expected):
            for key in ("stream_rms", "stream_gradient_norm", "branch_rms"):
                self.assert_close(a[key], b[key], 1e-4)

    def profile(self, *extra, **emulation):
        """Results of --profile."""
        arguments = [a for a in self.arguments() if a not in ("--out", self.dir / "run")]
        environment = {**os.environ, **{f"KEEL_EMULATION_{name.upper()}": value for name, value in emulation.items()}}
        self.check("keel-train", *arguments, "--profile", "--profile-steps", "1", "--report", self.dir / "profile.json", "--force", *extra,
                   env=environment)
        return json.loads((self.dir / "profile.json").read_text())["results"]

    def test_profile_of_a_step(self):
        """Operations have the same to do as on the CPU, whatever runs them, and their times add up."""
        on_cpu, lazy = self.profile(), self.profile(*self.DEVICE, streams="lazy")
        for results in (self.profile(*self.DEVICE), lazy):
            work = [{o["name"]: (o["calls"], o["flops"], o["bytes"]) for o in r["operations"]} for r in (results, on_cpu)]
            self.assertEqual(*work)
            self.assertEqual((results["device"], results["instruction_set"]), ("CUDA on CPU (emulated)", None))
            for operation in results["operations"]:
                self.assertGreater(operation["seconds"], 0, operation["name"])
            self.assertGreater(results["overhead_seconds"], 0)
            self.assertAlmostEqual(sum(o["share"] for o in results["operations"]) + results["overhead_share"], 1, places=9)
            self.assertGreater(results["gpu_bytes"], 32 << 20)

    def test_the_plan_says_what_operations_keep(self):
        arguments = [a for a in self.arguments() if a not in ("--out", self.dir / "run")]
        result = self.check("keel-train", *arguments, *self.DEVICE, "--plan", "--report", self.dir / "plan.json")
        memory = json.loads((self.dir / "plan.json").read_text())["results"]["memory"]
        self.assertGreater(memory["operations_bytes"], 32 << 20)  # the workspace of products and more
        self.assertEqual(memory.pop("total_bytes"), sum(memory.values()))
        self.assertRegex(result.stdout, r"operations +3\d\.\d MB")

    def test_the_doctor_tries_the_device(self):
        found = json.loads(self.check("keel-train", "--doctor", "--json", *self.DEVICE).stdout)
        self.assertEqual(found["device"], "cuda-emulated")
        trial = found["device_trial"]
        self.assertEqual((trial["works"], trial["name"], trial["compute_capability"]), (True, "CUDA on CPU (emulated)", "9.0"))
        self.assertTrue(0 < trial["free_bytes"] <= trial["memory_bytes"])
        text = self.check("keel-train", "--doctor", *self.DEVICE).stdout
        self.assertRegex(text, r"(?m)^tried it +CUDA on CPU \(emulated\), compute capability 9\.0, .* free: it works$")
        small = {**os.environ, "KEEL_EMULATION_MEMORY": "4096"}
        text = self.check("keel-train", "--doctor", *self.DEVICE, env=small, code=6).stdout
        self.assertRegex(text, r"(?m)^tried it +.*: does not work: the GPU has no ")

    def test_what_does_not_fit(self):
        result = self.emulated("small", code=6, memory="1000000")
        self.assertIn("fit", result.stderr)
        self.assertFalse((self.dir / "small").exists())


    def test_a_plan_promises_no_speed(self):
        plan = self.emulated("plan", ["--plan", "--report", self.dir / "plan.json"]).stdout
        self.assertRegex(plan, r"\ndevice      CUDA on CPU \(emulated\): the CPU stands for a GPU, for tests\n")
        self.assertRegex(plan, r"\ntime        unknown: ")
        self.assertNotIn("tokens/s", plan)
        self.assertLessEqual(max(map(len, plan.splitlines())), 80, plan)
        results = json.loads((self.dir / "plan.json").read_text())["results"]
        self.assertIsNone(results["estimated_seconds"])
        self.assertFalse([key for key in results if "per_second" in key or key.startswith("estimated_") and results[key] is not None])

    def test_a_profile_has_shares_of_the_step_alone(self):
        said = self.emulated("none", ["--profile", "--profile-steps", "2", "--report", self.dir / "profile.json"]).stdout
        results = json.loads((self.dir / "profile.json").read_text())["results"]
        shares = [operation["share"] for operation in results["operations"]]
        self.assertAlmostEqual(sum(shares) + results["overhead_share"], 1, places=9)
        self.assertLessEqual(sum(shares), 1)
        self.assertTrue(results["emulated"])
        self.assertNotIn("limit\n", said)
        self.assertLessEqual(max(map(len, said.splitlines())), 80, said)
        self.assertNotRegex(said, "% (memory|flops)")
        self.assertIn("CUDA on CPU (emulated): neither its times nor its limits are a GPU's", said)

    def test_the_report_has_the_memory_of_the_gpu(self):
        """What was asked for is what was planned, and the device says that no less is in use."""
        self.emulated("run", ["--steps", "2"])
        found = self.report()["results"]["gpu_memory"]
        self.emulated("run", ["--steps", "2", "--plan", "--report", self.dir / "plan.json"])
        plan = json.loads((self.dir / "plan.json").read_text())["results"]["memory"]
        self.assertEqual(found["planned_bytes"], plan["total_bytes"] - plan["libraries_bytes"])
        self.assertEqual(found["peak_bytes"], found["planned_bytes"])
        self.assertTrue(found["peak_bytes"] <= found["device_used_bytes"] < found["peak_bytes"] + (1 << 20), found)
        self.train("cpu", ["--steps", "1", "--device", "cpu"])
        self.assertNotIn("gpu_memory", self.report("cpu")["results"])

    def test_a_resume_elsewhere_is_recorded_and_said(self):
        name = "CUDA on CPU (emulated)"
        warning = lambda result: re.findall(r"warning: the run computed in (\w+) on (.*) until here, and computes in (\w+) on (.*) from here on: ", result.stderr)
        recorded = lambda: json.loads((self.dir / "run/run.json").read_text())
        self.assertEqual(warning(self.train(extra=["--steps", "3", "--device", "cpu"])), [])
        self.assertEqual(recorded()["device"], "cpu")
        self.assertEqual(warning(self.train(extra=["--steps", "5", "--device", "cpu", "--resume"])), [])
        self.assertEqual(warning(self.emulated("run", ["--steps", "7", "--resume"])), [("fp32", "cpu", "fp32", name)])
        self.assertEqual(warning(self.emulated("run", ["--steps", "9", "--resume", "--override", "train.precision=bf16"])), [("fp32", name, "bf16", name)])
        self.assertEqual(warning(self.train(extra=["--steps", "12", "--resume", "--device", "cpu", "--override", "train.precision=fp32"])), [("bf16", name, "fp32", "cpu")])
        self.assertEqual((recorded()["device"], [resume["device"] for resume in recorded()["resumes"]]), ("cpu", ["cpu", name, name, "cpu"]))

    def test_the_environment_is_checked(self):
        for variable, value, allowed in (("KEEL_CUDA_GRAPH", "off", "0 or 1"), ("KEEL_EMULATION_ORDER", "backward", "forward, reverse or random"),
                                         ("KEEL_EMULATION_STREAMS", "x\n", "eager or lazy"), ("KEEL_EMULATION_GUARD", "yes", "0 or 1"),
                                         ("KEEL_EMULATION_SEED", "-1", "a whole number"), ("KEEL_EMULATION_WORKERS", "0", "1 to 1024"),
                                         ("KEEL_EMULATION_SHARED", "1000000", r"49152 to 232448 \(bytes\)"), ("KEEL_EMULATION_MEMORY", "8GiB", r"1 to 2\^46 \(bytes\)")):
            with self.subTest(variable):
                said = self.train(variable, self.DEVICE, code=2, env={**os.environ, variable: value}).stderr
                self.assertRegex(said, rf"^keel-train: error: '.*' is no value of this variable of the environment \({variable}\): it may be {allowed}\n$")
                self.assertFalse((self.dir / variable).exists())
        self.train("fine", [*self.DEVICE, "--steps", "1"], env={**os.environ, "KEEL_CUDA_GRAPH": "1", "KEEL_EMULATION_ORDER": ""})

    def test_a_damaged_backend_is_named(self):
        """One that is cut short; the loader would die of it."""
        built = pathlib.Path(os.environ["KEEL_BIN"]).resolve().parent / "lib"
        (self.dir / "lib").mkdir()
        shutil.copy(built / "libkeel.so.0", self.dir / "lib")
        whole = (built / "libkeel_cuda_emulated.so").read_bytes()
        environment = {**os.environ, "LD_LIBRARY_PATH": f"{self.dir / 'lib'}:{os.environ.get('LD_LIBRARY_PATH', '')}"}
        for length in (0, 1000, len(whole) // 2, len(whole) - 1, len(whole)):
            with self.subTest(length):
                damaged = self.dir / "lib/libkeel_cuda_emulated.so"
                damaged.write_bytes(whole[:length])
                result = self.train(f"run{length}", [*self.DEVICE, "--steps", "1"], code=0 if length == len(whole) else 6, env=environment)
                if length < len(whole):
                    self.assertRegex(result.stderr, rf"^keel-train: error: this library is damaged: .* \({damaged}\): install it again\n$")


class NotWanted(TrainTest):
    """The backend and CUDA's libraries are opened when a device is wanted, so that tools start as fast without."""

    def opens_backend(self, *arguments):
        result = self.check("keel-train", *arguments, env={**os.environ, "LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(self.dir / "opened")})
        opened = "".join(path.read_text() for path in self.dir.glob("opened.*"))
        for path in self.dir.glob("opened.*"):
            path.unlink()
        self.assertIn("libkeel.so", opened, result.stderr)
        return "libkeel_cuda" in opened or "libcu" in opened

    def test_the_backend_is_opened_where_a_device_is_wanted(self):
        for arguments in (["--version"], ["--help"], ["--list-schemes"], self.arguments("cpu", ["--device", "cpu"])):
            self.assertFalse(self.opens_backend(*arguments), arguments)
        if not doctor()["gpus"]:
            self.assertFalse(self.opens_backend(*self.arguments("auto")))
        if doctor()["cuda_emulated"] == "built in":
            self.assertTrue(self.opens_backend(*self.arguments("device", ["--device", "cuda-emulated", "--steps", "1"])))


class Absent(TrainTest):
    @unittest.skipIf(doctor()["cuda_devices"] > 0, "there is a GPU")
    def test_no_gpu_is_one_line(self):
        for device in ("cuda", "cuda:3"):
            result = self.train(extra=["--device", device], code=6)
            self.assertIn("--device cpu runs everywhere", result.stderr)
        self.assertFalse((self.dir / "run").exists())
        self.train(extra=["--plan", "--plan-device", "h100", "--device", "cuda"])

    @unittest.skipIf(doctor()["cuda_devices"] > 0, "there is a GPU")
    def test_the_doctor_says_why_it_does_not_work(self):
        trial = json.loads(self.check("keel-train", "--doctor", "--json", "--device", "cuda:3", code=6).stdout)["device_trial"]
        self.assertFalse(trial["works"])
        self.assertIn("CUDA", trial["error"])
        self.assertIsNone(json.loads(self.check("keel-train", "--doctor", "--json", "--device", "cpu").stdout)["device_trial"])

    def test_names(self):
        for device in ("gpu", "cuda:x", "cuda:-1", "cpu:0"):
            self.assertIn("--device", self.train(extra=["--device", device], code=2).stderr)


if __name__ == "__main__":
    unittest.main()
