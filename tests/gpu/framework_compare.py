"""Is what a program printed through Weir what it printed natively? The model of the comparison.

Result lines are `= NAME TOKEN ...` (frameworks/result.py). The native runs say what is deterministic:

- a line that is equal in all native runs must be equal through Weir, bit for bit;
- in a line that native runs disagree about, digests are ignored and each hexadecimal float may lie outside
  the native runs' own range by at most MARGIN times the largest disagreement within that line. Two runs
  are few to know a spread from, hence a margin; the runner makes more of them before it calls it a failure.

Names and their order must be the same.
"""
import math
import re

MARGIN = 3.0
FLOAT = re.compile(r"^-?(0x[01]\.?[0-9a-f]*p[+-]\d+|inf|nan)$")


def results(text):
    """[(name, [token, ...]), ...] of a program's output."""
    lines = [line.split() for line in text.splitlines() if line.startswith("= ")]
    return [(words[1], words[2:]) for words in lines if len(words) > 1]


def spread(rows):
    """The largest disagreement of the native runs about a number of this line."""
    widest = 0.0
    for tokens in zip(*rows):
        if all(FLOAT.match(t) for t in tokens):
            values = [float.fromhex(t) for t in tokens]
            if all(map(math.isfinite, values)):
                widest = max(widest, max(values) - min(values))
    return widest


def line_difference(name, rows, got):
    """None, or what is wrong with the tokens `got`, given those of the native runs."""
    if got in rows:
        return None
    if all(row == rows[0] for row in rows):
        return f"{name}: native {brief(rows[0])}, Weir {brief(got)}"
    if any(len(row) != len(got) for row in rows):
        return f"{name}: {len(rows[0])} values natively, {len(got)} through Weir"
    allowed = MARGIN * spread(rows)
    for index, token in enumerate(got):
        natives = [row[index] for row in rows]
        if token in natives or token.startswith("sha256:"):
            continue
        if not FLOAT.match(token) or not all(FLOAT.match(t) for t in natives):
            return f"{name}: native {natives[0]}, Weir {token}"
        values, value = [float.fromhex(t) for t in natives], float.fromhex(token)
        if not min(values) - allowed <= value <= max(values) + allowed:
            return (f"{name}: Weir {value:.9g}, native {min(values):.9g} to {max(values):.9g}, "
                    f"{allowed:.3g} more allowed")
    return None


def brief(tokens):
    """Digests and the first numbers, short enough for a summary line."""
    words = [f"{float.fromhex(t):.17g}" if FLOAT.match(t) else t[:16] for t in tokens[:6]]
    return " ".join(words) + (" ..." if len(tokens) > 6 else "")


def difference(natives, weir):
    """None, or the first difference between outputs of native runs (at least one) and of a Weir run."""
    native_rows, rows = [results(text) for text in natives], results(weir)
    for other in [*native_rows[1:], rows]:
        names, expected = [n for n, _ in other], [n for n, _ in native_rows[0]]
        if names != expected:
            where = "through Weir" if other is rows else "in another native run"
            at = next((i for i, pair in enumerate(zip(names, expected)) if pair[0] != pair[1]),
                      min(len(names), len(expected)))
            return (f"result {at + 1} natively is {expected[at] if at < len(expected) else 'absent'}, "
                    f"{where} {names[at] if at < len(names) else 'absent'}")
    if not rows:
        return "no results"
    for index, (name, got) in enumerate(rows):
        wrong = line_difference(name, [r[index][1] for r in native_rows], got)
        if wrong:
            return wrong
    return None


def deterministic(natives):
    """How many result lines are equal in all native runs, and how many there are."""
    rows = [results(text) for text in natives]
    return sum(all(row == group[0] for row in group) for group in zip(*rows)), len(rows[0])
