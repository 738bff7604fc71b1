"""A run of run_steps.py: where its files are, its programs, its time and its results."""

import glob
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from results import Failed, Skip, TimedOut

LEAST_SECONDS = 5  # no part is begun with less left


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

    def without_folder(self, value):
        """Names of files without the folders that are gone afterwards: that of what was unpacked, that of scratch."""
        if isinstance(value, str):
            return value.replace(f"{self.files}/", "").replace(f"{self.scratch}/", "")
        if isinstance(value, dict):
            return {key: self.without_folder(part) for key, part in value.items()}
        return [self.without_folder(part) for part in value] if isinstance(value, (list, tuple)) else value

    def write(self, step, status, **values):
        line = self.without_folder({"step": step, "status": status, **values})
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

    def bench(self, name, *extra, **options):
        """The command of a benchmark on the device."""
        command = [*self.program(name), "--device", self.device, *extra]
        for option, value in options.items():
            command += [f"--{option}", value]
        return command

    def outcome(self, work):
        """(status, values) of work(), which gives values or raises Skip or Failed."""
        begin = time.monotonic()
        try:
            if self.left() < LEAST_SECONDS:
                raise Skip("no time is left")
            status, values = "ok", work()
        except Skip as skip:
            status, values = "skipped", {"reason": str(skip)}
        except TimedOut as failure:
            status, values = "failed" if self.left() > 0 else "skipped", failure.described()
        except Failed as failure:
            status, values = "failed", failure.described()
        except Exception as problem:  # a step must not take the others with it
            status, values = "failed", {"reason": f"{type(problem).__name__}: {problem}"}
        return status, {"seconds": round(time.monotonic() - begin, 2), **values}

    def in_parts(self, step, parts):
        """Results of {name: work}, each with a line of its own. Together they failed if one did, and are skipped if all were."""
        names = {"ok": [], "failed": [], "skipped": []}
        for name, work in parts.items():
            status, values = self.outcome(work)
            names[status].append(name)
            self.write(f"{step} {name}", status, **values)
        if names["failed"]:
            raise Failed("see its lines", **names)
        if not names["ok"]:
            raise Skip("all of it: see its lines")
        return names
