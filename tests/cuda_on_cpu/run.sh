#!/usr/bin/env bash
# tests/cuda_on_cpu/run.sh [plain|address|thread]...
# Builds the emulation of CUDA and its tests, nothing else, without sanitizers, with AddressSanitizer and
# UndefinedBehaviorSanitizer, and with ThreadSanitizer (all three unless named), in build/cuda-on-cpu-*, and runs the tests:
# each planted bug must be noticed by the checks of some build. Exit code 0 if all passed.
set -eu
cd "$(dirname "$(realpath "$0")")/../.."

variants=("$@")
[ $# -gt 0 ] || variants=(plain address thread)
for variant in "${variants[@]}"; do
  case $variant in
    plain) options=(-DCMAKE_BUILD_TYPE=Release) ;;
    address) options=(-DCMAKE_BUILD_TYPE=Debug -DKEEL_SANITIZE=address,undefined) ;;
    thread) options=(-DCMAKE_BUILD_TYPE=RelWithDebInfo -DKEEL_SANITIZE=thread) ;;
    -h|--help) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "run.sh: error: no variant is named $variant" >&2; exit 2 ;;
  esac
  build=build/cuda-on-cpu-$variant
  echo "== $variant"
  cmake -S . -B "$build" -G Ninja -DKEEL_TESTS=ON -DKEEL_CUDA_EMULATED=ON "${options[@]}" >/dev/null
  cmake --build "$build" -j "$(nproc)" --target cuda_on_cpu_test | grep -v '^\[' || true
  "$build/bin/cuda_on_cpu_test" --gtest_brief=1
done
