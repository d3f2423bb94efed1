#!/usr/bin/env python3
"""Write the cases of tests/data/ptx, one file for each instruction form or small family.

    generate.py FOLDER          write them all
    generate.py --check FOLDER  exit 1 if what lies there is anything else

The forms are in forms_*.py; case.h says what a file is. After a change of a program or its inputs its record
is stale, and `instructions check` says so until a GPU has recorded it anew.
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import forms  # noqa: E402
import forms_int  # noqa: E402,F401
import forms_float  # noqa: E402,F401
import forms_convert  # noqa: E402,F401
import forms_memory  # noqa: E402,F401
import forms_warp  # noqa: E402,F401
import forms_matrix  # noqa: E402,F401
import forms_video  # noqa: E402,F401


def main():
    check = sys.argv[1:2] == ["--check"]
    folder = sys.argv[2 if check else 1]
    texts = {f"{name}.ptx": case.render() for name, case in forms.FILES.items()}
    there = {f for f in os.listdir(folder) if f.endswith(".ptx")} if os.path.isdir(folder) else set()
    wrong = sorted(there ^ set(texts))
    for name in sorted(there & set(texts)):
        with open(os.path.join(folder, name)) as f:
            if f.read() != texts[name]:
                wrong.append(name)
    if check:
        for name in wrong:
            print(f"{name}: not what generate.py writes")
        return 1 if wrong else 0
    os.makedirs(folder, exist_ok=True)
    for name in there - set(texts):
        os.remove(os.path.join(folder, name))
    for name, text in texts.items():
        with open(os.path.join(folder, name), "w") as f:
            f.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
