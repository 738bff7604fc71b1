"""Packs programs, libraries and small data for run_steps.py: see run.sh."""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

from training import Training, write_inputs

PROGRAMS = ("keel-train", "kernels_test", "golden_test", "device_bench", "train_step_bench")
EMULATED = "lib/libkeel_cuda_emulated.so"
BACKEND_FOLDERS = ("build/cuda/lib", "build/cuda-evidence/lib")  # besides the one of the build
LIBRARIES = ("libkeel.so.0", "libkeel_tokenizer.so.0", "libkeel_eval.so.0", "libkeel_cuda_emulated.so")
# What every machine has, or has to have of its own.
OF_THE_SYSTEM = re.compile(r"^(ld-linux.*|linux-vdso|lib(c|m|dl|rt|pthread|resolv|util|cuda|cudart|cublas|cublasLt)\.so.*)$")
# Of this system's C library, for a machine with an older one.
C_LIBRARY = ("ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6", "libdl.so.2", "librt.so.1", "libpthread.so.0", "libresolv.so.2")
MOST_BYTES = 64 << 20


def stop(problem):
    sys.exit(f"pack: error: {problem}")


def needed_libraries(path, environment):
    """{name: file} of what the loader finds for it."""
    text = subprocess.run(["ldd", path], capture_output=True, text=True, env=environment).stdout
    found = re.findall(r"^\s*(\S+) => (/\S+)", text, re.M)
    return {name: file for name, file in found if not OF_THE_SYSTEM.match(name)}


def copy_stripped(source, target):
    shutil.copy(source, target)
    subprocess.run(["strip", "--strip-unneeded", target], check=True)


def newest_symbols(folder):
    """The newest glibc that anything packed asks for."""
    versions = set()
    for file in [*folder.glob("bin/*"), *folder.glob("lib/*.so*")]:
        text = subprocess.run(["objdump", "-T", file], capture_output=True, text=True).stdout
        versions |= {tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([0-9.]+)", text)}
    return ".".join(map(str, max(versions)))


def backend_functions(library):
    text = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return set(re.findall(r"\bkeel_cuda_\w+", text))


def cuda_backend(root, build):
    """One by nvcc, that has the functions of the emulated one, which is built with the programs: an older one has others."""
    wanted = backend_functions(build / EMULATED)
    for folder in (build / "lib", *(root / name for name in BACKEND_FOLDERS)):
        candidate = folder / "libkeel_cuda.so"
        if candidate.exists() and backend_functions(candidate) == wanted:
            return candidate
        if candidate.exists():
            print(f"pack: warning: {candidate} is not of this version: passed over")
    return None


def main(words=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--emulated-only", action="store_true", help="do without a backend that nvcc built if there is none, for a rehearsal")
    arguments = parser.parse_args(words)
    root, build, out = arguments.root.resolve(), arguments.build.resolve(), arguments.out.resolve()
    here = pathlib.Path(__file__).resolve().parent

    if not (build / EMULATED).exists():
        stop(f"{build} has no emulated device: tests/run.sh --build-only")
    backend = cuda_backend(root, build)
    if not backend and not arguments.emulated_only:
        stop("there is no libkeel_cuda.so of this version, which nvcc builds: tools/cuda-toolkit.sh gets one, tests/cuda_evidence/run.sh "
             "or cmake --build --preset cuda builds it; --emulated-only packs what a rehearsal needs")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for part in ("bin", "lib", "data/built-in"):
            (folder / part).mkdir(parents=True)
        for program in PROGRAMS:
            if not (build / "bin" / program).exists():
                stop(f"{program} is not built in {build}")
            copy_stripped(build / "bin" / program, folder / "bin" / program)
        for library in LIBRARIES:
            if not (build / "lib" / library).exists():
                stop(f"{library} is not built in {build}")
            copy_stripped((build / "lib" / library).resolve(), folder / "lib" / library)
        if backend:
            copy_stripped(backend, folder / "lib/libkeel_cuda.so")
        environment = dict(os.environ, LD_LIBRARY_PATH=str(folder / "lib"))
        for file in [*folder.glob("bin/*"), *folder.glob("lib/*.so*")]:
            for library, found in needed_libraries(file, environment).items():
                if not (folder / "lib" / library).exists():
                    shutil.copy(pathlib.Path(found).resolve(), folder / "lib" / library)
        (folder / "lib/c").mkdir()
        for library in C_LIBRARY:
            shutil.copy(pathlib.Path("/lib/x86_64-linux-gnu" if library[:2] != "ld" else "/lib64", library).resolve(), folder / "lib/c" / library)
        for script in ("run_steps.py", "session.py", "results.py", "training.py", "torch_speed.py"):
            shutil.copy(here / script, folder / script)
        shutil.copytree(root / "tests/golden/models", folder / "data/built-in/models")
        test_data = pathlib.Path(os.environ.get("KEEL_TEST_DATA") or "nowhere")
        for golden in ("wiring", "models"):
            if (test_data / "golden" / golden).exists():
                shutil.copytree(test_data / "golden" / golden, folder / "data/golden" / golden)

        write_inputs(folder / "data")
        training = Training([folder / "bin/keel-train"], folder / "data", environment, 600)
        expected = {f"{device} {precision}": training.run(folder / "scratch" / f"{device}-{precision}", device, precision)
                    for device, precision in (("cpu", "fp32"), ("cuda-emulated", "fp32"), ("cuda-emulated", "bf16"))}
        shutil.rmtree(folder / "scratch")
        commit = subprocess.run(["git", "-C", root, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
        (folder / "data/expected.json").write_text(json.dumps({"commit": commit, "losses": expected}))

        out.mkdir(parents=True, exist_ok=True)
        with tarfile.open(out / "keel-gpu.tar.gz", "w:gz", compresslevel=6) as archive:
            for part in sorted(folder.iterdir()):
                archive.add(part, part.name)
        shutil.copy(here / "run.sh", out / "run.sh")
        glibc = newest_symbols(folder)
    size = sum(f.stat().st_size for f in out.iterdir() if f.is_file())
    print(f"packed {size / 2**20:.1f} MiB into {out}, CUDA backend: {backend or 'none, only the emulated one'}; needs glibc {glibc}")
    if size > MOST_BYTES:
        stop(f"that is more than {MOST_BYTES >> 20} MiB")


if __name__ == "__main__":
    main()
