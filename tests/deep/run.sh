#!/usr/bin/env bash
# tests/deep/run.sh [--preset NAME] [--sublayers 1024] [--steps 200] [--learning-rate 3e-3] [--scheme keel]
# Trains a very deep, narrow model on the quickstart's text and looks for spikes; then looks at its gradients at
# initialisation: |g_l| / |g_L| must stay within 2 % of 1 from the third sublayer on. No part of tests/run.sh: it takes
# minutes. Exit code 0 if both hold; the last line has the figures as JSON.
set -eu

preset=release sublayers=1024 steps=200 rate=3e-3 scheme=keel
while [ $# -gt 0 ]; do
  case $1 in
    --preset) preset=${2:?--preset needs a name}; shift 2 ;;
    --sublayers) sublayers=${2:?--sublayers needs a number}; shift 2 ;;
    --steps) steps=${2:?--steps needs a number}; shift 2 ;;
    --learning-rate) rate=${2:?--learning-rate needs a number}; shift 2 ;;
    --scheme) scheme=${2:?--scheme needs a name}; shift 2 ;;
    -h|--help) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "run.sh: error: unknown argument: $1" >&2; exit 2 ;;
  esac
done
cd "$(dirname "$(realpath "$0")")/../.."
bin=$PWD/build/$preset/bin
[ -x "$bin/keel-train" ] || { echo "run.sh: error: $bin has no keel-train: run tests/run.sh --build-only" >&2; exit 2; }
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$bin/keel-tokenize" encode examples/quickstart/shakespeare.txt --tokenizer examples/quickstart/shakespeare.model --out "$work/data" --progress none
cat > "$work/deep.json" <<JSON
{"model": {"hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": $((sublayers / 2)), "num_attention_heads": 4,
           "num_key_value_heads": 2, "residual_scheme": "$scheme"},
 "data": {"sequence_length": 128},
 "train": {"steps": $steps, "batch_sequences": 4, "recompute": "branch"},
 "optimizer": {"learning_rate": $rate},
 "schedule": {"warmup_steps": 20}}
JSON
"$bin/keel-analyze" gradients --config "$work/deep.json" --data "$work/data" --out "$work/gradients.json" > /dev/null
"$bin/keel-train" --config "$work/deep.json" --data "$work/data" --out "$work/run"

python3 - "$work" <<'PYTHON'
import json
import sys

work = sys.argv[1]
loss = [line["loss"] for line in map(json.loads, open(f"{work}/run/metrics.jsonl")) if "loss" in line]
# A spike: the mean of 10 steps rises 0.3 nats above the best so far and stays there for 15 % of the steps, or to the end.
smooth = [sum(loss[max(0, i - 9):i + 1]) / min(i + 1, 10) for i in range(len(loss))]
window, best, above, spiked, largest = max(1, len(loss) * 15 // 100), float("inf"), 0, False, 0.0
for i, s in enumerate(smooth):
    best = min(best, s)
    largest = max(largest, s - best)
    above = above + 1 if not s <= best + 0.3 else 0
    spiked = spiked or above >= window or (above > 0 and i + 1 == len(smooth))
results = json.load(open(f"{work}/gradients.json"))["results"]
last = results["last_stream"]["stream_gradient_norm"]
ratios = [s["stream_gradient_norm"] / last for s in results["sublayers"][2:]]
flat = all(0.98 <= r <= 1.02 for r in ratios)
print(json.dumps({"sublayers": len(ratios) + 2, "steps": len(loss), "first_loss": loss[0], "last_loss": smooth[-1], "largest_rise": largest,
                  "spiked": spiked, "smallest_gradient_ratio": min(ratios), "largest_gradient_ratio": max(ratios)}))
sys.exit(0 if flat and not spiked else 1)
PYTHON
