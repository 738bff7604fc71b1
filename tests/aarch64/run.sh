#!/usr/bin/env bash
# tests/aarch64/run.sh [--full] [CTEST ARGUMENTS...]
# Cross-compiles for aarch64 and runs the tests there in qemu's user mode: the kernels' portable path on another architecture.
# Debian 12; installs the cross compiler and qemu-user, and unpacks arm64 libraries into build/aarch64-sysroot, once. The
# last line is "N passed, N failed, N skipped", as of tests/run.sh.
#   --full    also the whole programs' tests that take long in an emulator. Never run: those that build or start something
#             with this machine's own tools (package, quickstart, completions), and those that measure memory, which the
#             emulator's own would spoil.
set -eu

selection=(-R '^[A-Z]|^test_(command_line\.Doctor|golden_wiring|schemes|train\.Runs|generate)\.')
while [ $# -gt 0 ]; do
  case $1 in
    --full) selection=(); shift ;;
    -h|--help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) break ;;
  esac
done
if [ -n "${KEEL_TEST_DATA:-}" ]; then
  KEEL_TEST_DATA=$(realpath "$KEEL_TEST_DATA")
  export KEEL_TEST_DATA
fi
cd "$(dirname "$(realpath "$0")")/../.."

tools/install-debian.sh test g++-aarch64-linux-gnu qemu-user
tests/aarch64/sysroot.sh build/aarch64-sysroot
exec tests/run.sh --preset aarch64 "${selection[@]}" -E '^test_(package|quickstart|completions|train_memory)\.|Completions' "$@"
