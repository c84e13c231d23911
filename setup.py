"""The one thing that pyproject.toml cannot say: the compiled passes are optional.

Without a C compiler the package installs all the same and takes the passes in NumPy (`rhocal.numerics.kernels` says which).
"""

import sys
from pathlib import Path

from setuptools import Extension, setup

UNIX = [
    "-O3",
    "-fopenmp-simd",  # `#pragma omp simd` only: no OpenMP library, no threads
    "-fno-math-errno",
    "-fno-trapping-math",
]

setup(
    ext_modules=[
        Extension(
            "rhocal.numerics._kernels",
            ["src/rhocal/numerics/_kernels.c"],
            depends=sorted(str(path) for path in Path("src/rhocal/numerics").glob("_kernels*.h")),
            extra_compile_args=["/O2"] if sys.platform == "win32" else UNIX,
            py_limited_api=True,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
