"""Steps of run.sh on a machine with a GPU. Results are JSON lines, one a step or measurement, written as soon as they are known:
{"step": .., "status": "ok" | "failed" | "skipped", "reason": .., "seconds": .., ...}."""

import argparse
import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

from results import Failed, Skip, TestRun, TimedOut, json_lines, last_words, of_profiler, of_sanitizer
from session import Session, find_cublas, find_tool
from training import Training, digest

# Sizes of the operations, and those of rehearsals and sanitizers.
FULL = {"rows": 8192, "width": 1024, "vocab": 32768, "sequence": 2048, "product": 8192, "milliseconds": 100}
SMALL = {"rows": 128, "width": 128, "vocab": 512, "sequence": 64, "product": 128, "milliseconds": 0}
# Models to train, with seconds at most.
WIDE = {"width": 1024, "sequence": 1024, "vocab": 32768, "micro": "auto"}
NARROW = {"width": 64, "sequence": 32, "tokens": 64, "vocab": 256, "steps": 2}
MODELS = [({**WIDE, "sublayers": 64, "tokens": 8192, "steps": 5}, 45),
          ({**WIDE, "sublayers": 512, "tokens": 4096, "steps": 3, "recompute": "block"}, 100)]
SMALL_MODELS = [({**NARROW, "sublayers": 8}, 45), ({**NARROW, "sublayers": 32, "recompute": "block"}, 100)]
# Op tests that the rehearsal runs; all of them go through the emulation in the ordinary tests.
FEW_TESTS = "Seam*:RmsNorm*:Swiglu*:Adamw*"
HARNESS_TEST = "Bias.*"  # small, of one operation
MOST_FAILURES = 8  # after these no more tests are begun
PRECISIONS = ("bf16", "fp32")  # the more valuable first
LOSS_TOLERANCE = 1e-4  # of 20 steps in fp32 on different machines, relative
# Losses in bf16 may be off by so many times what they are on the emulated device: see FACTOR in e2e/test_device_run.py.
BF16_FACTOR = 4
SANITIZERS = ("memcheck", "racecheck", "synccheck", "initcheck")


def device(s):
    code, output, cut = s.run(s.bench("device_bench", "--only", "none"), 30)
    found = json_lines(output)
    if code != 0 or not found:
        raise Failed("timed out" if cut else last_words(output))
    values = {"device": found[0], "cublas_folders": find_cublas(), "own_loader": bool(s.loader), "commit": packed(s)["commit"]}
    if shutil.which("nvidia-smi"):
        query = "name,driver_version,vbios_version,memory.total,power.limit,clocks.max.sm,clocks.max.mem,ecc.mode.current"
        values["nvidia_smi"] = s.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv"], 10)[1].strip()
    backend = s.files / ("lib/libkeel_cuda_emulated.so" if s.is_rehearsal else "lib/libkeel_cuda.so")
    values["libraries"] = [line.strip() for line in s.run(["ldd", backend], 10)[1].splitlines() if "cu" in line]
    return values


def packed(s):
    return json.loads((s.files / "data/expected.json").read_text())


def gtest(s, program, seconds, wanted):
    """Tests that fit a filter; after a failure those behind it, in another process. One that takes half of the time of all hangs."""
    end = time.monotonic() + seconds
    tests, cut, goes_on = TestRun(), False, True
    while goes_on and len(tests.having("FAILED", "RUN")) < MOST_FAILURES:
        begin = time.monotonic()
        code, output, cut = s.run([*s.program(program), "--gtest_fail_fast", f"--gtest_filter={wanted}-{':'.join(tests.endings)}"], end - begin)
        goes_on = tests.add(code, output, cut, time.monotonic() - begin)
    values = {**tests.values(), "cut": cut, "all_ran": not goes_on and not cut}
    if values["failed"]:
        raise Failed(f"{len(values['failed'])} tests, first {values['first_failed']}", **values)
    if values.get("running_seconds", 0) > seconds / 2:
        raise TimedOut(f"{values['running']} hangs", **values)
    if not values["passed"]:
        raise (TimedOut if cut else Failed)("no test passed", **values)
    return values


def harness(s):
    return gtest(s, "kernels_test", 10, HARNESS_TEST)


def tests(s):
    return gtest(s, "kernels_test", 70, FEW_TESTS if s.is_rehearsal else "*")


def golden(s):
    return gtest(s, "golden_test", 30, "*GoldenModel*:*Wiring*")


