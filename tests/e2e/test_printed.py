#!/usr/bin/env python3
"""What README.md, docs/ and the man pages print works: each command line is run, or at least parsed.

A page is cut into chunks: paragraphs of indented and fenced blocks, and code in sentences. A chunk is commands, a
weir.toml, or one of OTHERS. A command falls to the first of RULES that matches. What matches nothing fails the test, and so
does a rule that matches nothing: neither a new page nor an old rule escapes.

The lines of a page that are run share a shell, in the page's order, in namespaces with a /run, a /dev/shm and a network of
their own, so that a host has the places that the pages print. It starts with a host with the tenants of TENANTS.
"""
import collections
import glob
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from xml.etree import ElementTree

import containers
import lib

SOURCE = lib.places.source
RUN, SERVE, PARSED, IGNORED = "run", "serve", "parsed", "ignored"

# Matched against "PAGE: COMMAND"; `code in a sentence` is matched with its backticks.
RULES = (
    (r": `weir [a-z]", PARSED, "names a command"),
    (r": `.*\b(ci|tests|proto)/", PARSED, "names a command"),
    (r": `setarch ", IGNORED, "runs all tests"),
    (r": (podman|docker|docker-compose) ", PARSED, "needs a container engine and images"),
    (r": (virsh|systemctl|useradd|usermod|install|modprobe|mount|qemu-system-x86_64|xorriso) ", IGNORED,
     "another program's, needs root or a machine"),
    (r"kvm.md: virt-install ", PARSED, "needs a machine; test_virt_install"),
    (r"kvm.md: weir tenant add ", PARSED, "vm1 is there already"),
    (r"(kvm|monitoring).md: apt install", IGNORED, "needs root and a package: test_package.py"),
    (r": (sbatch|scontrol|kubectl) ", IGNORED, "needs a cluster"),
    (r": `(KERNEL==|WEIR_DRA_OPTIONS=)", IGNORED, "a line of a file"),
    (r": weir (attach|detach) ", PARSED, "needs libvirt"),
    (r"slurm.md: (weir keygen /etc|weir run --host|cat |python3 )", PARSED, "another machine's and a job's"),
    (r"weir-keygen.1.scd: weir run --host", PARSED, "another machine's"),
    (r"docs/testing.md: (mkdir -p grown|build/fuzz/|git clone)", IGNORED, "needs clang, and minutes, or a network"),
    (r"docs/testing.md: weir serve", PARSED, "its weir.toml is not shown"),
    (r": ([A-Z_0-9]+=\S+ )?(FOLDER/)?(ci|tests)/", PARSED, "takes minutes, a GPU or a toolkit"),
    (r"(README|testing).md: ([A-Z0-9_]+=\S+ +)*(cmake|ninja|ctest|\(cd|build/dev/tests|python3 tests)", PARSED, "builds, or runs tests"),
    (r"README.md: apt install", PARSED, "needs root and a package: test_package.py"),
    (r": weir serve\b", SERVE, "is the page's host from here on"),
    (r": (weir|T=|mkdir|LD_LIBRARY_PATH=)", RUN, ""),
)

# Chunks that are neither commands nor a weir.toml, by their first line, or else as a whole.
OTHERS = (
    (r"== two tenants side by side", "what ci/demo prints"),
    (r"[─▶│◀▼└┘]|--[\w*. -]+-->|^guest  +host$|^(guest's|control) stream: |^(tail|weir_admission_enter\(\)|worker/submit)  ", "a drawing"),
    (r"^<(domain|devices|maxMemory|vsock|channel)\b", "libvirt's XML"),
    (r'^(ACTION|SUBSYSTEM)==', "udev's rules"),
    (r"^(resources: \{claims|# kustomization\.yaml)", "manifests"),
    (r"^\{ ?\"", "JSON"),
    (r"^services:$", "a compose file"),
    (r"^scrape_configs:$", "Prometheus' configuration"),
    (r"^#cloud-config$", "cloud-init's: test_cloud_config"),
    (r"^(# (slurm|gres|plugstack)\.conf|required /usr|# /etc/modprobe\.d)", "configuration of others"),
    (r"^(warn libvirt:|\[PID/TID\])", "lines of a log"),
    (r"^train.py \(pid ", "what weir why prints"),
    (r"^<run_dir>/", "files"),
    (r"^srun, sbatch, salloc  ", "a table"),
    (r"^W_j / w_j ", "a formula"),
)

