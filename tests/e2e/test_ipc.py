#!/usr/bin/env python3
"""What programs of a tenant share: memory, events, pools and descriptors; in one worker, and over several."""
import ctypes
import os
import shutil
import signal

import lib

MIB = 1 << 20
BYTES = 3 * MIB  # of an allocation
PIECE = 4 * MIB  # of cuMemCreate
INVALID_VALUE, OUT_OF_MEMORY, INVALID_CONTEXT, NOT_READY = 1, 2, 201, 600


def fetched(pid, fd):
    """A process's descriptor, in this one (pidfd_getfd)."""
    process = os.pidfd_open(pid)
    got = ctypes.CDLL(None, use_errno=True).syscall(438, process, fd, 0)
    os.close(process)
    if got < 0:
        raise OSError(ctypes.get_errno(), "pidfd_getfd")
    return got


class Peer:
    """A program that does one thing after the other; see e2e_ipc.c."""

    def __init__(self, case, host, tenant="alice", **how):
        self.process = case.guest(host, "e2e_ipc", tenant=tenant, **how)
        self.case = case
        self.answers = 0
        self.answer()

    def answer(self):
        def look():
            answers = [line for line in list(self.process.lines) if line.startswith("= ")]
            if len(answers) > self.answers:
                return answers
            if not self.process.alive():
                self.case.fail(f"it ended\n{self.process.tail()}")
            return None

        text = lib.until(look, 20, "an answer", 0.002)[self.answers][2:]
        self.answers += 1
        return text

    def ask(self, *words):
        """What it answers to a command."""
        self.process.say(" ".join(str(w) for w in words))
        return self.answer()

    def do(self, *words):
        """A command that must succeed; whatever it says."""
        text = self.ask(*words)
        self.case.assertFalse(text.startswith("error"), f"{words[0]}: {text}")
        return text

    def refused(self, code, *words):
        self.case.assertEqual(self.ask(*words), f"error {code}", words[0])

    def has(self, word):
        self.case.assertEqual(self.ask("words"), f"{word} {word}")

    def killed(self):
        self.process.signal(signal.SIGKILL)
        self.process.wait()


