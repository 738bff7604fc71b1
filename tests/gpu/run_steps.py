"""Steps of run.sh on a machine with a GPU. Results are JSON lines, one a step or measurement, written as soon as they are known:
{"step": .., "status": "ok" | "failed" | "skipped", "reason": .., "seconds": .., ...}."""

import argparse
import glob
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import training

# Sizes of the operations, and those of rehearsals and sanitizers.
FULL = {"rows": 8192, "width": 1024, "vocab": 32768, "sequence": 2048, "product": 8192, "milliseconds": 100}
SMALL = {"rows": 128, "width": 128, "vocab": 512, "sequence": 64, "product": 128, "milliseconds": 0}
MODELS = [{"sublayers": 64, "width": 1024, "sequence": 1024, "tokens": 8192, "vocab": 32768, "micro": "auto", "steps": 5},
          {"sublayers": 512, "width": 1024, "sequence": 1024, "tokens": 4096, "vocab": 32768, "micro": "auto", "steps": 3,
           "recompute": "block"}]
SMALL_MODELS = [{"sublayers": 8, "width": 64, "sequence": 32, "tokens": 64, "vocab": 256, "steps": 2},
                {"sublayers": 32, "width": 64, "sequence": 32, "tokens": 64, "vocab": 256, "steps": 2, "recompute": "block"}]
# Op tests that the rehearsal runs; all of them go through the emulation in the ordinary tests.
FEW_TESTS = "Seam*:RmsNorm*:Swiglu*:Adamw*"
LOSS_TOLERANCE = 1e-4  # of 20 steps in fp32 on different machines, relative
SANITIZERS = ("memcheck", "racecheck", "synccheck", "initcheck")


class Skip(Exception):
    pass


class Failed(Exception):
    pass


def find_cublas():
    """Folders that hold libcublasLt.so.13, besides those that the loader looks into itself."""
    patterns = [f"{folder}/nvidia/*/lib" for folder in sys.path if folder]
    patterns += ["/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/*/lib", "/usr/lib/x86_64-linux-gnu", "/opt/*/lib"]
    patterns += ["/opt/*/lib/python3*/site-packages/nvidia/*/lib", "/usr/lib/python3*/*-packages/nvidia/*/lib",
                 "/usr/local/lib/python3*/*-packages/nvidia/*/lib", f"{pathlib.Path.home()}/*/lib/python3*/site-packages/nvidia/*/lib"]
    return sorted({folder for pattern in patterns for folder in glob.glob(pattern) if glob.glob(folder + "/libcublasLt.so.13*")})


def find_tool(name):
    for candidate in [shutil.which(name), *sorted(glob.glob(f"/usr/local/cuda*/bin/{name}")),
                      *sorted(glob.glob(f"/opt/nvidia/*/*/{name}"))]:
        if candidate and os.access(candidate, os.X_OK):
            return candidate
    raise Skip(f"{name} is not installed")


