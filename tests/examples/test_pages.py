"""The documentation holds together: links lead somewhere, and the index leads to every page."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

INDEX = Path("docs/README.md")
PAGES = sorted([*Path().glob("*.md"), *Path("docs").rglob("*.md")])
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """Yields the file and the anchor of each link to a file."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in _LINK.findall(text):
        if not re.match(r"[a-z]+:", target):
            name, _, anchor = target.partition("#")
            yield (page.parent / name if name else page), anchor


def anchors(page: Path) -> set[str]:
    """Returns the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_link_leads_to_a_file_and_to_a_heading(page: Path) -> None:
    for path, anchor in links(page):
        assert path.exists(), path
        assert not anchor or anchor in anchors(path), f"{path}#{anchor}"


def test_the_index_leads_to_every_page() -> None:
    listed = {path.resolve() for path, _ in links(INDEX)}
    missing = [str(page) for page in PAGES if page.resolve() not in listed and page != INDEX]
    assert missing == []


def test_the_readme_leads_to_the_index() -> None:
    assert INDEX in {path for path, _ in links(Path("README.md"))}
