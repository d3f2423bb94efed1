"""Processes that the end-to-end tests start, and what the kernel says of any."""
import contextlib
import ctypes
import os
import pathlib
import re
import signal
import subprocess
import threading
import unittest

from waiting import Stuck, monotonic_ns, until


def pid_is_alive(pid):
    """Alive and not a zombie."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def children_of(pid):
    """Also those of a host's keeper, which starts the host's processes."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as f:
                    if int(f.read().rsplit(")", 1)[1].split()[1]) == pid:
                        found.append(int(entry))
            except OSError:
                pass
    for child in found[:]:
        try:
            with open(f"/proc/{child}/comm") as f:
                if f.read() == "weir-keep\n":
                    found += children_of(child)
        except OSError:
            pass
    return found


@contextlib.contextmanager
def looking_into(pid):
    """Skips a case that cannot see what it must: a worker is not dumpable, so its inside is root's to see."""
    try:
        yield
    except PermissionError:
        raise unittest.SkipTest(f"what process {pid} has is root's to see") from None


def fds_of(pid):
    """{fd: target} of a process."""
    fds = {}
    with looking_into(pid), contextlib.suppress(ProcessLookupError, FileNotFoundError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                fds[int(fd)] = os.readlink(f"/proc/{pid}/fd/{fd}")
    return fds


def memfd_maps_of(pid):
    """How many mappings of memory files a process has."""
    with looking_into(pid), contextlib.suppress(ProcessLookupError, FileNotFoundError):
        return pathlib.Path(f"/proc/{pid}/maps").read_text().count("memfd:")
    return 0


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def threads_of(pids):
    """(pid, thread): (its name, how often it has gone to sleep, its CPU time in s) of processes."""
    found = {}
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    folder = pathlib.Path(f"/proc/{pid}/task/{thread}")
                    slept = re.search(r"^voluntary_ctxt_switches:\s+(\d+)", (folder / "status").read_text(), re.M)
                    cpu_ns = int((folder / "schedstat").read_text().split()[0])
                    found[pid, thread] = (folder / "comm").read_text().strip(), int(slept.group(1)), cpu_ns / 1e9
    return found


@contextlib.contextmanager
def main_thread_stands(pid):
    """No other thread does, and no signal has stopped the process."""
    seize, interrupt, detach, wait_all = 0x4206, 0x4207, 17, 0x40000000  # as in <linux/ptrace.h>
    libc = ctypes.CDLL(None, use_errno=True)
    for request in (seize, interrupt):
        if libc.ptrace(request, pid, None, None) != 0:
            raise unittest.SkipTest(f"process {pid} cannot be traced: {os.strerror(ctypes.get_errno())}")
    os.waitpid(pid, wait_all)
    try:
        yield
    finally:
        libc.ptrace(detach, pid, None, None)


def threads_since(before, after):
    """By thread name: how many threads there are, how often they went to sleep, and what CPU time they took between."""
    sums = {}
    for key, (name, slept, cpu_s) in after.items():
        _, slept_before, cpu_before_s = before.get(key, (name, 0, 0))
        n, woken, used_s = sums.get(name, (0, 0, 0))
        sums[name] = n + 1, woken + slept - slept_before, used_s + cpu_s - cpu_before_s
    return sums


def die_with_parent():
    """preexec_fn: a test that is killed leaves nothing behind."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Process:
    """A child whose output is collected line by line."""

    def __init__(self, argv, env=None, cwd=None, name=None, new_group=False):
        self.name = name or os.path.basename(argv[0])
        self.lines = []
        self.errors = []
        self.started_ns = monotonic_ns()
        self.popen = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env,
            cwd=cwd, preexec_fn=die_with_parent, start_new_session=new_group)
        self.pid = self.popen.pid
        self._readers = [threading.Thread(target=self._read, args=pair, daemon=True)
                         for pair in ((self.popen.stdout, self.lines),
                                      (self.popen.stderr, self.errors))]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(stream, lines):
        for line in stream:
            lines.append(line.decode("utf-8", "replace").rstrip("\n"))
        stream.close()

    @property
    def out(self):
        return "\n".join(self.lines)

    @property
    def err(self):
        return "\n".join(self.errors)

    def alive(self):
        return self.popen.poll() is None

    def say(self, text):
        self.popen.stdin.write(text.encode() + b"\n")
        self.popen.stdin.flush()

    def close_stdin(self):
        try:
            self.popen.stdin.close()
        except BrokenPipeError:
            pass

    def wait_line(self, pattern, limit_s=20, after=0):
        """The match of the first line from number `after` on; fails when the process ends first."""
        return self._wait_for(self.lines, pattern, limit_s, after)

    def wait_log(self, pattern, limit_s=10):
        """The same for what it says on stderr: what it did may be seen before what it says of it is read."""
        return self._wait_for(self.errors, pattern, limit_s)

    def _wait_for(self, lines, pattern, limit_s, after=0):
        regex = re.compile(pattern)

        def look():
            ended = not self.alive() and not any(r.is_alive() for r in self._readers)
            for line in list(lines)[after:]:
                match = regex.search(line)
                if match:
                    return match
            if ended:
                raise Stuck(f"{self.name} ended ({self.popen.returncode}) without '{pattern}':\n"
                            f"{self.tail()}")
            return None

        try:
            return until(look, limit_s, f"{self.name} says '{pattern}'")
        except Stuck as error:
            raise Stuck(f"{error}\n{self.tail()}") from None

    def tail(self):
        return "\n".join(["--- stdout", *self.lines[-15:], "--- stderr", *self.errors[-15:]])

    def wait(self, limit_s=30):
        """The exit status; a process that does not end is killed and is a failure."""
        try:
            until(lambda: self.popen.poll() is not None, limit_s, "its end")
        except Stuck:
            self.kill()
            raise Stuck(f"{self.name} did not end within {limit_s:g} s\n{self.tail()}") from None
        for reader in self._readers:
            reader.join(5)
        return self.popen.returncode

    def signal(self, number):
        if self.alive():
            self.popen.send_signal(number)

    def kill(self):
        if self.alive():
            self.popen.kill()
        self.popen.wait()
        for reader in self._readers:
            reader.join(5)
        self.close_stdin()
