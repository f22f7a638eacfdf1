"""Hooks of mkdocs: diagrams as SVG, titles of pages in links, and pages that are files beside docs/."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import mermaidx
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_ROOT: Final = Path(__file__).resolve().parent.parent
_ROOT_PAGES: Final = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security-policy.md",
}
"""{file of the root: its page}."""

_LINK: Final = re.compile(r"\[([^\]\n]*)\]\((?!https?:|#)([^)\s#]+)(#[^)\s]*)?\)")


def diagram(source: str, _language: str, _css_class: str, _options: Any, _markdown: Any, **_: Any) -> str:
    """Return a mermaid diagram as SVG; pymdownx.superfences calls this for each block."""
    svg = re.sub(r"<\?xml.*?\?>", "", mermaidx.render(source).svg())
    return f'<figure class="diagram">{svg}</figure>'


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    for name, page in _ROOT_PAGES.items():
        path = _ROOT / name
        if path.exists():
            files.append(File.generated(config, page, content=path.read_text()))
    return files


def on_page_markdown(markdown: str, *, page: Page, files: Files, **_: Any) -> str:
    """Rewrite links: files of the root are pages of the site, and the name of a page becomes its title."""
    is_from_root = page.file.src_uri in _ROOT_PAGES.values()

    def rewritten(match: re.Match[str]) -> str:
        text, path, anchor = match[1], match[2], match[3] or ""
        path = path.removeprefix("docs/") if is_from_root else path
        path = _ROOT_PAGES.get(path.removeprefix("../"), path)
        target = files.get_file_from_path(path.removeprefix("../"))
        if target is not None and text == Path(path).name:
            text = _title(target) or text
        return f"[{text}]({path}{anchor})"

    return _LINK.sub(rewritten, markdown)


def _title(file: File) -> str | None:
    """Return the first heading of a page."""
    found = re.search(r"^# (.+)$", file.content_string, re.MULTILINE)
    return found and found[1]
