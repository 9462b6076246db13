#!/bin/bash
# Check impl on this machine's GPUs within ten minutes, the most informative step first.
#
# reports/gpu/run.sh FOLDER [ACCELERATOR [STEP]]
#
# FOLDER gets the results. ACCELERATOR is cuda, or sim to try the script. STEP runs one step only.
# DEVICE_IDS=0,1 selects devices; by default all GPUs, and with one GPU 0,0, which uses it twice.
# MINUTES=30 gives each step three times as long.
# Each step is one process. At its time limit the process and its children are interrupted, and
# killed after another 15 seconds. Tests and benchmarks that ended before have their results.
set -u
cd "$(dirname "$0")/../.." && mkdir -p "$1" || exit 1
out=$(realpath "$1") accelerator=${2:-cuda} only=${3:-} failed=0
workers=$(nproc)
minutes=${MINUTES:-10}
end=$((SECONDS + 56 * minutes))
# Other plug-ins on the machine are not loaded.
export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
# The method "thread" also ends a test that hangs in C++, by ending its process.
pytest=(python3 -m pytest -q --tb=short -p no:cacheprovider --timeout=60 --timeout-method=thread
    -p xdist.plugin -p pytest_timeout -p _hypothesis_pytestplugin -p pytest_benchmark.plugin
    --accelerator "$accelerator")

count=1
[[ $accelerator = sim ]] || count=$(python3 -c "import torch; print(torch.accelerator.device_count())")
ids=${DEVICE_IDS:-$( ((count > 1)) && seq --separator=, 0 $((count - 1)) || echo 0,0)}
# The tests of one GPU use it three times.
[[ $ids = 0,0 ]] && test_ids=0,0,0 || test_ids=$ids

step() { # NAME SECONDS ARGUMENT...
    [[ $only = "" || $only = "$1" ]] || return
    local start=$SECONDS limit=$(($2 * minutes / 10)) code=null
    ((limit < end - SECONDS)) || limit=$((end - SECONDS))
    if ((limit > 0)); then
        timeout --signal=INT --kill-after=15 "$limit" "${pytest[@]}" "${@:3}" > "$out/$1.log" 2>&1
        code=$?
        tail --lines=25 "$out/$1.log"
    fi
    [[ $code = 0 ]] || failed=1
    echo "{\"step\": \"$1\", \"code\": $code, \"seconds\": $((SECONDS - start))}" | tee -a "$out/steps.jsonl"
}

verdicts() { # NAME SECONDS ARGUMENT...
    step "$1" "$2" spec_tests --device-ids "$test_ids" -n $((workers < 14 ? workers : 14)) \
        --hypothesis-profile few --resume --verdicts "$out/$1.jsonl" "${@:3}"
}

benchmarks() { # NAME SECONDS ARGUMENT...
    step "$1" "$2" --timeout=200 --device-ids "$ids" --benchmark-max-time=0.3 \
        --benchmark-json="$out/$1.json" "${@:3}"
}

# The models that need no package but transformers and torchvision.
models() { benchmarks models 240 bench/bench_models.py::bench_devices -k "ResNet or ViT or GPT or LSTM"; }

# Several GPUs were not measured before, so their times come first.
[[ $ids = 0,0 ]] || models
verdicts impl 200
benchmarks transfers 50 bench/bench_comm.py
[[ $ids = 0,0 ]] && models
verdicts reference 120 --target=torch.nn.parallel
echo
[[ ! -s $out/models.log ]] || sed --quiet '/= efficiency/,$p' "$out/models.log"
cat "$out/steps.jsonl"
exit $failed
