#!/usr/bin/env bash
# A wheel for each Python that has a torch: wheels.sh FOLDER TORCH PYTHON...   (`make wheels`)
#
# torch comes from the folders of pip's find-links, or from the index TORCH_INDEX names, such as
# https://download.pytorch.org/whl/cpu; never from PyPI, where it brings gigabytes of CUDA. A Python without one is skipped.
#
# auditwheel names the wheel by the oldest C library that it runs with (manylinux), and leaves torch's libraries out of it.
# Built again from the same commit on the same system, a wheel has the same bytes: times come from SOURCE_DATE_EPOCH, by
# default the commit's, and what tells of the building folder is stripped.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1 torch=$2
shift 2
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export CFLAGS="-ffile-prefix-map=$PWD=. -ffile-prefix-map=$folder=build ${CFLAGS:-}" # of our files, of torch's headers
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
    "$venv/bin/pip" install --quiet "torch==$torch" -r build_backend/requirements.txt  # and what torch depends on
    rm -rf "$venv/unaudited" "$venv/audited"
    "$venv/bin/pip" wheel --quiet --no-deps --wheel-dir "$venv/unaudited" .
    PATH=$venv/bin:$PATH auditwheel repair --strip --exclude 'libtorch*' --exclude 'libc10*' \
        --wheel-dir "$venv/audited" "$venv"/unaudited/*.whl 2>"$venv/log" || { cat "$venv/log"; exit 1; }
    mkdir -p "$folder/torch-$torch"
    for wheel in "$venv"/audited/*.whl; do
        mv "$wheel" "$folder/torch-$torch"
        echo "$python: $folder/torch-$torch/$(basename "$wheel")"
        sha256sum "$folder/torch-$torch/$(basename "$wheel")" | cut -c 1-64
    done
    built=$((built + 1))
done
[ "$built" -gt 0 ]
