#!/usr/bin/env bash
# completions/update.sh [BIN]: writes bash/, zsh/ and fish/ here anew from the programs in BIN (default build/release/bin).
# They come from the programs' own declaration of their options, so run this after an option changes.
set -eu
here=$(dirname "$(realpath "$0")")
bin=${1:-$here/../build/release/bin}

for program in "$bin"/keel-*; do
  name=$(basename "$program")
  "$program" --completions bash >"$here/bash/$name"
  "$program" --completions zsh >"$here/zsh/_$name"
  "$program" --completions fish >"$here/fish/$name.fish"
done
