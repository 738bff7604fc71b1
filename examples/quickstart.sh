#!/usr/bin/env bash
# examples/quickstart.sh [KEEL-TRAIN OPTIONS...]: the main job from nothing. Installs what is missing (Debian 12), builds the
# programs, tokenises a text, trains a 64-sublayer Keel and the same model with Pre-LN, lets both write, scores them on a
# few rows, exports one for transformers, and prints what happened. Asks nothing; needs root or sudo if packages are
# missing. Everything it makes is below quickstart-out/, made afresh each time (KEEL_QUICKSTART_OUT names another folder).
set -eu
case ${1:-} in -h|--help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
out=$(realpath -m "${KEEL_QUICKSTART_OUT:-$(dirname "$(realpath "$0")")/../quickstart-out}")
cd "$(dirname "$(realpath "$0")")/.."
out=${out#"$PWD/"}
started=$SECONDS
input=examples/quickstart
bin=build/release/bin

say() { echo "== $*"; }

# The value of a plain field of a report's results.
field() { sed -n "s/^ *\"$2\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p" "$1" | tail -n 1; }

say "1/6 packages and programs"
tools/install-debian.sh build
options=()
[ -f build/release/CMakeCache.txt ] || options=(-DKEEL_TESTS=OFF)  # an existing build folder stays as it is
cmake --preset release "${options[@]}" >/dev/null
cmake --build --preset release -j "$(nproc)" --target keel-tokenize keel-train keel-analyze keel-generate keel-eval \
  keel-convert

say "2/6 tokenising $input/shakespeare.txt"
rm -rf "$out"
mkdir "$out"
$bin/keel-tokenize encode $input/shakespeare.txt --documents '<|endoftext|>' --tokenizer $input/shakespeare.model \
  --val-fraction 0.1 --out "$out/data"

say "3/6 training 64 sublayers, twice"
for scheme in keel pre; do
  $bin/keel-train --config $input/keel-64.json --set model.residual_scheme=$scheme --data "$out/data" --out "$out/$scheme" \
    --set 'validate.sample.prompts=["ROMEO:\nO, she doth"]' --set validate.sample.every_steps=200 --set validate.sample.tokens=24 "$@"
done

say "4/6 what the models write"
for scheme in keel pre; do
  $bin/keel-generate "$out/$scheme" --prompt $'ROMEO:\n' --echo --temperature 0.8 --top-p 0.95 --seed 1 --max-tokens 80 |
    tee "$out/$scheme.txt"
done

say "5/6 scoring both on a few rows, and one of them for others"
for scheme in keel pre; do
  $bin/keel-eval "$out/$scheme" --tasks sciq,lambada_openai --data $input/bench --out "$out/eval" --log-samples
done
$bin/keel-convert "$out/pre" "$out/pre-hf" --to hf --verify

say "6/6 what happened"
row() { printf '%-10s %6s %9s %9s %9s %12s %17s\n' "$@"; }
{
  row scheme steps tokens seconds tokens/s "final loss" "validation loss"
  for scheme in keel pre; do
    report="$out/$scheme/report.json"
    row $scheme "$(field "$report" steps)" "$(field "$report" tokens)" "$(printf %.1f "$(field "$report" train_seconds)")" \
      "$(printf %.0f "$(field "$report" tokens_per_second)")" "$(printf %.4f "$(field "$report" final_loss)")" \
      "$(printf %.4f "$(field "$report" val_loss)")"
  done
  row unigram - - - - - "$(printf %.4f "$(field "$out/keel/report.json" unigram_loss)")"
} | tee "$out/summary.txt"
echo
echo "Losses are nats per token. Unigram: the validation tokens under the training text's token frequencies alone."
echo "Files:"
echo "  $out/data/                  token shards, manifest.json, report.json"
echo "  $out/{keel,pre}/            run.json, metrics.jsonl, samples.jsonl, events.jsonl, report.json, checkpoints/"
echo "  $out/{keel,pre}.txt         what each wrote"
echo "  $out/eval/                  scores, in lm-evaluation-harness's files"
echo "  $out/pre-hf/                the Pre-LN model as Hugging Face's Llama"
echo "  $out/summary.txt            the table above"
say "done in $((SECONDS - started)) s"
