"""ci/layers: what it refuses, tried on files that the tree does not have."""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

LAYERS = sys.argv[1]


def run_with(texts):
    """Run ci/layers, with files of these texts at these paths."""
    with tempfile.TemporaryDirectory() as folder:
        options = []
        for i, (path, text) in enumerate(texts.items()):
            file = pathlib.Path(folder, str(i))
            file.write_text(text)
            options += ["--pretend", f"{path}={file}"]
        return subprocess.run([LAYERS, *options], text=True, capture_output=True)


def run(path=None, text=""):
    """The same with one file, or none."""
    return run_with({path: text} if path else {})


class Layers(unittest.TestCase):
    def refused(self, path, text, complaint):
        done = run(path, text)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn(complaint, done.stdout)

    def test_forbidden_include_is_named_by_file_and_line(self):
        self.refused("sched/extra.c", '#include "base/log.h"\n#include "ptx/ptx.h"\n',
                     'sched/extra.c:2: sched must not include "ptx/ptx.h"')

    def test_guest_and_host_do_not_include_each_other(self):
        self.refused("guest_lib/extra.c", '#include "host_backend/worker/state/session.h"\n', "guest_lib/extra.c:1:")

    def test_header_in_its_own_folder_is_found_without_a_path(self):
        self.assertEqual(run("ptx/extra.c", '#include "ir.h"\n').returncode, 0)

    def test_folder_without_a_line_is_refused(self):
        self.refused("elsewhere/extra.c", "", "elsewhere/extra.c:1: ci/layers.txt names no folder")

    def test_include_of_a_folder_without_a_line_is_refused(self):
        self.refused("base/extra.c", '#include "elsewhere/extra.h"\n', "base/extra.c:1:")

    def test_name_that_guest_and_host_both_define_is_refused(self):
        self.refused("host_backend/worker/extra.c",
                     "struct weir_guest_stream {\n};\n\nint weir_guest_object_get(void)\n{\n}\n",
                     "host_backend/worker/extra.c:1: struct weir_guest_stream is defined at guest_lib/stream.h:")
        self.refused("guest_lib/extra.c", "int weir_host_object_get(void)\n{\n}\n", ": function weir_host_object_get is defined at")

    def test_step_of_a_launch_that_is_not_where_the_page_says_is_refused(self):
        self.refused("host_backend/worker/submit/submit.c", "",
                     "a launch's way names weir_submit in host_backend/worker/submit/submit.c, which is not there")

    def test_the_numbers_stay_small(self):
        said = run().stdout
        numbers = {what: int(n) for n, what in re.findall(r"^layers: (\d+) (.*?)(?: \(.*|, which.*)?$", said, re.MULTILINE)}
        self.assertEqual(numbers["cycles between folders"], 0, said)
        self.assertEqual(numbers["arrows still to go"], 0, said)
        self.assertEqual(numbers["names that guest_lib and host_backend both define"], 0, said)
        self.assertIn(numbers["files see the inside of a session"], range(5, 20), said)
        self.assertIn(numbers["members in struct weir_session"], range(5, 25), said)
        self.assertIn(numbers["files see the inside of a worker"], range(1, 20), said)
        self.assertIn(numbers["members in struct weir_worker"], range(5, 24), said)
        self.assertIn(numbers["files of the host on a launch's way"], range(5, 16), said)
        self.assertIn(numbers["words in the glossary"], range(20, 41), said)

    def test_one_more_file_that_sees_an_inside_is_counted(self):
        def seen(name, *pretended):
            return int(re.search(rf"^layers: (\d+) files see the inside of a {name}", run(*pretended).stdout, re.MULTILINE)[1])

        for name, header in (("session", "channel.h"), ("worker", "worker.h")):
            with self.subTest(name):
                part = f'#include "host_backend/worker/state/{header}"\n'
                self.assertEqual(seen(name, "host_backend/worker/extra.c", part), seen(name) + 1)
                many = {f"host_backend/worker/extra{i}.c": part for i in range(20)}
                done = run_with(many)
                self.assertEqual(done.returncode, 1)
                self.assertIn(f" files see the inside of a {name}, and at most 19 may", done.stdout)

    def test_session_of_many_members_is_refused(self):
        path = "host_backend/worker/state/session.h"
        text = (pathlib.Path(LAYERS).parent.parent / path).read_text()
        self.refused(path, text.replace("struct weir_session {\n", "struct weir_session {\n" + "    int more;\n" * 20),
                     "struct weir_session has 4")


if __name__ == "__main__":
    if run().returncode == 77:
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
