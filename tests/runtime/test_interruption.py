"""Signals and the end of the process while XLA compiles or a program runs: each in a process of its
own, which says in what order things happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

PROGRAMS = """
import atexit, os, signal, sys, threading, time

# A shell's background jobs ignore it, and hand that on.
signal.signal(signal.SIGINT, signal.default_int_handler)

def count(metric):
    data = torch_xla._XLAC._metric_data(metric)
    return data[0] if data else 0

# Registered before the library is loaded: the last to be called.
atexit.register(lambda: print("at the end:", count("CompileTime"), count("ExecuteTime")))

import torch
import torch_xla

def started():
    return torch_xla._XLAC._counter_value("UncachedCompile") or 0

def kill_when(condition, number=signal.SIGINT):
    def wait():
        while not condition():
            time.sleep(0.01)
        os.kill(os.getpid(), number)
    threading.Thread(target=wait, daemon=True).start()

def long_to_compile():
    # Chains of sorts: none is simplified away, and each takes the compiler a while.
    x = torch.arange(64.0, device="xla").reshape(8, 8)
    for i in range(1500):
        x = (x * (1 + i * 1e-3)).sort(i % 2).values.flip(i % 2) + i
    return x

def long_to_run():
    x = torch.eye(1536, device="xla")
    for _ in range(60):
        x = (x @ x).clamp(-1, 1)
    return x

def check_that_it_works():
    got = torch.arange(5.0, device="xla").square().cpu().tolist()
    assert got == [0, 1, 4, 9, 16], got
"""


def run(body: str) -> tuple[int, str]:
    """How the program ends, and what it prints."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAMS + textwrap.dedent(body)],
        capture_output=True,
        text=True,
        env={**os.environ, "XLA_PERSISTENT_CACHE": "0"},
        timeout=300,
        check=False,
    )
    unexpected = [line for line in done.stderr.splitlines() if "terminate" in line]
    assert not unexpected, done.stderr
    return done.returncode, done.stdout.strip() + done.stderr[-2000:] * (done.returncode > 9)


def test_interrupt_ends_the_wait_for_the_compiler_and_the_process_works_on():
    code, out = run("""
        x = long_to_compile()
        before = started()
        try:
            kill_when(lambda: started() > before)
            torch_xla.sync()
            print("was not interrupted")
        except KeyboardInterrupt:
            print("interrupted", count("CompileTime"))
        check_that_it_works()
        print("worked after", count("CompileTime"), "compilation")
        sys.exit(7)
    """)
    assert out == "interrupted 0\nworked after 1 compilation\nat the end: 1 1"
    assert code == 7


def test_interrupt_ends_the_wait_for_a_program_and_the_process_works_on():
    code, out = run("""
        x = long_to_run()
        try:
            kill_when(lambda: count("CompileTime") == 1)
            x.cpu()
            print("was not interrupted")
        except KeyboardInterrupt:
            print("interrupted", count("ExecuteTime"))
        try:
            kill_when(lambda: True)
            torch_xla.sync(wait=True)
        except KeyboardInterrupt:
            print("interrupted", count("ExecuteTime"))
        assert x.cpu().isfinite().all()
        check_that_it_works()
        print("worked after")
        sys.exit(7)
    """)
    assert out == "interrupted 0\ninterrupted 0\nworked after\nat the end: 2 2"
    assert code == 7


def test_exit_does_not_wait_for_a_program_that_was_interrupted():
    code, out = run("""
        x = long_to_run()
        try:
            kill_when(lambda: count("CompileTime") == 1)
            x.cpu()
        except KeyboardInterrupt:
            sys.exit(5)
    """)
    assert (code, out) == (5, "at the end: 1 0")


def test_an_interrupt_while_the_plugin_is_looked_for_is_one():
    code, out = run("""
        from torch_xla import _plugins
        resolve = _plugins.resolve

        def interrupted():
            _plugins.resolve = resolve
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)

        _plugins.resolve = interrupted
        torch_xla._XLAC._set_plugin_resolver(lambda: _plugins.resolve())
        try:
            torch_xla.sync()
            print("was not interrupted")
        except KeyboardInterrupt:
            print("interrupted")
        check_that_it_works()
        sys.exit(7)
    """)
    assert (code, out) == (7, "interrupted\nat the end: 1 1")


def test_an_interrupt_that_nobody_handles_ends_the_process_as_everywhere():
    code, out = run("""
        x = long_to_compile()
        kill_when(lambda: started() == 1)
        torch_xla.sync()
        print("was not interrupted")
    """)
    assert (code, out) == (-signal.SIGINT, "at the end: 0 0")


def test_what_another_handler_raises_ends_a_wait_too():
    code, out = run("""
        def stop(*_):
            raise TimeoutError("mine")
        signal.signal(signal.SIGUSR1, stop)
        x = long_to_compile()
        try:
            kill_when(lambda: started() == 1, signal.SIGUSR1)
            x.sum().item()
        except TimeoutError as error:
            print(error, count("CompileTime"))
        handled = threading.Event()
        signal.signal(signal.SIGUSR1, lambda *_: handled.set())
        kill_when(lambda: True, signal.SIGUSR1)
        check_that_it_works()
        while not handled.is_set():
            time.sleep(0.01)
    """)
    assert (code, out) == (0, "mine 0\nat the end: 1 1")


def test_exit_does_not_wait_for_the_compilation_of_a_daemon_thread():
    code, out = run("""
        x = long_to_compile()
        threading.Thread(target=torch_xla.sync, daemon=True).start()
        while started() < 1:
            time.sleep(0.01)
        sys.exit(3)
    """)
    assert (code, out) == (3, "at the end: 0 0")


def test_exit_waits_for_programs_that_were_launched():
    code, out = run("""
        x = torch.eye(512, device="xla")
        for _ in range(20):
            x = (x @ x).clamp(-1, 1)
        torch_xla.sync()
    """)
    assert (code, out) == (0, "at the end: 1 1")