# What a page tells its reader to do between two commands: (PAGE: COMMAND, what comes before it).
BEFORE = (
    (r"README.md: weir serve .*--listen", r"""sed -i "1a [host]\nserver_key = \"server.secret\"
/^name = \"alice\"/a key = \"$(cat alice.public)\"" weir.toml"""),
)

# cloud-init and what it imports.
CLOUD_INIT = ("cloud-init", "python3-attr", "python3-certifi", "python3-chardet", "python3-charset-normalizer", "python3-configobj",
              "python3-idna", "python3-importlib-metadata", "python3-jinja2", "python3-json-pointer", "python3-jsonpatch",
              "python3-jsonschema", "python3-markupsafe", "python3-netifaces", "python3-oauthlib", "python3-pyrsistent",
              "python3-requests", "python3-serial", "python3-six", "python3-urllib3", "python3-yaml")

TENANTS = ("default", "A", "B", "alice", "bob", "vm1")
PROMPT = re.compile(r"^(?:(?:host|guest|gpuhost|vm1)?#|\$) (?=\S)")
COMMAND = re.compile(r"^(weir [a-z]|(FOLDER/)?(ci|tests)/|podman |docker |virsh |qemu-system-x86_64 |cmake |sbatch |mkdir |"
                     r"systemctl |useradd |usermod |install |LD_LIBRARY_PATH=|WEIR_\w+=\S+ |[A-Z]=|\(cd |ninja |ctest |apt |xorriso |virt-install |git clone )")
SENTENCE = re.compile(r"weir [a-z].*|ci/[\w-]+|(python3 )?(ci|tests|proto)/[\w/-]+(\.py)? .*|[A-Z_0-9]+=\S+ .+|setarch \S+ .+")
TOML = re.compile(r"^(# weir\.toml$|\[\[?\w+\]\]?$)")

SHELL = """
set -o pipefail
mount -t tmpfs none /run && mount -t tmpfs none /dev/shm && mount --bind hosts /etc/hosts && ip link set lo up || exit 77
host=
serve() {
    [ -z "$host" ] || { kill $host; wait $host; } 2>/dev/null
    "$@" >>host.log 2>&1 & host=$!
    until weir status >/dev/null 2>&1; do kill -0 $host || return 1; done
}
line() { local number=$1; shift; eval "$1" >out.$number 2>&1 </dev/null; echo $number $? >>status; }
"""

Line = collections.namedtuple("Line", "page number text kind")


def pages():
    for pattern in ("README.md", "CONTRIBUTING.md", "docs/*.md", "docs/design/*.md", "docs/man/*.scd"):
        yield from sorted(os.path.relpath(path, SOURCE) for path in glob.glob(os.path.join(SOURCE, pattern)))


def cut(text, indented):
    """A page as [(number of its first line, lines)] of chunks, and the rest of it as text."""
    chunks, rest, chunk = [], [], []
    fence = block = False
    before = ""
    for number, line in enumerate([*text.split("\n"), ""], 1):
        mark = line.lstrip().startswith("```")
        fence ^= mark
        block = indented and not fence and line.startswith("    ") and (block or not before.strip())
        inside = (fence or block) and not mark and line.strip()
        if inside:
            chunk.append((number, line if fence else line[4:]))
        elif chunk:
            chunks.append((chunk[0][0], [words for _, words in chunk]))
            chunk = []
        rest.append("" if inside or fence or mark else line)
        before = line
    return chunks, "\n".join(rest)


def join(lines):
    """Lines that a backslash or an operator continues, as one: (index of the first, text)."""
    whole, first = "", 0
    for index, line in enumerate(lines):
        first = first if whole else index
        whole += line.strip() if whole else line
        if whole.endswith(("\\", "||", "&&")):
            whole = whole.rstrip("\\").rstrip() + " "
            continue
        yield first, whole
        whole = ""


