"""What tests/gpu/run_steps.py makes of what programs and tools say, by imitations of them."""
import argparse
import contextlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

GPU = pathlib.Path(__file__).resolve().parents[1] / "gpu"
sys.path.insert(0, str(GPU))
import pack
import results
import run_steps
import session
from results import Failed, Skip, TimedOut

DEVICE_LINE = '{"device": "cuda"}\n'
OPERATION_LINE = '{"op": "seam_forward", "rows": 128}\n'


class FakeSession(session.Session):
    """One whose programs are functions of their command: (exit code, output, whether it was cut)."""

    def __init__(self, program=None, seconds=100):
        self.run = lambda command, timeout, **environment: program([str(part) for part in command])
        self.end = time.monotonic() + seconds
        self.files, self.loader, self.device, self.is_rehearsal = pathlib.Path("/files"), [], "cuda", False
        self.lines, self.speeds, self.scratch = {}, [], pathlib.Path("/scratch")

    def write(self, step, status, **values):
        self.lines[step] = {"status": status, **values}


def tests_program(tests, breaks_device=False):
    """Like GoogleTest's. `tests`: {name: what it ends with}, "crash" and "hang" among it. With breaks_device a process that goes on after
    a failure never ends."""

    def program(command):
        excluded = next(part for part in command if part.startswith("--gtest_filter")).split("-")[-1].split(":")
        output, broken = "[==========] Running tests.\n", False
        for name, ending in tests.items():
            if name in excluded:
                continue
            output += f"[ RUN      ] {name}\n"
            if ending in ("crash", "hang"):
                return (-11, output, False) if ending == "crash" else (-9, output, True)
            if broken and "--gtest_fail_fast" in command:
                ending = "SKIPPED"
            elif broken and breaks_device:
                return -9, output, True
            elif ending == "FAILED":
                broken = True
                output += f"what {name} saw\n"
            output += f"[{ending:^10}] {name} (1 ms)\n"
        return int(broken), output + "".join(f"[  FAILED  ] {n}\n" for n in tests if broken), False

    return program


def run_tests(tests, **keywords):
    return run_steps.gtest(FakeSession(tests_program(tests, **keywords)), "kernels_test", 10, "*")


class Tests(unittest.TestCase):
    def test_all_pass(self):
        values = run_tests({"A.a": "OK", "A.b": "SKIPPED", "B.a": "OK"})
        self.assertEqual((values["passed"], values["skipped"], values["failed"], values["all_ran"]), (2, 1, [], True))

    def test_first_failure_is_kept(self):
        with self.assertRaises(Failed) as failure:
            run_tests({"X.a": "OK", "X.b": "FAILED", "B.a": "OK", "B.b": "FAILED", "A.a": "OK"}, breaks_device=True)
        values = failure.exception.values
        self.assertEqual(values["failed"], ["X.b", "B.b"])
        self.assertEqual(values["first_failed"], "X.b")
        self.assertEqual(values["first_failed_said"], "X.b\nwhat X.b saw")
        self.assertEqual((values["passed"], values["skipped"], values["processes"], values["all_ran"]), (3, 0, 3, True))

    def test_a_crash_is_a_failure(self):
        with self.assertRaises(Failed) as failure:
            run_tests({"X.a": "crash", "B.a": "FAILED", "A.a": "OK"})
        values = failure.exception.values
        self.assertEqual((values["failed"], values["crashed"], values["passed"]), (["X.a", "B.a"], ["X.a"], 1))

    def test_many_failures_are_not_waited_for(self):
        with self.assertRaises(Failed) as failure:
            run_tests({f"X.{i}": "FAILED" for i in range(20)})
        self.assertEqual(len(failure.exception.values["failed"]), run_steps.MOST_FAILURES)
        self.assertFalse(failure.exception.values["all_ran"])

    def test_a_cut_keeps_what_passed(self):
        values = run_tests({"A.a": "OK", "A.b": "hang"})
        self.assertEqual((values["passed"], values["running"], values["cut"], values["all_ran"]), (1, "A.b", True, False))
        with self.assertRaisesRegex(TimedOut, "no test passed"):
            run_tests({"A.a": "hang"})

    def test_a_test_that_hangs(self):
        tests = results.TestRun()
        self.assertFalse(tests.add(-9, "[ RUN      ] A.a\n[       OK ] A.a (4000 ms)\n[ RUN      ] A.b\n", True, 10))
        self.assertEqual(tests.values()["running_seconds"], 6)
        program = tests_program({"A.a": "OK", "A.b": "hang"})
        with self.assertRaisesRegex(TimedOut, "A.b hangs"):
            run_steps.gtest(FakeSession(lambda command: time.sleep(0.3) or program(command)), "kernels_test", 0.3, "*")

    def test_a_program_that_does_not_start(self):
        with self.assertRaisesRegex(Failed, "no such device"):
            run_steps.gtest(FakeSession(lambda command: (3, "no such device", False)), "kernels_test", 10, "*")


