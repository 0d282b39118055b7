import socket
import subprocess
import sys
from pathlib import Path

import pytest
from keygrouping_local.ports import HOST, free_ports, is_free


def test_free_ports_differ_and_can_be_listened_on() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    for port in ports:
        socket.create_server((HOST, port)).close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a server could not listen on a claimed port")
def test_a_port_that_nobody_listens_on_yet_is_not_given_to_another_process() -> None:
    (port,) = free_ports(1)
    program = f"from keygrouping_local.ports import _claim; print(_claim({port}))"
    given = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert given == "False\n"
    assert is_free(port)
    with socket.create_server((HOST, port)):
        assert not is_free(port)


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
