"""The README shows exactly the files that run, without the line for editors that begins each."""

import re
from pathlib import Path

import pytest
import yaml

CONFIGS = Path("examples/configs")
BLOCKS = re.findall(r"```yaml\n(.*?)```", Path("README.md").read_text(), re.DOTALL)


def shown(file: Path) -> str:
    """Returns a file without its first line, which names the schema."""
    return file.read_text().partition("\n")[2]


@pytest.mark.parametrize("job", sorted(file.name for file in CONFIGS.glob("*.yaml")))
def test_each_usual_job_stands_in_the_readme_as_in_its_file(job: str) -> None:
    assert shown(CONFIGS / job) in BLOCKS


def test_the_readme_shows_no_other_configuration() -> None:
    files = sorted(shown(file) for file in CONFIGS.glob("*.yaml"))
    assert sorted(BLOCKS) == files
    for block in BLOCKS:
        assert isinstance(yaml.safe_load(block), dict)
