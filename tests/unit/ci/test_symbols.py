"""No external name is defined both in the guest library and in the host: both can be in one program, and a search for
a name ends in one place.

    test_symbols.py NM GUEST.a,GUEST.a... HOST.a,HOST.a...
"""

import subprocess
import sys
import unittest

NM, GUEST, HOST = sys.argv[1], sys.argv[2].split(","), sys.argv[3].split(",")


def defined(archives):
    """Give the external names that the archives define."""
    listed = subprocess.run([NM, "--extern-only", "--defined-only", "--format=posix", *archives], text=True,
                            capture_output=True, check=True)
    return {line.split()[0] for line in listed.stdout.splitlines() if len(line.split()) > 2}


def in_both(one, other):
    return sorted(defined(one) & defined(other))


class Symbols(unittest.TestCase):
    def test_guest_and_host_define_no_name_twice(self):
        self.assertEqual(in_both(GUEST, HOST), [])

    def test_a_name_on_both_sides_is_found(self):
        self.assertIn("weir_guest_object_get", in_both(GUEST, [*HOST, *GUEST]))
        self.assertIn("weir_host_object_get", in_both([*GUEST, *HOST], HOST))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
