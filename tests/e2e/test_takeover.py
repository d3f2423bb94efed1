#!/usr/bin/env python3
"""What a guest can do to others who has taken over a worker: played by a library that wakes in each worker once it is confined
(e2e_takeover.c). test_confine_others.c tries more ways than these; here the whole host is there, and what it does about them.
"""
import contextlib
import errno
import fcntl
import itertools
import os
import pathlib
import re
import signal
import socket
import struct
import threading
import unittest

import lib

FIOASYNC, FIOSETOWN, F_OWNER_PID = 0x5452, 0x8901, 1
CLONE_PARENT, CLONE_VM = 0x8000, 0x100
PR_SET_PDEATHSIG, AT_FDCWD = 1, -100
LINES = 200  # of each level in 10 s that a tenant may cause
FORGED = b"2026-01-31T12:00:00.000Z weir serve error supervisor: forged\n"
USER = "nobody"


class Taken:
    """A process that the library is awake in."""

    def __init__(self, connection):
        self.file = connection.makefile("rw")
        self.name, pid = self.file.readline().split()
        self.pid = int(pid)

    def repeat(self, times, name, *args):
        """A call, up to so often: (result, errno, how often it did not fail, memory that it got)."""
        words = [f"={arg.hex()}" if isinstance(arg, bytes) else str(arg) for arg in args]
        self.file.write(f"{times} {name} {' '.join(words)}\n")
        self.file.flush()
        result, why, done, *memory = self.file.readline().split()
        return int(result), int(why), int(done), [bytes.fromhex(m) for m in memory]

    def call(self, name, *args):
        result, why, _, memory = self.repeat(1, name, *args)
        return result, why, memory

    def fds(self, name, *args):
        """The two descriptors that a call makes; its last argument is their place."""
        result, why, memory = self.call(name, *args, bytes(8))
        if result != 0:
            raise OSError(why, os.strerror(why))
        return struct.unpack("ii", memory[-1])


def signals_by_owner(taken, pid, number):
    """The kernel signals the owner of a descriptor."""
    ends = taken.fds("pipe2")[:2]
    taken.call("fcntl", ends[0], fcntl.F_SETOWN, pid)
    taken.call("fcntl", ends[0], 10, number)  # F_SETSIG
    taken.call("fcntl", ends[0], fcntl.F_SETFL, os.O_ASYNC)
    taken.call("write", ends[1], b"x", 1)


def signals_by_owner_ex(taken, pid, number):
    ends = taken.fds("pipe2")
    taken.call("fcntl", ends[0], 15, struct.pack("ii", F_OWNER_PID, pid))  # F_SETOWN_EX
    taken.call("fcntl", ends[0], 10, number)
    taken.call("fcntl", ends[0], fcntl.F_SETFL, os.O_ASYNC)
    taken.call("write", ends[1], b"x", 1)


def signals_by_socket(taken, pid, number):
    ends = taken.fds("socketpair", socket.AF_UNIX, socket.SOCK_STREAM, 0)
    taken.call("ioctl", ends[0], FIOSETOWN, struct.pack("i", pid))
    taken.call("fcntl", ends[0], 10, number)
    taken.call("ioctl", ends[0], FIOASYNC, struct.pack("i", 1))
    taken.call("write", ends[1], b"x", 1)


def signals_directly(taken, pid, number):
    taken.call("kill", pid, number)
    taken.call("tgkill", pid, pid, number)
    taken.call("tkill", pid, number)
    taken.call("rt_sigqueueinfo", pid, number, struct.pack("iii116x", number, 0, -1))
    fd, _, _ = taken.call("pidfd_open", pid, 0)
    taken.call("pidfd_send_signal", fd, number, 0, 0)


SIGNALS = (signals_by_owner, signals_by_owner_ex, signals_by_socket, signals_directly)


def state_of(pid):
    text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    return text.rsplit(")", 1)[1].split()[0]


def children_of(pid):
    """Zombies too."""
    found = set()
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]) == pid:
                found.add(int(entry.name))
    return found


def schedule_of(pid):
    """Of each thread: processors, nice, policy."""
    found = {}
    for thread in map(int, os.listdir(f"/proc/{pid}/task")):
        with contextlib.suppress(ProcessLookupError):
            found[thread] = (frozenset(os.sched_getaffinity(thread)), os.getpriority(os.PRIO_PROCESS, thread),
                             os.sched_getscheduler(thread))
    return found


