"""Inner names of virtual hosts: no two hosts share one, and peers see none."""

from hypothesis import given
from hypothesis import strategies as st

from router.routes.match import split
from router.routes.vhost import inside, is_reserved, outside, vhost_of

HOSTS = st.text(min_size=1, max_size=12) | st.sampled_from(
    ["a/b", "a.b", "a", "/", "*", "#", "%2E"]
)
ADDRESSES = st.text(min_size=1, max_size=12) | st.sampled_from(["b/c", "c", "a.b", "/c"])


@given(HOSTS.filter(str.isprintable), ADDRESSES)
def test_host_and_address_come_out_as_they_went_in(vhost: str, address: str) -> None:
    name = inside(vhost, address)
    assert is_reserved(name)
    assert (vhost_of(name), outside(name)) == (vhost, address)
    assert len(split(name)) == 2 + len(split(address))


@given(ADDRESSES.filter(lambda address: not address.startswith("$vhost")))
def test_addresses_of_the_shared_host_stay_as_they_are(address: str) -> None:
    assert inside("", address) == address
    assert outside(address) == address
    assert vhost_of(address) == ""
    assert not is_reserved(address)
