"""The README shows exactly the files that run."""

import re
from pathlib import Path

import pytest
import yaml

CONFIGS = Path("examples/configs")
BLOCKS = re.findall(r"```yaml\n(.*?)```", Path("README.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("job", sorted(file.name for file in CONFIGS.glob("*.yaml")))
def test_each_usual_job_stands_in_the_readme_as_in_its_file(job: str) -> None:
    assert (CONFIGS / job).read_text() in BLOCKS


def test_the_readme_shows_no_other_configuration() -> None:
    files = sorted(file.read_text() for file in CONFIGS.glob("*.yaml"))
    assert sorted(BLOCKS) == files
    for block in BLOCKS:
        assert isinstance(yaml.safe_load(block), dict)
