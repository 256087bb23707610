"""Hooks of the documentation site: links to files of the repository become text; rules get anchors, and citations link to
them.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
_LINK: Final = re.compile(r"\[(`?)([^\]`]+)\1\]\(((?:\.\./)+[^)#\s]+)(#[^)]*)?\)")
_CITED: Final = re.compile(
    r"```.*?```|`[^`\n]*`|<[^>]*>|\[[^\]]*\]\([^)]*\)|\*\*[A-Z]+-\d+\.\*\*|\b([A-Z]{2,6})-(\d+)\b", re.DOTALL
)
_RULE: Final = re.compile(r"^\*\*([A-Z]{2,6}-\d+)\.\*\*", re.MULTILINE)


def on_config(config: Any) -> Any:
    """List the chapters of the rules, as ``docs/spec/README.md`` orders them."""
    chapters = re.findall(r"\]\(([a-z-]+\.md)\)", (ROOT / "docs/spec/README.md").read_text(encoding="utf-8"))
    for section in config.nav:
        for entry in section.get("Design", ()):
            if isinstance(entry, dict) and "Rules" in entry:
                entry["Rules"] = ["spec/README.md", *(f"spec/{name}" for name in dict.fromkeys(chapters))]
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Show links that leave ``docs/`` as the paths of files, which must exist; link citations to rules."""
    here = (ROOT / "docs" / page.file.src_path).parent

    def path(link: re.Match[str]) -> str:
        target = (here / link[3]).resolve()
        if target.is_relative_to(ROOT / "docs"):
            return link[0]
        if not target.exists():
            raise FileNotFoundError(f"{page.file.src_path} links to {link[3]}, which is no file of the repository")
        return f"{link[2]} (`{target.relative_to(ROOT)}`)" if link[2] != str(target.relative_to(ROOT)) else f"`{link[2]}`"

    markdown = _LINK.sub(path, markdown)
    if page.file.src_path.startswith("spec/"):
        markdown = _RULE.sub(r'<strong id="\1">\1.</strong>', markdown)
    up = "../" * page.file.src_path.count("/")

    def cited(found: re.Match[str]) -> str:
        chapter = _chapters().get(found[1] or "")
        return f"[{found[0]}]({up}spec/{chapter}#{found[0]})" if chapter else found[0]

    return _CITED.sub(cited, markdown)


@functools.cache
def _chapters() -> dict[str, str]:
    """Return the file of each prefix of rules."""
    files = sorted((ROOT / "docs/spec").glob("*.md"))
    return {rule[1].partition("-")[0]: file.name for file in files for rule in _RULE.finditer(file.read_text("utf-8"))}
