#!/usr/bin/env bash
# What the CUDA backend does on a machine with a GPU, in one command; see docs/gpu-results.md.
#   tests/gpu/run.sh pack [FOLDER]              here: everything that such a machine needs, below 64 MiB, into build/gpu-pack; with
#                                               a libkeel_cuda.so of build/release, build/cuda or build/cuda-evidence
#   tests/gpu/run.sh run OUT [OPTIONS]          there: appends JSON lines to OUT/results.jsonl, most valuable steps first, and is
#                                               done in 6 minutes; a cut keeps what was done
#     --device cuda-emulated                    rehearses it without a GPU, with small sizes
#     --limit SECONDS                           for all (345)
#     --only STEP,STEP...                       device harness tests golden training sanitizers speed models torch profiler
#   tests/gpu/run.sh rehearse FOLDER            both, into FOLDER, on the emulated device
# Needs there: the driver, cuBLASLt 13 (a toolkit's or of PyPI's nvidia-cublas) and Python 3. torch, compute-sanitizer and ncu are
# used where they are. A copy of this file lies in the packed folder. KEEL_BUILD: build folder to pack from, build/release;
# KEEL_GPU_PACK: the packed folder.
set -eu

usage() { sed -n '2,15s/^# \{0,1\}//p' "$0"; }
case ${1:-} in
  -h|--help) usage; exit 0 ;;
esac

here=$(dirname "$(realpath "$0")")
if [ -f "$here/keel-gpu.tar.gz" ]; then
  pack=$here
else
  pack=${KEEL_GPU_PACK:-$here/../../build/gpu-pack}
fi
pack() { python3 "$here/pack.py" --root "$here/../.." --build "${KEEL_BUILD:-$here/../../build/release}" --out "$@"; }
command -v python3 >/dev/null || { echo "run.sh: error: Python 3 is needed" >&2; exit 3; }
case ${1:-} in
  pack)
    shift
    case ${1:-} in "" | --*) set -- "$pack" "$@" ;; esac
    pack "$@" ;;
  rehearse)
    [ $# -ge 2 ] || { echo "run.sh: error: rehearse FOLDER" >&2; exit 2; }
    rm -rf "$2/pack" "$2/out"
    pack "$2/pack" --emulated-only
    exec "$2/pack/run.sh" run "$2/out" --device cuda-emulated --limit 900 ;;
  run)
    [ $# -ge 2 ] || { echo "run.sh: error: run OUT" >&2; exit 2; }
    [ -f "$pack/keel-gpu.tar.gz" ] || { echo "run.sh: error: nothing is packed in $pack (run.sh pack)" >&2; exit 2; }
    files=$(mktemp -d)
    trap 'rm -rf "$files"' EXIT
    tar -C "$files" -xzf "$pack/keel-gpu.tar.gz"
    out=$2
    shift 2
    python3 "$files/run_steps.py" --files "$files" --out "$out" "$@" ;;
  *) usage >&2; exit 2 ;;
esac
