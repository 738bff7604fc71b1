#!/usr/bin/env bash
# tests/cuda_evidence/run.sh [--accept] [BUILD FOLDER]
# Builds the CUDA backend and prints what became of its kernels: registers, spills, shared memory, occupancy, widths of
# global accesses, bytes an element. Writes the same to BUILD FOLDER/evidence.json. Exit code 1 if something is over budget, 77
# (skipped) without nvcc. Needs no GPU.
#   BUILD FOLDER         of a build with CUDA, whose library is looked at as it is; else build/cuda-evidence, for sm_80 and sm_90
#   --accept             take the registers as they are for the budget, registers.json
#   CUDAToolkit_ROOT     the toolkit; else build/cuda-toolkit (tools/cuda-toolkit.sh), nvcc of the PATH, /usr/local/cuda
set -eu

accept=
case ${1:-} in
  -h|--help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
  --accept) accept=--accept; shift ;;
esac
here=$(dirname "$(realpath "$0")")
root=$(realpath "$here/../..")
build=${1:-}
toolkit=${CUDAToolkit_ROOT:-$root/build/cuda-toolkit}

# find PROGRAM: of the toolkit, of the PATH, or of the usual place.
find_program() {
  for candidate in "$toolkit/bin/$1" "$(command -v "$1" || true)" "/usr/local/cuda/bin/$1"; do
    [ -x "$candidate" ] && { echo "$candidate"; return; }
  done
  return 0
}
nvcc=$(find_program nvcc)
if [ -z "$nvcc" ]; then
  echo "skipped: no nvcc (tools/cuda-toolkit.sh gets one)"
  exit 77
fi
cuobjdump=$(find_program cuobjdump)
[ -z "$cuobjdump" ] || PATH=$PATH:$(dirname "$cuobjdump")  # which starts nvdisasm

if [ -z "$build" ]; then
  build=$root/build/cuda-evidence
  echo "== building for sm_80 and sm_90 with $nvcc"
  cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DKEEL_TESTS=OFF -DKEEL_CUDA=ON -DKEEL_CUDA_EMULATED=OFF \
        -DKEEL_NVCC="$nvcc" -DKEEL_WERROR=ON "-DCMAKE_CUDA_ARCHITECTURES=80-real;90-real" >/dev/null
fi
begin=$(date +%s)
said=$(cmake --build "$build" -j "$(nproc)" --target keel_cuda 2>&1) || { echo "$said" | tail -n 40; exit 1; }
echo "== built in $(($(date +%s) - begin)) s"
logs=$build/CMakeFiles/keel_cuda.dir/kernels
if grep -r "warning" --include='*.log' "$logs"; then
  echo "the build has warnings"
  exit 1
fi

python3 "$here/evidence.py" --logs "$logs" --library "$build/lib/libkeel_cuda.so" ${cuobjdump:+--cuobjdump "$cuobjdump"} \
    --out "$build/evidence.json" $accept
