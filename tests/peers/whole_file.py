"""Files that are there whole or not at all, also after Ctrl-C."""

import os
import secrets
import sys


def replaceable(path):
    """Devices and pipes are written to, never replaced."""
    return os.path.isfile(path) or not os.path.exists(path)


def beside(path):
    return f"{os.path.realpath(path)}.{secrets.token_hex(8)}"


def check_writable(path):
    """Raises OSError where no file can be written to `path`; leaves what is there as it is."""
    if path == "-":
        return
    there = os.path.exists(path)
    probe = path if there else beside(path)
    open(probe, "a").close()
    if not there:
        os.remove(probe)


def leave_alone(path):
    """Sends what is printed to standard error where the report goes to standard output."""
    if path == "-":
        sys.stdout = sys.stderr


def write(path, text):
    """Raises OSError. `-` is standard output."""
    if path == "-":
        sys.__stdout__.write(text)
        sys.__stdout__.flush()
        return
    fresh = beside(path) if replaceable(path) else path
    try:
        with open(fresh, "w") as file:
            file.write(text)
        if fresh != path:
            os.replace(fresh, os.path.realpath(path))
    except OSError:
        if fresh != path and os.path.exists(fresh):
            os.remove(fresh)
        raise