class Session:
    def __init__(self, files, out, device, limit):
        self.files, self.out, self.device = files, out, device
        self.is_rehearsal = device != "cuda"
        self.end = time.monotonic() + limit
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="keel-gpu-"))
        folders = [str(files / "lib"), *find_cublas()]
        self.environment = dict(os.environ, LD_LIBRARY_PATH=":".join(folders + os.environ.get("LD_LIBRARY_PATH", "").split(":")).strip(":"),
                                KEEL_TEST_DEVICE=device, KEEL_TEST_DATA=str(files / "data"), KEEL_GOLDEN_FOLDER=str(files / "data/built-in"), TMPDIR=str(self.scratch))
        out.mkdir(parents=True, exist_ok=True)
        self.loader = self.find_loader(folders)
        self.sizes = SMALL if self.is_rehearsal else FULL
        self.speeds = []

    def find_loader(self, folders):
        """What programs are started by where the C library is older than theirs: the loader that is packed, with its own."""
        asked = [str(self.files / "bin/device_bench"), "--only", "none", "--device", "cpu"]
        plain = subprocess.run(asked, capture_output=True, text=True, env=self.environment)
        if "GLIBC_" not in plain.stderr and not os.environ.get("KEEL_GPU_OWN_LOADER"):
            return []
        folder = str(self.files / "lib/c")
        return [folder + "/ld-linux-x86-64.so.2", "--library-path", ":".join([folder, *folders])]

    def program(self, name):
        return [*self.loader, self.files / "bin" / name]

    def write(self, step, status, **values):
        line = {"step": step, "status": status, **values}
        with open(self.out / "results.jsonl", "a") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
        shown = json.dumps({k: v for k, v in line.items() if k not in ("step", "status")})
        print(f"{status:<8} {step:<24} {shown[:300]}", flush=True)

    def left(self):
        return self.end - time.monotonic()

    def run(self, command, timeout, **environment):
        """(exit code, output, whether it was cut): everything that the command started is gone afterwards."""
        command = [str(part) for part in command]
        begin = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                                   env={**self.environment, **environment}, start_new_session=True, cwd=self.scratch)
        cut = False
        try:
            output = process.communicate(timeout=max(1.0, min(timeout, self.left())))[0]
        except subprocess.TimeoutExpired:
            cut = True
            os.killpg(process.pid, signal.SIGKILL)
            output = process.communicate()[0]
        with open(self.out / "log.txt", "a") as log:
            log.write(f"$ {' '.join(command)}\n{output}\n[{process.returncode}, {time.monotonic() - begin:.1f} s]\n")
        return process.returncode, output, cut

    def bench(self, timeout, *extra, **sizes):
        options = {"device": self.device, **self.sizes, **sizes}
        command = [*self.program("device_bench"), *extra]
        for name, value in options.items():
            command += [f"--{name}", value]
        return command, timeout


def json_lines(output):
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


# ---- steps

def device(s):
    command, timeout = s.bench(30, "--only", "none")
    code, output, cut = s.run(command, timeout)
    found = json_lines(output)
    if code != 0 or not found:
        raise Failed("timed out" if cut else output.strip()[-400:])
    values = {"device": found[0], "cublas_folders": find_cublas(), "own_loader": bool(s.loader)}
    expected = json.loads((s.files / "data/expected.json").read_text())
    values["commit"] = expected["commit"]
    if shutil.which("nvidia-smi"):
        query = "name,driver_version,vbios_version,memory.total,power.limit,clocks.max.sm,clocks.max.mem,ecc.mode.current"
        values["nvidia_smi"] = s.run(["nvidia-smi", f"--query-gpu={query}", "--format=csv"], 10)[1].strip()
    backend = s.files / ("lib/libkeel_cuda_emulated.so" if s.is_rehearsal else "lib/libkeel_cuda.so")
    values["libraries"] = [line.strip() for line in s.run(["ldd", backend], 10)[1].splitlines() if "cu" in line]
    return values


def gtest(s, program, timeout, *arguments):
    code, output, cut = s.run([*s.program(program), *arguments], timeout)
    passed = re.findall(r"^\[       OK \] (\S+)", output, re.M)
    failed = sorted(set(re.findall(r"^\[  FAILED  \] ([^\s,]+)", output, re.M)) - {"tests"})
    skipped = len(set(re.findall(r"^\[  SKIPPED \] ([^\s,]+)", output, re.M)))
    values = {"passed": len(passed), "failed": failed, "skipped": skipped, "cut": cut}
    if cut and not failed and passed:
        begun = re.findall(r"^\[ RUN      \] (\S+)", output, re.M)
        values["running"] = begun[-1] if begun else None
        return values
    if code != 0 or not passed:
        raise Failed(json.dumps({**values, "exit_code": code, "output": output.strip()[-600:]}))
    return values


def tests(s):
    return gtest(s, "kernels_test", 70, *([f"--gtest_filter={FEW_TESTS}"] if s.is_rehearsal else []))


def golden(s):
    return gtest(s, "golden_test", 30, "--gtest_filter=*GoldenModel*:*Wiring*")


