"""Tenants that live from case to case of a measure and do what they are told on standard input."""

TWINS_S = 40  # until the driver's compiler has made all of them


class Stage:
    """The tenants of an arrangement (tests/gpu/bench_sched.py), started with the first command."""

    def __init__(self, bench, kind, tenants, modules=0, **host):
        """modules: how many each tenant loads, whose twins are waited for; host: for bench.host_for()."""
        self.bench, self.lib, self.kind = bench, bench.lib, kind
        self.tenants, self.modules, self.settings = tenants, modules, host
        self.host, self.processes = None, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for p in self.processes:
            p.close_stdin()
        for p in self.processes:
            try:
                p.wait(5)
            except self.lib.Stuck:
                pass
        self.processes = []
        if self.host:
            self.bench.end_host(self.kind, self.host)
            self.host = None

    def open(self):
        if self.kind.startswith("Weir"):
            self.host = self.bench.host_for(self.kind, self.tenants, log="debug", **self.settings)
        self.processes = self.bench.start(self.kind, self.host, self.tenants)
        for p in self.processes:
            p.wait_line("^ready", 60)
        if self.host:
            wanted = len(self.processes) * self.modules
            self.lib.until(lambda: self.twins() >= wanted, TWINS_S, "all modules have twins")

    def twins(self):
        """Modules that the host is through with."""
        return sum("forms: twins " in line or "forms: no twins " in line for line in list(self.host.process.errors))

    def say(self, commands):
        """{tenant: line}, told all at once. @return {tenant: what it answers, up to "done .."}"""
        if not self.processes:
            self.open()
        after = [len(p.lines) for p in self.processes]
        for i, command in commands.items():
            self.processes[i].say(command)
        answers = {}
        for i in commands:
            match = self.processes[i].wait_line("^(done|failed).*", 60, after[i])
            if match[1] != "done":
                raise self.lib.Stuck(match[0])
            answers[i] = self.processes[i].lines[after[i]:]
        return answers

    def attempt(self, what, ask):
        """ask()'s result; None where a tenant failed: then the next command starts them all anew."""
        try:
            return ask()
        except (self.lib.Stuck, BrokenPipeError) as error:
            self.bench.notes.append(f"{self.kind}: {what}: {str(error)[-400:]}")
            for p in self.processes:
                p.kill()
            self.close()
            return None
