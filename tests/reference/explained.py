"""What the code cannot say of itself: the files that explain names, one text each."""

from pathlib import Path

from router.service.config.document import Entries, Scalar, parse_document
from router.service.config.problems import Problem


def explanations(path: Path) -> dict[str, str]:
    """Returns the text of each name in a file.

    Raises:
        ValueError: the file is not YAML, explains a name twice, or has something else than texts.
    """
    problems: list[Problem] = []
    read = parse_document(path.read_text(encoding="utf-8"), str(path), problems.append)
    if problems or not isinstance(read, Entries):
        raise ValueError("; ".join(map(str, problems)) or f"{path}: not a mapping")
    texts = {
        name: node.text for name, (_, node) in read.entries.items() if isinstance(node, Scalar)
    }
    if len(texts) < len(read.entries):
        raise ValueError(f"{path}: not a text: {sorted(set(read.entries) - set(texts))}")
    return texts