def worst_difference(a, b):
    if len(a) != len(b):
        raise Failed(f"{len(a)} and {len(b)} losses")
    return max(abs(x - y) / abs(y) for x, y in zip(a, b))


def train(s):
    expected = json.loads((s.files / "data/expected.json").read_text())["losses"]
    try:
        programs = s.program("keel-train"), s.files / "data"
        timeout = 100 if s.is_rehearsal else 20
        run, again = s.scratch / "run", s.scratch / "again"
        got = training.train_losses(*programs, run, s.device, s.environment, timeout)
        training.train_losses(*programs, again, s.device, s.environment, timeout)
        resume = training.resume_differs(*programs, run, s.device, s.environment, timeout)
        cpu = training.train_losses(*programs, s.scratch / "cpu", "cpu", s.environment, timeout)
    except (RuntimeError, OSError, subprocess.TimeoutExpired) as problem:
        raise Failed(str(problem))
    values = {"losses": got, "second_run_differs": training.digest(run) != training.digest(again), "resume_differs": resume,
              "difference_to_cpu_here": worst_difference(got, cpu)}
    for name, losses in expected.items():
        values[f"difference_to_packed_{name}"] = worst_difference(got, losses)
    wrong = [name for name, value in values.items() if name.startswith("difference") and not value <= LOSS_TOLERANCE]
    if wrong or values["second_run_differs"] or resume:
        raise Failed(json.dumps(values))
    return values


def sanitizers(s):
    program = find_tool("compute-sanitizer")
    if s.is_rehearsal:
        raise Skip("compute-sanitizer needs a GPU")
    bad = []
    for tool in SANITIZERS:
        command, timeout = s.bench(20, **SMALL)
        begin = time.monotonic()
        code, output, cut = s.run([program, "--tool", tool, "--error-exitcode", "9", *command], timeout)
        summary = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: .*", output)
        found = re.findall(r"^=+ ((?:Invalid|Uninitialized|Barrier|Error: Race|Warning: Race|Program hit).*)", output, re.M)[:5]
        status = "failed" if code == 9 or code != 0 and not cut else "ok"
        bad += [tool] if status == "failed" else []
        s.write(f"sanitizers {tool}", status, summary=summary, first=found, cut=cut, ops=len(json_lines(output)) - 1,
                seconds=round(time.monotonic() - begin, 2))
    if bad:
        raise Failed(" ".join(bad))
    return {}


def ceilings(lines):
    copy = max((line["gb_per_second"] for line in lines if line["op"] == "copy"), default=None)
    product = max((line["tflops_per_second"] for line in lines if line["op"] == "product"), default=None)
    return copy, product


def share_of_ceiling(line, copy, product):
    """The least time that the ceilings allow, of the time that it took."""
    least = max(line["bytes"] / (copy * 1e9) if copy else 0, line["flops"] / (product * 1e12) if product else 0)
    return round(least / line["seconds"], 3)


def speed(s):
    command, timeout = s.bench(60)
    code, output, cut = s.run(command, timeout)
    lines = [line for line in json_lines(output) if "op" in line]
    copy, product = ceilings(lines)
    for line in lines:
        s.write("speed", "ok", share_of_ceiling=share_of_ceiling(line, copy, product), **line)
    s.speeds = lines
    if code != 0 and not cut or not lines:
        raise Failed(output.strip()[-400:])
    return {"operations": len(lines), "copy_gb_per_second": copy, "product_tflops_per_second": product, "cut": cut}


