import pickle
from pathlib import Path

import pytest

from router.service.config.problems import UnfitError
from router.service.config.references import LARGEST_FILE_OCTETS, Secret, Sources


def expand(text: str, directory: Path = Path("/nowhere"), **environment: str) -> str:
    parts = Sources(environment, directory).expand(text, frozenset(["user"]))
    return "".join(part.text for part in parts)


def test_names_are_replaced_from_the_environment() -> None:
    assert expand("a${X}b${Y}", X="1", Y="${X}") == "a1b${X}"


def test_kept_names_and_escaped_references_stay() -> None:
    assert expand("$${X} ${user} $X {}") == "${X} ${user} $X {}"


def test_files_are_read_and_lose_one_line_break(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("p w\n\n")
    assert expand("<${file:secret}>", tmp_path) == "<p w\n>"
    assert expand(f"<${{file:{tmp_path}/secret}}>") == "<p w\n>"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("${X}", "needs the environment variable X, which is not set"),
        ("${}", "neither"),
        ("${a b}", "neither"),
        ("${X", "'${' without '}'"),
        ("${file:gone}", "needs the file gone: No such file or directory"),
        ("${file:.}", "needs the file .: Is a directory"),
        ("${file:binary}", "not text in UTF-8"),
        ("${file:huge}", "exceeds 1 MiB"),
        ("${file:\0}", "not text in UTF-8"),
    ],
)
def test_references_that_lead_nowhere_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "huge").write_bytes(b"x" * (LARGEST_FILE_OCTETS + 1))
    with pytest.raises(UnfitError, match=reason.replace("$", r"\$").replace("{", r"\{")):
        expand(text, tmp_path)


def test_a_variable_that_is_no_text_is_refused() -> None:
    sources = Sources({"X": "t\udcff"}, Path())
    with pytest.raises(UnfitError, match="X, which is not UTF-8"):
        sources.expand("${X}")


def test_secret_never_shows_itself() -> None:
    secret = Secret("hunter2")
    shown = f"{secret} {secret!r} {[secret]} {secret:}"
    assert "hunter2" not in shown
    assert secret.reveal() == "hunter2"


def test_secrets_compare_by_text_and_travel_to_workers() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert len({Secret("a"), Secret("a")}) == 1
    assert pickle.loads(pickle.dumps(Secret("a"))) == Secret("a")
