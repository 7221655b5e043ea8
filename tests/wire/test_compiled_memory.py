"""What is compiled, under the address sanitizer: nothing is read or written out of bounds."""

from pathlib import Path

import pytest

from tests.support.sanitized import build, run

SOCKET_TESTS = ("tests/net/test_carrier.py", "tests/net/test_dataplane.py")
"""In which the kernel's carrier receives and sends: run with the sanitizer, too."""

CARRIED_TLS = (
    f"{SOCKET_TESTS[0]}::test_inside_tls_the_carrier_moves_what_is_the_lanes",
    f"{SOCKET_TESTS[0]}::test_inside_tls_everything_arrives_once_and_in_order[cython-openssl-0]",
)

QUIET = ("-q", "-p", "no:cacheprovider", "-m", "not slow")


@pytest.mark.slow
def test_hostile_conversations_stay_within_bounds(tmp_path: Path) -> None:
    built = build("router.wire.v1_0._express", tmp_path)
    run("-m", "tests.support.lane_fuzz", "5000", "5200", str(built), *QUIET, *SOCKET_TESTS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "tests"),
    [
        ("router.wire.v1_0._bulk", ["tests/wire/v1_0/test_bulk.py"]),
        (
            "router.wire.v0_9_1._quick",
            [f"tests/wire/v0_9_1/test_{room}.py" for room in ("quick", "scan", "passing", "order")],
        ),
        (
            "router.core._bulk",
            [f"tests/core/test_{room}.py" for room in ("bulk", "settle", "resume")],
        ),
        ("router.net._tls", ["tests/net/test_tls_stream.py", *CARRIED_TLS]),
        (
            "router.journal._bulk",
            [
                *(f"tests/journal/test_{each}.py" for each in ("lives", "writer", "crc")),
                "tests/journal/test_bulk_rows.py",
                *(
                    f"tests/journal/store/test_{each}.py"
                    for each in ("references", "runs", "taken")
                ),
            ],
        ),
    ],
)
def test_shortcuts_and_twins_stay_within_bounds(
    tmp_path: Path, name: str, tests: list[str]
) -> None:
    built = build(name, tmp_path)
    run("-m", "tests.support.sanitized", f"{name}={built}", "--", *QUIET, *tests)
