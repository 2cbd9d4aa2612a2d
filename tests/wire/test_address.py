"""What is an address, and what is not."""

from __future__ import annotations

import pytest

from voicebench.wire import address


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("10.0.0.7", "tcp://10.0.0.7:5557"),
        ("tcp://10.0.0.7:1", "tcp://10.0.0.7:1"),
        ("load-1.example:6000", "tcp://load-1.example:6000"),
        ("::1", "tcp://[::1]:5557"),
        ("[::1]:6000", "tcp://[::1]:6000"),
        ("ipc:///tmp/x", "ipc:///tmp/x"),
    ],
)
def test_addresses_as_they_are_written(text, endpoint):
    assert address.to_connect(text) == endpoint


@pytest.mark.parametrize("text", ["", ":5557", "a b", "http://x", "10.0.0.7:", "10.0.0.7:65536", "10.0.0.7:x", "-x"])
def test_what_is_no_address_is_refused(text):
    with pytest.raises(ValueError, match="no address|no port"):
        address.to_connect(text)


def test_a_master_listens_at_no_name():
    with pytest.raises(ValueError, match="is a name"):
        address.to_bind("load-1.example")


@pytest.mark.parametrize(("text", "endpoint"), [("*", "tcp://*:5557"), ("0.0.0.0:0", "tcp://0.0.0.0:*")])
def test_where_a_master_listens(text, endpoint):
    assert address.to_bind(text) == endpoint


@pytest.mark.parametrize(("text", "private"), [("localhost", True), ("[::1]", True), ("*", False), ("ipc://x", True)])
def test_what_only_this_machine_can_reach(text, private):
    assert address.is_private(address.to_bind(text)) is private
