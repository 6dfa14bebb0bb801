"""Pages of the documentation's site that are no files below docs/."""

import pathlib
import re

from mkdocs.structure.files import File

PAGES = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}
root = pathlib.Path(__file__).resolve().parent.parent


def on_files(files, config):
    """Adds the files of the root folder, with links as they are from docs/, and a list of the decisions."""
    for name, page in PAGES.items():
        text = (root / name).read_text().replace("](docs/", "](")
        for other, target in PAGES.items():
            text = text.replace(f"]({other}", f"]({target}")
        files.append(File.generated(config, page, content=text))
    rows = []
    for path in sorted((root / "docs/decisions").glob("*.md")):
        title = re.match(r"# (.*)", path.read_text())[1]
        rows.append(f"- [{title}](decisions/{path.name})\n")
    files.append(File.generated(config, "decisions.md", content="# Decisions\n\n" + "".join(rows)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Links files of the root folder as pages, and unlinks friends in the API reference, whose anchors mkdoxy doesn't make."""
    for name, target in PAGES.items():
        markdown = markdown.replace(f"](../../{name}", f"](../{target}")
    return re.sub(r"\[([^\]]*)\]\([^)]*#friend-[^)]*\)", r"\1", markdown)