def worst_difference(a, b):
    if len(a) != len(b):
        raise Failed(f"{len(a)} and {len(b)} losses")
    return max(abs(x - y) / abs(y) for x, y in zip(a, b))


def allowed_difference(expected, precision):
    if precision == "fp32":
        return LOSS_TOLERANCE
    return BF16_FACTOR * worst_difference(expected["cuda-emulated bf16"], expected["cuda-emulated fp32"])


def train_in(s, precision):
    expected = packed(s)["losses"]
    begun = Training(s.program("keel-train"), s.files / "data", s.environment, min(s.left(), 300 if s.is_rehearsal else 60))
    run, again = s.scratch / f"run-{precision}", s.scratch / f"again-{precision}"
    try:
        losses = begun.run(run, s.device, precision)
        begun.run(again, s.device, precision)
        resume = begun.resume_differs(run, s.device, precision)
        if precision == "fp32":
            expected["cpu here fp32"] = begun.run(s.scratch / "cpu", "cpu", precision)
    except subprocess.TimeoutExpired as problem:
        raise TimedOut(str(problem))
    except (RuntimeError, OSError) as problem:
        raise Failed(str(problem))
    allowed = allowed_difference(expected, precision)
    differences = {name: worst_difference(losses, other) for name, other in expected.items() if precision == "bf16" or name.endswith("fp32")}
    values = {"losses": losses, "second_run_differs": digest(run) != digest(again), "resume_differs": resume,
              "differences": differences, "allowed_difference": allowed}
    wrong = [f"losses differ from those of {name}" for name, value in differences.items() if not value <= allowed]
    wrong += [name for name in ("second_run_differs", "resume_differs") if values[name]]
    if wrong:
        raise Failed(", ".join(wrong), **values)
    return values


def train(s):
    return s.in_parts("training", {precision: functools.partial(train_in, s, precision) for precision in PRECISIONS})


def sanitizers(s):
    program = find_tool("compute-sanitizer")
    if s.is_rehearsal:
        raise Skip("compute-sanitizer needs a GPU")
    bench = s.bench("device_bench", **SMALL)
    return s.in_parts("sanitizers", {tool: lambda tool=tool: of_sanitizer(*s.run([program, "--tool", tool, "--error-exitcode", "9", *bench], 20))
                                     for tool in SANITIZERS})


def precision_of(operation):
    return "bf16" if operation.endswith("_bf16") else "fp32"


def ceilings(lines):
    """Bytes a second of a copy, and FLOPs a second of the products of each precision, where they were measured."""
    def most(operation, key):
        return max((line[key] for line in lines if line["op"] == operation), default=None)

    return {"copy": most("copy", "gb_per_second"), "fp32": most("product", "tflops_per_second"),
            "bf16": most("product_bf16", "tflops_per_second")}


def share_of_ceiling(line, ceiling):
    """The least time that the ceilings allow, of the time that it took."""
    copy, product = ceiling["copy"], ceiling[precision_of(line["op"])]
    least = max(line["bytes"] / (copy * 1e9) if copy else 0, line["flops"] / (product * 1e12) if product else 0)
    return round(least / line["seconds"], 3)


def speed(s):
    code, output, cut = s.run(s.bench("device_bench", **sizes(s)), 60)
    s.speeds = [line for line in json_lines(output) if "op" in line]
    ceiling = ceilings(s.speeds)
    for line in s.speeds:
        s.write("speed", "ok", share_of_ceiling=share_of_ceiling(line, ceiling), **line)
    if code != 0 and not cut or not s.speeds:
        raise (TimedOut if cut else Failed)(last_words(output))
    return {"operations": len(s.speeds), "copy_gb_per_second": ceiling["copy"], "product_tflops_per_second": ceiling["fp32"],
            "product_bf16_tflops_per_second": ceiling["bf16"], "cut": cut}


def sizes(s):
    return SMALL if s.is_rehearsal else FULL


def train_model(s, model, seconds):
    code, output, cut = s.run(s.bench("train_step_bench", products=0, **model), seconds)
    if cut:
        raise TimedOut("timed out")
    if code != 0:
        raise Failed(last_words(output))
    found = json_lines(output)[-1]
    product = ceilings(s.speeds)[model["precision"]]
    found["utilisation_of_product_rate"] = found["gflops_per_s"] / (product * 1e3) if product else None
    return {k: v for k, v in found.items() if k != "seconds"}


