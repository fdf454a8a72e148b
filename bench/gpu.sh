#!/usr/bin/env bash
# Every figure of the serving engine on one GPU, in under 8 minutes, and of two where there are two;
# on a machine without one it is a dry run on a tiny shape.
#
#     bench/gpu.sh [SHAPE] [FOLDER]
#
# SHAPE is one of bench/shapes.py (default 0.5B on a GPU, tiny without). The weights are random:
# speed depends on the shape alone, and no figure of this script says anything about honest noise.
# PYTHON names the interpreter of an environment with vLLM (default .venv-vllm/bin/python).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PYTHONUNBUFFERED=1 HF_HUB_OFFLINE=1

python=${PYTHON:-.venv-vllm/bin/python}
if command -v nvidia-smi >/dev/null && nvidia-smi -L; then
    nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader
    shape=${1:-0.5B} options=(--served 16)
else
    echo "no GPU: a dry run, its figures mean nothing"
    shape=${1:-tiny} options=(--short --served 4)
fi
folder=${2:-$(mktemp -d)}
if [ -z "${2:-}" ]; then trap 'rm -rf "$folder"' EXIT; fi
"$python" -c 'import vllm' 2>/dev/null || { echo "no vLLM in $python" >&2; exit 1; }

step() { # step SECONDS NAME COMMAND…: one measurement against its share of the 8 minutes
    local seconds=$1 name=$2 status=0
    shift 2
    printf '\n== %s (random weights, %s)\n' "$name" "$shape"
    timeout --kill-after=10 "$seconds" "$@" || status=$?
    if [ "$status" != 0 ]; then echo "not measured: $name ended with $status"; fi
}

step 90 "model folder" "$python" bench/shapes.py "$shape" "$folder"
step 150 "throughput and checking, eager" \
    "$python" bench/serving.py --model "$folder" "${options[@]}" --out "$folder/eager.json"
step 60 "roofline against measured" \
    "$python" bench/roofline.py --shape "$shape" --measured "$folder/eager.json"
step 170 "throughput, compiled" \
    "$python" bench/serving.py --model "$folder" "${options[@]}" --compiled --only throughput
if gpus=$(nvidia-smi -L 2>/dev/null | wc -l) && [ "$gpus" -gt 1 ]; then
    step 150 "two devices, two stages" \
        "$python" bench/parallel.py --model "$folder" --devices 2 --stages 2
fi
printf '\n== done in %s s\n' "$SECONDS"
