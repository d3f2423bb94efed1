#!/usr/bin/env python3
"""What the scripts of the tests take from each other is there: test_modules.py FOLDER ...

For each script of the folders and each module of theirs that it imports as a whole: every MODULE.NAME in it is a name of that
module's top level. Steps that want a GPU are run seldom, and would say so only then.
"""
import ast
import pathlib
import sys


def top_level(body, names):
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, (ast.If, ast.Try, ast.With, ast.For)):
            for part in ("body", "orelse", "finalbody"):
                top_level(getattr(node, part, []), names)
            for handler in getattr(node, "handlers", []):
                top_level(handler.body, names)
        else:
            names.update(n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return names


def main(folders):
    files = [f for folder in folders for f in sorted(pathlib.Path(folder).iterdir())
             if f.suffix == ".py" or (f.is_file() and f.read_bytes().startswith(b"#!/usr/bin/env python3"))]
    trees = {f: ast.parse(f.read_text(), str(f)) for f in files}
    modules = {f.stem: top_level(tree.body, {"__name__", "__doc__", "__file__"}) for f, tree in trees.items()}
    seen = bad = 0
    for f, tree in trees.items():
        imported = {alias.asname or alias.name: alias.name for node in ast.walk(tree) if isinstance(node, ast.Import)
                    for alias in node.names if alias.name in modules}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in imported:
                seen += 1
                if node.attr not in modules[imported[node.value.id]]:
                    bad += 1
                    print(f"{f}:{node.lineno}: {imported[node.value.id]}.py has no {node.attr}")
    print(f"{len(files)} scripts, {seen} names of other scripts, {bad} of them missing")
    return 1 if bad or not seen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