class Takeover(lib.Case):
    def setUp(self):
        super().setUp()
        self.taken = {}
        folder = self.folder()
        self.socket = socket.socket(socket.AF_UNIX)
        self.addCleanup(self.socket.close)
        path = os.path.join(folder, "takeover")
        self.socket.bind(path)
        os.chmod(path, 0o666)
        self.socket.listen(128)
        self.env = {"LD_PRELOAD": os.path.join(lib.places.programs, "e2e_takeover.so"), "WEIR_TAKEOVER": path}
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                taken = Taken(self.socket.accept()[0])
                self.taken[taken.pid] = taken

    def victims(self, lines=(), **kwargs):
        """A host on which alice has been taken over and bob works: (host, alice's worker, bob's program)."""
        user = [f'worker_user = "{USER}"'] if os.geteuid() == 0 and not lib.WORKER_USER else []
        host = self.host({"alice": {"isolation": "program"}, "bob": {"isolation": "program"}, "carol": {"isolation": "group"}},
                         host_lines=["spare_workers = 1", *user, *lines], env=self.env, **kwargs)
        self.steady(host, tenant="alice")
        steady = self.steady(host, tenant="bob")
        pid = next(w["pid"] for w in host.status()["worker"] if w["tenant"] == "alice")
        taken = lib.until(lambda: self.taken.get(pid), 10, "the library is awake in alice's worker")
        self.assertEqual(taken.call("ftruncate", -1, 0)[1], errno.EBADF)  # it makes calls
        return host, taken, steady

    def gate(self, host):
        """None where nothing schedules."""
        return next((pid for pid, taken in list(self.taken.items()) if taken.name == "weir-gate"), None)

    def others(self, host, taken):
        """All processes of the host's but the one that was taken over."""
        return {host.pid, self.gate(host), *(w["pid"] for w in host.status()["worker"])} - {taken.pid, None}

    def test_no_signal_reaches_another_process(self):
        host, taken, steady = self.victims()
        spare = lib.until(lambda: next((w["pid"] for w in host.status()["worker"] if w["state"] == "spare"), None), 10, "a spare")
        others = self.others(host, taken)
        self.assertIn(spare, others)
        for send, pid, number in itertools.product(SIGNALS, others, (signal.SIGSTOP, signal.SIGKILL)):
            send(taken, pid, number)
            self.assertNotIn(state_of(pid), "TtZX", f"{send.__name__} {pid} {number}")
        self.assertEqual(self.others(host, taken), others)
        self.finished(host, "e2e_minimal", tenant="bob")
        self.steady_undisturbed(steady)

    def test_a_worker_that_stops_itself_is_ended(self):
        host, taken, steady = self.victims()
        taken.file.write(f"1 kill {taken.pid} {signal.SIGSTOP}\n")
        taken.file.flush()
        lib.until(lambda: not lib.pid_is_alive(taken.pid), 15, "it is ended")
        self.finished(host, "e2e_minimal", tenant="alice")
        self.steady_undisturbed(steady)

    def test_it_makes_no_processes(self):
        """Which would outlive it, and with CLONE_PARENT be the supervisor's."""
        host, taken, steady = self.victims()
        compiler = set(children_of(taken.pid))  # where there is ptxas
        others = self.taken.keys() | set(children_of(host.keeper_pid()))  # the MPS control daemons
        for flags in (signal.SIGCHLD, CLONE_PARENT | signal.SIGCHLD, CLONE_PARENT, CLONE_VM | signal.SIGCHLD):
            self.assertEqual(taken.repeat(300, "clone", flags)[:3], (-1, errno.EPERM, 0), hex(flags))
        self.assertEqual(taken.call("clone3", bytes(88), 88)[1], errno.ENOSYS)
        if os.uname().machine == "x86_64":
            self.assertEqual(taken.call("fork")[1], errno.EPERM)
        self.assertEqual(taken.call("setsid")[1], errno.EPERM)
        self.assertEqual(taken.call("prctl", PR_SET_PDEATHSIG, 0)[1], errno.EPERM)
        self.assertLessEqual(set(children_of(taken.pid)), compiler)
        lib.until(lambda: set(children_of(host.keeper_pid())) <= self.taken.keys() | others, 10, "no other children of the host's")
        self.finished(host, "e2e_minimal", tenant="bob")
        self.steady_undisturbed(steady)
        os.kill(taken.pid, signal.SIGKILL)
        lib.until(lambda: taken.pid not in children_of(host.keeper_pid()), 10, "its death is seen")

    def test_it_dies_with_the_host(self):
        host, taken, _ = self.victims()
        taken.call("prctl", PR_SET_PDEATHSIG, 0)
        host.process.signal(signal.SIGKILL)
        lib.until(lambda: not any(lib.pid_is_alive(pid) for pid in self.taken), 5, "all of the host's processes are gone")

    def test_others_are_scheduled_as_before(self):
        host, taken, steady = self.victims()
        others = self.others(host, taken)
        before = {pid: schedule_of(pid) for pid in others}
        none = struct.pack("i", 0)
        for thread in (t for threads in before.values() for t in threads):
            taken.call("sched_setaffinity", thread, 8, struct.pack("Q", 1))
            taken.call("sched_setscheduler", thread, os.SCHED_IDLE, none)
            taken.call("sched_setattr", thread, struct.pack("IIQiI", 48, os.SCHED_BATCH, 0, 0, 0) + bytes(24), 0)
            taken.call("setpriority", os.PRIO_PROCESS, thread, 19)
            taken.call("ioprio_set", 1, thread, 3 << 13)
            taken.call("prlimit64", thread, 7, struct.pack("QQ", 0, 0), 0)
        taken.call("setpriority", os.PRIO_PGRP, os.getpgid(host.pid), 19)
        taken.call("setpriority", os.PRIO_USER, os.stat(f"/proc/{taken.pid}").st_uid, 19)
        for pid in others:
            now = schedule_of(pid)  # threads come and go
            same = before[pid].keys() & now.keys()
            self.assertTrue(same)
            self.assertEqual({t: now[t] for t in same}, {t: before[pid][t] for t in same})
        self.assertEqual(taken.call("setpriority", os.PRIO_PROCESS, 0, 19)[0], 0)  # itself it may
        self.steady_undisturbed(steady)

    def test_it_makes_nothing_of_the_machines(self):
        _, taken, _ = self.victims()
        self.assertEqual(taken.call("shmget", 0x7765, 4096, 0o1666)[1], errno.EPERM)
        self.assertEqual(taken.call("mq_open", b"weir\0", os.O_CREAT | os.O_RDWR, 0o666, 0)[1], errno.EPERM)

    def lines_of(self, log, pattern):
        return len(re.findall(pattern, pathlib.Path(log).read_text(), re.M))

    def test_the_log_stays_the_hosts(self):
        """It can neither silence it nor cut it, and has no more lines in it than its tenant may cause."""
        log = os.path.join(self.folder(), "log")
        host, taken, steady = self.victims(log=f"info:{log}")
        said = self.lines_of(log, "^")
        for fd in (1, 2):
            self.assertNotEqual(taken.call("shutdown", fd, socket.SHUT_RDWR)[0], 0)
        self.assertNotEqual(taken.call("ftruncate", 2, 0)[0], 0)
        self.assertNotEqual(taken.call("openat", AT_FDCWD, log.encode() + b"\0", os.O_WRONLY, 0)[0], 0)
        flags, _, _ = taken.call("fcntl", 2, fcntl.F_GETFL)
        taken.call("fcntl", 2, fcntl.F_SETFL, flags & ~os.O_NONBLOCK)  # so that each of these is read
        _, _, written, _ = taken.repeat(5000, "write", 2, FORGED + b"<6>of its own\n", len(FORGED) + 14)
        self.assertEqual(written, 5000)
        self.finished(host, "e2e_minimal", tenant="bob")
        lib.until(lambda: self.lines_of(log, r"^\S+ worker warn log: |^\S+ weir serve warn log: .*tenant=alice"), 5, "it is said")
        self.assertGreaterEqual(self.lines_of(log, "^"), said)
        self.assertEqual(self.lines_of(log, "^" + re.escape(FORGED.decode().strip())), 0)
        for level, text in (("warn", "standard error: .*forged"), ("info", "of its own")):
            lines = self.lines_of(log, rf"^\S+ worker {level} {text}")
            self.assertTrue(0 < lines <= 2 * LINES, lines)  # it may have taken more than 10 s
        lib.until(lambda: self.lines_of(log, r"^\S+ worker info session: begun .*tenant=bob") == 2, 5, "bob's sessions are said")
        self.steady_undisturbed(steady)

    def test_a_tenants_workers_have_the_lines_of_one(self):
        host, taken, _ = self.victims()
        for _ in range(3):
            self.steady(host, tenant="alice")
        workers = [w["pid"] for w in host.status()["worker"] if w["tenant"] == "alice"]
        self.assertEqual(len(workers), 4)
        for pid in workers:
            self.taken[pid].repeat(LINES, "write", 2, b"<6>of its own\n", 14)
        host.process.wait_log("more are left out tenant=alice")
        self.finished(host, "e2e_minimal", tenant="bob")
        lines = [line for line in host.process.errors if line.endswith("worker info of its own")]
        self.assertLessEqual(len(lines), 2 * LINES)
        self.assertTrue(any("begun" in line and "tenant=bob" in line for line in host.process.errors))

    @unittest.skipUnless(os.geteuid() == 0, "the descriptors of a process that is not dumpable are root's to see")
    def test_it_has_none_of_the_hosts_files(self):
        """Its terminal, what it reads, and what it writes to."""
        host, taken, _ = self.victims()
        for pid in {taken.pid, self.gate(host)} - {None}:
            fds = lib.fds_of(pid)
            self.assertEqual(fds[0], "/dev/null")
            self.assertRegex(fds[1], "pipe:|memfd:")
            self.assertRegex(fds[2], "pipe:")
            self.assertFalse({fds[1], fds[2]} & set(lib.fds_of(host.pid).values()) - {fds[2]})


if __name__ == "__main__":
    lib.main()