def commands_of(chunk):
    """[(index, command)] of a chunk, or None: it has none."""
    def known(text):
        return COMMAND.match(text) and text

    lines = list(join(chunk))
    prompts = [(index, PROMPT.sub("", text)) for index, text in lines
               if PROMPT.match(text) and (not text.startswith("# ") or known(text[2:]))]
    if prompts:  # the others are output, or a file that is shown
        return prompts + [(index, text) for index, text in lines if re.match(r"weir [a-z]+ ", text)]
    if chunk[0].startswith("#!"):
        return [(index, text) for index, text in lines if not text.startswith("#")]
    return lines if known(chunk[0]) else None


class Page:
    """Its lines and its weir.toml files, in order."""

    def __init__(self, name):
        self.name = name
        self.items = []  # Line, or (number, text of a weir.toml)
        self.unknown = []
        with open(os.path.join(SOURCE, name)) as f:
            chunks, rest = cut(f.read(), name.endswith(".md"))
        for number, chunk in chunks:
            self.take(number, chunk)
        if name.endswith(".md"):
            for match in re.finditer("`([^`]+)`", rest):
                code = " ".join(match[1].split())
                if SENTENCE.fullmatch(code):
                    self.line(rest.count("\n", 0, match.start()) + 1, f"`{code}`")
        self.items.sort(key=lambda item: item.number)

    def take(self, number, chunk):
        if TOML.match(chunk[0]):
            last = self.items[-1] if self.items else None
            text = "\n".join(chunk) + "\n"
            if last and last.kind == "toml" and chunk[0].startswith("["):
                self.items[-1] = last._replace(text=last.text + "\n" + text)
            else:
                self.items.append(Line(self.name, number, text, "toml"))
            return
        if find(OTHERS, chunk[0]):
            return
        commands = commands_of(chunk)
        for index, text in commands or []:
            self.line(number + index, text)
        if commands is None and not find(OTHERS, "\n".join(chunk)):
            self.unknown.append(f"{self.name}:{number}: {chunk[0]}")

    def line(self, number, text):
        rule = find(RULES, f"{self.name}: {text}")
        if rule:
            self.items.append(Line(self.name, number, text.strip("`"), rule[1]))
        else:
            self.unknown.append(f"{self.name}:{number}: {text}")

    def of(self, *kinds):
        return [item for item in self.items if item.kind in kinds]


USED = set()


def find(rules, text):
    for rule in rules:
        if re.search(rule[0], text):
            USED.add(rule)
            return rule
    return None


PAGES = [Page(name) for name in pages()]


def simple_commands(text):
    """The words of each command of a line, those in $(...) too."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = []
    for word in lexer:
        if re.fullmatch(r"[();<>|&]+|\$", word):
            yield words
            words = []
        else:
            words.append(word)
    yield words


# Parses as a script would, and ends before it does anything.
ARGPARSE = """
import argparse, runpy, sys
def parse(parser, *args):
    found, rest = parser.parse_known_args(*args)
    sys.exit(parser.error(f"no such arguments: {rest}") if rest else 0)
