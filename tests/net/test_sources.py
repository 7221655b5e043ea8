"""Where a peer comes from, as limits and failed logins count it."""

import pytest

from router.net.reception import source_of_address


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("fe80::1%lo", "fe80::/64"),
        ("::1", "::/64"),
    ],
)
def test_an_ipv6_network_of_64_bits_is_one_source(address: str, source: str) -> None:
    assert source_of_address(address) == source
