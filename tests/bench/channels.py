#!/usr/bin/env python3
"""What each channel from a guest to its host costs, as a table for docs/measurements/channels.md.

    WEIR_E2E_BUILD=build/release tests/bench/channels.py [--runs N] [--no-machine]

driver_bench runs on softgpu: directly, over each channel of this machine, and in a guest under TCG (a machine
in software: its figures compare with each other, and with nothing else). Each arrangement has its turn in
each run; the table has the median of the runs' medians, round trips with the median of their 99th
percentiles. vsock is a loopback: inside the guest, to a host in the same guest; shm there is its measure.
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../e2e"))
import kvm  # noqa: E402
import lib  # noqa: E402

ROUND_TRIPS = ["launch_enqueue", "launch_burst", "launch_sync", "h2d_4B", "d2h_4B"]
COPIES = ["pageable_h2d_1M", "pageable_d2h_1M", "pinned_h2d_16M", "pinned_d2h_16M", "pageable_h2d_16M",
          "pageable_d2h_16M"]
MEASURES = ["launch_enqueue", "launch_burst", "launch_sync", "copy_4B", "pinned_h2d_1M", "pinned_h2d_16M"]
LIMIT_S = 300


def bench():
    return os.path.join(lib.places.build, "tests/bench/driver_bench")


def parse(text):
    rows = [line.split("\t") for line in text.splitlines() if "\t" in line]
    return {name: (float(p50), float(p99)) for name, _unit, p50, p99, *_ in rows}


def local(env):
    """A function that runs it here, with this environment."""
    def run():
        full = dict(lib.clean_environment(), **env)
        return parse(subprocess.run([bench(), *MEASURES], env=full, text=True, capture_output=True, check=True,
                                    timeout=LIMIT_S).stdout)
    return run


def through(host, arrangement):
    argv, env = lib.guest_argv(host, arrangement, "alice", bench(), MEASURES)

    def run():
        return parse(subprocess.run(argv, env=env, text=True, capture_output=True, check=True,
                                    timeout=LIMIT_S).stdout)
    return run


def inside(machine, environment):
    def run():
        status, said = machine.run(f"{environment} /cuda/driver_bench {' '.join(MEASURES)}", LIMIT_S)
        if status != 0:
            raise SystemExit(f"in the guest: {said}")
        return parse(said)
    return run


def boot(host, folder):
    """A machine with ivshmem, an NVDIMM, and a host of its own for vsock and shm."""
    config = os.path.join(folder, "weir.toml")
    with open(config, "w") as f:
        f.write('[host]\nwindow_bytes = "1GiB"\ncdi = "none"\nvm_region = "64MiB"\ndriver = "softgpu"\n'
                f'softgpu = "/softgpu/{os.path.basename(lib.places.softgpu)}"\n'
                '[[tenant]]\nname = "alice"\nvsock_cid = 1\n')
    image = kvm.make_root(folder, [], weir=True, modules=kvm.modules_called(*kvm.VSOCK_LOOPBACK, *kvm.NVDIMM),
                          files=[(bench(), "cuda"), (config, "etc"), (lib.places.softgpu, "softgpu")])
    machine = kvm.Machine(host, image, extra=kvm.nvdimm_devices(host)).up()
    machine.run("mkdir -p /run; (weir serve --config /etc/weir.toml --log info > /tmp/serve 2>&1 &) ; "
                "until grep -q 'ready run_dir' /tmp/serve; do usleep 100000; done")
    return machine


def table(title, unit, rows, measures, show):
    print(f"\n{title}, {unit}:\n")
    print("| channel | " + " | ".join(measures) + " |")
    print("|---|" + "---|" * len(measures))
    for name, runs in rows.items():
        print(f"| {name} | " + " | ".join(show([run[m] for run in runs]) for m in measures) + " |")


def trips(values):
    return " / ".join(f"{statistics.median(v[i] for v in values):.1f}" for i in (0, 1))


def rates(values):
    return f"{statistics.median(v[0] for v in values):.2f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--no-machine", action="store_true", help="not in a guest")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "keys"))
        remote = lib.Remote(os.path.join(folder, "keys"), ("alice",))
        host = lib.Host(("alice",), remote=remote).start()
        machine = None
        try:
            ways = {"none: softgpu itself": local({"LD_LIBRARY_PATH": lib.softgpu_folder()}),
                    "shm": through(host, lib.SHM), "ZeroMQ, ipc": through(host, lib.ZMQ),
                    "ZeroMQ, tcp with CURVE": through(host, lib.TCP)}
            if not options.no_machine:
                machine = boot(host, folder)
                ways |= {"guest: devdax": inside(machine, "WEIR_HOST=devdax://"),
                         "guest: ivshmem": inside(machine, "WEIR_HOST=ivshmem://"),
                         "in the guest: vsock": inside(machine, "WEIR_HOST=vsock://1"),
                         "in the guest: shm": inside(machine, "WEIR_HOST=ipc:///run/weir/alice.sock")}
            rows = {name: [] for name in ways}
            for _run in range(options.runs):
                for name, way in ways.items():
                    rows[name].append(way())
        finally:
            if machine:
                machine.discard()
            host.discard()
    table("Calls, p50 / p99", "µs", rows, ROUND_TRIPS, trips)
    table("Copies, p50", "GB/s", rows, COPIES, rates)


if __name__ == "__main__":
    main()
