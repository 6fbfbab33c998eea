#!/usr/bin/env bash
# A wheel for each Python that has a torch: wheels.sh FOLDER TORCH PYTHON...   (`make wheels`)
#
# torch comes from the folders of pip's find-links, or from the index TORCH_INDEX names, such as
# https://download.pytorch.org/whl/cpu; never from PyPI, where it brings gigabytes of CUDA. A Python without one is skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1 torch=$2
shift 2
source=(--no-index)
[ -z "${TORCH_INDEX:-}" ] || source=(--index-url "$TORCH_INDEX")
built=0
for python; do
    if ! "$python" -c "" 2>/dev/null; then
        echo "$python: skipped, it cannot be run here"
        continue
    fi
    venv=$folder/environments/$(basename "$python")
    "$python" -m venv "$venv"
    if ! "$venv/bin/pip" install --quiet --no-deps "${source[@]}" "torch==$torch" 2>"$venv/log"; then
        echo "$python: skipped, no torch $torch for it (TORCH_INDEX=https://download.pytorch.org/whl/cpu may have one)"
        continue
    fi
    "$venv/bin/pip" install --quiet "torch==$torch"  # what it depends on
    "$venv/bin/pip" wheel --quiet --no-deps --wheel-dir "$folder/torch-$torch" .
    echo "$python: $(ls -t "$folder/torch-$torch"/*.whl | head -1)"
    built=$((built + 1))
done
[ "$built" -gt 0 ]
