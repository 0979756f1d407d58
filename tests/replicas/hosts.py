"""Several hosts on one machine: network namespaces with an address each, and one for their switch.

A host's name leads to its loopback, as it often does, so nothing here works by names.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time

PORT = 29400


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=True).stdout


def reason_not_to_be() -> str:
    """Why there can be no namespaces here; empty if there can."""
    if shutil.which("ip") is None:
        return "there is no program `ip`"
    name = f"xla{os.getpid()}try"
    try:
        _ip("netns", "add", name)
        _ip("netns", "exec", name, "true")
    except subprocess.CalledProcessError as error:
        return f"network namespaces can't be made: {error.stderr.strip()}"
    finally:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return ""


class Hosts:
    """So many hosts.

    Attributes:
        count: how many.
        processes: all that were started on them.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.processes: list[subprocess.Popen[str]] = []
        self._switch = f"xla{os.getpid()}switch"
        self._namespaces: list[str] = []

    def make(self) -> None:
        """Make the namespaces, which `remove` removes, also after a failure here."""
        self._add(self._switch)
        _ip("-n", self._switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self._switch, "link", "set", "bridge", "up")
        for host in range(self.count):
            name, port = self._name(host), f"port{host}"
            self._add(name)
            _ip("-n", name, "link", "set", "lo", "up")
            peer = ("peer", "name", port, "netns", self._switch)
            _ip("-n", name, "link", "add", "eth0", "type", "veth", *peer)
            _ip("-n", name, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", self._switch, "link", "set", port, "master", "bridge", "up")

    def remove(self) -> None:
        """End what runs on the hosts, and them."""
        while pids := self.pids():
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        for process in self.processes:
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
        while self._namespaces:
            _ip("netns", "del", self._namespaces.pop())

    def _add(self, name: str) -> None:
        _ip("netns", "add", name)
        self._namespaces.append(name)

    def _name(self, host: int) -> str:
        return f"xla{os.getpid()}host{host}"

    def address(self, host: int) -> str:
        return f"10.77.0.{host + 1}"

    def pids(self) -> list[int]:
        """The processes that run on the hosts."""
        listed = (_ip("netns", "pids", name) for name in self._namespaces)
        return [int(pid) for pids in listed for pid in pids.split()]

    def cut(self, host: int) -> None:
        """Drop a host's link: what is sent is lost, and nobody is told."""
        _ip("-n", self._switch, "link", "set", f"port{host}", "down")

    def start(self, host: int, command: list[str], **environment: str) -> None:
        """Start a Python program."""
        kept = {key: value for key, value in os.environ.items() if key != "GLOO_SOCKET_IFNAME"}
        process = subprocess.Popen(
            ["ip", "netns", "exec", self._name(host), sys.executable, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**kept, **environment},
        )
        self.processes.append(process)

    def start_each(self, program: list[str], **environment: str) -> None:
        """Start one process on each host, told by torchrun's variables who it is."""
        for host in range(self.count):
            self.start(
                host,
                program,
                RANK=str(host),
                WORLD_SIZE=str(self.count),
                LOCAL_RANK="0",
                LOCAL_WORLD_SIZE="1",
                MASTER_ADDR=self.address(0),
                MASTER_PORT=str(PORT),
                **environment,
            )

    def torchrun(
        self, program: list[str], per_host: int = 1, restarts: int = 0, **environment: str
    ) -> None:
        """Start torchrun on each host."""
        for host in range(self.count):
            flags = [
                f"--nnodes={self.count}",
                f"--nproc-per-node={per_host}",
                f"--max-restarts={restarts}",
                "--rdzv-backend=c10d",
                f"--rdzv-endpoint={self.address(0)}:{PORT}",
                f"--local-addr={self.address(host)}",
                # The first host keeps the store, whatever names its address has.
                f"--rdzv-conf=is_host={int(host == 0)}",
            ]
            self.start(host, ["-m", "torch.distributed.run", *flags, *program], **environment)

    def wait(self, timeout_s: float) -> list[str]:
        """What each that was started has printed, when all have ended.

        Raises:
            AssertionError: one runs on, or has left processes behind.
        """
        deadline = time.monotonic() + timeout_s
        printed = []
        for process in self.processes:
            try:
                out, _ = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired as late:
                raise AssertionError(
                    f"{process.args} runs on after {timeout_s} s\n{(late.output or b'').decode()}"
                ) from None
            printed.append(out)
        assert self.pids() == []
        return printed

    def run_out(self, timeout_s: float) -> list[str]:
        """As `wait`, and all have ended well."""
        printed = self.wait(timeout_s)
        codes = [process.returncode for process in self.processes]
        assert codes == [0] * len(codes), "\n".join(printed)
        self.processes.clear()
        return printed
