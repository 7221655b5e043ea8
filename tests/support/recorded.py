"""State that an earlier version wrote, kept as text: tests go on with it.

    tests/formats/NAME.json     {"written_by": COMMIT, "files": {PATH: [base64 of zlib, in lines]}}

To record another, have the version in question write a directory, and

    python -m tests.support.recorded COMMIT DIRECTORY > tests/formats/NAME.json
"""

import base64
import json
import sys
import textwrap
import zlib
from pathlib import Path

FOLDER = Path("tests/formats")


def restore(name: str, folder: Path) -> None:
    """Writes the files of a recording below a folder."""
    recording = json.loads((FOLDER / f"{name}.json").read_text())
    for relative, lines in recording["files"].items():
        path = folder / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(zlib.decompress(base64.b64decode("".join(lines))))


def recorded(commit: str, folder: Path) -> str:
    """Gives the text of a recording of all files below a folder; empty ones are left out."""
    files = {
        str(path.relative_to(folder)): textwrap.wrap(
            base64.b64encode(zlib.compress(path.read_bytes(), 9)).decode(), 96
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.stat().st_size
    }
    return json.dumps({"written_by": commit, "files": files}, indent=1)


if __name__ == "__main__":
    print(recorded(sys.argv[1], Path(sys.argv[2])))
