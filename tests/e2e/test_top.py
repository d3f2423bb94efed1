#!/usr/bin/env python3
"""weir top on a real terminal and as text; --json of all commands that have it, and what the man pages say of it."""
import contextlib
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import struct
import termios

import lib

PAGES = pathlib.Path(lib.places.source) / "docs/man"
COLOURS = re.compile(r"\x1b\[(?:3[0-9]|[127])m")


class Terminal:
    """A command on a pseudo-terminal of its own."""

    def __init__(self, argv, rows=24, columns=90, **env):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
            os.execve(argv[0], argv, dict(lib.clean_environment(), **env))
        self.text = ""

    def read(self):
        while select.select([self.fd], [], [], 0.05)[0]:
            try:
                data = os.read(self.fd, 65536)
            except OSError:  # its other end is closed
                break
            if not data:
                break
            self.text += data.decode()
        return self.text

    def wait_text(self, pattern, after=0):
        return lib.until(lambda: re.search(pattern, self.read()[after:]), 10, f"{pattern!r} on the screen")

    def end(self):
        lib.until(lambda: (self.read(), os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT))[1],
                  15, "the command ends")
        status = os.waitpid(self.pid, 0)[1]
        self.read()
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)

    def discard(self):
        with contextlib.suppress(OSError):
            os.kill(self.pid, 9)
            os.waitpid(self.pid, 0)
        with contextlib.suppress(OSError):
            os.close(self.fd)


def shown(text):
    """Without escape sequences."""
    return re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", text)


