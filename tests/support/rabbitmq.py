"""RabbitMQ nodes on loopback, one process each, started and ended by the tests.

A node keeps to ports and folders of its own, so that several stand side by side and none meets a
node that the machine runs for itself.
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import attrs

from tests.support.ports import free_port

SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
PLUGINS = "[rabbitmq_amqp1_0,rabbitmq_shovel,rabbitmq_federation,rabbitmq_management]."
START_SECONDS = 120.0


def is_installed() -> bool:
    """Tells whether Debian's rabbitmq-server is on this machine."""
    return SERVER.exists()


@attrs.define(eq=False)
class RabbitNode:
    """One running node; ``port`` speaks 0-9-1 and 1.0, ``management_port`` HTTP.

    Attributes:
        home: folder of its own for everything that it writes.
    """

    name: str
    home: Path
    port: int = attrs.field(factory=free_port)
    management_port: int = attrs.field(factory=free_port)
    distribution_port: int = attrs.field(factory=free_port)
    mapper_port: int = attrs.field(factory=free_port)
    process: subprocess.Popen[bytes] | None = attrs.field(default=None, init=False)

    @property
    def node_name(self) -> str:
        return f"{self.name}-{os.getpid()}@localhost"

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "HOME": str(self.home),
            "RABBITMQ_NODENAME": self.node_name,
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self.distribution_port),
            "RABBITMQ_MNESIA_BASE": str(self.home / "mnesia"),
            "RABBITMQ_LOG_BASE": str(self.home / "log"),
            "ERL_CRASH_DUMP": str(self.home / "erl_crash.dump"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.home / "enabled_plugins"),
            "RABBITMQ_CONFIG_FILE": str(self.home / "rabbitmq"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                "-kernel inet_dist_use_interface {127,0,0,1} +S 1:1 +sbwt none"
            ),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self.mapper_port),
        }

    def prepare(self) -> Self:
        """Writes the node's configuration."""
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "enabled_plugins").write_text(PLUGINS)
        (self.home / "rabbitmq.conf").write_text(
            f"listeners.tcp.default = 127.0.0.1:{self.port}\n"
            f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {self.management_port}\n"
            "loopback_users = none\ndisk_free_limit.absolute = 50MB\nlog.file.level = warning\n"
        )
        (self.home / ".erlang.cookie").write_text("loopback-only")
        (self.home / ".erlang.cookie").chmod(0o400)
        return self

    def start(self) -> None:
        """Starts the node and waits until it accepts connections; raises as ``wait`` does."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Starts the node's process."""
        output = (self.home / "console").open("ab")
        self.process = subprocess.Popen(
            [str(SERVER)],
            env=self.environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )

    def wait(self) -> None:
        """Waits until the node accepts connections.

        Raises:
            RuntimeError: it ended, or was not up within two minutes.
        """
        assert self.process is not None
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            with socket.socket() as probe:
                probe.settimeout(1)
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.2)
        raise RuntimeError((self.home / "console").read_text(errors="replace")[-2000:])

    def stop(self, seconds: float = 15) -> None:
        """Ends the node and its port mapper; in order, unless that takes longer."""
        if self.process is None:
            return
        os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.process = None
        mapper = shutil.which("epmd")
        if mapper:
            subprocess.run(
                [mapper, "-port", str(self.mapper_port), "-kill"],
                env=self.environment,
                capture_output=True,
                check=False,
            )

    def kill(self) -> None:
        """Ends the node with SIGKILL; its port mapper stays for the next start."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process = None


@contextmanager
def running_all(folder: Path, *names: str) -> Iterator[list[RabbitNode]]:
    """Runs several nodes for the length of a ``with`` block; they start at the same time."""
    nodes = [RabbitNode(name, folder / name).prepare() for name in names]
    try:
        for node in nodes:
            node.launch()
        for node in nodes:
            node.wait()
        yield nodes
    finally:
        for node in nodes:
            node.stop()


@contextmanager
def running(name: str, home: Path) -> Iterator[RabbitNode]:
    """Runs a node for the length of a ``with`` block."""
    node = RabbitNode(name, home).prepare()
    try:
        node.start()
        yield node
    finally:
        node.stop()
