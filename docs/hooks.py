"""What the site does beside Markdown: files of the repository are linked as text, and every rule has an anchor."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
_LINK: Final = re.compile(r"\[(`?)([^\]`]+)\1\]\(((?:\.\./)+[^)#\s]+)(#[^)]*)?\)")
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
    """Show links that leave ``docs/`` as the paths of files, which must exist; give rules and citations their anchors."""
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
    return markdown
