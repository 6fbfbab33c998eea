#!/usr/bin/env bash
# Runs the tests that need no torch on every Python that is supported and present, each in a venv made for the occasion.
#   tests/bytecode/run_versions.sh [test folders or files; tests/bytecode by default]
# PYTHONS names the interpreters to use instead of those on PATH and in pyenv.
set -euo pipefail
cd "$(dirname "$0")/../.."
tests=("${@:-tests/bytecode}")
requirement='bytecode>=0.17,<0.20'

find_python() {
    local version=$1 candidate
    for candidate in "$(command -v "python$version" || true)" "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$version".*/bin/python; do
        if [ -x "$candidate" ] && [ "$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" = "$version" ]; then
            echo "$candidate"
            return
        fi
    done
}

pythons=()
if [ -n "${PYTHONS:-}" ]; then
    read -ra pythons <<<"$PYTHONS"
else
    for version in 3.10 3.11 3.12 3.13 3.14; do
        python=$(find_python "$version")
        [ -n "$python" ] && pythons+=("$python") || echo "no Python $version here"
    done
fi
[ ${#pythons[@]} -gt 0 ] || { echo "no Python to run on"; exit 1; }

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0 count=0
for python in "${pythons[@]}"; do
    venv=$folder/venv$((++count))
    "$python" -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "$requirement" pytest
    echo "== $("$venv/bin/python" --version), bytecode $("$venv/bin/python" -c 'import bytecode; print(bytecode.__version__)')"
    "$venv/bin/python" -m pytest -q -p no:cacheprovider "${tests[@]}" || failed=1
done
exit $failed
