#!/usr/bin/env python3
"""The generator: goldens of a small description, and every mistake named with file and key.

    test_weirgen.py             run
    test_weirgen.py --update    write the goldens anew, for review with git diff
"""

import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "tests" / "data" / "weirgen"
sys.path.insert(0, str(ROOT / "proto" / "gen"))

import emit_words
import model as description
import ops

KINDS = ROOT / "proto" / "wire" / "kinds.def"
GOLDENS = ["proto/cuda_abi.h", "proto/guest_auto.c", "proto/guest_exports.c", "proto/host_auto.c",
           "proto/guest_words_graph.c", "proto/ops.h", "proto/ops.c", "proto/procaddr_table.c", "proto/softgpu_words_graph.c",
           "proto/structs.h"]


def weirgen(*arguments):
    command = [sys.executable, "-B", str(ROOT / "proto/gen/weirgen.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def generate(api, folder):
    lock = folder / "wire.lock"
    done = weirgen("--api", api, "--lockfile", lock, "--lock", "--out", folder / "out")
    assert done.returncode == 0, done.stderr
    return folder / "out"


# (file, text to replace, replacement, what the message must hold)
MISTAKES = [
    ("graph.toml", "since = 10000\nvariant", "sinse = 10000\nvariant", "graph.toml: [cuGraphLaunch]: unknown key 'sinse'"),
    ("graph.toml", "since = 10000\nvariant = 10000", "", "graph.toml: [cuGraphLaunch]: since is missing"),
    ("graph.toml", "why = \"a test\"", "", "graph.toml: [cuGraphLaunch]: guest = \"hand\" needs a why"),
    ("graph.toml", "\"CUresult cuGraphGone(void)\"", "\"CUresult cuGraphWent(void)\"",
     "graph.toml: [cuGraphGone]: proto declares cuGraphWent"),
    ("graph.toml", "\"CUresult cuGraphGone(void)\"", "\"int cuGraphGone(void)\"", "graph.toml: [cuGraphGone]: proto is not"),
    ("graph.toml", "guest = \"none\"", "guest = \"maybe\"", "graph.toml: [cuGraphGone]: guest and host are"),
    ("graph.toml", "softgpu = false", "softgpu = 1", "graph.toml: [cuGraphGetNodes]: 'softgpu' has the wrong type"),
    ("graph.toml", "guest = \"none\"", "same_as = \"cuNowhere\"", "graph.toml: [cuGraphGone]: same_as names no entry"),
    ("graph.toml", "guest = \"none\"", "same_as = \"cuGraphLaunch\"", "graph.toml: [cuGraphGone]: cuGraphLaunch has other"),
    ("graph.toml", "= \"depth\"", "= \"deep\"", "graph.toml: [cuGraphPeek]: unsafe_in_capture is"),
    ("graph.toml", "args.phGraph = \"new\"", "", "graph.toml: [cuGraphCreate]: phGraph: a handle that comes out"),
    ("graph.toml", "args.phGraph", "args.graph", "graph.toml: [cuGraphCreate]: args.graph: no such parameter"),
    ("graph.toml", "array count max=16", "array many max=16", "graph.toml: [cuGraphPaint]: points: no parameter many"),
    ("graph.toml", "array count max=16", "array count", "graph.toml: [cuGraphPaint]: args.points: max=N is missing"),
    ("graph.toml", "array count max=16", "rows count max=16", "graph.toml: [cuGraphPaint]: args.points: unknown word 'rows'"),
    ("graph.toml", "CUcolour colour", "void *colour", "graph.toml: [cuGraphPaint]: colour: type 'void *' cannot be automatic"),
    ("graph.toml", "[cuGraphGone]", "[cuGraphGone", "graph.toml: [toml]"),
    ("graph.toml", "field = \"shade =", "checks = \"shade =", "graph.toml: [cuGraphGetShade]: 'field' is a key and a value"),
    ("graph.toml", "= painting.shade; node", "= picture.shade; node", "graph.toml: [cuGraphGetShade]: no object 'picture'"),
    ("graph.toml", "= painting.shade; node", "= painting.tint; node", "graph.toml: [cuGraphGetShade]: 'painting' has no field"),
    ("graph.toml", "= painting.shade; node", "= shadow; node", "graph.toml: [cuGraphGetShade]: 'shadow' is no parameter"),
    ("graph.toml", "\"shade = painting", "\"hGraph = painting", "graph.toml: [cuGraphGetShade]: 'hGraph' is no out parameter"),
    ("graph.toml", "args.node = \"optional\"", "args.node = \"maybe\"", "graph.toml: [cuGraphGetShade]: args.node: unknown word"),
    ("graph.toml", "= \"cuGraphPaint(", "= \"cuGraphPrint(", "graph.toml: [cuGraphPaintOne]: forward: no entry point"),
    ("graph.toml", "point, 1, colour", "point, one, colour", "graph.toml: [cuGraphPaintOne]: 'one' is no parameter, object"),
    ("graph.toml", "op paint(", "op print(", "graph.toml: [cuGraphTouch]: forward: no operation 'print'"),
    ("graph.toml", "(shade = *shade", "(tint = *shade", "graph.toml: [cuGraphTouch]: forward: paint has no field 'tint'"),
    ("graph.toml", "painted = painted", "painted = drawn", "graph.toml: [cuGraphTouch]: give: paint gives no 'drawn'"),
    ("graph.toml", "the painting, painting", "the picture, painting", "graph.toml: [cuGraphDraw]: no object 'picture'"),
    ("graph.toml", "shades[which], cuGraphLook", "shades[that], cuGraphLook", "graph.toml: [cuGraphMark]: 'that' is no parameter"),
    ("graph.toml", "args.which = \"valid=shade_valid\"", "", "graph.toml: [cuGraphMark]: 'which' is an index and has no bound"),
    ("graph.toml", "struct dot_of_point", "struct dot_of_line", "graph.toml: [cuGraphMark]: args.at: unknown word 'dot_of_line'"),
    ("graph.toml", "names=painting", "names=picture", "graph.toml: [cuGraphErase]: no object 'picture'"),
    ("graph.toml", "then = \"erase(", "then = \"op paint(", "graph.toml: [cuGraphErase]: then is not"),
    ("graph.toml", "checks = \"at painting", "checks = \"colour painting", "graph.toml: [cuGraphMark]: checks: 'colour' is no object"),
    ("structs.toml", "to = \"CUdot\"", "to = \"CUstream\"", "structs.toml: [dot_of_point]: 'to' names no struct"),
    ("structs.toml", "set.radius", "set.width", "structs.toml: [dot_of_point]: set.width: CUdot has no such field"),
    ("objects.toml", "types = ", "kinds = ", "objects.toml: [painting]: unknown key 'kinds'"),
    ("objects.toml", "find = ", "seek = ", "objects.toml: [painting]: 'guest' has an unknown key"),
    ("objects.toml", "node->handle", "node + 1", "objects.toml: [painting]: fields.node: 'node + 1' is no member"),
    ("ops.toml", "u8 shade", "u9 shade", "ops.toml: [paint]: unknown type 'u9'"),
    ("ops.toml", "points[] max=16", "points[]", "ops.toml: [paint]: 'CUpoint points[]' needs max=N"),
    ("ops.toml", "u8 shade", "u8 s", "ops.toml: [paint]: a field is named twice"),
    ("ops.toml", "max=16", "max=160000", "ops.toml: [paint]: may take"),
    ("ops.toml", "posted", "pasted", "ops.toml: [paint]: unknown key 'pasted'"),
    ("ops.toml", "doc = \"Paint points.\"", "", "ops.toml: [paint]: doc is missing"),
    ("ops.toml", "book = \"set s shade\"\n", "", "ops.toml: [paint]: book is missing"),
    ("ops.toml", "set s shade", "stays s", "ops.toml: [paint]: book is missing, or none of its words"),
    ("ops.toml", "set s shade", "set shade", "ops.toml: [paint]: book: 'shade' is no field, or the first one has no handle"),
    ("ops.toml", "set s shade", "set s shadow", "ops.toml: [paint]: book: 'shadow' is no field"),
    ("graph.toml", "book = \"stays phGraph: graphs\"\n", "", "graph.toml: [cuGraphCreate]: book is missing"),
    ("graph.toml", "why = \"a test\"", "why = \"a test\"\nbook = \"none\"", "graph.toml: [cuGraphLaunch]: book is of an operation"),
    ("types.toml", "CU_RED = 1", "CU_RED", "types.toml: [CUcolour]: enumerators are"),
    ("types.toml", "alias = \"int\"", "alias = \"int\"\nenum = []", "types.toml: [CUdevice]: a type has exactly one form"),
    ("errors.toml", "value = 1", "value = 0", "errors.toml: [CUDA_ERROR_INVALID_VALUE]: value 0 is taken"),
    ("errors.toml", "text = \"invalid argument\"", "", "errors.toml: [CUDA_ERROR_INVALID_VALUE]: an error has"),
    ("wire.lock", "0 paint", "1 paint", "wire.lock: [paint]: id 1 is not the next one, 0"),
    ("wire.lock", "0 paint", "0 print", "wire.lock: [print]: no such operation; ids are never reused"),
    ("wire.lock", "0 paint", "0 paint gone", "wire.lock: [paint]: marked gone, but it is described"),
    ("wire.lock", "1 cuGraphCreate", "1 paint", "wire.lock: [paint]: named twice"),
    ("wire.lock", "0 paint", "zero paint", "wire.lock: [line 1]"),
    ("wire.lock", "4 cuGraphPeek\n", "", "wire.lock: [cuGraphPeek]: has no id; run weirgen.py --lock"),
]


class Goldens(unittest.TestCase):
    def test_generated_files_equal_the_goldens(self):
        with tempfile.TemporaryDirectory() as folder:
            out = generate(DATA / "api", Path(folder))
            for name in GOLDENS:
                golden = (DATA / "golden" / Path(name).name).read_text()
                self.assertEqual((out / name).read_text(), golden, name)

    def test_unchanged_files_keep_their_time(self):
        with tempfile.TemporaryDirectory() as folder:
            out = generate(DATA / "api", Path(folder))
            before = (out / "proto/ops.c").stat().st_mtime_ns
            generate(DATA / "api", Path(folder))
            self.assertEqual((out / "proto/ops.c").stat().st_mtime_ns, before)


class Mistakes(unittest.TestCase):
    def test_every_mistake_names_file_and_key(self):
        for name, old, new, message in MISTAKES:
            with self.subTest(message), tempfile.TemporaryDirectory() as folder:
                api = Path(folder) / "api"
                shutil.copytree(DATA / "api", api)
                lock = api / "wire.lock"
                ops.assign_ids(description.load(api, KINDS), lock, True)
                text = (api / name).read_text()
                self.assertIn(old, text)
                (api / name).write_text(text.replace(old, new, 1))
                with self.assertRaises(description.DescriptionError) as caught:
                    model = description.load(api, KINDS)
                    ops.assign_ids(model, lock, False)
                    emit_words.emit(model)
                self.assertIn(message, str(caught.exception))

    def test_a_mistake_fails_the_run_and_writes_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            api = Path(folder) / "api"
            shutil.copytree(DATA / "api", api)
            (api / "ops.toml").write_text("[paint]\n")
            done = weirgen("--api", api, "--lockfile", api / "wire.lock", "--out", Path(folder) / "out")
            self.assertEqual(done.returncode, 1)
            self.assertEqual(done.stderr, "weirgen: ops.toml: [paint]: doc is missing\n")
            self.assertFalse((Path(folder) / "out").exists())

    def test_a_gone_operation_keeps_its_id(self):
        with tempfile.TemporaryDirectory() as folder:
            api = Path(folder) / "api"
            shutil.copytree(DATA / "api", api)
            lock = Path(folder) / "wire.lock"
            lock.write_text("0 smudge gone\n")
            done = weirgen("--api", api, "--lockfile", lock, "--lock", "--out", Path(folder) / "out")
            self.assertEqual(done.returncode, 0, done.stderr)
            ops = (Path(folder) / "out/proto/ops.h").read_text()
            self.assertIn("WEIR_OP_smudge = 0,", ops)
            self.assertIn("WEIR_OP_paint = 1,", ops)
            self.assertNotIn("smudge", (Path(folder) / "out/proto/host_dispatch.c").read_text())


def update():
    with tempfile.TemporaryDirectory() as folder:
        out = generate(DATA / "api", Path(folder))
        (DATA / "golden").mkdir(exist_ok=True)
        for name in GOLDENS:
            shutil.copy(out / name, DATA / "golden" / Path(name).name)


if __name__ == "__main__":
    if "--update" in sys.argv:
        update()
    else:
        unittest.main()
