"""Write the pages: `make reference`."""

from tools.reference.pages import FOLDER, PAGES, text

for name in PAGES:
    (FOLDER / name).write_text(text(name))
