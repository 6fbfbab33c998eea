#!/bin/sh
# The tests of the hook and of guard programs on a Python that needs no torch: tests/hook/on_python.sh python3.12 [pytest arguments]
# TORCHDYNAMO_DEBUG=1 and TORCHDYNAMO_SANITIZE=address or =thread are honoured, as in setup.py.
set -eu
python=$1
shift
cd "$(dirname "$0")/../.."
place=build/hook-$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')${TORCHDYNAMO_SANITIZE:-}
[ -x "$place/venv/bin/pytest" ] || {
    "$python" -m venv "$place/venv"
    "$place/venv/bin/pip" install --quiet --upgrade setuptools pytest
}
TORCHDYNAMO_HOOK_ONLY=1 TORCHDYNAMO_BUILD_LIB=$place/lib \
    "$place/venv/bin/python" setup.py --quiet build_ext --force --build-temp "$place/temp"
fixed=
case "${TORCHDYNAMO_SANITIZE:-}" in
address)
    export LD_PRELOAD="$(gcc -print-file-name=libasan.so)" PYTHONMALLOC=malloc
    export ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=1:thread_local_quarantine_size_kb=64
    ;;
thread) # needs memory where it expects it
    export LD_PRELOAD="$(gcc -print-file-name=libtsan.so)" PYTHONMALLOC=malloc TSAN_OPTIONS=exitcode=66
    fixed="setarch -R"
    ;;
esac
TORCHDYNAMO_HOOK_ONLY=$place/lib exec $fixed "$place/venv/bin/python" -m pytest -q -p no:cacheprovider tests/hook tests/guards/native "$@"
