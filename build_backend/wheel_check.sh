#!/usr/bin/env bash
# Install the wheels that `make wheels` built, where there is no compiler, and run the README's example:
#   wheel_check.sh FOLDER TORCH PYTHON...   (`make wheel-check`)
# Fails where a wheel takes 30 seconds or more, what it depends on included. torch is there before.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1 torch=$2
shift 2
checked=0
for python; do
    tag=$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])' 2>/dev/null) || continue
    wheels=("$folder/torch-$torch"/*-"$tag"-*.whl)
    [ -f "${wheels[0]}" ] || continue
    bare=$folder/bare/$(basename "$python")
    rm -rf "$bare"
    "$python" -m venv "$bare"
    "$bare/bin/pip" install --quiet ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "torch==$torch"
    alone=(env -i "PATH=$bare/bin" "HOME=$bare/home" "LANG=C.UTF-8")
    for name in ${!PIP_@}; do alone+=("$name=${!name}"); done
    begun=$(date +%s)
    "${alone[@]}" "$bare/bin/pip" install --quiet "${wheels[0]}"
    seconds=$(($(date +%s) - begun))
    mkdir "$bare/run"
    sed -n '/^```python$/,/^```$/p' README.md | sed '1d; /^```$/,$d' >"$bare/run/example.py"
    echo 'assert torch.equal(gelu(x := torch.randn(5)), x * 0.5 * (1 + torch.erf(x / 2**0.5)))' >>"$bare/run/example.py"
    (cd "$bare/run" && "${alone[@]}" "$bare/bin/python" example.py)
    echo "$python: $(basename "${wheels[0]}") installed in $seconds s, and runs the README's example"
    [ "$seconds" -lt 30 ] || exit 1
    checked=$((checked + 1))
done
[ "$checked" -gt 0 ] || { echo "no wheels in $folder/torch-$torch: make wheels"; exit 1; }
