#!/bin/sh
# Run the tests of the C half on a build that checks itself:
#   tests/checked.sh KIND PYTHON [pytest arguments; those of ALL by default]
# KIND is `sanitized` (AddressSanitizer and UBSan; PYTHON is the environment's) or `debug` (a CPython built with
# --with-pydebug: its asserts and reference counts, and ours; PYTHON is that interpreter, of the environment's version).
# The build goes to build/KIND, beside a copy of the package: what is installed is left as it is.
set -eu
kind=$1
python=$2
shift 2
cd "$(dirname "$0")/.."
here=$(pwd)
place=$here/build/$kind
ALL="tests/hook tests/guards tests/mutations tests/test_threads.py tests/test_leaks.py tests/test_classes_go.py
    tests/capture_torch/test_capture_breaks.py tests/capture_torch/test_capture_inner_breaks.py"

rm -rf "$place/package"
mkdir -p "$place/package"
cp -r "$here/torchdynamo" "$place/package/"
rm -f "$place"/package/torchdynamo/_native*.so
export PYTHONPATH="$place/package" OMP_NUM_THREADS=1
preload=
case "$kind" in
sanitized)
    export TORCHDYNAMO_SANITIZE=address,undefined PYTHONMALLOC=malloc
    export ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=1:thread_local_quarantine_size_kb=64
    export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
    for library in libasan.so libubsan.so libstdc++.so; do preload="$preload $(gcc -print-file-name=$library)"; done
    ;;
debug)
    export TORCHDYNAMO_DEBUG=1
    # Packages of the environment load in this interpreter as they are: both have one binary interface.
    "$python" -m venv --without-pip "$place/venv"
    python=$place/venv/bin/python
    "${ENVIRONMENT:-.venv/bin/python}" -c 'import sys; print(*(path for path in sys.path if "site-packages" in path), sep="\n")' \
        >"$("$python" -c 'import site; print(site.getsitepackages()[0])')/environment.pth"
    ;;
*)
    echo "$0: no such kind of build: $kind (sanitized or debug)" >&2
    exit 2
    ;;
esac
TORCHDYNAMO_BUILD_LIB="$place/package" "$python" setup.py --quiet build_ext --build-temp "$place/temp"
[ $# -gt 0 ] || set -- $ALL
LD_PRELOAD="$preload" exec "$python" -X dev -c 'import sys; sys.path[:] = [p for p in sys.path if p]; import pytest; sys.exit(pytest.main())' \
    -q -p no:cacheprovider "$@"
