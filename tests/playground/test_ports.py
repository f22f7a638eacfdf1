"""Ports for servers that start later: chosen once, by one process."""

import subprocess
import sys

from playground import ports

CHOOSE_FIRST_OF_20 = (
    "import random, sys; from playground import ports;"
    "random.sample = lambda *_: range(int(sys.argv[1]), int(sys.argv[1]) + 20); print(ports.free_port())"
)


def test_port_is_given_once_although_nothing_listens_on_it_yet() -> None:
    chosen = [ports.free_port() for _ in range(300)]
    assert len(set(chosen)) == len(chosen)


def test_two_processes_never_choose_the_same_port_and_an_ended_one_gives_it_back() -> None:
    first = ports.free_port()
    command = [sys.executable, "-c", CHOOSE_FIRST_OF_20, str(first)]
    other = subprocess.run(command, capture_output=True, text=True, check=True)
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(other.stdout) == int(again.stdout) > first
