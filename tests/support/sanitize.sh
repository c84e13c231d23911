#!/bin/sh
# Build the kernels with AddressSanitizer and UndefinedBehaviorSanitizer beside a copy of the package, and run the tests of
# the kernels, mutated artifacts, metrics and requests with them. The first report of a sanitizer ends the process.
# A sanitizer cannot choose between copies of a function when the module is loaded, so that there is one build for each
# generation of processors that has its own copy and that this processor has; the first one is the oldest.
#   [GENERATIONS="x86-64-v4"] tests/support/sanitize.sh PYTHON [SECONDS of each attack, in all builds together]
set -e
python=$1
seconds=${2:-60}
target=build/sanitize
include=$("$python" -c "import sysconfig; print(sysconfig.get_path('include'))")
libraries="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)"
generations=${GENERATIONS:-default}
if [ -z "$GENERATIONS" ] && [ "$(uname -m)" = x86_64 ]; then
  for generation in x86-64-v3 x86-64-v4; do
    flag=avx2
    [ $generation = x86-64-v4 ] && flag=avx512f
    if grep -qw $flag /proc/cpuinfo; then generations="$generations $generation"; else echo "$generation: not this processor"; fi
  done
fi
for generation in $generations; do
  march=""
  [ "$generation" = default ] || march="-march=$generation"
  rm -rf "$target"
  mkdir -p "$target"
  cp -r src/rhocal "$target/"
  rm -f "$target"/rhocal/numerics/_kernels*.so
  # The loops become vector instructions, as in the package. -O3 would take minutes, with checks at every access.
  gcc -O1 -ftree-vectorize $march -g -fno-omit-frame-pointer -fsanitize=address,undefined,float-cast-overflow -fno-sanitize-recover=all \
    -fopenmp-simd -fno-math-errno -fno-trapping-math -fPIC -shared -DPy_LIMITED_API=0x030b0000 -I"$include" \
    src/rhocal/numerics/_kernels.c -o "$target/rhocal/numerics/_kernels.abi3.so" -lm
  echo "$generation"
  (
    LD_PRELOAD=$libraries
    # Python keeps memory until it ends, so leaks are not looked for here.
    ASAN_OPTIONS=detect_leaks=0
    UBSAN_OPTIONS=print_stacktrace=1
    PYTHONPATH=$PWD/$target
    export LD_PRELOAD ASAN_OPTIONS UBSAN_OPTIONS PYTHONPATH
    "$python" -c "from rhocal.numerics import kernels, _kernels; assert kernels.is_enabled; print(_kernels.__file__)"
    "$python" -m pytest -q -p no:cacheprovider tests/numerics/test_kernels.py tests/numerics/test_kernel_arguments.py tests/numerics/test_score_kernels.py
    minutes=$(echo "$seconds $generations" | awk '{ print 3 * $1 / 60 / (NF - 1) }')
    "$python" -m tests.attack --only artifacts,metrics,serving --jobs 1 --minutes "$minutes"
  )
done
