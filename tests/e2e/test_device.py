"""The tools on a GPU, which the emulated device stands for: the same numbers as on the CPU, runs that go on there and back."""
import json
import os
import unittest

from keel_files import read_lines
from keel_tools import run
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

    def test_a_run_moves_between_cpu_and_device(self):
        self.train("cpu")
        self.emulated("there", ["--steps", "5"])
        self.train("there", ["--steps", "12", "--resume", "--device", "cpu"])
        self.train("back", ["--steps", "5", "--device", "cpu"])
        self.emulated("back", ["--steps", "12", "--resume"])
        for name in ("there", "back"):
            self.assert_close(self.losses(name), self.losses("cpu"), 2e-5)

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
        text = self.check("keel-train", "--doctor", *self.DEVICE, env=small).stdout
        self.assertRegex(text, r"(?m)^tried it +.*: does not work: the GPU has no ")

    def test_what_does_not_fit(self):
        result = self.emulated("small", code=6, memory="1000000")
        self.assertIn("fit", result.stderr)
        self.assertFalse((self.dir / "small").exists())


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

    @unittest.skipIf(doctor()["cuda_devices"] > 0, "there is a GPU")
    def test_the_doctor_says_why_it_does_not_work(self):
        trial = json.loads(self.check("keel-train", "--doctor", "--json", "--device", "cuda:3").stdout)["device_trial"]
        self.assertFalse(trial["works"])
        self.assertIn("CUDA", trial["error"])
        self.assertIsNone(json.loads(self.check("keel-train", "--doctor", "--json", "--device", "cpu").stdout)["device_trial"])

    def test_names(self):
        for device in ("gpu", "cuda:x", "cuda:-1", "cpu:0"):
            self.assertIn("--device", self.train(extra=["--device", device], code=2).stderr)


if __name__ == "__main__":
    unittest.main()
