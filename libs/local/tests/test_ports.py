import socket
from pathlib import Path

import pytest
from keygrouping_local.ports import HOST, free_ports, is_free


def test_free_ports_differ_and_can_be_listened_on() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    for port in ports:
        socket.create_server((HOST, port)).close()


def test_a_port_in_use_is_not_free() -> None:
    with socket.create_server((HOST, 0)) as server:
        assert not is_free(server.getsockname()[1])


def test_no_client_takes_the_port_of_a_server_that_is_away() -> None:
    """An outgoing connection gets a port of the system's range; a server's must not be among them."""
    setting = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if not setting.exists():
        pytest.skip("only Linux tells the range")
    first = int(setting.read_text().split()[0])
    assert max(free_ports(500)) < first
