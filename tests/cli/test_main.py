"""The program itself: its list of commands, and what it reads when."""

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from router.cli.main import VERBS, main


@pytest.mark.parametrize("name", VERBS)
def test_every_command_is_there_and_explains_itself(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.name == name
    assert command.help
    answered = CliRunner().invoke(main, [name, "--help"])
    assert answered.exit_code == 0
    assert f"Usage: main {name}" in answered.output


def test_the_list_gives_each_command_a_line() -> None:
    lines = CliRunner().invoke(main, ["--help"]).output.splitlines()
    for name, (_, summary) in VERBS.items():
        assert [line for line in lines if line.split() == [name, *summary.split()]]


def test_a_mistyped_command_is_answered_with_the_nearest() -> None:
    answered = CliRunner().invoke(main, ["statsu"])
    assert answered.exit_code == 2
    assert "status" in answered.output


@pytest.mark.parametrize("option", ["--version", "--help"])
def test_asking_for_version_or_help_reads_no_command(option: str) -> None:
    script = (
        "import sys\n"
        "from router.cli.main import main\n"
        f"try: main([{option!r}])\n"
        "except SystemExit: pass\n"
        "print(sorted({'trio', 'attrs', 'yaml', 'rich', 'starlette'} & sys.modules.keys()))\n"
    )
    output = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    assert output.splitlines()[-1] == "[]"
