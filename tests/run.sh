#!/usr/bin/env bash
# tests/run.sh [--build-only] [--preset NAME] [CTEST ARGUMENTS...]
# Installs what is missing (Debian), builds a preset (release unless named) and runs every test. The last line is
# "N passed, N failed, N skipped"; exit code 0 only if something ran and nothing failed.
#   --build-only      build and stop
#   KEEL_TEST_DATA    folder of larger test data; tests that need it are skipped without it
set -eu

preset=release build_only=false
while [ $# -gt 0 ]; do
  case $1 in
    --build-only) build_only=true; shift ;;
    --preset) preset=${2:?--preset needs a name}; shift 2 ;;
    -h|--help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) break ;;
  esac
done
# From here on we stand elsewhere.
if [ -n "${KEEL_TEST_DATA:-}" ]; then
  [ -d "$KEEL_TEST_DATA" ] || { echo "run.sh: error: KEEL_TEST_DATA is not a folder: $KEEL_TEST_DATA" >&2; exit 2; }
  KEEL_TEST_DATA=$(realpath "$KEEL_TEST_DATA")
  export KEEL_TEST_DATA
fi
cd "$(dirname "$(realpath "$0")")/.."
cores=$(nproc)

echo "== packages"
tools/install-debian.sh test

echo "== building preset $preset on $cores cores into build/$preset"
cmake --preset "$preset" -DKEEL_TESTS=ON >/dev/null
cmake --build --preset "$preset" -j "$cores"
if $build_only; then
  echo "== programs are in build/$preset/bin"
  exit 0
fi

echo "== running the tests, larger test data: ${KEEL_TEST_DATA:-none (KEEL_TEST_DATA is not set)}"
results=build/$preset/test-results.xml
rm -f "$results"
status=0
ctest --test-dir "build/$preset" -j "$cores" --output-on-failure --no-tests=error --output-junit test-results.xml "$@" || status=$?

python3 - "$results" "$status" <<'PYTHON'
import os
import sys
import xml.etree.ElementTree

passed = failed = skipped = 0
if os.path.exists(sys.argv[1]):
    for case in xml.etree.ElementTree.parse(sys.argv[1]).iter("testcase"):
        note = case.find("skipped")
        if case.get("status") == "run":
            passed += 1
        elif case.get("status") == "disabled" or note is not None and note.get("message", "").startswith("SKIP_"):
            skipped += 1
        else:  # a test that could not be started is "notrun" too
            failed += 1
print(f"{passed} passed, {failed} failed, {skipped} skipped")
sys.exit(1 if failed or passed == 0 or sys.argv[2] != "0" else 0)
PYTHON
