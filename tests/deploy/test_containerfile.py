"""The container image's recipe: read as an engine reads it, since none is at hand."""

import json
import re
import shlex
from pathlib import Path

import attrs

from router.cli.main import VERBS

FILE = Path("deploy/Containerfile")
KNOWN = {
    *("FROM", "RUN", "WORKDIR", "COPY", "ENV", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL"),
    *("HEALTHCHECK", "ENTRYPOINT", "CMD"),
}


@attrs.frozen
class Instruction:
    word: str
    rest: str


def instructions() -> list[Instruction]:
    lines = [line for line in FILE.read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    found = []
    for line in joined.splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            found.append(Instruction(word, re.sub(r"\s+", " ", rest)))
    return found


def final_stage() -> list[Instruction]:
    """What the image itself is made by, after the last FROM."""
    all_of_them = instructions()
    last = max(n for n, each in enumerate(all_of_them) if each.word == "FROM")
    return all_of_them[last:]


def only(word: str) -> str:
    (found,) = [each.rest for each in final_stage() if each.word == word]
    return found


def test_every_instruction_is_one_that_engines_know() -> None:
    assert {each.word for each in instructions()} <= KNOWN
    assert instructions()[0].word == "FROM"


def test_every_base_has_a_full_name_a_version_and_a_digest() -> None:
    bases = [each.rest.split(" ")[0] for each in instructions() if each.word == "FROM"]
    assert len(bases) == 2
    for base in bases:
        assert re.fullmatch(
            r"docker\.io/library/python:3\.\d+-slim-\w+@sha256:[0-9a-f]{64}", base
        ), base


def test_what_is_copied_from_the_source_exists() -> None:
    copies = [shlex.split(each.rest) for each in instructions() if each.word == "COPY"]
    own = [words for words in copies if not words[0].startswith("--from")]
    assert own
    for *sources, _ in own:
        for source in sources:
            assert Path(source).exists(), source
    copied = {source for *sources, _ in own for source in sources}
    assert copied >= {"pyproject.toml", "setup.py", "router"}
    readme = re.search(r'^readme = "(.*)"', Path("pyproject.toml").read_text(), re.MULTILINE)
    assert readme is not None
    assert readme[1] in copied


def test_it_runs_as_nobody_in_particular_and_never_as_root() -> None:
    user, group = only("USER").split(":")
    assert int(user) >= 10_000
    assert group == "0"


def test_the_image_itself_installs_nothing() -> None:
    assert all(each.word != "RUN" for each in final_stage())


def test_it_runs_the_program_itself_so_that_signals_reach_it() -> None:
    assert json.loads(only("ENTRYPOINT")) == ["router"]
    verb, path = json.loads(only("CMD"))
    assert verb in VERBS
    assert path == "/etc/router/router.yaml"
    assert only("STOPSIGNAL") == "SIGTERM"


def test_its_health_is_asked_by_a_script_that_compiles() -> None:
    _, _, command = only("HEALTHCHECK").partition("CMD ")
    program, flag, script = json.loads(command)
    assert (program, flag) == ("python", "-c")
    compile(script, "healthcheck", "exec")
    assert "/livez" in script


def test_it_names_the_ports_that_the_manifests_and_the_example_of_every_option_use() -> None:
    text = Path("deploy/router.yaml").read_text()
    example = {int(port) for port in re.findall(r"^  (?:  )?\w+: 127\.0\.0\.1:(\d+)$", text, re.M)}
    manifests = {
        int(port)
        for path in Path("deploy/kubernetes").glob("*.yaml")
        for port in re.findall(r"containerPort: (\d+)", path.read_text())
    }
    assert 8673 in example & manifests
    assert {int(port) for port in only("EXPOSE").split(" ")} >= example | manifests
