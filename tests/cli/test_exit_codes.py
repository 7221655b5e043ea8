"""The table of exit codes names every command, and is what --help and the page say."""

import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from router.cli.exit_codes import EXIT_CODES, page
from router.cli.main import VERBS, main


def test_every_command_is_in_the_table_and_no_other() -> None:
    assert list(EXIT_CODES) == list(VERBS)


def test_the_page_is_the_table() -> None:
    text = Path("docs/exit-codes.md").read_text()
    assert text == page(), "run python -m router.cli.exit_codes"


@pytest.mark.parametrize("verb", list(VERBS))
def test_help_says_what_each_code_means(verb: str) -> None:
    result = CliRunner().invoke(main, [verb, "--help"], terminal_width=200)
    shown = " ".join(result.output.split())
    assert "Exit codes: 0: " in shown
    for code, meaning in EXIT_CODES[verb].items():
        assert f"{code}: {meaning}" in shown


@pytest.mark.parametrize("verb", list(VERBS))
def test_a_wrong_option_is_bad_usage_everywhere(verb: str) -> None:
    assert CliRunner().invoke(main, [verb, "--no-such-option"]).exit_code == 2
    assert 2 in EXIT_CODES[verb]


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["status", "--check"],
        ["deliveries"],
        ["trace", "orders"],
        ["pause", "orders"],
        ["resume", "orders"],
        ["drain"],
        ["reload"],
    ],
)
def test_a_router_that_does_not_answer_fails_whoever_asks(arguments: list[str]) -> None:
    with socket.socket() as taken:  # bound, and nobody listens
        taken.bind(("127.0.0.1", 0))
        admin = f"127.0.0.1:{taken.getsockname()[1]}"
        assert CliRunner().invoke(main, [*arguments, "--admin", admin]).exit_code == 1


@pytest.mark.parametrize("verb", ["run", "check", "explain"])
def test_a_file_with_problems_is_bad_configuration(verb: str, tmp_path: Path) -> None:
    path = tmp_path / "router.yaml"
    path.write_text("routse: []\n")
    more = ["orders"] if verb == "explain" else []
    result = CliRunner().invoke(main, [verb, str(path), *more])
    assert result.exit_code == 2
    assert f"{path}:1:1: " in result.stderr


def test_an_address_that_no_route_takes_fails_explain(tmp_path: Path) -> None:
    path = tmp_path / "router.yaml"
    path.write_text("routes: [{address: orders}]\n")
    assert CliRunner().invoke(main, ["explain", str(path), "orders"]).exit_code == 0
    assert CliRunner().invoke(main, ["explain", str(path), "prices"]).exit_code == 1
