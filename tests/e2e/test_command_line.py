"""What all tools have in common on the command line: configs from pipes, help, doctor, and keel-analyze's own reports."""
import fcntl
import glob
import json
import os
import pty
import re
import struct
import subprocess
import termios

from keel_tools import ToolTest, tool
from test_train import TrainTest, config


def on_terminal(columns, name, *arguments):
    """What a tool prints on a terminal of that width."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen([tool(name), *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=side, stderr=side)
    os.close(side)
    text = b""
    while True:
        try:
            block = os.read(main, 65536)
        except OSError:
            break
        if not block:
            break
        text += block
    os.close(main)
    return process.wait(), text.decode().replace("\r\n", "\n")


class PipedConfig(TrainTest):
    def run_shell(self, command, code=0):
        result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=self.dir)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def test_a_run_and_its_resume(self):
        """The config is needed more than once, and a pipe can be read only once."""
        rest = " ".join(map(str, self.arguments()[2:]))
        program = tool("keel-train")
        self.run_shell(f"{program} --config <(cat train.json) {rest} --steps 6")
        resumed = self.run_shell(f"cat train.json | {program} --config - {rest} --steps 12 --resume")
        self.assertIn("resumed from step 6", resumed.stderr)
        self.train(out="whole", extra=["--steps", "12"])
        self.assertEqual(self.metrics(), self.metrics("whole"))
        config_ = json.loads((self.dir / "run" / "run.json").read_text())["config"]
        self.assertEqual(config_["optimizer"]["learning_rate"], config()["optimizer"]["learning_rate"])

    def test_what_is_wrong_in_it(self):
        bad = self.run_shell(f"printf '{{\"train\": {{\"st\\\\u0000ps\": 3}}}}' | {tool('keel-train')} --config - --print-config", code=2)
        self.assertIn("unknown config key 'train.st\\x00ps' (stdin:1:12): did you mean 'train.steps'?", bad.stderr)
        torn = self.run_shell(f"{tool('keel-analyze')} wiring --config <(echo '{{') ", code=2)
        self.assertIn("/dev/fd/", torn.stderr)
        endless = self.run_shell(f"{tool('keel-train')} --config /dev/zero --print-config", code=2)
        self.assertIn("more than", endless.stderr)


class Help(ToolTest):
    def test_fits_the_terminal(self):
        for columns, widest in ((40, 60), (60, 60), (90, 90), (300, 120)):
            for name in ("keel-train", "keel-tokenize", "keel-analyze"):
                code, text = on_terminal(columns, name, "--help")
                self.assertEqual(code, 0)
                lines = text.split("\nExamples:")[0].splitlines()
                self.assertLessEqual(max(map(len, lines)), widest)
                self.assertGreater(max(map(len, lines)), widest - 20)
        self.assertLessEqual(max(map(len, self.check("keel-train", "--help").stdout.splitlines())), 100)

    def test_lists_every_setting(self):
        settings = self.check("keel-train", "--help").stdout.split("\nSettings ")[1]
        self.assertRegex(settings, r"\n  train\.steps +See --steps\.\n")
        self.assertRegex(settings, r"\n  data\.path +See --data\.\n")
        self.assertRegex(settings, r"\n  schedule\.name +\S")

    def test_what_is_missing_points_at_it(self):
        self.assertIn("--out must be given: 'keel-train -h' shows", self.check("keel-train", code=2).stderr)
        self.assertIn("--blocks M or --set", self.check("keel-analyze", "wiring", code=2).stderr)
        self.assertIn("'train' is a group of keys", self.check("keel-train", "--set", "train=3", "--print-config", code=2).stderr)


class Doctor(ToolTest):
    def test_names_the_gpus(self):
        found = json.loads(self.check("keel-train", "--doctor", "--json").stdout)
        listed = [re.search(r"Model:\s*(.*)", open(path).read()).group(1) for path in glob.glob("/proc/driver/nvidia/gpus/*/information")]
        if listed:
            self.assertEqual(found["gpus"], sorted(listed))
        elif not os.path.exists("/dev/nvidia0"):
            self.assertEqual((found["gpus"], found["gpu_driver"]), ([], None))
        text = self.check("keel-train", "--doctor").stdout
        self.assertRegex(text, "(?m)^gpus +" + re.escape(", ".join(found["gpus"]) or "none found") + "$")
        self.assertRegex(text, r"(?m)^cpu features +\S")

    def test_says_which_path_is_used(self):
        def doctor(**changes):
            """Its JSON and text, and the advice about instruction sets that ends in something to do."""
            environment = {name: value for name, value in os.environ.items() if not name.endswith(("KEEL_ISA", "MAX_CPU_ISA"))}
            found, text = (self.check("keel-train", "--doctor", *json_flag, env={**environment, **changes}).stdout for json_flag in (["--json"], []))
            found = json.loads(found)
            for line in found["advice"]:
                self.assertIn(line, text)
            return found, text, [line for line in found["advice"] if "set" in line]

        found, text, _ = doctor()
        runs = found["instruction_sets"]
        self.assertEqual(runs, ["generic", "avx2", "avx512"][:len(runs)])
        self.assertEqual((found["instruction_set"], found["instruction_set_asked_for"]), (runs[-1], None))
        self.assertIn(f"kernels for     {runs[-1]}, of {' '.join(runs)}\n", text)
        self.assertIn(f", products for {found['onednn_instruction_set']}\n", text)
        self.assertFalse([line for line in found["advice"] if "KEEL_ISA" in line or "MAX_CPU_ISA" in line])
        found, text, advice = doctor(KEEL_ISA="generic")
        self.assertEqual((found["instruction_set"], found["instruction_set_asked_for"]), ("generic", "generic"))
        self.assertIn("kernels for     generic (KEEL_ISA), of ", text)
        expected = [f"KEEL_ISA=generic is set: unset it for the faster {runs[-1]}"] if len(runs) > 1 else []
        self.assertEqual([line for line in advice if "KEEL_ISA" in line], expected)
        found, text, advice = doctor(ONEDNN_MAX_CPU_ISA="SSE41")
        if "sse4.1" in found["cpu_features"]:
            self.assertEqual(found["onednn_instruction_set"], "sse4.1")
            self.assertEqual([line for line in advice if "MAX_CPU_ISA" in line] != [], len(runs) > 1)
        for isa in {"avx2", "avx512"} - set(runs):
            self.assertIn("this processor has no " + isa, self.check("keel-train", "--doctor", code=2, env={**os.environ, "KEEL_ISA": isa}).stderr)


class Wiring(ToolTest):
    KEEL = ("wiring", "--scheme", "keel", "--blocks", "3")

    def test_report_is_the_default_and_the_table_a_terminal_s(self):
        report = json.loads(self.check("keel-analyze", *self.KEEL).stdout)
        self.assertEqual(report["schema"], "keel.analyze.wiring/1")
        self.assertEqual([row["a"] for row in report["results"]["rows"]], [1, 1, 6, 6, 6, 6])
        self.assertEqual([row["outer"] for row in report["results"]["rows"]], ["none", *["rms"] * 5])
        code, table = on_terminal(120, "keel-analyze", *self.KEEL)
        self.assertEqual(code, 0)
        self.assertIn("x' = RMS(6 x + F(RMS(x)))", table)
        for explicit in (["--out", "-"], ["--json"]):
            self.assertEqual(json.loads(on_terminal(120, "keel-analyze", *self.KEEL, *explicit)[1])["results"], report["results"])

    def test_files(self):
        out = self.dir / "wiring.json"
        self.assertIn("x' = RMS(", self.check("keel-analyze", *self.KEEL, "--out", out).stdout)
        before = out.read_text()
        self.assertIn("exists already", self.check("keel-analyze", *self.KEEL, "--out", out, code=2).stderr)
        self.check("keel-analyze", *self.KEEL, "--out", out, "--resume")
        self.assertEqual(out.read_text(), before)
        self.check("keel-analyze", "wiring", "--scheme", "post", "--blocks", "2", "--out", out, "--force")
        self.assertEqual(json.loads(out.read_text())["results"]["scheme"], "post")
        self.check("keel-analyze", "wiring", "--scheme", "post", "--blocks", "2", "--out", self.dir / "none" / "x", code=4)
        both = self.check("keel-analyze", *self.KEEL, "--report", self.dir / "report.json").stdout
        self.assertEqual(json.loads(both)["results"], json.loads((self.dir / "report.json").read_text())["results"])

    def test_config_is_an_input(self):
        path = self.dir / "keel.json"
        path.write_text('{"model": {"num_hidden_layers": 4, "residual_scheme": "keel", "residual_alpha": 5}}')
        report = json.loads(self.check("keel-analyze", "wiring", "--config", path, "--threads", "1").stdout)
        self.assertEqual(report["inputs"][0]["path"], str(path))
        for option in ("--out", "--report"):
            self.check("keel-analyze", "wiring", "--config", path, option, path, "--force", code=2)
        self.assertEqual(report["results"]["rows"][7]["a"], 5)

    def test_misuse(self):
        for arguments, named in ((["--scheme", "kel", "--blocks", "2"], "did you mean 'keel'"), (["--scheme", "keel", "--blocks", "0"], "--blocks"),
                                 (["--scheme", "pre", "--blocks", "2", "--alpha", "3"], "residual_alpha"), (["--scheme", "keel"], "--blocks M")):
            self.assertIn(named, self.check("keel-analyze", "wiring", *arguments, code=2).stderr)
        self.check("keel-analyze", "wiring", "--config", self.dir / "none.json", code=4)
        self.check("keel-analyze", *self.KEEL, "--out", "/dev/full", code=4)
        schemes = json.loads(self.check("keel-analyze", "wiring", "--list-schemes", "--json").stdout)
        self.assertEqual(sorted(s["name"] for s in schemes),
                         ["admin", "deepnorm", "hybrid", "hybrid_star", "keel", "keel_attempt1", "keel_attempt2", "keel_attempt3", "keel_v1",
                          "layerscale", "lns", "mix", "olmo2", "post", "pre", "rezero", "sandwich"])

    def test_every_option_of_the_model(self):
        options = ("model.learnable_alpha=true", "model.qk_norm=true", "model.norm_type=ln", "model.final_norm=true")
        report = json.loads(self.check("keel-analyze", *self.KEEL, *[a for option in options for a in ("--set", option)]).stdout)
        row = report["results"]["rows"][2]
        self.assertEqual((row["a"], row["skip_scale"], row["qkv"], row["inner"], row["outer"]), (6, "exponential", "qk_head", "ln", "ln"))
        self.assertEqual((report["results"]["final_norm"], report["results"]["final_norm_kind"]), (True, "ln"))
        mix = json.loads(self.check("keel-analyze", "wiring", "--scheme", "mix", "--blocks", "4", "--set", "model.mix_fraction=0.75").stdout)
        self.assertEqual([row["outer"] for row in mix["results"]["rows"]], ["rms"] * 6 + ["none"] * 2)
