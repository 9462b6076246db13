#!/bin/bash
# Check impl on this machine's GPU within nine minutes, the most informative step first.
#
# reports/gpu/run.sh FOLDER [ACCELERATOR [STEP]]
#
# FOLDER gets the results. ACCELERATOR is cuda, or sim to try the script. STEP runs one step only.
# Each step is one process. At its time limit the process and its children are killed. Tests that
# ended before have their verdicts; the others are not-run.
set -u
cd "$(dirname "$0")/../.." && mkdir -p "$1" || exit 1
out=$(realpath "$1") accelerator=${2:-cuda} only=${3:-} failed=0
workers=$(nproc)
end=$((SECONDS + 528))
# Other plug-ins on the machine are not loaded.
export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
# The method "thread" also ends a test that hangs in C++, by ending its process.
pytest=(python3 -m pytest -q --tb=short -p no:cacheprovider --timeout=60 --timeout-method=thread
    -p xdist.plugin -p pytest_timeout -p _hypothesis_pytestplugin -p pytest_benchmark.plugin
    --accelerator "$accelerator")

step() { # NAME SECONDS ARGUMENT...
    [[ $only = "" || $only = "$1" ]] || return
    local start=$SECONDS limit=$((end - SECONDS < $2 ? end - SECONDS : $2)) code=null
    if ((limit > 0)); then
        timeout --signal=KILL "$limit" "${pytest[@]}" "${@:3}" > "$out/$1.log" 2>&1
        code=$?
        tail --lines=25 "$out/$1.log"
    fi
    [[ $code = 0 ]] || failed=1
    echo "{\"step\": \"$1\", \"code\": $code, \"seconds\": $((SECONDS - start))}" | tee -a "$out/steps.jsonl"
}

verdicts() { # NAME SECONDS ARGUMENT...; one GPU is three devices
    step "$1" "$2" spec_tests --device-ids 0,0,0 -n $((workers < 14 ? workers : 14)) \
        --hypothesis-profile few --resume --verdicts "$out/$1.jsonl" "${@:3}"
}

benchmarks() { # NAME SECONDS ARGUMENT...; one GPU is two devices
    step "$1" "$2" --device-ids 0,0 --benchmark-max-time=0.3 --benchmark-json="$out/$1.json" "${@:3}"
}

verdicts impl 200
benchmarks transfers 50 bench/bench_comm.py
# The models that need no package but transformers and torchvision.
benchmarks models 80 bench/bench_models.py::bench_devices -k "ResNet or ViT or GPT or LSTM"
verdicts reference 120 --target=torch.nn.parallel
exit $failed
