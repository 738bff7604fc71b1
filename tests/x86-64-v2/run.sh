#!/usr/bin/env bash
# tests/x86-64-v2/run.sh [--preset NAME] [UNIT TEST PROGRAM...]
# The programs that run with AVX-512 here must run on processors without AVX too. Looks for newer instructions outside the
# kernels that are chosen at run time, then runs unit tests (kernels_test and model_test unless others are named), --doctor
# and a small training run of an existing build as a processor of 2008 (qemu-user, Nehalem). Debian 12; installs qemu-user.
# The last line is "N passed, N failed, N skipped"; exit code 0 only if nothing failed.
set -eu

preset=release
while [ $# -gt 0 ]; do
  case $1 in
    --preset) preset=${2:?--preset needs a name}; shift 2 ;;
    -h|--help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) break ;;
  esac
done
[ $# -gt 0 ] || set -- kernels_test model_test
cd "$(dirname "$(realpath "$0")")/../.."
build=build/$preset
[ -x "$build/bin/keel-train" ] || { echo "run.sh: error: $build/bin has no keel-train: run tests/run.sh --build-only" >&2; exit 2; }
tools/install-debian.sh test qemu-user
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
passed=0 failed=0 skipped=0
check() {  # NAME COMMAND...: one test
  if "${@:2}" > "$work/log" 2>&1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    cat "$work/log"
    echo "FAILED: $1"
  fi
}
old() { qemu-x86_64 -cpu Nehalem "$build/bin/$1" "${@:2}"; }

echo "== instructions of programs and libraries"
check "newer instructions" python3 tests/x86-64-v2/newer_instructions.py "$build"/lib/*.so "$build"/bin/keel-*

echo "== programs"
uses_generic() { old keel-train --doctor --json | python3 -c 'import json, sys; d = json.load(sys.stdin); sys.exit(d["instruction_sets"] != ["generic"] or d["onednn_instruction_set"] != "sse4.1")'; }
trains() {
  old keel-tokenize encode examples/quickstart/shakespeare.txt --tokenizer examples/quickstart/shakespeare.model --out "$work/data" --progress none &&
    old keel-train --config examples/quickstart/keel-64.json --data "$work/data" --out "$work/run" --steps 2 \
      --set model.num_hidden_layers=4 --set train.batch_sequences=2
}
check "--doctor" uses_generic
check "two steps of training" trains

for program in "$@"; do
  echo "== $program"
  rm -f "$work/results.json"
  status=0
  old "$program" --gtest_brief=1 --gtest_output="json:$work/results.json" || status=$?
  read -r p f s < <(python3 - "$work/results.json" "$status" <<'PYTHON'
import json
import os
import sys

tests = []
if os.path.exists(sys.argv[1]):
    tests = [test for suite in json.load(open(sys.argv[1]))["testsuites"] for test in suite["testsuite"]]
failed = sum("failures" in test for test in tests)
skipped = sum(test["result"] == "SKIPPED" for test in tests)
passed = sum(test["result"] == "COMPLETED" and "failures" not in test for test in tests)
print(passed, max(failed, 1) if sys.argv[2] != "0" or passed == 0 else failed, skipped)  # a crash leaves no results
PYTHON
)
  passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