class Sanitizers(unittest.TestCase):
    CLEAN = DEVICE_LINE + OPERATION_LINE + "========= ERROR SUMMARY: 0 errors\n"

    def refuse(self, kind, code, output, cut=False):
        with self.assertRaises(kind) as problem:
            results.of_sanitizer(code, output, cut)
        return str(problem.exception)

    def test_nothing_found(self):
        self.assertEqual(results.of_sanitizer(0, self.CLEAN, False)["operations"], 1)
        races = self.CLEAN.replace("ERROR SUMMARY: 0 errors", "RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)")
        self.assertEqual(results.of_sanitizer(0, races, False)["summary"], ["0 hazards displayed (0 errors, 0 warnings)"])
        self.assertTrue(results.of_sanitizer(-9, DEVICE_LINE + OPERATION_LINE + '{"op": "se', True)["cut"])

    def test_errors_count_also_when_it_was_cut(self):
        for code, output, cut in ((9, "========= Invalid __global__ write of size 4 bytes\n", False),
                                  (-9, "========= Invalid __global__ write of size 4 bytes\n", True),
                                  (0, "========= Internal Sanitizer Error: it didn't track the launch\n", False),
                                  (9, self.CLEAN.replace("0 errors", "2 errors"), False)):
            self.assertEqual(self.refuse(Failed, code, self.CLEAN + output, cut), "errors were found")

    def test_a_run_of_nothing_is_not_clean(self):
        self.assertEqual(self.refuse(Failed, 0, "========= ERROR SUMMARY: 0 errors\n"), "no operation ran to its end")
        self.assertEqual(self.refuse(TimedOut, -9, DEVICE_LINE, cut=True), "no operation ran to its end")
        self.assertEqual(self.refuse(Failed, 0, DEVICE_LINE + OPERATION_LINE), "it has no summary")
        self.assertIn("out of memory", self.refuse(Failed, 3, DEVICE_LINE + OPERATION_LINE + "out of memory"))

    def test_a_device_that_it_refuses(self):
        said = 'Device not supported. Please refer to the "Supported Devices" section of the sanitizer documentation'
        output = f"========= Error: {said}\n========= \n" + self.CLEAN.replace("0 errors", "1 error")
        self.assertEqual(self.refuse(Skip, 9, output), said)


class Profiler(unittest.TestCase):
    ROWS = '"ID","Metric"\n"0","1"\n'

    def profile(self, *answers):
        """Status of the step, and lines, for ncu's answers to one operation each."""
        left = list(answers)
        s = FakeSession(lambda command: left.pop(0))
        s.speeds = [{"op": f"operation{i}", "bytes": 1, "flops": 0, "seconds": 1} for i in range(len(answers))]
        find_tool, run_steps.find_tool = run_steps.find_tool, lambda name: name
        self.addCleanup(setattr, run_steps, "find_tool", find_tool)
        status, values = s.outcome(lambda: run_steps.profiler(s))
        return status, values, [line["status"] for line in s.lines.values()]

    def test_lines_that_failed_fail_the_step(self):
        status, values, lines = self.profile((0, self.ROWS, False), (1, "==ERROR== it broke", False), (0, "", False))
        self.assertEqual((status, lines), ("failed", ["ok", "failed", "failed"]))
        self.assertEqual(values["failed"], ["operation1", "operation2"])

    def test_counters_that_are_refused(self):
        refused = (1, "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n==WARNING== No kernels were profiled.", False)
        self.assertEqual(self.profile(refused, refused)[0], "skipped")
        self.assertEqual(self.profile(refused, (0, self.ROWS, False))[0], "ok")