argparse.ArgumentParser.parse_args = parse
sys.path.insert(0, sys.argv[1].rpartition("/")[0])
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
sys.exit("it never parsed its arguments")
"""


class Printed(lib.Case):
    def setUp(self):
        super().setUp()
        self.limit(300)
        if not os.path.isdir(os.path.join(SOURCE, "docs/man")):
            self.skipTest("not in a source tree")

    def test_all_are_classified(self):
        unknown = [text for page in PAGES for text in page.unknown]
        self.assertEqual(unknown, [], "neither commands nor files: see RULES and OTHERS")
        idle = [rule for rule in (*RULES, *OTHERS) if rule not in USED]
        self.assertEqual(idle, [], "rules for what no page prints")
        count = collections.Counter(item.kind for page in PAGES for item in page.items)
        print(", ".join(f"{kind}: {n}" for kind, n in sorted(count.items())))

    def check_weir(self, words):
        """The real parser takes them: it comes as far as --help."""
        end = words.index("--") if "--" in words else len(words)
        result = lib.run_weir(*words[1:end], "--help")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertTrue(result.stdout.startswith(f"Usage: weir {words[1]}" if end > 1 else "Usage: weir"), result.stdout)

    def check_script(self, words):
        path = os.path.join(SOURCE, words[0].removeprefix("FOLDER/"))
        if words[0].startswith("build/"):
            path = os.path.join(lib.places.build or "", words[0].split("/", 2)[2])
        self.assertTrue(os.path.isfile(path), path)
        with open(path, "rb") as f:
            text = f.read()
        if not text.startswith(b"#!/usr/bin/env python3") or b"argparse" not in text:  # no parser to ask
            for option in (word for word in words[1:] if word.startswith("--")):
                self.assertTrue(option.encode() in text, f"{path} does not know {option}")
            return
        if len(words) == 1:  # named in a sentence
            return
        stand_ins = {"N": "1", "MEASURE": "flep", "...": "flep"}
        words = [stand_ins.get(word.strip("[]"), word.strip("[]")) for word in words[1:]]
        result = subprocess.run([sys.executable, "-B", "-c", ARGPARSE, path, *words], capture_output=True, text=True,
                                timeout=180)
        self.assertEqual(result.returncode, 0, result.stderr)

    def check_command(self, words):
        while words and re.match(r"[A-Z_0-9]+=", words[0]):
            words = words[1:]
        words = words[1:] if words[:1] == ["python3"] else words
        if words[:1] == ["weir"]:
            self.check_weir(words)
        elif words and re.match(r"(FOLDER/)?(ci|tests|proto|build)/", words[0]):
            self.check_script(words)
        if words[:1] == ["cmake"] and "--preset" in words:
            with open(os.path.join(SOURCE, "CMakePresets.json")) as f:
                names = [preset["name"] for preset in json.load(f)["configurePresets"]]
            self.assertIn(words[words.index("--preset") + 1], names)

    def test_parsed(self):
        for line in (line for page in PAGES for line in page.of(PARSED, RUN, SERVE)):
            for words in simple_commands(line.text):
                with self.subTest(line=f"{line.page}:{line.number}: {line.text}"):
                    self.check_command(words)

    def test_configurations(self):
        folder = self.folder()
        path = os.path.join(folder, "weir.toml")
        for file in (file for page in PAGES for file in page.of("toml")):
            if '"..."' in file.text:
                continue
            with self.subTest(file=f"{file.page}:{file.number}"):
                with open(path, "w") as f:
                    f.write(file.text)
                result = lib.run_weir("serve", "--check", "--config", path, "--run-dir", folder)
                self.assertIn(result.returncode, (0, 1), result.stderr)  # 1: this machine has no such key

    def test_cloud_config(self):
        """By cloud-init's own schema; it is not installed, because it would configure this machine."""
        with open(os.path.join(SOURCE, "docs/kvm.md")) as f:
            text = re.search(r"(?ms)^#cloud-config\n.*?(?=^```$)", f.read())[0]
        path = os.path.join(self.folder(), "user-data")
        with open(path, "w") as f:
            f.write(text)
        tool = containers.unpacked("cloud-init", CLOUD_INIT)

        def schema(file):
            return subprocess.run(["/usr/bin/python3", f"{tool}/usr/bin/cloud-init", "schema", "--config-file", file],
                                  env=dict(lib.clean_environment(), PYTHONPATH=f"{tool}/usr/lib/python3/dist-packages"),
                                  capture_output=True, text=True, timeout=180)

        result = schema(path)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        lines = re.findall(r"(?m)^  - (.*)$", text)
        self.assertGreater(len(lines), 1)
        for line in lines:  # which sh is given
            self.assertEqual(subprocess.run(["sh", "-n", "-c", line]).returncode, 0, line)
        with open(path, "w") as f:
            f.write(text.replace("  - weir doctor", "  - {weir: doctor}"))
        self.assertNotEqual(schema(path).returncode, 0, "the schema refuses nothing")

    def test_virt_install(self):
        """The machine's definition has the device as the page prints it."""
        if not shutil.which("virt-install"):
            self.skipTest("no virt-install")
        with open(os.path.join(SOURCE, "docs/kvm.md")) as f:
            page = f.read()
        (words,) = [shlex.split(line.text) for line in Page("docs/kvm.md").of(PARSED) if line.text.startswith("virt-install")]
        folder = self.folder()
        for name in ("debian-12-genericcloud-amd64.qcow2", "weir-guest.iso", "user-data"):
            with open(os.path.join(folder, name), "wb") as f:
                f.truncate(1 << 20)
        result = subprocess.run([*words, "--connect", "test:///default", "--print-xml"], cwd=folder, capture_output=True,
                                text=True, env=dict(lib.clean_environment(), HOME=folder), timeout=600)
        self.assertEqual(result.returncode, 0, result.stderr)

        def device(text):
            element = ElementTree.fromstring(re.search(r"(?s)<shmem .*?</shmem>", text)[0])
            return {e.tag: e.attrib for e in element.iter()}

        self.assertEqual(device(result.stdout), device(page))

    def scratch(self):
        """What the commands find in their folder."""
        folder = self.folder()
        os.makedirs(os.path.join(folder, "bin"))
        os.makedirs(os.path.join(folder, "prefix/lib/weir"))
        os.makedirs(os.path.join(folder, "build"))
        for link, target in (("bin/weir", lib.places.weir), ("prefix/lib/weir/guest", lib.places.guest_lib),
                             ("prefix/lib/weir/softgpu", os.path.join(os.path.dirname(lib.places.softgpu), "softgpu")),
                             ("program", lib.places.program("e2e_minimal")),
                             ("vectorAdd", lib.places.program("e2e_minimal")),
                             ("build/dev", os.path.dirname(os.path.dirname(lib.places.softgpu)))):
            os.symlink(target, os.path.join(folder, link))
        files = {"hosts": "127.0.0.1 localhost gpuhost\n",
                 "train.py": "import ctypes\nassert ctypes.CDLL('libcuda.so.1').cuInit(0) == 0\n",
                 "host.toml": "".join(f'[[tenant]]\nname = "{name}"\n' for name in TENANTS)}
        for name, text in files.items():
            with open(os.path.join(folder, name), "w") as f:
                f.write(text)
        return folder

    def run_page(self, page):
        folder = self.scratch()
        script = [SHELL, "weir sim --generate name=a --duration 5ms --quick --record host.trace >/dev/null",
                  "line 0 'serve weir serve --config host.toml --driver softgpu'"]
        for item in page.of(RUN, SERVE, "toml"):
            if item.kind == "toml":
                script.append(f"printf %s {shlex.quote(item.text)} >weir.toml")
                continue
            text = item.text.replace("<prefix>", "prefix")
            script += [step for pattern, step in BEFORE if re.search(pattern, f"{page.name}: {text}")]
            if item.kind == SERVE:
                text = "serve " + re.sub(r"\s*(&\s*)?(#.*)?$", "", text)
            script.append(f"line {item.number} {shlex.quote(text)}")
        namespaces = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc",
                      *([] if os.geteuid() == 0 else ["--map-root-user"])]
        env = dict(lib.clean_environment(), XDG_CACHE_HOME=lib.cache_home(), PATH=f"{folder}/bin:{os.environ['PATH']}")
        result = subprocess.run([*namespaces, "bash", "-c", "\n".join(script)], cwd=folder, env=env, capture_output=True,
                                text=True, timeout=600)
        if result.returncode == 77 or "unshare" in result.stderr:
            self.skipTest(f"no namespaces here: {result.stderr}")
        with open(os.path.join(folder, "status")) as f:
            status = dict(row.split() for row in f)
        for line in page.of(RUN, SERVE):
            if status.get(str(line.number)) != "0" or status["0"] != "0":
                tails = [open(os.path.join(folder, name)).read()[-1500:] for name in (f"out.{line.number}", "host.log")
                         if os.path.exists(os.path.join(folder, name))]
                with self.subTest(line=f"{line.page}:{line.number}: {line.text}"):
                    self.fail(f"exit status {status.get(str(line.number))}\n" + "\n--- host\n".join(tails) + result.stderr)

    def test_run(self):
        if not shutil.which("unshare") or not shutil.which("ip"):
            self.skipTest("no unshare (util-linux) or ip (iproute2)")
        for page in PAGES:
            if page.of(RUN, SERVE):
                self.run_page(page)


if __name__ == "__main__":
    lib.main()
