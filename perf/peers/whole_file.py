"""Files that are there whole or not at all, also after Ctrl-C."""

import os
import secrets


def replaceable(path):
    """Devices and pipes are written to, never replaced."""
    return os.path.isfile(path) or not os.path.exists(path)


def beside(path):
    return f"{os.path.realpath(path)}.{secrets.token_hex(8)}"


def check_writable(path):
    """Raises OSError where no file can be written to `path`; leaves what is there as it is."""
    there = os.path.exists(path)
    probe = path if there else beside(path)
    open(probe, "a").close()
    if not there:
        os.remove(probe)


def write(path, text):
    """Raises OSError."""
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
