#!/usr/bin/env python3
"""kill -9 of a guest in the middle of anything leaves nothing behind and disturbs nobody."""
import os
import random
import signal
import time

import lib

KILLS = int(os.environ.get("WEIR_E2E_KILLS", "60"))


class Kill(lib.Case):
    isolation = "group"

    def kill_loop(self, host, kills, arrangements):
        """Guests at random work, two at a time, killed after a random time."""
        running = []
        for number in range(kills):
            arrangement = arrangements[number % len(arrangements)]
            guest = self.guest(host, "e2e_churn", number + 1, arrangement=arrangement)
            # From "in the handshake" to "in the middle of work".
            running.append((time.monotonic() + random.uniform(0.0, 0.35), guest))
            while len(running) >= 2:
                when, victim = running.pop(0)
                lib.until(lambda w=when: time.monotonic() >= w, 2, "its time has come", 0.002)
                self.assertTrue(victim.alive(), f"ended by itself\n{victim.tail()}")
                victim.kill()
        for _, victim in running:
            victim.kill()

    def test_kills_over_shared_memory(self):
        host = self.host()
        self.finished(host, "e2e_minimal")
        host.wait_idle()
        before = host.resting_footprint()
        steady = self.steady(host)
        self.kill_loop(host, KILLS, [lib.SHM])
        self.steady_goes_on(steady)
        lib.until(lambda: not host.leftovers(sessions=1), 10, "only the other tenant is left", 0.05)
        self.steady_undisturbed(steady)
        host.wait_idle()
        self.assertEqual(host.worker()["restarts"], 0)
        lib.until(lambda: host.footprint() == before, 5,
                  f"descriptors and mappings as before: {before}", 0.1)
        self.assertEqual(host.stop(), 0)

    def test_kills_over_zmq(self):
        self.kills_over(lib.ZMQ, self.host())

    def test_kills_over_tcp(self):
        self.kills_over(lib.TCP, self.host(remote=self.remote()))

    def kills_over(self, arrangement, host):
        self.finished(host, "e2e_minimal", arrangement=arrangement)
        host.wait_idle()
        before = host.resting_footprint()
        steady = self.steady(host, arrangement=arrangement)
        self.kill_loop(host, max(KILLS // 6, 4), [arrangement])
        self.steady_goes_on(steady)
        self.steady_undisturbed(steady)
        host.wait_idle(limit_s=20)  # a remote guest's death shows by its silence
        self.assertEqual(host.worker()["restarts"], 0)
        lib.until(lambda: host.footprint() == before, 10,
                  f"descriptors and mappings as before: {before}, now {host.footprint()}", 0.1)

    def test_memory_comes_back(self):
        """What a killed guest held can be had by the next one at once."""
        host = self.host({"alice": {"memory": "256MiB"}})
        for _ in range(6):
            guest = self.guest(host, "e2e_quota", "hold", 200 << 20)
            guest.wait_line("^held$")
            guest.signal(signal.SIGKILL)
            guest.wait()
            lib.until(lambda: host.tenant("alice")["used_bytes"] == 0, 5, "the memory is free", 0.02)
        self.finished(host, "e2e_quota", "check", 256 << 20)
        host.wait_idle()

    def test_stopped_guest_holds_nobody_up(self):
        """SIGSTOP with work under way and replies pending. On a GPU a program that shares a worker may wait for it: code
        is loaded there when the context is idle."""
        isolation = "group" if lib.DRIVER == "softgpu" else "program"
        host = self.host({name: {"isolation": isolation} for name in ("alice", "bob")})
        steady = self.steady(host)
        stopped = [self.guest(host, "e2e_churn", seed) for seed in (1, 2, 3)]
        for guest in stopped:
            guest.wait_line("^going$")
            guest.signal(signal.SIGSTOP)
        for _ in range(3):
            self.steady_goes_on(steady)
        self.finished(host, "e2e_minimal")  # its own tenant is served too
        for guest in stopped:
            guest.kill()
        self.steady_undisturbed(steady)
        host.wait_idle()


if __name__ == "__main__":
    lib.main()
