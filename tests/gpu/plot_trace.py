#!/usr/bin/env python3
"""A picture of a recording: who had which SMs when. docs/pictures/recorded-two-tenants.svg is such a picture.

    weir trace show TRACE | tests/gpu/plot_trace.py PICTURE.svg [FROM_S TO_S]

An item of a queue runs after the one before it, so it began when it was granted or when the one before it had ended,
whichever was later. FROM_S and TO_S are seconds since the recording began.
"""
import re
import sys

from plot_sched import Svg

COLORS = ("#2c6fbd", "#bd2c4b", "#2cbd62", "#bd8a2c", "#7a2cbd", "#2cb3bd")
LEFT, TOP, WIDTH, HEIGHT = 80, 46, 1200, 214


def spans(lines):
    """(SMs of the device, [(tenant's name, seconds from, to, first SM, number of SMs)]) of kernels and graphs."""
    names, tenant_of, items, free_s, found = {}, {}, {}, {}, []
    sms, now, begin = 0, 0.0, None

    def ended(item):
        from_s = max(item["since"] or now, free_s.get(item["queue"], 0.0))
        if item["since"] is not None and from_s < now:
            found.append((item["tenant"], from_s - begin, now - begin, *item["place"]))
            free_s[item["queue"]] = now

    for line in lines:
        if line.startswith("#"):
            header = re.match(r"# weir trace \d+: (\d+) SMs", line)
            sms = int(header[1]) if header else sms
            continue
        at, kind, *rest = line.split()
        words = dict(word.split("=", 1) for word in rest if "=" in word)
        now = float(at)
        begin = now if begin is None else begin
        if kind == "name":
            more = rest[-1].startswith("...")
            names[words["tenant"]] = names[words["tenant"]] + rest[-1][3:] if more else rest[-1]
        elif kind == "queue":
            tenant_of[words["queue"]] = words["tenant"]
        elif kind == "arrive" and words["class"] in ("kernel", "graph") and words["queue"] in tenant_of:
            items[words["item"]] = {"tenant": tenant_of[words["queue"]], "queue": words["queue"], "place": (0, sms),
                                    "since": now if "started" in rest else None}
        elif words.get("item") in items:
            item = items[words["item"]]
            if kind in ("resize", "stopped", "finish", "withdraw"):
                ended(item)
            if kind in ("start", "resume", "resize"):
                first, last = words["sms"].split("..") if words["sms"] != "all" else (0, sms - 1)
                item["place"], item["since"] = (int(first), int(last) - int(first) + 1), now
            elif kind == "stopped":
                item["since"] = None
            elif kind in ("finish", "withdraw"):
                del items[words["item"]]
    for item in items.values():  # that had not ended
        ended(item)
    return sms, [(names.get(tenant, f"tenant {tenant}"), *span) for tenant, *span in found]


def draw(sms, found, path, from_s, to_s):
    found = [span for span in found if span[1] < to_s and span[2] > from_s]
    names = sorted({span[0] for span in found})
    svg = Svg(LEFT + WIDTH + 20, TOP + HEIGHT + 40)
    for i, name in enumerate(names):
        svg.add("rect", x=LEFT + 120 * i, y=20, width=10, height=10, fill=COLORS[i % len(COLORS)])
        svg.add("text", name, x=LEFT + 120 * i + 14, y=29)
    for name, begin, end, first, count in found:
        left, right = (WIDTH * (min(max(t, from_s), to_s) - from_s) / (to_s - from_s) for t in (begin, end))
        svg.add("rect", hint=f"{name}, {begin:.6f} to {end:.6f} s, SM {first} to {first + count - 1}", x=LEFT + left,
                y=TOP + HEIGHT * first / sms, width=right - left, height=HEIGHT * count / sms,
                fill=COLORS[names.index(name) % len(COLORS)])
    for i in range(11):
        svg.add("text", f"{from_s + (to_s - from_s) * i / 10:.6g} s", x=LEFT + WIDTH * i / 10, y=TOP + HEIGHT + 16,
                text_anchor="middle")
    svg.add("text", f"SM 0 to {sms - 1}", x=LEFT - 6, y=TOP + 10, text_anchor="end")
    svg.write(path)


def main():
    if len(sys.argv) not in (2, 4):
        sys.exit(__doc__)
    sms, found = spans(sys.stdin)
    from_s, to_s = map(float, sys.argv[2:4]) if len(sys.argv) == 4 else (0.0, max((s[2] for s in found), default=0.0))
    if not any(s[1] < to_s and s[2] > from_s for s in found):
        sys.exit("plot_trace.py: nothing ran in that time")
    draw(sms, found, sys.argv[1], from_s, to_s)


if __name__ == "__main__":
    main()
