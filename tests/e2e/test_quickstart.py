"""examples/quickstart.sh from end to end, with few steps."""
import json
import os
import pathlib
import re
import subprocess

from keel_tools import ToolTest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Quickstart(ToolTest):
    def test_few_steps(self):
        if pathlib.Path(os.environ["KEEL_BIN"]).resolve() != ROOT / "build" / "release" / "bin":
            self.skipTest("the quickstart uses build/release, these tests another build")
        out = self.dir / "out folder"
        result = subprocess.run([ROOT / "examples" / "quickstart.sh", "--steps", "3", "--set", "validate.tokens=2048"], cwd=self.dir, capture_output=True, text=True,
                                env={**os.environ, "KEEL_QUICKSTART_OUT": str(out)})
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        rows = {line.split()[0]: line.split()[1:] for line in (out / "summary.txt").read_text().splitlines()}
        self.assertEqual(list(rows), ["scheme", "keel", "pre", "unigram"])
        self.assertIn((out / "summary.txt").read_text(), result.stdout)
        configs = []
        for scheme in ("keel", "pre"):
            report = json.loads((out / scheme / "report.json").read_text())
            results = report["results"]
            self.assertEqual(rows[scheme][:2], ["3", str(results["tokens"])])
            self.assertEqual(rows[scheme][5], f"{results['val_loss']:.4f}")
            self.assertEqual(rows["unigram"][5], f"{results['unigram_loss']:.4f}")
            self.assertTrue((out / scheme / "checkpoints" / "step-00000003" / "manifest.json").is_file())
            self.assertEqual(report["config"]["model"].pop("residual_scheme"), scheme)
            configs.append(report["config"])
            self.assertTrue((out / f"{scheme}.txt").read_text().startswith("ROMEO:\n"))
            self.assertIn('"step":3,', (out / scheme / "samples.jsonl").read_text())
            (scores,) = (out / "eval").glob(f"*__{scheme}/results_*.json")
            self.assertEqual(json.loads(scores.read_text())["n-samples"]["sciq"], {"original": 16, "effective": 16})
        self.assertEqual(*configs)
        self.assertEqual(json.loads((out / "pre-hf" / "config.json").read_text())["architectures"], ["LlamaForCausalLM"])
        for path in re.findall(r"^  (\S.*?)/?  +", result.stdout.split("Files:")[1], re.M):
            for name in (path.replace("{keel,pre}", scheme) for scheme in ("keel", "pre")):
                self.assertTrue((ROOT / name).exists(), name)
