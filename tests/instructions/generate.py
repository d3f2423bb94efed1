#!/usr/bin/env python3
"""Write the cases of the instructions, one file for each instruction form or small family: the build calls it.

    generate.py FOLDER

The forms are in forms_*.py; case.h says what a file is. After a change of a program or its inputs its record in
tests/data/ptx is stale, and `instructions check` says so until a GPU has recorded it anew.
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
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    for name in os.listdir(folder):
        if name.endswith(".ptx") and name[:-len(".ptx")] not in forms.FILES:
            os.remove(os.path.join(folder, name))
    for name, case in forms.FILES.items():
        with open(os.path.join(folder, f"{name}.ptx"), "w") as f:
            f.write(case.render())


if __name__ == "__main__":
    main()
