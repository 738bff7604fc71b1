#!/usr/bin/env bash
# tests/peers/run.sh [--preset NAME] [--venv FOLDER]
# Compares keel with transformers itself: models of many configs that transformers writes, keel-train's own models exported
# with keel-convert --to hf and opened by transformers, and, where KEEL_TEST_DATA is set, every golden wiring case. No part
# of tests/run.sh: it needs a build, and, once, PyTorch and transformers from PyPI (some GB), which it installs into FOLDER
# (build/peers unless named).
set -eu

preset=release venv=
while [ $# -gt 0 ]; do
  case $1 in
    --preset) preset=${2:?--preset needs a name}; shift 2 ;;
    --venv) venv=$(realpath -m "${2:?--venv needs a folder}"); shift 2 ;;
    -h|--help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "run.sh: error: unknown argument: $1" >&2; exit 2 ;;
  esac
done
cd "$(dirname "$(realpath "$0")")/../.."
venv=${venv:-$PWD/build/peers}
export KEEL_BIN=$PWD/build/$preset/bin OMP_NUM_THREADS=1
[ -x "$KEEL_BIN/golden_test" ] || { echo "run.sh: error: $KEEL_BIN has no golden_test: run tests/run.sh --build-only" >&2; exit 2; }

if [ ! -x "$venv/bin/python" ]; then
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet torch transformers safetensors tokenizers sentencepiece protobuf numpy
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HF_HOME=$work/hf HF_HUB_OFFLINE=1 KEEL_PEER_MODELS=$work/peer/models
for command in import export; do
  "$venv/bin/python" -W ignore tests/peers/transformers_models.py "$command" "$KEEL_PEER_MODELS"
done
if [ -d "${KEEL_TEST_DATA:-}/golden/wiring" ]; then
  "$venv/bin/python" -W ignore tests/peers/golden_wirings.py "$KEEL_TEST_DATA/golden/wiring" "$KEEL_PEER_MODELS"
fi
unset KEEL_TEST_DATA
"$KEEL_BIN/golden_test" --gtest_brief=1 --gtest_filter='Models/GoldenModel.*'
