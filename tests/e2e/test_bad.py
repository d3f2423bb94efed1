#!/usr/bin/env python3
"""Bad input through the Driver API: a clear error, and a second tenant that notices nothing."""
import lib


class Bad(lib.Case):
    isolation = "group"

    def beside_steady(self, *args, arrangements=(lib.SHM, lib.ZMQ), limit_s=40):
        host = self.host()
        worker = host.worker_pid()
        steady = self.steady(host)
        for arrangement in arrangements:
            self.finished(host, "e2e_bad", *args, arrangement=arrangement, limit_s=limit_s)
            self.steady_goes_on(steady)
        self.steady_undisturbed(steady)
        host.wait_idle()
        self.assertEqual(host.worker_pid(), worker, "the worker died of it")
        self.assertEqual(host.worker()["restarts"], 0)
        return host

    def test_images(self):
        self.beside_steady("images")

    def test_handles_and_double_frees(self):
        self.beside_steady("handles")

    def test_launches_over_the_limits(self):
        self.beside_steady("launches")

    def test_registered_memory_that_is_cut(self):
        self.beside_steady("cut", arrangements=(lib.SHM,))

    def test_foreign_memory(self):
        host = self.host()
        steady = self.steady(host)
        block = steady.wait_line(r"^block (0x[0-9a-f]+) (\d+)$")
        for arrangement in (lib.SHM, lib.ZMQ):
            self.finished(host, "e2e_bad", "foreign", block[1], block[2], arrangement=arrangement)
        self.steady_undisturbed(steady)
        host.wait_idle()

    def test_images_on_softgpu_itself(self):
        if lib.DRIVER != "softgpu":
            self.skipTest("a real driver is not ours to test")
        for what in ("images", "launches"):
            self.finished(None, "e2e_bad", what, "direct", arrangement=lib.SOFTGPU)


if __name__ == "__main__":
    lib.main()
