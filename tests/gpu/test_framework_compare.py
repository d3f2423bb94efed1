"""framework_compare: what counts as equal."""
import unittest

import framework_compare
from framework_compare import difference


def row(name, *tokens):
    return " ".join(["=", name, *(t if isinstance(t, str) else float(t).hex() for t in tokens)]) + "\n"


class Compare(unittest.TestCase):
    def test_equal_outputs_have_no_difference(self):
        text = "a remark\n" + row("loss", 0.25) + row("weights", "float32", "3", "sha256:ab", 1.5) + "ok\n"
        self.assertIsNone(difference([text, text], text))
        self.assertEqual(framework_compare.deterministic([text, text]), (2, 2))

    def test_deterministic_result_must_be_bit_equal(self):
        native = row("loss", 0.25)
        self.assertIn("loss", difference([native, native], row("loss", 0.25000000001)))

    def test_digest_of_deterministic_result_counts(self):
        native = row("w", "sha256:ab", 1.0)
        self.assertIn("sha256:cd", difference([native, native], row("w", "sha256:cd", 1.0)))

    def test_spread_of_native_is_allowed_and_no_more(self):
        natives = [row("w", "sha256:ab", 1.0, 5.0), row("w", "sha256:cd", 1.001, 5.0)]
        self.assertIsNone(difference(natives, row("w", "sha256:ef", 1.002, 5.001)))
        self.assertIn("1.01", difference(natives, row("w", "sha256:ef", 1.01, 5.0)))
        self.assertIn("nan", difference(natives, row("w", "sha256:ef", float("nan"), 5.0)))

    def test_text_within_a_varying_line_must_be_native_s(self):
        natives = [row("w", "float32", 1.0), row("w", "float32", 1.5)]
        self.assertIn("float16", difference(natives, row("w", "float16", 1.2)))

    def test_missing_result_is_a_difference(self):
        native = row("a", 1.0) + row("b", 2.0)
        self.assertIn("natively is b, through Weir absent", difference([native], row("a", 1.0)))

    def test_extra_result_is_a_difference(self):
        self.assertIn("through Weir b", difference([row("a", 1.0)], row("a", 1.0) + row("b", 2.0)))

    def test_no_results_at_all_are_a_difference(self):
        self.assertEqual(difference(["ok\n"], "ok\n"), "no results")


if __name__ == "__main__":
    unittest.main()
