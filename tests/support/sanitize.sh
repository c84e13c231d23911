#!/bin/sh
# Build the kernels with AddressSanitizer and UndefinedBehaviorSanitizer beside a copy of the package, and run the tests of
# the kernels and mutated artifacts with them. The first report of a sanitizer ends the process.
#   tests/support/sanitize.sh PYTHON [SECONDS of mutated artifacts]
set -e
python=$1
seconds=${2:-60}
target=build/sanitize
include=$("$python" -c "import sysconfig; print(sysconfig.get_path('include'))")
rm -rf "$target"
mkdir -p "$target"
cp -r src/rhocal "$target/"
rm -f "$target"/rhocal/numerics/_kernels*.so
gcc -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all \
  -fopenmp-simd -fno-math-errno -fno-trapping-math -fPIC -shared -DPy_LIMITED_API=0x030b0000 -I"$include" \
  src/rhocal/numerics/_kernels.c -o "$target/rhocal/numerics/_kernels.abi3.so" -lm
LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)"
# Python keeps memory until it ends, so leaks are not looked for here.
ASAN_OPTIONS=detect_leaks=0
UBSAN_OPTIONS=print_stacktrace=1
PYTHONPATH=$PWD/$target
export LD_PRELOAD ASAN_OPTIONS UBSAN_OPTIONS PYTHONPATH
"$python" -c "from rhocal.numerics import kernels, _kernels; assert kernels.is_enabled; print(_kernels.__file__)"
"$python" -m pytest -q -p no:cacheprovider tests/numerics/test_kernels.py tests/numerics/test_kernel_arguments.py
"$python" -m tests.attack --only artifacts,metrics --jobs 1 --minutes "$(awk "BEGIN { print $seconds / 30 }")"