class Shared(lib.Case):
    """Both programs are in one worker."""
    isolation = "group"
    n_workers = 1

    def setUp(self):
        super().setUp()
        self.served = None

    def serve(self, settings=None, **kwargs):
        """The host of this case; a case that does not ask for one gets this."""
        settings = {"isolation": self.isolation, **(settings or {})}
        self.served = self.host({"alice": settings, "bob": settings}, **kwargs)

    def peers(self, *tenants):
        tenants = tenants or ("alice", "alice")
        if not self.served:
            self.serve()
        return [Peer(self, self.served, tenant) for tenant in tenants]

    def pinned(self):
        return self.served.tenant("alice")["pinned_bytes"]

    def used(self):
        return self.served.tenant("alice")["used_bytes"]

    def frees_all(self, *peers):
        for peer in peers:
            peer.process.close_stdin()
            self.assertEqual(peer.process.wait(), 0, peer.process.tail())
        self.served.wait_idle()

    def given(self, maker, taker):
        """An allocation of one, open in the other."""
        maker.do("alloc", BYTES, 11)
        taker.do("open", maker.do("give"), BYTES)

    def test_as_many_workers_as_expected(self):
        self.peers()
        workers = [w for w in self.served.status()["worker"] if w["state"] in ("", "busy")]
        self.assertEqual(len(workers), self.n_workers)

    def test_memory_of_a_context_that_ended(self):
        maker, taker = self.peers()
        maker.do("alloc", 64 * MIB, 11)
        taker.do("open", maker.do("give"), 64 * MIB)
        taker.do("reset")
        maker.do("free")
        lib.until(lambda: self.used() < 64 * MIB, 5, "nobody has it open any more")
        self.frees_all(maker, taker)

    def test_memory(self):
        maker, taker = self.peers()
        taker.do("alloc", BYTES, 5)  # where the maker has its own
        self.given(maker, taker)
        taker.has(11)
        taker.do("fill", 12)
        maker.has(12)
        taker.do("close")
        self.assertTrue(taker.ask("words").startswith("error"), "it is closed")
        maker.do("fill", 13)
        taker.do("open", maker.do("give"), BYTES)
        taker.has(13)
        self.frees_all(maker, taker)

    def test_memory_opened_twice(self):
        """It is at the same address, until it is closed as often."""
        maker, taker = self.peers()
        self.given(maker, taker)
        handle, at = maker.do("give"), taker.do("at")
        taker.do("open", handle, BYTES)
        self.assertEqual(taker.do("at"), at)
        taker.do("close")
        taker.has(11)
        taker.do("close")
        self.assertTrue(taker.ask("words").startswith("error"), "it is closed")
        taker.refused(INVALID_VALUE, "close")
        maker.refused(INVALID_CONTEXT, "open", handle, BYTES)  # its own
        maker.has(11)
        maker.do("pool", BYTES, 12)
        maker.refused(INVALID_VALUE, "give")  # memory of a pool is given by cuMemPoolExportPointer
        self.frees_all(maker, taker)

    def test_several_allocations_of_a_chunk(self):
        """They are found in the other process as what they are."""
        maker, taker, third = self.peers("alice", "alice", "alice")
        handles = []
        for word in (21, 22, 23):
            maker.do("alloc", 4096, word)
            handles.append(maker.do("give"))
        self.assertEqual(len(set(handles)), 3)
        for peer in (taker, third):
            for word, handle in zip((21, 22, 23), handles):
                peer.do("open", handle, 4096)
                peer.has(word)
        self.frees_all(maker, taker, third)

    def test_a_forged_handle_is_refused(self):
        maker, taker = self.peers()
        maker.do("alloc", BYTES, 11)
        handle = maker.do("give")
        taker.refused(INVALID_VALUE, "open", "00" * 64, BYTES)
        taker.refused(INVALID_VALUE, "open", handle[:-2 * 16 - 2] + "7f" + "00" * 16, BYTES)
        taker.refused(INVALID_VALUE, "open_event", handle)
        taker.do("open", handle, BYTES)
        taker.has(11)

    def test_memory_outlives_the_program_that_made_it(self):
        maker, taker = self.peers()
        self.given(maker, taker)
        maker.killed()
        lib.until(lambda: self.served.tenant("alice")["sessions"] == 1, 10, "the maker is gone")
        taker.has(11)
        taker.do("fill", 14)
        taker.has(14)
        self.assertGreaterEqual(self.used(), BYTES, "and stays charged")
        taker.do("close")
        self.frees_all(taker)

    def test_an_event(self):
        maker, taker = self.peers()
        self.given(maker, taker)
        maker.do("event")
        taker.do("open_event", maker.do("give_event"))
        self.assertEqual(taker.ask("query"), "ok", "it was never recorded")
        maker.do("gate")
        maker.do("fill_later", 31)
        maker.do("record")
        taker.refused(NOT_READY, "query")
        maker.refused(NOT_READY, "query")
        taker.do("wait")
        taker.do("fill_later", 32)
        taker.refused(NOT_READY, "query_stream")
        taker.has(11)
        maker.do("go")
        taker.do("synchronize")
        maker.do("synchronize")
        lib.until(lambda: taker.ask("query_stream") == "ok", 10, "the taker's stream goes on")
        self.assertEqual(taker.ask("query"), "ok")
        maker.has(32)
        self.frees_all(maker, taker)

    def test_an_event_recorded_by_who_opened_it(self):
        maker, taker = self.peers()
        maker.do("event")
        taker.do("open_event", maker.do("give_event"))
        taker.do("gate")
        taker.do("record")
        maker.refused(NOT_READY, "query")
        maker.do("wait")
        maker.refused(NOT_READY, "query_stream")
        taker.do("go")
        maker.do("synchronize")
        lib.until(lambda: maker.ask("query_stream") == "ok", 10, "the maker's stream goes on")
        taker.do("destroy_event")
        maker.do("record")
        maker.do("synchronize")
        self.frees_all(maker, taker)

    def test_who_waits_for_an_event_holds_up_nobody(self):
        """Its own calls go on, and others begin and end."""
        maker, taker = self.peers()
        maker.do("event")
        taker.do("open_event", maker.do("give_event"))
        maker.do("gate")
        maker.do("record")
        taker.do("wait")
        taker.do("alloc", BYTES, 41)
        taker.has(41)
        if self.n_workers > 1 or lib.DRIVER == "softgpu":  # in one context NVIDIA's driver loads no code meanwhile
            self.finished(self.served, "e2e_minimal")
        maker.do("go")
        taker.do("synchronize")
        self.frees_all(maker, taker)

    def test_who_waits_for_a_program_that_was_killed_can_be_killed(self):
        maker, taker = self.peers()
        maker.do("event")
        taker.do("open_event", maker.do("give_event"))
        maker.do("gate")
        maker.do("record")
        taker.do("wait")
        maker.killed()
        taker.killed()
        self.finished(self.served, "e2e_minimal")
        self.finished(self.served, "e2e_minimal", tenant="bob")

    def by_descriptor(self, maker, taker, how):
        if how == "pidfd_getfd":
            taker.do("fetch", *maker.do("descriptor").split())
        else:
            path = os.path.join(self.served.folder, "descriptor.sock")
            taker.do("listen", path)
            maker.do("send", path)
            taker.do("receive")

    def test_descriptors_of_memory(self):
        for how in ("SCM_RIGHTS", "pidfd_getfd"):
            with self.subTest(how):
                maker, taker = self.peers()
                maker.do("create", PIECE, 51)
                self.by_descriptor(maker, taker, how)
                taker.do("import", PIECE)
                taker.has(51)
                taker.do("fill", 52)
                maker.has(52)
                self.frees_all(maker, taker)

    def test_a_descriptor_outlives_the_program_that_made_it(self):
        maker, taker = self.peers()
        maker.do("create", PIECE, 51)
        self.by_descriptor(maker, taker, "SCM_RIGHTS")
        maker.killed()
        lib.until(lambda: self.served.tenant("alice")["sessions"] == 1, 10, "the maker is gone")
        self.assertGreaterEqual(self.used(), PIECE, "the descriptor keeps it")
        taker.do("import", PIECE)
        taker.do("close_fd")
        taker.has(51)
        taker.do("unmap")
        lib.until(lambda: self.used() < PIECE, 10, "now nobody has it")
        self.frees_all(taker)

    def test_memory_of_the_host(self):
        """Charged once, as pinned memory, until nobody has it."""
        self.serve({"pinned": "64MiB"})
        maker, taker, other = self.peers("alice", "alice", "alice")
        used, pinned = self.used(), self.pinned()
        for peer in (maker, other):
            peer.do("use_host")
        maker.do("create", 40 * MIB, 51)
        self.by_descriptor(maker, taker, "SCM_RIGHTS")
        taker.do("import", 40 * MIB)
        taker.has(51)
        taker.do("fill", 52)
        maker.has(52)
        self.assertEqual(maker.do("peek"), "52", "by the processor")
        self.assertEqual((self.used(), self.pinned()), (used, pinned + 40 * MIB))
        other.refused(OUT_OF_MEMORY, "create", 40 * MIB, 53)
        maker.killed()
        taker.has(52)
        self.assertEqual(taker.do("peek"), "52")
        self.assertGreaterEqual(self.pinned(), 40 * MIB, "the taker has it")
        taker.do("unmap")
        self.assertGreaterEqual(self.pinned(), 40 * MIB, "its descriptor keeps it")
        taker.do("close_fd")
        lib.until(lambda: self.pinned() < 40 * MIB, 10, "now nobody has it")
        other.do("create", 40 * MIB, 53)
        other.has(53)
        self.frees_all(taker, other)

    def test_a_pool(self):
        for how in ("SCM_RIGHTS", "pidfd_getfd"):
            with self.subTest(how):
                maker, taker = self.peers()
                maker.do("pool", BYTES, 61)
                self.by_descriptor(maker, taker, how)
                taker.do("import_pool")
                taker.do("open_pointer", maker.do("give_pointer"), BYTES)
                taker.has(61)
                taker.do("fill", 62)
                taker.do("free_pointer")
                maker.has(62)
                self.frees_all(maker, taker)

    def test_other_tenants_are_refused(self):
        """By the same errors as handles that nobody has made."""
        maker, stranger, taker = self.peers("alice", "bob", "alice")
        self.given(maker, taker)
        stranger.refused(INVALID_VALUE, "open", maker.do("give"), BYTES)
        maker.do("event")
        stranger.refused(INVALID_VALUE, "open_event", maker.do("give_event"))
        maker.do("create", PIECE, 71)
        self.by_descriptor(maker, stranger, "pidfd_getfd")
        stranger.refused(INVALID_VALUE, "import", PIECE)
        maker.do("pool", BYTES, 72)
        self.by_descriptor(maker, stranger, "pidfd_getfd")
        stranger.refused(INVALID_VALUE, "import_pool")
        stranger.do("alloc", BYTES, 73)
        stranger.has(73)

    def test_memory_is_charged_once(self):
        maker, *takers = self.peers("alice", "alice", "alice")
        before = self.used()
        maker.do("create", 64 * MIB, 81)
        self.assertEqual(self.used(), before + 64 * MIB)
        for taker in takers:
            self.by_descriptor(maker, taker, "pidfd_getfd")
            taker.do("import", 64 * MIB)
            taker.has(81)
        self.assertEqual(self.used(), before + 64 * MIB)
        maker.do("close_fd")
        maker.do("unmap")
        self.assertEqual(self.used(), before + 64 * MIB, "the others have it")
        for taker in takers:
            taker.do("close_fd")
            taker.do("unmap")
        lib.until(lambda: self.used() == before, 10, "nobody has it")
        self.frees_all(maker, *takers)


