"""keel-train --profile: what each operation of a step takes, beside what the machine could do."""
import json
import signal
import subprocess
import time

from keel_tools import tool
from test_train import TrainTest, config


class StepProfile(TrainTest):
    def profile(self, *extra, code=0):
        """(results of the report, CompletedProcess)"""
        path = self.dir / "profile.json"
        result = self.check("keel-train", *self.arguments_without_run(), "--profile", "--report", path, "--force", *extra, code=code)
        return json.loads(path.read_text())["results"], result

    def arguments_without_run(self):
        return ["--config", self.dir / "train.json", "--data", self.dir / "data", "--progress", "none", "--threads", "2"]

    def files(self):
        return sorted(str(path) for path in self.dir.rglob("*"))

    def test_operations_add_up_to_the_step(self):
        before = self.files()
        results, result = self.profile("--profile-steps", "3")
        self.assertEqual(self.files(), sorted([*before, str(self.dir / "profile.json")]), "nothing else is written")
        self.assertEqual((results["steps"], results["tokens_per_step"], results["threads"]), (3, 64, 2))
        operations = results["operations"]
        names = [operation["name"] for operation in operations]
        self.assertEqual(len(names), len(set(names)))
        for name in ("product", "product, input gradient", "product, weight gradient", "attention", "attention backward", "seam", "adamw"):
            self.assertIn(name, names)
        seconds = [operation["seconds"] for operation in operations]
        self.assertEqual(seconds, sorted(seconds, reverse=True))
        self.assertAlmostEqual(sum(seconds) + results["overhead_seconds"], results["step_seconds"], places=12)
        self.assertAlmostEqual(sum(operation["share"] for operation in operations) + results["overhead_share"], 1, places=9)
        limits = results["limits"]
        for operation in operations:
            arithmetic = limits["product_flops_per_second" if operation["name"].startswith("product") else "flops_per_second"]
            least = {"flops": operation["flops"] / arithmetic, "memory": operation["bytes"] / limits["memory_bytes_per_second"]}
            self.assertAlmostEqual(operation["limit_seconds"] / max(least.values()), 1, places=9)
            self.assertEqual(operation["limited_by"], max(least, key=least.get))
            self.assertAlmostEqual(operation["limit_fraction"] * operation["seconds"] / operation["limit_seconds"], 1, places=9)
        self.assertAlmostEqual(results["tokens_per_second"] * results["step_seconds"], 64, places=6)
        self.assertAlmostEqual(results["product_rate_share"] * limits["product_flops_per_second"] / results["flops_per_second"], 1, places=9)

    def test_the_table_says_the_same(self):
        results, result = self.profile()
        lines = result.stdout.splitlines()
        self.assertLessEqual(max(map(len, lines)), 80, result.stdout)
        end = lines.index("")
        self.assertEqual([line[:25].rstrip() for line in lines[1:end]], [operation["name"] for operation in results["operations"]] + ["overhead"])
        calls = {operation["name"]: operation["calls"] for operation in results["operations"]}
        for line in lines[1:end - 1]:
            self.assertEqual(int(line[25:31]), calls[line[:25].rstrip()])
        for text in ("GB/s, ", "2 threads", "(median of 5) for 64 tokens", "of the products alone", "resident"):
            self.assertIn(text, result.stdout)
        self.assertEqual(results["steps"], 5)

    def test_products_have_six_flops_a_weight_and_token(self):
        results, _ = self.profile("--profile-steps", "1")
        weights = 2 * (16 * 16 * 2 + 16 * 8 * 2 + 3 * 16 * 24) + 61 * 16  # two blocks and the head
        products = sum(o["flops"] for o in results["operations"] if o["name"].startswith("product"))
        self.assertEqual(products, 6 * weights * 64)
        attention = 2 * 3 * 4 * 16 * (16 + 1) / 2  # blocks, passes, products of scores and values, columns, an average query's keys
        self.assertEqual(results["flops_per_token"], 6 * weights + attention)

    def test_json_and_streams(self):
        arguments = [*self.arguments_without_run(), "--profile", "--profile-steps", "1"]
        printed = json.loads(self.check("keel-train", *arguments, "--json").stdout)
        report = json.loads(self.check("keel-train", *arguments, "--report", "-").stdout)
        self.assertEqual(report["schema"], "keel.train.profile/1")
        self.assertEqual(report["config"]["train"]["steps"], 12)
        self.assertEqual(sorted(printed), sorted(report["results"]))

    def test_more_steps_than_the_run_has(self):
        self.assertEqual(self.profile("--profile-steps", "20", "--steps", "3")[0]["steps"], 20)

    def test_recomputation_counts_apart(self):
        plain, _ = self.profile("--profile-steps", "1")
        again, result = self.profile("--profile-steps", "1", "--set", "train.recompute=branch")
        self.assertEqual((plain["flops_per_token"], plain["recomputed_flops_per_token"]), (again["flops_per_token"], 0))
        self.assertIn("recomputed", result.stdout)

        def forward(results):
            return next(o["calls"] for o in results["operations"] if o["name"] == "product")
        self.assertGreater(forward(again), forward(plain))

    def test_of_a_run_that_is_there(self):
        self.train()
        before = self.files()
        result = self.check("keel-train", "--out", self.dir / "run", "--resume", "--profile", "--profile-steps", "1", "--progress", "none")
        self.assertIn("for 64 tokens", result.stdout)
        self.assertEqual(self.files(), before)

    def test_updates_that_were_skipped(self):
        _, result = self.profile("--profile-steps", "2", "--set", "model.initializer_range=1e30")
        self.assertIn("step 1 is not finite: its update was skipped", result.stderr)

    def test_what_does_not_fit_or_is_not_there(self):
        self.check("keel-train", *self.arguments_without_run(), "--profile", "--set", "train.memory_limit=1MB", code=6)
        self.check("keel-train", *self.arguments_without_run(), "--profile", "--data", self.dir / "none", code=4)
        self.check("keel-train", *self.arguments_without_run(), "--profile", "--report", self.dir / "train.json", "--force", code=2)

    def test_misuse(self):
        for extra, said in ((["--profile-steps", "3"], "--profile-steps needs --profile"), (["--profile", "--profile-steps", "0"], "--profile-steps"),
                            (["--profile", "--plan"], "give one of them"), (["--profile", "--resume"], "--resume needs --out"),
                            (["--profile", "--plan-device", "h200"], "--plan-device needs --plan")):
            with self.subTest(extra=extra):
                self.assertIn(said, self.check("keel-train", *self.arguments_without_run(), *extra, code=2).stderr)

    def test_it_heeds_signals(self):
        self.write_config(config(model__hidden_size=256, model__intermediate_size=768, data__sequence_length=128))
        process = subprocess.Popen([tool("keel-train"), *map(str, self.arguments_without_run()), "--profile", "--profile-steps", "10000"],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(1)
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(60), 130)
