"""What is wrong with the URL of a store is found without asking the database."""

import pytest

from router.journal.postgres.url import shown, why_unusable


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://db/router",
        "postgresql://app:secret@db:5432/router?sslmode=verify-full&sslrootcert=/etc/ca.pem",
        "postgresql://app@a:5432,b,[::1]:5433/router?target_session_attrs=read-write",
        "postgres://app:p%40ss%2Fword@db/router",
        "postgresql:///router?host=/var/run/postgresql&port=5433",
        "postgresql://db?dbname=router&user=app@example",
        "postgresql://",
    ],
)
def test_a_url_that_libpq_reads_is_accepted(url: str) -> None:
    assert why_unusable(url) is None


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("postgresql://db:abc/router", "a port is a number"),
        ("postgresql://db:0/router", "a port is a number"),
        ("postgresql://a:5432,b:70000/router", "a port is a number"),
        ("postgresql://[::1]:x/router", "a port is a number"),
        ("postgresql:///router?host=a&port=99999", "a port is a number"),
        ("postgresql://db/router?sslmod=require", "no parameter sslmod; the nearest that there is"),
        ("postgresql://db/router?sslmode", "NAME=VALUE"),
        ("postgresql://app:se@cret@db/router", "%40"),
        ("postgresql://app:se/cret@db/router", "%2F"),
    ],
)
def test_what_libpq_would_refuse_is_named_without_the_password(url: str, reason: str) -> None:
    found = str(why_unusable(url))
    assert reason in found
    assert "cret" not in found
    assert "cret" not in shown(url)
