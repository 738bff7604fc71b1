#!/usr/bin/env bash
# tests/cuda_on_cpu/run.sh [--operations] [plain|address|thread]...
# Builds the emulation of CUDA and its tests, nothing else, without sanitizers, with AddressSanitizer and
# UndefinedBehaviorSanitizer, and with ThreadSanitizer (all three unless named), in build/cuda-on-cpu-*, and runs the tests:
# each planted bug must be noticed by the checks of some build. Exit code 0 if all passed.
#   --operations   also every operation on the emulated device, built so too; with ThreadSanitizer the small ones, whose blocks
#                  then run on two threads
set -eu
cd "$(dirname "$(realpath "$0")")/../.."

targets=(cuda_on_cpu_test)
variants=()
for argument in "$@"; do
  case $argument in
    --operations) targets+=(kernels_test) ;;
    -h|--help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) variants+=("$argument") ;;
  esac
done
[ ${#variants[@]} -gt 0 ] || variants=(plain address thread)

operations() {  # BUILD VARIANT
  local filter='-VectorMath.*:MachineRate.*:ThreadTeam.*:TaskChains.*' workers=1
  if [ "$2" = thread ]; then
    filter='Adamw.*:Bias.*:Cast.*:ColumnScale.*:CrossEntropyArgmax.*:Embedding.*:ExpScale.*:GradNorm.*:KvStore.*:LayerNorm.*:LogSum.*:Moments.*:RmsNorm.*:Rope.*:SumProducts.*:Swiglu.*:WidenRows.*'
    workers=2
  fi
  KEEL_TEST_DEVICE=cuda-emulated KEEL_EMULATION_WORKERS=$workers "$1/bin/kernels_test" --gtest_brief=1 --gtest_filter="$filter"
}

for variant in "${variants[@]}"; do
  case $variant in
    plain) options=(-DCMAKE_BUILD_TYPE=Release) ;;
    address) options=(-DCMAKE_BUILD_TYPE=Debug -DKEEL_SANITIZE=address,undefined) ;;
    thread) options=(-DCMAKE_BUILD_TYPE=RelWithDebInfo -DKEEL_SANITIZE=thread) ;;
    *) echo "run.sh: error: no variant is named $variant" >&2; exit 2 ;;
  esac
  build=build/cuda-on-cpu-$variant
  echo "== $variant"
  cmake -S . -B "$build" -G Ninja -DKEEL_TESTS=ON -DKEEL_CUDA_EMULATED=ON -DKEEL_CUDA=OFF "${options[@]}" >/dev/null
  cmake --build "$build" -j "$(nproc)" --target "${targets[@]}" -- --quiet
  "$build/bin/cuda_on_cpu_test" --gtest_brief=1
  [ ${#targets[@]} -eq 1 ] || operations "$build" "$variant"
done
