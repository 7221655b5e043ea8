"""The reference says what the code does, and explains all of it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.reference import commands, errors, events, options
from tests.reference.explained import explanations
from tests.reference.files import PAGES, SHARE, files
from tests.support import peers


def _lying_there() -> list[Path]:
    """Returns what is in the folders now. Making the files takes seconds: too long to collect."""
    return [path for folder in (PAGES, SHARE) for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("path", sorted(_lying_there()), ids=str)
def test_a_file_is_as_the_code_makes_it(path: Path) -> None:
    """Written anew by ``python -m tests.reference``."""
    assert path.read_text(encoding="utf-8") == files()[path], "run python -m tests.reference"


def test_nothing_else_lies_beside_them_and_none_is_missing() -> None:
    assert set(_lying_there()) == set(files())


def test_every_event_of_the_code_is_explained_and_no_other() -> None:
    logged = {call.event for call in events.calls()}
    assert sorted(events.explained()) == sorted(logged)


def test_a_name_that_is_explained_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "events.yaml"
    path.write_text("a.b: Once.\na.c: Other.\na.b: Twice.\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"a\.b"):
        explanations(path)


def test_events_are_found_where_the_shell_the_core_and_the_stores_log_them() -> None:
    logged = {call.event: call for call in events.calls()}
    assert logged["router.ready"].level == "info"
    assert "listeners" in logged["router.ready"].fields
    assert {"link.detached", "link.resumed", "archive.started", "config.deferred"} <= set(logged)


def test_every_condition_that_is_sent_is_explained() -> None:
    assert set(errors.reasons()) <= set(errors.explained()) <= errors.names()


def test_every_section_of_the_file_has_its_heading() -> None:
    paths = [part.path for part in options.parts()]
    assert {"router.admin", "listeners[].tls", "containers.NAME", "policy.rules[]"} <= set(paths)
    assert len(paths) == len(set(paths))


def test_every_command_has_a_manual_page() -> None:
    for entry in commands.entries():
        assert Path("share/man/man1", f"{entry.name.replace(' ', '-')}.1").is_file()


@pytest.mark.processes
def test_manual_pages_are_roff_without_warnings() -> None:
    peers.need_program("groff", "groff-base")
    for path in sorted(Path("share/man").rglob("*.[15]")):
        said = subprocess.run(
            ["groff", "-man", "-ww", "-z", "-Tutf8", str(path)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert said.stderr == "", path


@pytest.mark.processes
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("sta",), ["status"]),
        (("deliveries", "re"), ["resolve"]),
        (("send", "--js"), ["--json", "--json-lines"]),
        (("send", "--protocol", "amqp-0"), ["amqp-0-10", "amqp-0-9-1", "amqp-0-9r1"]),
    ],
)
def test_bash_completes_commands_options_and_values(
    words: tuple[str, ...], offered: list[str]
) -> None:
    script = (
        "source share/bash-completion/completions/router\n"
        'COMP_WORDS=(router "$@"); COMP_CWORD=$#; _router_completion router "${!#}"\n'
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "-c", script, "bash", *words],
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert sorted(done.stdout.split()) == offered, done.stderr
