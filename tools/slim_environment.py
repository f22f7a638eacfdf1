"""Make an environment small, for the image: remove what no process of ours reads, and symbols of libraries.

    python slim_environment.py /opt/milliscale/lib/python3.13/site-packages

The Dockerfile copies this file, so it needs nothing but Python. tests/release imports every module of ours afterwards.
"""

from __future__ import annotations

import shutil
import struct
import sys
from pathlib import Path

_UNUSED = (
    # For compilers, type checkers and readers, also beside the packages.
    *("**/*.pyi", "**/*.pyx", "**/*.pxd", "**/*.pxi", "**/*.c", "**/*.h", "**/*.a", "*.md", "**/README.md"),
    "**/tests",
    # All that kubeconfigs need is in `client` and `config`.
    *("kubernetes_asyncio/*/*_test.py", "kubernetes_asyncio/leaderelection"),
    # Modules that numpy imports when they are used, and extensions for its own tests: forecasts need arrays and linalg.
    *("numpy/distutils", "numpy/f2py", "numpy/fft", "numpy/polynomial", "numpy/random", "numpy/testing"),
    *("numpy/lib/recfunctions.py", "numpy/_core/_simd.*.so", "numpy/_core/_*_tests.*.so"),
    "multidict/_testcapi.*.so",
    # For source code and Markdown in rich, and for bindings to C.
    *("pygments", "markdown_it", "mdurl", "cffi", "pycparser"),
)
"""Patterns of files and folders, relative to site-packages."""


def remove_unused(packages: Path) -> None:
    """Remove what fits `_UNUSED`."""
    for path in [path for pattern in _UNUSED for path in packages.glob(pattern)]:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def loaded_part(library: bytes) -> bytes:
    """Return an ELF library without what is not loaded: its symbols for debuggers, which follow its segments.

    `strip` does the same, which the base image does not have. The symbols of other libraries are in a segment.
    """
    table, sections = struct.unpack_from("<QQ", library, 0x20)
    size, count = struct.unpack_from("<HH", library, 0x36)
    segments = [struct.unpack_from("<IIQQQQ", library, table + number * size) for number in range(count)]
    end = max([table + count * size, *(offset + length for _, _, offset, _, _, length in segments)])
    if end > sections:
        return library
    loaded = bytearray(library[:end])
    struct.pack_into("<Q", loaded, 0x28, 0)  # the table of sections, and below its length
    struct.pack_into("<HHH", loaded, 0x3A, 0, 0, 0)
    return bytes(loaded)


def main() -> None:
    """Make the environment small whose site-packages is the argument."""
    packages = Path(sys.argv[1])
    remove_unused(packages)
    for path in packages.rglob("*.so*"):
        library = path.read_bytes()
        if library.startswith(b"\x7fELF\x02\x01"):  # 64 bits, little-endian: amd64 and arm64
            path.write_bytes(loaded_part(library))


if __name__ == "__main__":
    main()
