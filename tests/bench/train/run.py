#!/usr/bin/env python3
"""Training steps of keel against PyTorch's, side by side: tokens/s, share of the raw product rate, memory, time by operation.

  run.py [--cases 64x64,512x128] [--modes eager,compile,blocks] [--rounds 5] [--out FILE]     sublayers x width
  run.py --cases none --batches 2048,8192,16384 --batch-case 64x128                           cost a token by batch size
  run.py --cases none --depths 64,1024                                                        cost a sublayer by depth

In each round our program and then each of the rival's modes run one after the other, each in a process of its own; figures are medians
over rounds, ratios those of neighbours. Needs a build, and for the rival bench_torch.py (--peers FOLDER, or KEEL_TEST_DATA/peers) and
a virtual environment with PyTorch (--venv FOLDER, made from PyPI, some GB, if there is none); --no-rival does without. The JSON is written
anew after each round, so that a run that is stopped has what it measured. Stop it with Ctrl-C: no process is left.
"""
import argparse
import ctypes
import datetime
import json
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
CASES = "64x64,64x128,64x256,64x512,512x64,512x128,1024x64"  # small ones first
GROUPS = {"products": ("product",), "attention": ("attention",), "seam": ("seam",), "norms": ("rms_norm", "layer_norm"),
          "swiglu": ("swiglu",), "rope": ("rope",), "cross-entropy": ("cross_entropy",), "optimiser": ("adamw", "grad_norm"),
          "embedding": ("embedding",)}
MIB = 1 << 20
PR_SET_PDEATHSIG = 1


