"""The list of what clients' own test suites find: it is well formed, and its reader reads."""

from pathlib import Path

import pytest

from router.service.config.load import load
from tests.interop.client_suites import SUITES, WAITS, read_report

REPORT = """\
<testsuites>
  <testsuite name="outer" file="a.js">
    <testsuite name="inner"><testcase name="one" classname="test" file="/x/a.js"/></testsuite>
    <testcase name="two" classname="test" file="/x/a.js"><failure message="no"/></testcase>
    <testcase name="three" classname="test"><skipped/></testcase>
    <testcase name="/x/a.js" classname="test"><failure message="slow"/></testcase>
  </testsuite>
  <testcase name="test" classname="p.TestOne"><error message="first"/></testcase>
  <testcase name="test" classname="p.TestOne"><error message="then"/></testcase>
</testsuites>
"""


@pytest.mark.parametrize("name", SUITES)
def test_the_router_of_each_suite_has_a_valid_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / "router.yaml"
    path.write_text(SUITES[name].config())
    assert len(load(path).listeners) == 2


def test_a_report_tells_each_test_once_with_its_first_fault(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT)
    assert read_report(report) == {
        "a.js test outer: inner: one": "",
        "a.js test outer: two": "no",
        " p.TestOne test": "first",
    }
    assert read_report(tmp_path / "none") == {}


def test_a_reason_is_found_by_the_name_of_a_test() -> None:
    pika = SUITES["pika"]
    test = "tests.acceptance.TestCloseConnectionFromBasicConsumeCallback test"
    assert pika.reason_for(test) == WAITS
    assert pika.reason_for("tests.acceptance.TestBasicGet test") is None