class Top(lib.Case):
    def working_host(self):
        host = self.host({"alice": {"weight": 300}, "bob": {}, "idle": {}})
        self.busy(host, "alice")
        self.busy(host, "bob")
        return host

    def top(self, host, *args, **kwargs):
        terminal = Terminal([lib.places.weir, "top", "--run-dir", host.run_dir, "--interval-ms", "300", *args],
                            **kwargs)
        self.addCleanup(terminal.discard)
        return terminal

    def test_on_a_terminal(self):
        host = self.working_host()
        top = self.top(host, columns=150, TERM="xterm")
        top.wait_text(r"\x1b\[J")
        before = termios.tcgetattr(top.fd)[3]
        self.assertFalse(before & termios.ICANON, "keys come without Enter")
        self.assertTrue(top.text.startswith("\x1b[?1049h\x1b[?25l\x1b[H"), repr(top.text[:40]))
        frame = top.text.split("\x1b[J")[0]
        self.assertRegex(frame, COLOURS)
        lines = shown(frame).replace("\r", "").splitlines()
        self.assertLess(len(lines), 24)
        self.assertLessEqual(max(map(len, lines)), 150, "cut at the terminal's width")
        self.assertRegex(lines[0], r"^weir top - \d\d:\d\d:\d\d, up \d+ s, 3 tenants, 2 sessions")
        self.assertRegex(lines[1], r"^GPU 0 .*busy \[ *\] +-  SMs \[\|+ *\] +\d+%")
        self.assertRegex(shown(frame), r"(?m)^ +\d+ alice +[\d.]+%")
        # Another order, at once and from then on.
        at = len(top.text)
        os.write(top.fd, b"s")
        top.wait_text(", by memory", at)
        self.assertEqual(top.text.count("\x1b[?1049l"), 0)
        os.write(top.fd, b"q")
        self.assertEqual(top.end(), 0)
        self.assertTrue(top.text.endswith("\x1b[?25h\x1b[?1049l"), repr(top.text[-40:]))

    def test_columns_go_where_there_is_no_room(self):
        """Those that matter least go first; who waits, and what was refused, is always seen."""
        host = self.host({"alice": {"weight": 300, "memory": "64MiB"}, "bob": {}})
        self.busy(host, "alice")
        self.busy(host, "bob")
        self.finished(host, "e2e_quota", "fails", 80 << 20)
        seen = {}
        for columns in (200, 130, 100, 80, 60):
            top = self.top(host, columns=columns, TERM="xterm")
            lib.until(lambda top=top: top.read().count("\x1b[J") >= 2, 10, "two frames")
            os.write(top.fd, b"q")
            self.assertEqual(top.end(), 0)
            lines = shown(top.text.split("\x1b[J")[1]).replace("\r", "").splitlines()
            self.assertLessEqual(max(map(len, lines)), columns, lines)
            head = next(line for line in lines if line.startswith("TENANT"))
            alice = next(line for line in lines if line.startswith("alice"))
            seen[columns] = head.split()
            self.assertIn("WAIT", head)
            self.assertRegex(alice, r"^alice .* refused 1$")
            self.assertRegex(alice[:head.index("WAIT") + 4], r" [\d.]+%$", "the value stands under its head")
        self.assertEqual(len(seen[200]), 12)
        self.assertEqual(seen[80], ["TENANT", "WEIGHT", "SHARE", "MEMORY", "QUOTA", "WAIT"])
        for wide, narrow in zip(list(seen.values()), list(seen.values())[1:]):
            self.assertLess(set(narrow), set(wide))

    def test_small_terminal_without_colours(self):
        host = self.working_host()
        top = self.top(host, rows=6, columns=40, TERM="xterm", NO_COLOR="1")
        lib.until(lambda: top.read().count("\x1b[J") >= 2, 10, "two frames")
        os.write(top.fd, b"q")
        self.assertEqual(top.end(), 0)
        self.assertNotRegex(top.text, COLOURS)
        for frame in top.text.split("\x1b[H")[1:]:
            lines = shown(frame.split("\x1b[J")[0]).replace("\r", "").splitlines()
            self.assertLessEqual(len(lines), 5)
            self.assertLessEqual(max(map(len, lines)), 40)
        dumb = self.top(host, "-n", "2", TERM="dumb")
        self.assertEqual(dumb.end(), 0)
        self.assertNotIn("\x1b", dumb.text)
        self.assertEqual(dumb.text.count("weir top - "), 2)

    def test_once_and_sorting(self):
        host = self.working_host()
        holder = self.guest(host, "e2e_quota", "hold", 512 << 20, tenant="idle")
        holder.wait_line("^held$")
        order = {}
        for key in ("share", "memory", "name", "wait", "copies"):
            result = lib.run_weir("top", "--once", "--interval-ms", "500", "--sort", key, "--run-dir", host.run_dir)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertNotIn("\x1b", result.stdout)
            order[key] = re.findall(r"(?m)^(alice|bob|idle) ", result.stdout)
        self.assertEqual(order["name"], ["alice", "bob", "idle"])
        self.assertEqual(order["memory"][0], "idle")
        self.assertEqual(order["share"][-1], "idle")
        self.assertRegex(result.stdout, r"(?m)^ +%d idle .* e2e_quota$" % holder.pid)
        wrong = lib.run_weir("top", "--sort", "colour")
        self.assertEqual((wrong.returncode, wrong.stdout), (2, ""))
        self.assertIn("share, memory", wrong.stderr)

    def test_without_a_scheduler(self):
        host = self.host(("alice",), args=["--policy", "off"])
        result = lib.run_weir("top", "--once", "--interval-ms", "100", "--run-dir", host.run_dir)
        self.assertRegex(result.stdout, r"(?m)^alice +100 normal +- +- +- +- +- ")
        self.assertRegex(result.stdout, r"(?m)^GPU 0 .* SMs \[ *\] +-")

    def test_json_is_what_the_pages_say(self):
        host = self.working_host()
        common = (PAGES / "weir-status.1.scd").read_text()
        rows = {"status": {"host", "device", "worker", "tenant", "session", "program", "extra", "wait"},
                "top": {"device", "device_rate", "tenant_rate", "process_rate"}, "tenant": {"tenant", "setting"},
                "doctor": {"check"}, "stats": {None, "prediction"}, "events": {"event"}}
        for argv in (("status",), ("top", "--once", "--interval-ms", "200"), ("tenant", "list"),
                     ("tenant", "show", "alice"), ("tenant", "set", "alice", "weight=7"), ("doctor",), ("stats",), ("stats", "--predictions"),
                     ("events",)):
            with self.subTest(argv=argv):
                result = lib.run_weir(*argv, "--json", "--run-dir", host.run_dir)
                self.assertEqual((result.returncode, result.stderr), (0, ""))
                objects = [json.loads(line) for line in result.stdout.splitlines()]
                self.assertTrue(objects)
                self.assertLessEqual({o.get("row") for o in objects}, rows[argv[0]])
                page = common + (PAGES / f"weir-{argv[0]}.1.scd").read_text()
                keys = {key for o in objects for key in o} | {
                    key for o in objects for f in o.get("functions", ()) for key in f}
                missing = [k for k in sorted(keys) if f"_{k}_" not in page.replace("\\_", "_")]
                self.assertEqual(missing, [])


if __name__ == "__main__":
    lib.main()
