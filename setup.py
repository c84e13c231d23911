"""The one thing that pyproject.toml cannot say: the compiled passes are optional.

Without a C compiler the package installs all the same and takes the passes in NumPy (`rhocal.numerics.kernels` says which).
"""

import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel

UNIX = [
    "-O3",
    "-fopenmp-simd",  # `#pragma omp simd` only: no OpenMP library, no threads
    "-fno-math-errno",
    "-fno-trapping-math",
    "-g0",  # debug information is two thirds of the binary
]
LINK = {"linux": ["-Wl,-s"], "darwin": ["-Wl,-x"]}  # without symbols that nobody links to

# One binary serves Python 3.11 and later (abi3). Free-threaded Python has no limited API: there it is one for each version.
LIMITED = not sysconfig.get_config_var("Py_GIL_DISABLED")


class Wheel(bdist_wheel):
    """A wheel that claims a platform only if it holds what was compiled for it."""

    def run(self) -> None:
        """Compile before the tag is decided."""
        self.run_command("build_ext")
        if not all(Path(path).exists() for path in self.get_finalized_command("build_ext").get_outputs()):
            self.distribution.ext_modules = []
            self.root_is_pure = True
        super().run()


setup(
    cmdclass={"bdist_wheel": Wheel},
    ext_modules=[
        Extension(
            "rhocal.numerics._kernels",
            ["src/rhocal/numerics/_kernels.c"],
            depends=sorted(str(path) for path in Path("src/rhocal/numerics").glob("_kernels*.h")),
            define_macros=[("Py_LIMITED_API", "0x030b0000")] if LIMITED else [],
            extra_compile_args=["/O2"] if sys.platform == "win32" else UNIX,
            extra_link_args=LINK.get(sys.platform, []),
            py_limited_api=LIMITED,
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if LIMITED else {},
)
