#!/usr/bin/env python3
"""Pictures have what sched.tsv says: heights of bars, places of points."""
import os
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as tree

HERE = os.path.dirname(os.path.abspath(__file__))
NAMESPACE = "{http://www.w3.org/2000/svg}"
ROWS = (("slate", "MPS", "bs_rg", "all", 1.0, "STP"), ("slate", "MPS", "bs_rg", "0 bs", 0.4, "of alone"),
        ("slate", "MPS", "<tr>", "all", 0.5, "STP"), ("slate", "Weir fair,corun", "bs_rg", "all", 1.5, "STP"),
        ("flep", "MPS", "cfd_nn", "nn", 900, "p50 us"), ("flep", "MPS", "cfd_nn", "nn", 90, "p50 alone us"),
        ("flep", "Weir priority", "cfd_nn", "nn", 180, "p50 us"),
        ("flep", "Weir priority", "cfd_nn", "nn", 90, "p50 alone us"),
        ("transfers", "Weir fair", "order 0", "all", 40, "ms"), ("transfers", "Weir fair", "order 1", "all", 60, "ms"),
        ("transfers", "MPS", "order 0", "all", 25, "ms"))


class Plot(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        tsv = os.path.join(cls.folder.name, "sched.tsv")
        with open(tsv, "w") as f:
            f.write("measure\tarrangement\tcase\ttenant\tvalue\tunit\n")
            f.writelines("\t".join(map(str, row)) + "\n" for row in ROWS)
        cls.said = subprocess.run([sys.executable, "-B", os.path.join(HERE, "plot_sched.py"), tsv,
                                   os.path.join(cls.folder.name, "out")], capture_output=True, text=True, check=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def shapes(self, measure, name):
        """{hint: element}"""
        root = tree.parse(os.path.join(self.folder.name, "out", f"sched-{measure}.svg")).getroot()
        return {e.find(f"{NAMESPACE}title").text: e for e in root.iter(f"{NAMESPACE}{name}")
                if e.find(f"{NAMESPACE}title") is not None}

    def test_only_what_was_measured(self):
        self.assertEqual([os.path.basename(line) for line in self.said.stdout.split()],
                         ["sched-flep.svg", "sched-slate.svg", "sched-transfers.svg"])

    def test_heights_are_values(self):
        bars = self.shapes("slate", "rect")
        heights = {hint: float(e.get("height")) for hint, e in bars.items()}
        self.assertEqual(len(heights), 3)
        unit = heights["bs_rg, MPS: 1"]
        self.assertAlmostEqual(heights["bs_rg, Weir fair,corun: 1.5"] / unit, 1.5, 3)
        self.assertAlmostEqual(heights["<tr>, MPS: 0.5"] / unit, 0.5, 3)

    def test_ratios_on_a_logarithmic_scale(self):
        tops = {hint: float(e.get("y")) for hint, e in self.shapes("flep", "rect").items()}
        self.assertEqual(set(tops), {"cfd_nn, MPS: 10", "cfd_nn, Weir priority: 2"})
        alone = float(self.shapes("flep", "line")["1"].get("y1"))
        self.assertAlmostEqual((alone - tops["cfd_nn, Weir priority: 2"]) / (alone - tops["cfd_nn, MPS: 10"]),
                               0.30103, 3)

    def test_means_over_orders(self):
        heights = {hint: float(e.get("height")) for hint, e in self.shapes("transfers", "rect").items()}
        self.assertEqual(set(heights), {"all orders, Weir fair: 50", "all orders, MPS: 25"})
        self.assertAlmostEqual(heights["all orders, Weir fair: 50"] / heights["all orders, MPS: 25"], 2, 3)


if __name__ == "__main__":
    unittest.main()