class Steps(unittest.TestCase):
    def run_with(self, broken, seconds=100):
        """Lines of all steps where the broken one fails and the others do nothing."""
        def step(name):
            def work(_):
                if name == broken:
                    raise TimedOut("timed out")
                return {}
            return work

        s = FakeSession(seconds=seconds)
        steps = dict(run_steps.STEPS)
        self.addCleanup(run_steps.STEPS.update, steps)
        run_steps.STEPS.update({name: step(name) for name in steps})
        self.counts = run_steps.run_steps(s, list(steps))
        return s.lines

    def test_without_the_harness_of_tests_all_else_runs(self):
        lines = self.run_with("harness")
        skipped = {name: line["reason"] for name, line in lines.items() if line["status"] == "skipped"}
        self.assertEqual(skipped, {"tests": "harness failed", "golden": "harness failed"})
        self.assertEqual(self.counts, {"ok": len(lines) - 3, "failed": 1, "skipped": 2})

    def test_without_a_device_nothing_runs(self):
        lines = self.run_with("device")
        self.assertEqual({line["status"] for name, line in lines.items() if name != "device"}, {"skipped"})

    def test_what_the_end_of_all_time_cuts_has_not_failed(self):
        s = FakeSession(seconds=session.LEAST_SECONDS + 0.01)

        def work():
            s.end = time.monotonic()
            raise TimedOut("timed out")

        self.assertEqual(s.outcome(work)[0], "skipped")
        self.assertEqual(s.outcome(dict), ("skipped", {"seconds": 0.0, "reason": "no time is left"}))

    def test_only_knows_the_steps(self):
        self.assertEqual(run_steps.steps_of("speed,device"), ["device", "speed"])
        for text, unknown in (("device,sped", "sped"), (",", ""), ("", "")):
            with self.assertRaisesRegex(argparse.ArgumentTypeError, f"no step '{unknown}'; steps are device harness tests "):
                run_steps.steps_of(text)

    def test_an_unknown_step_is_refused_before_anything_runs(self):
        with tempfile.TemporaryDirectory() as name:
            out = pathlib.Path(name, "out")
            found = subprocess.run([sys.executable, GPU / "run_steps.py", "--files", name, "--out", out, "--only", "sped"],
                                   capture_output=True, text=True)
            self.assertEqual(found.returncode, 2)
            self.assertIn("there is no step 'sped'", found.stderr)
            self.assertFalse(out.exists())

    def test_a_run_of_nothing_is_an_error(self):
        for counts, code in (({"ok": 1, "failed": 0, "skipped": 9}, 0), ({"ok": 9, "failed": 1, "skipped": 0}, 1),
                             ({"ok": 0, "failed": 0, "skipped": 10}, 1)):
            s = FakeSession()
            self.assertEqual(run_steps.finish(s, counts, 1), code)
            self.assertEqual(s.lines["all"]["status"], "failed" if code else "ok")
        self.assertEqual(s.lines["all"]["reason"], "no step ran")

    def test_results_name_no_folder_that_is_gone(self):
        s = FakeSession()
        with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(io.StringIO()):
            s.out = pathlib.Path(name)
            session.Session.write(s, "golden", "failed", reason="/files/bin/golden_test: no", first=["in /scratch/x"])
            line = json.loads((s.out / "results.jsonl").read_text())
        self.assertEqual((line["reason"], line["first"]), ("bin/golden_test: no", ["in x"]))

    def test_ceiling_of_each_precision(self):
        ceiling = run_steps.ceilings([{"op": "copy", "gb_per_second": 1.0, "tflops_per_second": 0},
                                      {"op": "product", "gb_per_second": 1, "tflops_per_second": 1.0},
                                      {"op": "product_bf16", "gb_per_second": 1, "tflops_per_second": 8.0}])
        line = {"bytes": 0, "flops": 1e12, "seconds": 2.0}
        self.assertEqual(run_steps.share_of_ceiling({"op": "attention", **line}, ceiling), 0.5)
        self.assertEqual(run_steps.share_of_ceiling({"op": "attention_bf16", **line}, ceiling), 0.062)


class Packing(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        functions, pack.backend_functions = pack.backend_functions, lambda library: library.read_text()
        self.addCleanup(setattr, pack, "backend_functions", functions)
        self.build = self.root / "build/release"
        self.library("build/release/lib/libkeel_cuda_emulated.so", "new")

    def library(self, name, functions):
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(functions)
        return file

    def backend(self):
        with contextlib.redirect_stdout(io.StringIO()):
            return pack.cuda_backend(self.root, self.build)

    def test_a_backend_of_this_version_from_any_build(self):
        self.assertIsNone(self.backend())
        evidence = self.library("build/cuda-evidence/lib/libkeel_cuda.so", "new")
        self.assertEqual(self.backend(), evidence)
        cuda = self.library("build/cuda/lib/libkeel_cuda.so", "new")
        self.assertEqual(self.backend(), cuda)
        self.library("build/release/lib/libkeel_cuda.so", "old")
        self.assertEqual(self.backend(), cuda)

    def test_nothing_is_packed_without_a_backend(self):
        arguments = ["--root", str(self.root), "--build", str(self.build), "--out", str(self.root / "out")]
        with self.assertRaisesRegex(SystemExit, "no libkeel_cuda.so of this version"):
            pack.main(arguments)
        self.assertFalse((self.root / "out").exists())
        with self.assertRaisesRegex(SystemExit, "keel-train is not built"):
            pack.main([*arguments, "--emulated-only"])

    def test_help_is_no_error(self):
        for option in ("-h", "--help"):
            found = subprocess.run([GPU / "run.sh", option], capture_output=True, text=True)
            self.assertEqual(found.returncode, 0)
            self.assertIn("run.sh pack", found.stdout)
        self.assertEqual(subprocess.run([GPU / "run.sh"], capture_output=True).returncode, 2)


if __name__ == "__main__":
    unittest.main()