def models(s):
    _, product = ceilings(s.speeds)
    bad = []
    for model in SMALL_MODELS if s.is_rehearsal else MODELS:
        command = [*s.program("train_step_bench"), "--device", s.device, "--products", "0"]
        for name, value in model.items():
            command += [f"--{name}", value]
        begin = time.monotonic()
        code, output, cut = s.run(command, 45 if model["sublayers"] <= 64 else 100)
        name = f"models {model['sublayers']}x{model['width']}"
        seconds = round(time.monotonic() - begin, 2)
        if code != 0:
            bad.append(name)
            s.write(name, "failed", seconds=seconds, reason="timed out" if cut else output.strip()[-400:])
            continue
        found = json_lines(output)[-1]
        found["utilisation_of_product_rate"] = found["gflops_per_s"] / (product * 1e3) if product else None
        s.write(name, "ok", seconds=seconds, **{k: v for k, v in found.items() if k != "seconds"})
    if bad:
        raise Failed(" ".join(bad))
    return {}


def torch(s):
    """torch runs in this Python, with the libraries that it brings itself."""
    begin = time.monotonic()
    environment = {"LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}
    code, output, cut = s.run([sys.executable, s.files / "torch_speed.py", json.dumps(s.sizes)], 60, **environment)
    if code == 77:
        raise Skip(output.strip()[-200:])
    ours = {(line["op"], line["rows"], line["d"]): line["seconds"] for line in s.speeds}
    lines = json_lines(output)
    for line in lines:
        own = ours.get((line["op"], line["rows"], line["d"]))
        s.write("torch", "ok", **line, our_seconds=own, speed_to_torch=round(line["seconds"] / own, 3) if own else None)
    if not lines:
        raise Failed("timed out" if cut else output.strip()[-400:])
    return {"operations": len(lines), "cut": cut, "total": round(time.monotonic() - begin, 2)}


def profiler(s):
    program = find_tool("ncu")
    if s.is_rehearsal:
        raise Skip("ncu needs a GPU")
    copy, product = ceilings(s.speeds)
    slowest = sorted((line for line in s.speeds if line["op"] not in ("copy", "product")),
                     key=lambda line: share_of_ceiling(line, copy, product))[:3]
    if not slowest:
        raise Skip("no speeds were measured")
    for line in slowest:
        command, timeout = s.bench(20, "--only", line["op"], milliseconds=0)
        metrics = ("gpu__time_duration.sum,dram__bytes.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed,"
                   "sm__throughput.avg.pct_of_peak_sustained_elapsed,sm__warps_active.avg.pct_of_peak_sustained_active,"
                   "launch__registers_per_thread")
        code, output, cut = s.run([program, "--clock-control", "none", "--launch-count", "6", "--csv", "--metrics", metrics, *command],
                                  timeout)
        s.write(f"profiler {line['op']}", "failed" if code != 0 else "ok", cut=cut,
                csv=[row for row in output.splitlines() if row.startswith('"')][:60], output=output.strip()[-200:] if code else "")
    return {}


STEPS = (device, tests, golden, train, sanitizers, speed, models, torch, profiler)
NAMES = {"train": "training"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--device", choices=("cuda", "cuda-emulated"), default="cuda")
    parser.add_argument("--limit", type=float, default=345)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    s = Session(arguments.files.resolve(), arguments.out.resolve(), arguments.device, arguments.limit)
    wanted = [name for name in arguments.only.split(",") if name]
    begin, counts, broken = time.monotonic(), {"ok": 0, "failed": 0, "skipped": 0}, False
    for step in STEPS:
        name = NAMES.get(step.__name__, step.__name__)
        if wanted and name not in wanted:
            continue
        started = time.monotonic()
        try:
            if broken:
                raise Skip("the device does not work")
            if s.left() < 5:
                raise Skip("no time is left")
            status, values = "ok", step(s)
        except Skip as reason:
            status, values = "skipped", {"reason": str(reason)}
        except Failed as reason:
            status, values = "failed", {"reason": str(reason)}
            broken = broken or step is device
        except Exception as problem:  # a step must not take the others with it
            status, values = "failed", {"reason": f"{type(problem).__name__}: {problem}"}
        counts[status] += 1
        s.write(name, status, **{"seconds": round(time.monotonic() - started, 2), **values})
    shutil.rmtree(s.scratch, ignore_errors=True)
    s.write("all", "failed" if counts["failed"] else "ok", seconds=round(time.monotonic() - begin, 2), **counts)
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
