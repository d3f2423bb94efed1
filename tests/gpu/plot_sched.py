#!/usr/bin/env python3
"""Pictures of what the step "sched" measured: RESULTS/sched.tsv as SVG.

    tests/gpu/plot_sched.py RESULTS/sched.tsv FOLDER

Writes FOLDER/sched-MEASURE.svg for each measure that the file has. Needs nothing but python3.
"""
import math
import os
import sys
from xml.sax.saxutils import escape

# By arrangement, the same in all pictures; the first whose name begins so.
COLORS = (("time slicing", "#888888"), ("alone", "#cccccc"), ("plain streams", "#cc79a7"), ("one by one", "#444444"),
          ("model, best", "#009e73"), ("model", "#882255"), ("MPS threads", "#d55e00"), ("MPS priority", "#d55e00"),
          ("MPS", "#e69f00"), ("Weir fair,corun", "#117733"), ("Weir fair,", "#0072b2"), ("Weir priority", "#0072b2"),
          ("Weir fair", "#56b4e9"), ("", "#009e73"))
LEFT, RIGHT, TOP, PLOT_HEIGHT, FONT = 60, 20, 44, 240, 11
GROUP_GAP = 8


def color_of(name):
    return next(color for start, color in COLORS if name.startswith(start))


class Svg:
    def __init__(self, width, height):
        self.parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
                      f'viewBox="0 0 {width:g} {height:g}" font-family="sans-serif" font-size="{FONT}">',
                      f'<rect width="{width:g}" height="{height:g}" fill="white"/>']

    def add(self, name, text=None, hint=None, **attributes):
        words = "".join(f' {k.rstrip("_").replace("_", "-")}="{v:.6g}"' if isinstance(v, (int, float)) else
                        f' {k.rstrip("_").replace("_", "-")}="{escape(str(v), {chr(34): "&quot;"})}"'
                        for k, v in attributes.items())
        inside = f"<title>{escape(hint)}</title>" if hint else escape(text or "")
        self.parts.append(f"<{name}{words}>{inside}</{name}>" if inside else f"<{name}{words}/>")

    def write(self, path):
        with open(path, "w") as f:
            f.write("\n".join([*self.parts, "</svg>"]) + "\n")


class Axis:
    """Values to heights above the bottom of the plot."""

    def __init__(self, values, log=False):
        self.log = log
        if log:
            self.low = min(values) * 0.8
            self.high = max(values) * 1.1
        else:
            self.low, self.high = 0.0, max(max(values) * 1.05, 1e-9)

    def height(self, value):
        if self.log:
            value, low, high = math.log(max(value, self.low)), math.log(self.low), math.log(self.high)
        else:
            low, high = self.low, self.high
        return PLOT_HEIGHT * (value - low) / (high - low)

    def ticks(self):
        if self.log:
            found, decade = [], 10.0 ** math.floor(math.log10(self.low))
            steps = (1,) if self.high / self.low > 1e3 else (1, 2, 5)
            while decade <= self.high:
                found += [decade * step for step in steps if self.low <= decade * step <= self.high]
                decade *= 10
            return found
        raw = self.high / 6
        step = 10 ** math.floor(math.log10(raw))
        step *= next(f for f in (1, 2, 5, 10) if step * f >= raw)
        return [i * step for i in range(int(self.high / step) + 1)]


def frame(svg, axis, title, unit, width, names):
    """Title, legend, lines and numbers of the vertical axis."""
    svg.add("text", title, x=LEFT, y=16, font_weight="bold", font_size=FONT + 2)
    at = LEFT
    for name, color in names:
        svg.add("rect", x=at, y=25, width=10, height=10, fill=color)
        svg.add("text", name, x=at + 14, y=34)
        at += 30 + 6.2 * len(name)
    bottom = TOP + PLOT_HEIGHT
    for tick in axis.ticks():
        y = bottom - axis.height(tick)
        svg.add("line", x1=LEFT, x2=LEFT + width, y1=y, y2=y, stroke="#dddddd")
        svg.add("text", f"{tick:g}", x=LEFT - 6, y=y + 4, text_anchor="end")
    svg.add("text", unit, x=14, y=bottom - PLOT_HEIGHT / 2, text_anchor="middle",
            transform=f"rotate(-90 14 {bottom - PLOT_HEIGHT / 2:g})")


def legend_width(names):
    return LEFT + RIGHT + sum(30 + 6.2 * len(name) for name in names)


