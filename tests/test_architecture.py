"""ARCHITECTURE.md names what is there, and all that a reader has to find."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
QUOTED = re.findall(r"`([^`\s]+)`", PAGE)
FILES = [
    path.relative_to(ROOT).as_posix()
    for folder in ("router", "tests")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in {".py", ".pyx", ".pxi"}
]
FLOORS = sorted(
    each.name for each in (ROOT / "router").iterdir() if (each / "__init__.py").exists()
)


def is_there(name: str) -> bool:
    """Whether a file or folder is there; the page leaves out what its paragraph is about."""
    return (
        any(f"/{each}".endswith(f"/{name}") for each in FILES) or (ROOT / "router" / name).exists()
    )


def test_every_file_that_is_named_is_there() -> None:
    named = [each for each in QUOTED if each.endswith((".py", ".pyx", ".pxi"))]
    assert [each for each in named if not is_there(each)] == []


def test_every_path_without_a_suffix_is_there() -> None:
    named = [each for each in QUOTED if re.fullmatch(rf"({'|'.join(FLOORS)})/[\w/]+", each)]
    gone = [each for each in named if not (is_there(each) or is_there(f"{each}.py"))]
    assert gone == []


def test_every_package_is_named() -> None:
    packages = [
        path.parent.relative_to(ROOT / "router").as_posix()
        for path in (ROOT / "router").glob("*/**/__init__.py")
    ]
    assert [each for each in sorted(packages) if f"`{each}/" not in PAGE] == []


def test_every_room_of_the_processes_is_named() -> None:
    rooms = [path.name for path in (ROOT / "router" / "service").glob("*.py")]
    unnamed = {each for each in rooms if f"service/{each}`" not in PAGE} - {"__init__.py"}
    assert sorted(unnamed) == []
