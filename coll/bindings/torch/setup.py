"""Builds weft_torch with the libweft of this tree, of WEFT_PREFIX, or one that it builds itself."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig

from setuptools import setup

try:
    import torch  # noqa: F401
except ImportError:  # pip builds apart from the environment that it installs into
    sys.path += [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    try:
        import torch  # noqa: F401
    except ImportError:
        sys.exit("weft_torch is built for the PyTorch that is installed: pip install torch first")
from torch.utils import cpp_extension

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
CMAKE = (ROOT / "CMakeLists.txt").read_text()
VERSION = re.search(r"^project\(weft VERSION ([\d.]+)", CMAKE, re.M)[1]
SONAME = f"libweft.so.{VERSION.rpartition('.')[0]}"


def libweft():
    """The shared library: that of WEFT_LIBRARY, of an installed weft, or of a build of this tree."""
    given = os.environ.get("WEFT_LIBRARY")
    if given:
        return pathlib.Path(given)
    prefix = os.environ.get("WEFT_PREFIX")
    if prefix:
        for folder in sorted(pathlib.Path(prefix).glob("lib*/**/")):
            if (folder / SONAME).exists():
                return folder / SONAME
        sys.exit(f"WEFT_PREFIX={prefix}: no {SONAME} below it; cmake --install weft there")
    subprocess.run(["cmake", "--preset", "release"], cwd=ROOT, check=True)
    build = ["cmake", "--build", "build/release", "--target", "weft_shared"]
    subprocess.run(build, cwd=ROOT, check=True)
    return ROOT / "build/release" / SONAME


library = libweft()
package = HERE / "weft_torch"
shutil.copyfile(library, package / SONAME)
# Compiles all sources as one: most of the compile time is PyTorch's headers.
whole = HERE / "build" / "weft_torch.cc"
whole.parent.mkdir(exist_ok=True)
sources = sorted((HERE / "csrc").glob("*.cc"))
whole.write_text("".join(f'#include "../csrc/{s.name}"\n' for s in sources))
# The linker needs the name without a version.
link = HERE / "build" / "lib"
link.mkdir(parents=True, exist_ok=True)
shutil.copyfile(library, link / "libweft.so")

setup(
    name="weft_torch",
    version=VERSION,
    description="weft as a backend of torch.distributed",
    packages=["weft_torch"],
    package_data={"weft_torch": [SONAME]},
    ext_modules=[
        cpp_extension.CppExtension(
            "weft_torch._C",
            [str(whole.relative_to(HERE))],
            include_dirs=[str(ROOT / "coll/bindings/c")],
            library_dirs=[str(link)],
            libraries=["weft"],
            depends=[str(s) for s in sources],
            define_macros=[("FMT_HEADER_ONLY", "1")],
            extra_compile_args=["-O2", "-g0", "-std=c++20", "-fvisibility=hidden", "-Wno-psabi"],
            extra_link_args=["-Wl,-rpath,$ORIGIN"],
        )
    ],
    entry_points={"torch.distributed.backends": ["weft = weft_torch:register"]},
    cmdclass={"build_ext": cpp_extension.BuildExtension},
)