def bars(title, unit, cases, series, log=False, level=None):
    """series: {name: a value for each case, or None}. level: a value to draw a line at."""
    values = [v for row in series.values() for v in row if v is not None and (v > 0 or not log)]
    axis = Axis([*values, *([level] if level else [])], log)
    bar = max(4.0, min(18.0, 900 / (len(cases) * len(series))))
    group = bar * len(series) + GROUP_GAP
    width = group * len(cases)
    below = 20 + 6.2 * max(map(len, cases)) * 0.71
    svg = Svg(max(LEFT + width + RIGHT, legend_width(series)), TOP + PLOT_HEIGHT + below + 10)
    colors = [(name, color_of(name)) for name in series]
    frame(svg, axis, title, unit, width, colors)
    bottom = TOP + PLOT_HEIGHT
    for i, case in enumerate(cases):
        left = LEFT + i * group + GROUP_GAP / 2
        for k, (name, color) in enumerate(colors):
            value = series[name][i]
            if value is not None and (value > 0 or not log):
                height = axis.height(value)
                svg.add("rect", hint=f"{case}, {name}: {value:.4g}", x=left + k * bar, y=bottom - height,
                        width=bar - 0.5, height=height, fill=color, class_="bar")
        x, y = left + bar * len(series) / 2, bottom + 12
        svg.add("text", case, x=x, y=y, text_anchor="end", transform=f"rotate(-45 {x:g} {y:g})")
    if level:
        y = bottom - axis.height(level)
        svg.add("line", hint=f"{level:g}", x1=LEFT, x2=LEFT + width, y1=y, y2=y, stroke="black", stroke_dasharray="4 3")
    svg.add("line", x1=LEFT, x2=LEFT + width, y1=bottom, y2=bottom, stroke="black")
    return svg


# -------------------------------------------------------------------- what the measures say

class Figures:
    """Rows of sched.tsv."""

    def __init__(self, path):
        with open(path) as f:
            self.rows = [line.rstrip("\n").split("\t") for line in f][1:]

    def of(self, measure, unit, tenant=None):
        """{(arrangement, case): values} of a unit; of all tenants, or of one."""
        found = {}
        for what, kind, case, who, value, of in self.rows:
            if what == measure and of == unit and tenant in (None, who):
                found.setdefault((kind, case), []).append(float(value))
        return found

    def draw_bars(self, title, unit, found, log=False, level=None):
        """found: {(arrangement, case): value}"""
        kinds = list(dict.fromkeys(kind for kind, _ in found))
        cases = list(dict.fromkeys(case for _, case in found))
        series = {kind: [found.get((kind, case)) for case in cases] for kind in kinds}
        return bars(title, unit, cases, series, log, level)

    def fairness(self):
        worst = {k: 100 * max(v) for k, v in self.of("fairness", "share off in a second").items()}
        return worst and self.draw_bars("Share of the GPU in the worst second: off by", "percentage points", worst)

    def priority(self):
        p99 = {k: v[0] for k, v in self.of("priority", "us", "p99").items()}
        return p99 and self.draw_bars("A short kernel with high priority beside a long one: p99", "us", p99, log=True)

    def flep(self):
        alone = self.of("flep", "p50 alone us")
        slow = {k: max(p / a for p, a in zip(v, alone[k])) for k, v in self.of("flep", "p50 us").items()}
        return slow and self.draw_bars("FLEP's pairs: the short kernel's turnaround (p50), of alone", "times", slow,
                                       log=True, level=1)

    def antt(self):
        antt = {k: v[0] for k, v in self.of("antt", "ANTT").items() if math.isfinite(v[0])}
        return antt and self.draw_bars("FLEP's pairs of equal priority: average normalized turnaround time", "ANTT",
                                       antt, log=True, level=1)

    def throughput(self, measure, whose):
        stp = {k: v[0] for k, v in self.of(measure, "STP").items()}
        return stp and self.draw_bars(f"{whose} pairs: sum of both speeds, of alone", "STP", stp, level=1)

    def slate(self):
        return self.throughput("slate", "Slate's")

    def waterfill(self):
        return self.throughput("waterfill", "Warped-Slicer's")

    def tensor(self):
        return self.throughput("tensor", "ISPA's")

    def transfers(self):
        times = {}
        for (kind, _), values in self.of("transfers", "ms").items():
            times.setdefault(kind, []).extend(values)
        means = {(kind, "all orders"): sum(v) / len(v) for kind, v in times.items()}
        return means and self.draw_bars("CuMAS's twelve applications: all done after", "ms, mean", means)

    def torch(self):
        p99 = {k: v[0] for k, v in self.of("torch", "p99").items()}
        return p99 and self.draw_bars("ResNet-18 inference beside training: p99", "ms", p99)


MEASURES = ("fairness", "priority", "flep", "antt", "slate", "waterfill", "tensor", "transfers", "torch")


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    figures = Figures(sys.argv[1])
    os.makedirs(sys.argv[2], exist_ok=True)
    for measure in MEASURES:
        svg = getattr(figures, measure)()
        if svg:
            path = os.path.join(sys.argv[2], f"sched-{measure}.svg")
            svg.write(path)
            print(path)


if __name__ == "__main__":
    main()
