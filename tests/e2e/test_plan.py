"""keel-train --plan: for this machine's CPU and for GPUs by name, without training or allocating."""
import json
import os
import random
import re
import subprocess

from keel_files import write_megatron
from keel_tools import ToolTest, tool
from train_memory import Watch, is_sanitized

GPUS = {"a100-40": 40, "a100-80": 80, "h100": 80, "h200": 141, "b200": 180, "l4": 24, "l40s": 48, "rtx4090": 24, "rtx5090": 32}  # GB on the box
KINDS = ("weights", "gradients", "optimizer", "activations", "workspace", "operations", "libraries")


class Plan(ToolTest):
    def setUp(self):
        super().setUp()
        rng = random.Random(7)
        write_megatron(self.dir / "data", [[rng.randrange(300) for _ in range(50000)]])

    def write(self, width=64, blocks=4, length=64, batch=12, **train):
        train = {"steps": 100, "batch_sequences": batch, **train}
        (self.dir / "train.json").write_text(json.dumps({
            "model": {"vocab_size": 32000, "hidden_size": width, "intermediate_size": 11 * width // 4, "num_hidden_layers": blocks, "num_attention_heads": max(1, width // 64)},
            "data": {"sequence_length": length}, "train": train, "optimizer": {"learning_rate": 3e-4}}))

    def arguments(self, *extra):
        return ["--config", self.dir / "train.json", "--data", self.dir / "data", "--plan", "--threads", "1", *extra]

    def plan(self, *extra, code=0):
        """(results, CompletedProcess)"""
        result = self.check("keel-train", *self.arguments("--report", self.dir / "plan.json", "--force", *extra), code=code)
        return json.loads((self.dir / "plan.json").read_text())["results"], result

    def test_each_gpu(self):
        self.write()
        on_cpu, _ = self.plan()
        self.assertNotIn("operations_bytes", on_cpu["memory"])
        for name, gigabytes in GPUS.items():
            with self.subTest(device=name):
                results, result = self.plan("--plan-device", name)
                device, memory = results["device"], results["memory"]
                self.assertEqual(device["name"], name)
                self.assertTrue(0.9 * gigabytes < device["memory_bytes"] / 1e9 < 1.08 * gigabytes, device)
                self.assertEqual(results["memory_limit_bytes"], device["memory_bytes"])
                for kind in KINDS[:4]:  # fp32 masters, gradients, optimiser and activations, as here
                    self.assertEqual(memory[f"{kind}_bytes"], on_cpu["memory"][f"{kind}_bytes"], kind)
                self.assertGreaterEqual(memory["workspace_bytes"], on_cpu["memory"]["workspace_bytes"])  # some stays untouched here
                self.assertTrue(300e6 < memory["libraries_bytes"] < 1.5e9)
                self.assertTrue(32 << 20 < memory["operations_bytes"] < 64 << 20)
                self.assertEqual(memory["total_bytes"], sum(memory[f"{kind}_bytes"] for kind in KINDS))
                self.assertEqual((results["fits"], results["largest_micro_batch_sequences"]), (True, 12))
                for same in ("parameters", "flops_per_token", "tokens", "parameter_classes"):
                    self.assertEqual(results[same], on_cpu[same], same)
                self.assertNotIn("measured_product_flops_per_second", results)
                self.assertIn(f"({name})", result.stdout)
                self.assertRegex(result.stdout, r"CUDA \(an estimate\) +\d+ MB")
                self.assertRegex(" ".join(result.stdout.split()), r"products in fp32.*train.precision=bf16 would have")
                self.assertIn("assumed, not measured", result.stdout)

    def test_time_on_a_gpu_follows_from_its_peak(self):
        self.write(width=2048, blocks=16, length=512, batch=64, micro_batch_sequences=16)
        results, _ = self.plan("--plan-device", "h200")
        device = results["device"]
        seconds = results["flops_per_token"] * results["tokens"] / (device["fp32_flops_per_second"] * device["assumed_utilisation"])
        self.assertAlmostEqual(results["estimated_train_seconds"] / (seconds + self.starting(results, 16, 4, 8192)), 1, places=9)
        self.write(width=512, length=16, batch=2, micro_batch_sequences=1)  # so few tokens that moving the weights takes longer
        results, _ = self.plan("--plan-device", "h200")
        weights, gradients, optimizer, activations = (results["memory"][f"{kind}_bytes"] for kind in KINDS[:4])
        step = 2 * 2 * (weights + gradients + activations) + 2 * weights + gradients + 2 * optimizer
        seconds = step * results["steps"] / device["memory_bytes_per_second"] + self.starting(results, 4, 2, 16)
        self.assertAlmostEqual(results["estimated_train_seconds"] / seconds, 1, places=9)

    def starting(self, results, blocks, micro_batches, rows):
        """Seconds that products take to begin and end: three for each of four matrices a block, and for the head's rows, 128 at a time."""
        return 4e-6 * results["steps"] * micro_batches * 3 * (4 * blocks + -(-rows // 128))

    def test_a_small_micro_batch_is_slower(self):
        self.write(width=1024, blocks=64, length=256, batch=64, micro_batch_sequences=4)
        results, result = self.plan("--plan-device", "h200", "--set", "train.precision=bf16")
        speeds = [row["estimated_tokens_per_second"] for row in results["micro_batches"]]
        self.assertEqual(speeds, sorted(set(speeds)))
        self.assertGreater(speeds[-1], 1.5 * speeds[0])
        self.assertAlmostEqual(speeds[2] * results["estimated_train_seconds"] / results["tokens"], 1, places=9)
        self.assertIn(f" {speeds[2]:.0f}  this run's", result.stdout)

    def test_lines_are_at_most_80_columns(self):
        self.write(width=1024, blocks=256, length=2048, batch=512, steps=1000000, micro_batch_sequences="auto")
        for extra in ((), ("--plan-device", "h200"), ("--plan-device", "h200", "--set", "train.recompute=auto"), ("--set", "train.memory_limit=60GB", "--set", "train.recompute=block")):
            with self.subTest(extra):
                result = subprocess.run([tool("keel-train"), *map(str, self.arguments(*extra))], capture_output=True, text=True)
                self.assertLessEqual(max(map(len, result.stdout.splitlines())), 80, result.stdout)
                self.assertIn(result.returncode, (0, 6), result.stderr)

    def test_recomputation_is_planned(self):
        self.write(width=1024, blocks=9, length=512, batch=16, micro_batch_sequences=8)
        plain, _ = self.plan("--plan-device", "h200")
        self.assertEqual(plain["recomputed_flops_per_token"], 0)
        forward = (plain["flops_per_token"] - 6 * 32000 * 1024) / 3  # of the branches
        last_mlp, last_block = 2 * 1024 * 3 * (11 * 1024 // 4), forward / 9
        unread = 2 * 1024 * 1024  # the output of Keel's first sublayer, behind which is no norm
        for mode, last in (("branch", last_mlp + unread), ("block", last_block), ("every:4", 4 * last_block)):  # the last segment is not
            with self.subTest(mode=mode):
                results, result = self.plan("--plan-device", "h200", "--set", f"train.recompute={mode}")
                self.assertLess(results["memory"]["activations_bytes"], plain["memory"]["activations_bytes"])
                self.assertEqual(results["flops_per_token"], plain["flops_per_token"])
                again = forward - last
                self.assertAlmostEqual(results["recomputed_flops_per_token"] / again, 1, places=12)
                self.assertAlmostEqual(results["estimated_train_seconds"] / plain["estimated_train_seconds"], 1 + again / plain["flops_per_token"], places=9)
                self.assertRegex(" ".join(result.stdout.split()), r"FLOPs a token, \S+ recomputed")

    def test_automatic_recomputation(self):
        """As little as fits each limit, down to the least there is; the micro-batch stays."""
        self.write(width=256, blocks=32, length=256, batch=8, micro_batch_sequences=8)
        modes = [f"every:{k}" for k in range(31, 2, -1)]
        for device in ("h200", "cpu"):
            with self.subTest(device=device):
                auto = lambda limit, code=0: self.plan("--plan-device", device, "--set", "train.recompute=auto", "--set", f"train.memory_limit={limit}", code=code)
                whole, _ = self.plan("--plan-device", device)
                results, result = auto(int(whole["memory"]["total_bytes"] * 1.1))
                self.assertEqual((results["recompute"], results["recomputed_flops_per_token"]), ("none", 0))
                self.assertIn("\nrecompute   none (auto: the least that fits)\n", result.stdout)
                seen = set()
                for share in (0.95, 0.8, 0.7):
                    limit = int(whole["memory"]["total_bytes"] * share)
                    results, result = auto(limit)
                    self.assertTrue(results["fits"])
                    self.assertIn(f"\nrecompute   {results['recompute']} (auto: the least that fits)\n", result.stdout)
                    self.assertEqual(results["micro_batch_sequences"], 8)
                    self.assertGreater(results["memory"]["total_bytes"], 0.9 * limit)
                    self.assertIn(results["recompute"], modes)
                    larger = f"every:{int(results['recompute'].removeprefix('every:')) + 2}"
                    said = self.plan("--plan-device", device, "--set", f"train.recompute={larger}", "--set", f"train.memory_limit={limit * 63 // 64}", code=6)[0]
                    self.assertFalse(said["fits"])
                    seen.add(results["recompute"])
                self.assertEqual(len(seen), 3)
                results, result = auto(100_000_000, code=6)
                self.assertIn(results["recompute"], ("block", "every:2"))
                self.assertIn("not even one sequence at a time fits", result.stderr)

    def test_automatic_recomputation_and_micro_batch(self):
        """Both follow from the limit: a smaller micro-batch comes first, as it costs less."""
        self.write(width=256, blocks=32, length=256, batch=8)
        whole, _ = self.plan("--set", "train.recompute=auto")
        self.assertEqual((whole["micro_batch_sequences"], whole["recompute"]), (8, "none"))
        found = []
        for share in (0.8, 0.5):
            results, result = self.plan("--set", "train.recompute=auto", "--set", f"train.memory_limit={int(whole['memory']['total_bytes'] * share)}")
            found.append((results["micro_batch_sequences"], results["recompute"]))
            self.assertTrue(results["fits"])
            self.assertRegex(result.stdout, r"recompute   \S+ \(auto")
            again, _ = self.plan("--threads", "2", "--set", "train.recompute=auto", "--set", f"train.memory_limit={int(whole['memory']['total_bytes'] * share)}")
            self.assertEqual(again["micro_batch_sequences"], results["micro_batch_sequences"])
        self.assertEqual([micro < 8 for micro, _ in found], [True, True])

    def test_the_cpu_is_the_default(self):
        self.write()
        default, result = self.plan()
        self.assertEqual(default["device"]["name"], "cpu")
        self.assertEqual(sorted(default["device"]), ["memory_bytes", "name"])
        self.assertEqual(default["memory_limit_bytes"], default["device"]["memory_bytes"])
        self.assertGreater(default["measured_product_flops_per_second"], 0)
        named, _ = self.plan("--plan-device", "cpu")
        self.assertEqual(named["device"], default["device"])
        self.assertNotIn("device ", result.stdout)

    def test_micro_batches_are_compared(self):
        self.write(micro_batch_sequences=3)
        results, result = self.plan("--plan-device", "h200")
        rows = results["micro_batches"]
        self.assertEqual([row["sequences"] for row in rows], [1, 2, 3, 4, 6, 12])  # two on each side, and the largest
        sizes = [row["total_bytes"] for row in rows]
        self.assertEqual(sizes, sorted(set(sizes)))
        self.assertEqual(sizes[2], results["memory"]["total_bytes"])
        self.assertRegex(result.stdout, r"\n  3 +\d+ MB +\d+  this run's\n  4 +\d+ MB +\d+\n")
        for device in ("cpu", "h200"):
            with self.subTest(device=device):  # a limit between two of them
                rows = self.plan("--plan-device", device)[0]["micro_batches"]
                limit = (rows[3]["total_bytes"] + rows[4]["total_bytes"]) // 2
                results, _ = self.plan("--plan-device", device, "--set", f"train.memory_limit={limit}")
                self.assertEqual((results["memory_limit_bytes"], results["largest_micro_batch_sequences"]), (limit, 4))
                self.assertEqual([row["fits"] for row in results["micro_batches"]], [True, True, True, True, False])

    def test_the_largest_micro_batch_where_the_run_does_not_fit(self):
        self.write(width=1024, blocks=24, length=2048, batch=64, micro_batch_sequences=64)
        results, result = self.plan("--plan-device", "a100-40", code=6)
        largest = results["largest_micro_batch_sequences"]
        self.assertTrue(1 <= largest < 64 and not results["fits"], results)
        self.assertIn(largest, [row["sequences"] for row in results["micro_batches"]])
        self.assertIsNone(results["estimated_seconds"])
        self.assertIn(f"train.micro_batch_sequences={largest} fits", result.stderr)
        self.assertTrue(self.plan("--plan-device", "a100-40", "--set", f"train.micro_batch_sequences={largest}")[0]["fits"])
        mode = re.search(r" fits, and so does train\.recompute=(\S+)$", result.stderr)[1]
        self.assertTrue(self.plan("--plan-device", "a100-40", "--set", f"train.recompute={mode}")[0]["fits"])

    def test_not_even_one_sequence(self):
        self.write(width=2048, blocks=24, length=8192, batch=4)
        _, result = self.plan("--plan-device", "rtx5090", code=6)
        found = re.search(r"not even one sequence at a time fits; one does with train\.recompute=(\S+), data\.sequence_length=(\d+), --plan-device (\S+) or a smaller model$", result.stderr)
        self.assertTrue(found, result.stderr)
        self.assertIn("not even one fits", result.stdout)
        self.assertTrue(self.plan("--plan-device", "rtx5090", "--set", f"train.recompute={found[1]}")[0]["fits"])
        self.assertTrue(self.plan("--plan-device", found[3])[0]["fits"])
        self.write(width=2048, blocks=24, length=int(found[2]), batch=4, micro_batch_sequences=1)
        self.assertTrue(self.plan("--plan-device", "rtx5090")[0]["fits"])
        self.write(width=16384, blocks=64, length=64, batch=4)  # no device holds its weights alone
        self.assertRegex(self.plan("--plan-device", "b200", code=6)[1].stderr, r"one does with a smaller model$")

    def test_seven_billion_parameters_take_no_memory_here(self):
        self.write(width=4096, blocks=32, length=4096, batch=1024)
        out = open(self.dir / "out.txt", "w+")
        self.addCleanup(out.close)
        before = os.times()
        process = subprocess.Popen([tool("keel-train"), *map(str, self.arguments("--plan-device", "h200"))], stdout=out, stderr=out)
        watch = Watch(process.pid)
        while process.poll() is None:
            watch.look()
        self.assertEqual(process.returncode, 0)
        out.seek(0)
        self.assertIn("6.84G parameters", out.read())
        after = os.times()
        seconds = after.children_user + after.children_system - before.children_user - before.children_system
        self.assertLess(seconds, 1 if is_sanitized() else 0.5)  # some 0.02 of a release build
        if not is_sanitized():
            self.assertLess(watch.resident, 100e6)

    def test_misuse(self):
        self.write()
        for name, near in (("h20", "h200"), ("a100", "a100-40"), ("rtx490", "rtx4090"), ("cp", "cpu")):
            with self.subTest(name=name):
                error = self.check("keel-train", *self.arguments("--plan-device", name), code=2).stderr
                self.assertIn("--plan-device", error)
                if name != "a100":
                    self.assertIn(f"did you mean '{near}'?", error)
        run = ["--config", self.dir / "train.json", "--data", self.dir / "data", "--out", self.dir / "run", "--plan-device", "h200"]
        self.assertIn("--plan-device needs --plan", self.check("keel-train", *run, code=2).stderr)
        self.assertFalse((self.dir / "run").exists())

    def test_names_are_completed(self):
        for shell in ("bash", "zsh", "fish"):
            with self.subTest(shell=shell):
                script = self.check("keel-train", "--completions", shell).stdout
                for name in ("cpu", *GPUS):
                    self.assertIn(name, script)