class Failed(Exception):
    pass


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def kill_group(process):
    """The process and what it started (torch.compile has workers)."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def last_json(command, timeout, environment):
    """The last line that the command prints, as JSON. Failed if it takes too long, fails or prints none."""
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
                               start_new_session=True, preexec_fn=die_with_parent)
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        raise Failed(f"no result within {timeout:.0f} s") from None
    finally:
        kill_group(process)
    if process.returncode != 0:
        raise Failed(f"exit code {process.returncode}: {(err.strip().splitlines() or ['nothing said'])[-1]}")
    try:
        return json.loads(out.strip().splitlines()[-1])
    except (IndexError, ValueError):
        raise Failed("printed no JSON") from None


class Bench:
    """What is run, and how: our program and the rival with the same sizes and threads."""

    def __init__(self, a):
        self.a = a
        self.environment = {**os.environ, "OMP_NUM_THREADS": str(a.threads)}

    def ours(self, program, *options):
        return last_json([self.a.bin / program, "--threads", self.a.threads, *options], self.a.timeout, self.environment)

    def step(self, sublayers, width, *options):
        return self.ours("train_step_bench", "--sublayers", sublayers, "--width", width, *options)

    def timed_step(self, sublayers, width, *options):
        """Steps between measurements of the products, at least three, as many as fit --seconds."""
        return self.step(sublayers, width, "--steps", 3, "--seconds", max(1, round(self.a.seconds)), *options)

    def peak_bytes(self, sublayers, width, recompute):
        """Of a process that only trains."""
        return self.step(sublayers, width, "--steps", 2, "--products", 0, "--recompute", recompute)["peak_resident_bytes"]

    def rival(self, sublayers, width, mode):
        """As many steps as fit --seconds, at least one: a step can take tens of seconds. Compiled code needs a second one to warm up."""
        return last_json([self.a.python, "-W", "ignore", self.a.script, "--sublayers", sublayers, "--width", width, "--threads", self.a.threads,
                          "--mode", mode, "--warmup", 1 if mode == "eager" else 2, "--steps", 1, "--seconds", self.a.seconds],
                         self.a.timeout, self.environment)


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def split_of(result):
    """Percent of the step by group of operations; the whole is 100."""
    percent = dict.fromkeys(GROUPS, 0.0) | {"other": 0.0}
    for operation in result["operations"]:
        group = next((group for group, names in GROUPS.items() if operation["name"].startswith(names)), "other")
        percent[group] += 100 * operation["share"]
    return percent | {"overhead": 100 * result["overhead_seconds"] / result["profiled_step_seconds"]}


def summary_of(ours):
    """Medians of our rounds; operations are those of the round of median time."""
    middle = sorted(ours, key=lambda r: r["step_seconds"])[(len(ours) - 1) // 2]
    return {"tokens_per_second": spread([r["tokens_per_second"] for r in ours]),
            "product_rate_share": spread([r["product_rate_share"] for r in ours]),
            "product_gflops_per_second": spread([r["products_gflops_per_s"] for r in ours]),
            "gflops_per_second": spread([r["gflops_per_s"] for r in ours]),
            "flops_per_token": middle["flops_per_token"], "bytes_per_token": middle["bytes_per_token"],
            "memory_limit_bytes_per_second": statistics.median(r["limit_bytes_per_second"] for r in ours),
            "percent": split_of(middle), "operations": middle["operations"]}


def compare(ours, rivals, peak):
    """Each mode of the rival against our runs of the same rounds."""
    table = {}
    for mode, runs in rivals.items():
        done = {i: run for i, run in runs.items() if "error" not in run}
        if not done:
            table[mode] = {"error": next(iter(runs.values()))["error"]} if runs else {}
            continue
        rss = max(run["peak_rss_mib"] for run in done.values()) * MIB
        table[mode] = {"tokens_per_second": spread([run["tokens_per_s"]["median"] for run in done.values()]),
                       "ratio": spread([ours[i]["tokens_per_second"] / run["tokens_per_s"]["median"] for i, run in done.items()]),
                       "peak_resident_bytes": rss, "resident_after_import_bytes": max(run["rss_after_import_mib"] for run in done.values()) * MIB,
                       "memory_ratio": peak / rss, "torch": next(iter(done.values()))["torch"], "rounds": len(done)}
    return table


def print_case(case):
    ours = case["ours"]
    line = (f"{case['case']:>9}  {ours['tokens_per_second']['median']:9.1f} tokens/s  share {100 * ours['product_rate_share']['median']:5.1f} % of "
            f"{ours['product_gflops_per_second']['median']:.0f} GFLOP/s  peak {ours['peak_resident_bytes'] / MIB:.0f} MiB, "
            f"recompute=block {100 * ours['recompute_block_ratio']:.0f} %")
    print(line)
    for mode, rival in case["rivals"].items():
        if "ratio" not in rival:
            print(f"{'':>9}  torch {mode}: {rival.get('error', 'not run')}")
            continue
        ratio = rival["ratio"]
        print(f"{'':>9}  torch {mode}: {rival['tokens_per_second']['median']:.1f} tokens/s, ratio {ratio['median']:.2f} "
              f"({ratio['min']:.2f} to {ratio['max']:.2f}), memory {rival['memory_ratio']:.2f} of {rival['peak_resident_bytes'] / MIB:.0f} MiB")
    print(f"{'':>9}  " + ", ".join(f"{group} {percent:.1f} %" for group, percent in ours["percent"].items() if percent >= 0.05), flush=True)


def run_case(bench, sublayers, width, report):
    """Adds the case to the report, and rewrites it after each round."""
    memory = {mode: bench.peak_bytes(sublayers, width, mode) for mode in ("none", "block")}
    ours, rivals = [], {mode: {} for mode in bench.a.modes}
    case = {"case": f"{sublayers}x{width}", "sublayers": sublayers, "width": width}
    report.data["cases"].append(case)
    for i in range(bench.a.rounds):
        ours.append(bench.timed_step(sublayers, width))
        for mode, runs in rivals.items():
            if any("error" in run for run in runs.values()):
                continue  # what failed or took too long once does so again
            try:
                runs[i] = bench.rival(sublayers, width, mode)
            except Failed as failed:
                runs[i] = {"error": str(failed)}
        case["rounds"] = len(ours)
        case["ours"] = summary_of(ours) | {"peak_resident_bytes": memory["none"], "recompute_block_peak_resident_bytes": memory["block"],
                                           "recompute_block_ratio": memory["block"] / memory["none"]}
        case["rivals"] = compare(ours, rivals, memory["none"])
        report.write()
    print_case(case)


def run_batches(bench, sublayers, width, sizes, report):
    """Microseconds a token by tokens a step, micro-batches as the program chooses them; the first size is what others are compared with."""
    runs = {size: [] for size in sizes}
    for _ in range(bench.a.rounds):
        for size, found in runs.items():
            found.append(bench.timed_step(sublayers, width, "--tokens", size, "--micro", "auto")["tokens_per_second"])
    rows = [{"tokens": size, "microseconds_per_token": spread([1e6 / rate for rate in found]),
             "cost_ratio": spread([first / rate for first, rate in zip(runs[sizes[0]], found)])} for size, found in runs.items()]
    report.data["batches"] = {"case": f"{sublayers}x{width}", "sizes": rows}
    report.write()
    for row in rows:
        print(f"{sublayers}x{width}, {row['tokens']} tokens a step: {row['microseconds_per_token']['median']:.2f} us a token, "
              f"{row['cost_ratio']['median']:.3f} times that of {sizes[0]}", flush=True)


def run_depths(bench, width, depths, report):
    """Cost of a sublayer by depth, the first depth against each other one. A vocabulary of 512 keeps the head out of it."""
    shallow, rows = depths[0], []
    for depth in depths[1:]:
        found = bench.ours("depth_bench", "--shallow", shallow, "--sublayers", depth, "--width", width, "--sequence", 256, "--tokens", 2048,
                           "--vocab", 512, "--rounds", bench.a.rounds)
        rows.append({key: found[key] for key in ("shallow", "sublayers", "shallow_microseconds_per_sublayer", "deep_microseconds_per_sublayer",
                                                 "marginal_microseconds_per_sublayer", "per_sublayer_ratio")})
        report.data["depths"] = {"width": width, "rows": rows}
        report.write()
        print(f"{shallow} to {depth} sublayers x {width}: {found['shallow_microseconds_per_sublayer']:.1f} to "
              f"{found['deep_microseconds_per_sublayer']:.1f} us a sublayer, {found['per_sublayer_ratio']:.3f} times", flush=True)


class Report:
    def __init__(self, a):
        self.path = a.out
        self.data = {"schema": "keel.bench.train/1", "started": now(), "finished": None, "cpu": cpu_model(), "cores": len(os.sched_getaffinity(0)),
                     "threads": a.threads, "commit": commit(), "rounds": a.rounds, "cases": []}

    def write(self):
        self.data["finished"] = now()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_name(self.path.name + ".new")
        new.write_text(json.dumps(self.data, indent=1) + "\n")
        new.replace(self.path)


def now():
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def cpu_model():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def commit():
    said = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True)
    return said.stdout.strip() if said.returncode == 0 else None


def case_of(text):
    try:
        sublayers, width = map(int, text.split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is no SUBLAYERSxWIDTH") from None
    return sublayers, width


def cases_of(text):
    return [] if text == "none" else [case_of(case) for case in text.split(",")]


def integers_of(text):
    return [int(part) for part in text.split(",")]


def modes_of(text):
    modes = text.split(",")
    if not set(modes) <= {"eager", "compile", "blocks"}:
        raise argparse.ArgumentTypeError("modes are eager, compile, blocks")
    return modes


def parse():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = os.environ.get("KEEL_TEST_DATA")
    p.add_argument("--cases", type=cases_of, default=cases_of(CASES), help=f"or none (default {CASES})")
    p.add_argument("--modes", type=modes_of, default=["eager"], help="of the rival (default eager)")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=4, help="of timed steps in each process (default 4)")
    p.add_argument("--timeout", type=float, default=900, help="seconds after which a process is given up (default 900)")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--batches", type=integers_of, default=[], help="tokens a step to compare, the first with the others")
    p.add_argument("--batch-case", type=case_of, default=(64, 128), help="what --batches are of (default 64x128)")
    p.add_argument("--depths", type=integers_of, default=[], help="sublayers to compare, the first with the others")
    p.add_argument("--depth-width", type=int, default=64)
    p.add_argument("--no-rival", action="store_true")
    p.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin", help="folder of train_step_bench")
    p.add_argument("--peers", type=pathlib.Path, default=pathlib.Path(data) / "peers" if data else None, help="folder of bench_torch.py")
    p.add_argument("--venv", type=pathlib.Path, default=ROOT / "build/peers", help="with PyTorch (default build/peers)")
    p.add_argument("--out", type=pathlib.Path, default=ROOT / "build/bench-train.json", help="default build/bench-train.json")
    a = p.parse_args()
    if not (a.bin / "train_step_bench").exists():
        p.error(f"{a.bin} has no train_step_bench: run tests/run.sh --build-only")
    if a.no_rival or not a.cases:
        a.modes = []
    if a.modes:
        if a.peers is None or not (a.peers / "bench_torch.py").exists():
            p.error("bench_torch.py is not there: give --peers FOLDER, set KEEL_TEST_DATA, or use --no-rival")
        a.script, a.python = a.peers / "bench_torch.py", a.venv / "bin/python"
        if not a.python.exists():
            subprocess.run([sys.executable, "-m", "venv", a.venv], check=True)
            subprocess.run([a.venv / "bin/pip", "install", "--quiet", "torch", "numpy"], check=True)
    return a


def main():
    a = parse()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))  # through every `finally`
    bench, report = Bench(a), Report(a)
    failures = 0
    for sublayers, width in a.cases:
        try:
            run_case(bench, sublayers, width, report)
        except Failed as failed:
            failures += 1
            print(f"{sublayers}x{width}: {failed}", file=sys.stderr)
    if a.batches:
        run_batches(bench, *a.batch_case, a.batches, report)
    if len(a.depths) > 1:
        run_depths(bench, a.depth_width, a.depths, report)
    report.write()
    print(f"written: {a.out}")
    return 1 if failures else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except Failed as failed:
        sys.exit(f"run.py: error: {failed}")
