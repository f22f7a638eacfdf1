"""Write docs/errors.md."""

import tempfile
from pathlib import Path

from tests.mistakes.page import PAGE, text

with tempfile.TemporaryDirectory() as folder:
    PAGE.write_text(text(Path(folder)).rstrip() + "\n")