class Programs(Shared):
    """Each program has a worker of its own."""

    isolation = "program"
    n_workers = 2

    def test_programs_on_other_machines_share_memory_and_events(self):
        """They are in a worker that serves other tenants, too, and a program here is in one of its own."""
        self.serve(remote=self.remote())
        maker, taker = (Peer(self, self.served, arrangement=lib.TCP) for _ in range(2))
        here, = self.peers("alice")
        self.given(maker, taker)
        taker.has(11)
        here.do("open", maker.do("give"), BYTES)
        here.do("fill", 12)
        maker.has(12)
        self.frees_all(maker, taker, here)

    def maker_and_its_worker(self):
        """A program, its worker, and a second program."""
        maker, = self.peers("alice")
        worker, = [w["pid"] for w in self.served.status()["worker"] if w["state"] == "busy"]
        taker, = self.peers("alice")
        return maker, worker, taker

    def worker_killed(self, pid):
        if lib.DRIVER != "softgpu" and self.isolation == "program" and shutil.which("nvidia-cuda-mps-control"):
            self.skipTest("who kills a worker under MPS ends its domain")
        os.kill(pid, signal.SIGKILL)
        lib.until(lambda: pid not in {w["pid"] for w in self.served.status()["worker"]}, 10, "its worker is gone")

    def test_memory_outlives_the_worker_that_made_it(self):
        maker, worker, taker = self.maker_and_its_worker()
        self.given(maker, taker)
        self.worker_killed(worker)
        taker.has(11)
        taker.do("fill", 15)
        taker.has(15)
        self.assertGreaterEqual(self.used(), BYTES, "and stays charged")
        taker.do("close")
        self.frees_all(taker)

    def test_a_descriptor_outlives_the_worker_that_made_it(self):
        maker, worker, taker = self.maker_and_its_worker()
        maker.do("create", PIECE, 51)
        self.by_descriptor(maker, taker, "SCM_RIGHTS")
        self.worker_killed(worker)
        maker.killed()
        taker.do("import", PIECE)
        taker.has(51)
        self.frees_all(taker)

    def test_memory_of_the_host_outlives_the_worker_that_made_it(self):
        maker, worker, taker = self.maker_and_its_worker()
        maker.do("use_host")
        maker.do("create", PIECE, 51)
        self.by_descriptor(maker, taker, "SCM_RIGHTS")
        self.worker_killed(worker)
        maker.killed()
        self.assertEqual(self.pinned(), PIECE)
        taker.do("import", PIECE)
        taker.has(51)
        taker.do("unmap")
        taker.do("close_fd")
        lib.until(lambda: self.pinned() == 0, 10, "nobody has it")
        self.frees_all(taker)

    def test_a_descriptor_outlives_all_workers(self):
        """Charged as long as it is open anywhere: here in a process without CUDA."""
        maker, worker, taker = self.maker_and_its_worker()
        taker.process.close_stdin()
        maker.do("create", PIECE, 51)
        pid, fd = (int(text) for text in maker.do("descriptor").split())
        kept = fetched(pid, fd)
        maker.killed()
        for w in self.served.status()["worker"]:
            if w["tenant"] == "alice":
                self.worker_killed(w["pid"])
        self.assertEqual(self.used(), PIECE)
        late, = self.peers("alice")
        late.do("fetch", os.getpid(), kept)
        os.close(kept)
        late.do("import", PIECE)
        late.has(51)
        self.frees_all(late)

    def test_an_importers_worker_dies(self):
        maker, = self.peers("alice")
        before = {w["pid"] for w in self.served.status()["worker"] if w["state"] == "busy"}
        taker, = self.peers("alice")
        worker, = {w["pid"] for w in self.served.status()["worker"] if w["state"] == "busy"} - before
        self.given(maker, taker)
        self.worker_killed(worker)
        maker.has(11)
        maker.do("free")
        self.frees_all(maker)

    def test_the_quota_counts_what_outlives_its_worker(self):
        self.serve({"memory": "256MiB"})
        maker, worker, taker = self.maker_and_its_worker()
        maker.do("create", 160 * MIB, 91)
        self.by_descriptor(maker, taker, "pidfd_getfd")
        taker.do("import", 160 * MIB)
        self.worker_killed(worker)
        self.finished(self.served, "e2e_quota", "fails", 160 * MIB)
        taker.do("close_fd")
        taker.do("unmap")
        maker.killed()
        lib.until(lambda: self.used() < 64 * MIB, 10, "it is free")
        third = self.guest(self.served, "e2e_quota", "hold", 160 * MIB)
        third.wait_line("^held$")

    def test_a_tenant_that_goes_takes_what_it_shares_along(self):
        maker, taker = self.peers()
        self.given(maker, taker)
        maker.do("create", PIECE, 51)
        result = self.served.weir("tenant", "remove", "alice", "--run-dir", self.served.run_dir)
        self.assertEqual(result.returncode, 0, result.stderr)
        lib.until(lambda: self.served.status()["host"][0]["kept_fds"] == 0, 10, "no memory is kept")

    def test_who_waits_for_a_worker_that_died_can_be_killed(self):
        """Whether its stream goes on is the driver's to say; the host does."""
        maker, worker, taker = self.maker_and_its_worker()
        maker.do("event")
        taker.do("open_event", maker.do("give_event"))
        maker.do("gate")
        maker.do("record")
        taker.do("wait")
        self.worker_killed(worker)
        taker.killed()
        lib.until(lambda: not self.served.status()["session"], 10, "its session has ended, or its worker")
        self.finished(self.served, "e2e_minimal")
        self.served.wait_idle()

    def test_a_descriptor_outlives_a_worker_that_was_not_needed_any_more(self):
        self.serve(host_lines=["worker_idle_s = 1"])
        maker, = self.peers("alice")
        maker.do("create", PIECE, 51)
        kept = fetched(*(int(text) for text in maker.do("descriptor").split()))
        maker.killed()
        lib.until(lambda: not [w for w in self.served.status()["worker"] if w["tenant"] == "alice"], 10,
                  "its worker has ended")
        taker, = self.peers("alice")
        taker.do("fetch", os.getpid(), kept)
        os.close(kept)
        taker.do("import", PIECE)
        taker.has(51)
        self.frees_all(taker)

    def test_what_a_tenant_shares_is_limited(self):
        self.serve(descriptors=2048)
        counts = []
        for _ in range(2):
            greedy = self.guest(self.served, "e2e_takes", "exports")
            taken = greedy.wait_line(r"^exports (\d+), then (\d+)$", limit_s=40)
            self.assertEqual(int(taken[2]), lib.CUDA_ERROR_OUT_OF_MEMORY, greedy.tail())
            counts.append(int(taken[1]))
            maker, taker = self.peers("bob", "bob")
            self.given(maker, taker)
            taker.has(11)
            greedy.close_stdin()
            self.assertEqual(greedy.wait(40), 0, greedy.tail())
            self.frees_all(maker, taker)
        self.assertTrue(0 < counts[0] < 1024, counts)
        self.assertEqual(counts[0], counts[1], "what the first took is there for the second")

    def test_memory_of_the_second_device(self):
        if lib.DRIVER != "softgpu" and lib.gpus() < 2:
            self.skipTest("needs two GPUs")
        self.serve(env={"WEIR_SOFTGPU_DEVICES": "2"})
        maker, taker = self.peers()
        maker.do("use", 1)
        self.given(maker, taker)
        taker.has(11)
        self.assertEqual(taker.do("device"), "1")
        taker.do("close")
        maker.do("create", PIECE, 51)
        self.by_descriptor(maker, taker, "pidfd_getfd")
        taker.do("import", PIECE)
        taker.has(51)
        self.assertEqual(taker.do("device"), "1")
        self.frees_all(maker, taker)


class Strict(Programs):
    isolation = "strict"
    test_programs_on_other_machines_share_memory_and_events = None  # they have no worker each


if __name__ == "__main__":
    lib.CASE_LIMIT_S = 90
    lib.main()