def models(s):
    parts = {f"{model['sublayers']}x{model['width']} {precision}": functools.partial(train_model, s, {**model, "precision": precision}, seconds)
             for precision in PRECISIONS for model, seconds in (SMALL_MODELS if s.is_rehearsal else MODELS)}
    return s.in_parts("models", parts)


def torch(s):
    """torch runs in this Python, with the libraries that it brings itself."""
    environment = {"LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}
    code, output, cut = s.run([sys.executable, s.files / "torch_speed.py", json.dumps(sizes(s))], 60, **environment)
    if code == 77:
        raise Skip(output.strip()[-200:])
    ours = {(line["op"], line["rows"], line["d"]): line["seconds"] for line in s.speeds}
    lines = json_lines(output)
    for line in lines:
        own = ours.get((line["op"], line["rows"], line["d"]))
        s.write("torch", "ok", **line, our_seconds=own, speed_to_torch=round(line["seconds"] / own, 3) if own else None)
    if code != 0 and not cut or not lines:
        raise (TimedOut if cut else Failed)(last_words(output))
    return {"operations": len(lines), "cut": cut}


def profiler(s):
    program = find_tool("ncu")
    if s.is_rehearsal:
        raise Skip("ncu needs a GPU")
    ceiling = ceilings(s.speeds)
    operations = [line for line in s.speeds if not line["op"].startswith(("copy", "product"))]
    slowest = sorted(operations, key=lambda line: share_of_ceiling(line, ceiling))[:3]
    if not slowest:
        raise Skip("no speeds were measured")
    metrics = ("gpu__time_duration.sum,dram__bytes.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed,"
               "sm__throughput.avg.pct_of_peak_sustained_elapsed,sm__warps_active.avg.pct_of_peak_sustained_active,"
               "launch__registers_per_thread")

    def profile(operation):
        bench = s.bench("device_bench", "--only", operation, **{**sizes(s), "milliseconds": 0})
        return of_profiler(*s.run([program, "--clock-control", "none", "--launch-count", "6", "--csv", "--metrics", metrics, *bench], 20))

    return s.in_parts("profiler", {line["op"]: functools.partial(profile, line["op"]) for line in slowest})


STEPS = {"device": device, "harness": harness, "tests": tests, "golden": golden, "training": train, "sanitizers": sanitizers,
         "speed": speed, "models": models, "torch": torch, "profiler": profiler}
# What a step cannot do without; of harness: programs of tests, whose memory is shared with the device.
NEEDS = {name: ("device",) for name in STEPS if name != "device"} | {name: ("device", "harness") for name in ("tests", "golden")}


def steps_of(text):
    """The steps that --only names, in the order in which they run."""
    wanted = text.split(",")
    unknown = [name for name in wanted if name not in STEPS]
    if unknown:
        raise argparse.ArgumentTypeError(f"there is no step '{unknown[0]}'; steps are {' '.join(STEPS)}")
    return [name for name in STEPS if name in wanted]


def finish(s, counts, seconds):
    """Writes the line of all, and gives the exit code: 0 only if a step ran and none failed."""
    reason = {} if counts["ok"] or counts["failed"] else {"reason": "no step ran"}
    is_good = counts["ok"] and not counts["failed"]
    s.write("all", "ok" if is_good else "failed", seconds=round(seconds, 2), **counts, **reason)
    return 0 if is_good else 1


def run_steps(s, steps):
    """How many steps ended in each status."""
    statuses = {}
    for name in steps:
        missing = [needed for needed in NEEDS.get(name, ()) if statuses.get(needed) == "failed"]
        if missing:
            status, values = "skipped", {"reason": f"{missing[0]} failed"}
        else:
            status, values = s.outcome(functools.partial(STEPS[name], s))
        statuses[name] = status
        s.write(name, status, **values)
    return {status: list(statuses.values()).count(status) for status in ("ok", "failed", "skipped")}


def main():
    parser = argparse.ArgumentParser(prog="run.sh run")
    parser.add_argument("--files", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--device", choices=("cuda", "cuda-emulated"), default="cuda")
    parser.add_argument("--limit", type=float, default=345)
    parser.add_argument("--only", type=steps_of, default=list(STEPS), metavar="STEP,STEP...")
    arguments = parser.parse_args()
    s = Session(arguments.files.resolve(), arguments.out.resolve(), arguments.device, arguments.limit)
    begin = time.monotonic()
    counts = run_steps(s, arguments.only)
    shutil.rmtree(s.scratch, ignore_errors=True)
    return finish(s, counts, time.monotonic() - begin)


if __name__ == "__main__":
    sys.exit(main())
