"""Matrix instructions: mma and wmma in all shapes and types, sparse ones, ldmatrix, stmatrix, movmatrix."""
from forms import Case

# Whole numbers make sums exact in any order; random ones show how far the sum's own rounding goes.
WHOLE = {"f16": "wholef16x2", "bf16": "wholebf16x2", "tf32": "wholef32", "f64": "wholef64", "e4m3": "wholee4m3",
         "e5m2": "wholee5m2", "s8": "r32", "u8": "r32", "s4": "r32", "u4": "r32", "b1": "r32", "f32": "wholef32",
         "s32": "i32"}
UNIT = {"f16": "unitf16x2", "bf16": "unitbf16x2", "tf32": "unitf32", "f64": "unitf64", "f32": "unitf32"}
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "f32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4,
        "u4": 4, "b1": 1, "s32": 32}


def registers(rows, cols, t):
    return max(rows * cols * BITS[t] // 32 // (64 if t == "f64" else 32), 1)


def braces(c, names):
    return "{{" + ", ".join(names) + "}}"


def mma(name, m, n, k, d, a, b, cc, target, suffixes=("",), layout=".row.col", kinds=WHOLE, sparse="", version="8.5"):
    ka = k // 2 if sparse else k
    na, nb, nc, nd = registers(m, ka, a), registers(k, n, b), registers(m, n, cc), registers(m, n, d)
    ins = f"{kinds[a]}*{na} {kinds[b]}*{nb} {kinds[cc]}*{nc}" + (" sparse" if sparse else "")
    c = Case(name, ins, {"f64": "b64"}.get(d, "b32") if kinds is WHOLE else {"f16": "f16x2"}.get(d, d), target,
             threads=128, version=version)
    w = 64 if d == "f64" else 32
    out = [f"%y{r}" for r in range(nd)]
    c.declare(f".reg .b{w} " + ", ".join(out) + ";")
    i = c.inputs
    frags = [braces(c, f) for f in (i[:na], i[na:na + nb], i[na + nb:na + nb + nc])]
    for suffix in suffixes:
        for select in sparse or ("",):
            tail = f", {i[-1]}, {select}" if sparse else ""
            head = suffix if suffix.startswith("mma") else f"mma{'.sp' if sparse else ''}.sync.aligned.m{m}n{n}k{k}"
            rest = "" if suffix.startswith("mma") else suffix
            pre, post = (rest, "") if rest == ".satfinite" else ("", rest)
            c.result(f"{head}{layout}{pre}.{d}.{a}.{b}.{cc}{post} {braces(c, out)}, {', '.join(frags)}{tail};", *out)
    return c


WHY = "sums are added in an order and width of the hardware's own; the bound covers k additions"
for d in ("f16", "f32"):
    for cc in ("f16", "f32"):
        if d == cc:
            for m, n, k, target in ((16, 8, 8, 75), (16, 8, 16, 80)):
                mma(f"mma_m{m}n{n}k{k}_f16_{d}", m, n, k, d, "f16", "f16", cc, target)
                c = mma(f"mma_m{m}n{n}k{k}_f16_{d}_random", m, n, k, d, "f16", "f16", cc, target, kinds=UNIT)
                c.bound("abs", 2e-5 if d == "f32" else 0.04, WHY)
for k in (8, 16):
    mma(f"mma_m16n8k{k}_bf16", 16, 8, k, "f32", "bf16", "bf16", "f32", 80)
    c = mma(f"mma_m16n8k{k}_bf16_random", 16, 8, k, "f32", "bf16", "bf16", "f32", 80, kinds=UNIT)
    c.bound("abs", 2e-5, WHY)
for k in (4, 8):
    mma(f"mma_m16n8k{k}_tf32", 16, 8, k, "f32", "tf32", "tf32", "f32", 80)
    c = mma(f"mma_m16n8k{k}_tf32_random", 16, 8, k, "f32", "tf32", "tf32", "f32", 80, kinds=UNIT)
    c.bound("abs", 2e-5, WHY)
mma("mma_m8n8k4_f64", 8, 8, 4, "f64", "f64", "f64", "f64", 80, ("",))
for r in ("rn", "rz", "rm", "rp"):
    c = mma(f"mma_m8n8k4_f64_{r}", 8, 8, 4, "f64", "f64", "f64", "f64", 80, (f"mma.sync.aligned.m8n8k4",), kinds=UNIT)
    c.lines = [line.replace(".row.col", f".row.col").replace(".f64.f64.f64.f64 ", f".f64.f64.f64.f64.{r} ")
               for line in c.lines]
    c.bound("abs", 4e-14, WHY)
for k in (4, 8, 16):
    mma(f"mma_m16n8k{k}_f64", 16, 8, k, "f64", "f64", "f64", "f64", 90)
for a in ("s8", "u8"):
    for b in ("s8", "u8"):
        for m, k, target in ((8, 16, 75), (16, 16, 80), (16, 32, 80)):
            mma(f"mma_m{m}n8k{k}_{a}_{b}", m, 8, k, "s32", a, b, "s32", target, ("", ".satfinite"))
for a in ("s4", "u4"):
    for b in ("s4", "u4"):
        for m, k, target in ((8, 32, 75), (16, 32, 80), (16, 64, 80)):
            mma(f"mma_m{m}n8k{k}_{a}_{b}", m, 8, k, "s32", a, b, "s32", target, ("", ".satfinite"))
for m, k, target in ((8, 128, 75), (16, 128, 80), (16, 256, 80)):
    c = mma(f"mma_m{m}n8k{k}_b1", m, 8, k, "s32", "b1", "b1", "s32", 80, ("",))
    c.lines = [line.replace(".s32.b1.b1.s32", ".s32.b1.b1.s32.and.popc") for line in c.lines]
    c.name = f"mma_m{m}n8k{k}_b1"
for a in ("e4m3", "e5m2"):
    for b in ("e4m3", "e5m2"):
        mma(f"mma_m16n8k32_{a}_{b}", 16, 8, 32, "f32", a, b, "f32", 89)
# Volta's: eight lanes a quarter-pair, layouts of both factors matter.
for layout in ("row.row", "row.col", "col.row", "col.col"):
    for d, cc in (("f16", "f16"), ("f32", "f16"), ("f32", "f32")):
        nc = {"f16": 4, "f32": 8}
        c = Case(f"mma_m8n8k4_f16_{d}_{cc}_{layout.replace('.', '_')}",
                 f"wholef16x2*4 {'wholef16x2' if cc == 'f16' else 'wholef32'}*{nc[cc]}", "b32", 75, threads=128)
        out = [f"%y{r}" for r in range(nc[d])]
        c.declare(".reg .b32 " + ", ".join(out) + ";")
        i = c.inputs
        c.result(f"mma.sync.aligned.m8n8k4.{layout}.{d}.f16.f16.{cc} {braces(c, out)}, {braces(c, i[:2])}, "
                 f"{braces(c, i[2:4])}, {braces(c, i[4:])};", *out)

# Sparse: two of four (one of two for tf32) of A's row are there; the metadata say which.
for m, n, k, a, selects, target in ((16, 8, 16, "f16", (0, 1), 80), (16, 8, 32, "f16", (0, 1), 80),
                                    (16, 8, 16, "bf16", (0, 1), 80), (16, 8, 32, "bf16", (0, 1), 80)):
    for d in ("f32", "f16") if a == "f16" else ("f32",):
        s = (0, 1, 2, 3) if k == 16 else (0, 1)
        mma(f"mma_sp_m{m}n{n}k{k}_{a}_{d}", m, n, k, d, a, a, d, target, ("mma.sp.sync.aligned.m%dn%dk%d" % (m, n, k),),
            sparse=s)
        mma(f"mma_sp_ordered_m{m}n{n}k{k}_{a}_{d}", m, n, k, d, a, a, d, target,
            ("mma.sp::ordered_metadata.sync.aligned.m%dn%dk%d" % (m, n, k),), sparse=s)
for k, s in ((8, (0, 1, 2, 3)), (16, (0, 1))):
    c = mma(f"mma_sp_ordered_m16n8k{k}_tf32", 16, 8, k, "f32", "tf32", "tf32", "f32", 80,
            (f"mma.sp::ordered_metadata.sync.aligned.m16n8k{k}",), sparse=s)
    # One of two: a nibble is 0100 or 1110.
    c.lines = [f"and.b32 {c.inputs[-1]}, {c.inputs[-1]}, 0x11111111;", f"mul.lo.u32 {c.inputs[-1]}, {c.inputs[-1]}, 10;",
               f"add.u32 {c.inputs[-1]}, {c.inputs[-1]}, 0x44444444;"] + c.lines
for a, b in (("s8", "s8"), ("u8", "s8")):
    for k, s in ((32, (0, 1)), (64, (0,))):
        mma(f"mma_sp_ordered_m16n8k{k}_{a}_{b}", 16, 8, k, "s32", a, b, "s32", 80,
            (f"mma.sp::ordered_metadata.sync.aligned.m16n8k{k}",), sparse=s)
for a, b in (("s4", "s4"), ("u4", "u4")):
    for k, s in ((64, (0, 1)), (128, (0,))):
        c = mma(f"mma_sp_ordered_m16n8k{k}_{a}_{b}", 16, 8, k, "s32", a, b, "s32", 80,
                (f"mma.sp::ordered_metadata.sync.aligned.m16n8k{k}",), sparse=s)
for a in ("e4m3", "e5m2"):
    mma(f"mma_sp_ordered_m16n8k64_{a}", 16, 8, 64, "f32", a, a, "f32", 89,
        ("mma.sp::ordered_metadata.sync.aligned.m16n8k64",), sparse=(0,))


def tile(name, ins, bytes_per_lane, out="b32", target=75, threads=128):
    """Shared memory of its own for each warp: %t7 is its place, %t6 the lane."""
    c = Case(name, ins, out, target, threads=threads)
    c.module.append(f".shared .align 128 .b8 tile[{bytes_per_lane * 64}];")
    c.emit(f"mov.u32 %t7, tile;\nmov.u32 %t6, %tid.x;\nshr.u32 %t5, %t6, 5;\nmul.lo.u32 %t5, %t5, {32 * bytes_per_lane};\n"
           "add.u32 %t7, %t7, %t5;\nand.b32 %t6, %t6, 31;")
    return c


c = tile("ldmatrix", "random random", 16)
c.emit("mad.lo.u32 %t5, %t6, 16, %t7;\nst.shared.v2.b64 [%t5], {{{a}, {b}}};\nbar.warp.sync -1;")
for n in (1, 2, 4):
    for trans in ("", ".trans"):
        regs = ["%t0", "%t1", "%t2", "%t3"][:n]
        c.result(f"ldmatrix.sync.aligned.m8n8.x{n}{trans}.shared.b16 {braces(c, regs)}, [%t5];", *regs)
c.emit("cvt.u64.u32 %q0, %t5;\ncvta.shared.u64 %q0, %q0;")
c.result("ldmatrix.sync.aligned.m8n8.x2.b16 {{%t0, %t1}}, [%q0];", "%t0", "%t1")
c = tile("stmatrix", "r32*4", 16, target=90)
c.emit("mad.lo.u32 %t5, %t6, 16, %t7;")
for n in (1, 2, 4):
    for trans in ("", ".trans"):
        c.emit("mov.b32 %x, 0x5a5a5a5a;\nst.shared.v4.b32 [%t5], {{%x, %x, %x, %x}};\nbar.warp.sync -1;")
        c.result(f"stmatrix.sync.aligned.m8n8.x{n}{trans}.shared.b16 [%t5], {braces(c, c.inputs[:n])};\nbar.warp.sync -1;\n"
                 "ld.shared.v4.b32 {{%t0, %t1, %t2, %t3}}, [%t5];\nbar.warp.sync -1;", "%t0", "%t1", "%t2", "%t3")
c = Case("movmatrix", "r32", "b32", threads=128)
c.result("movmatrix.sync.aligned.m8n8.trans.b16 {d}, {a};")


# wmma: fragments are the hardware's own affair, so all goes through memory.
def wmma(name, shape, d, a, b, cc, target, fragments, suffixes=("",), layouts=("row.col", "row.row", "col.col", "col.row"),
         bmma="", kinds=WHOLE):
    m, n, k = shape
    sizes = {"a": m * k * BITS[a] // 8, "b": k * n * BITS[b] // 8, "c": m * n * BITS[cc] // 8, "d": m * n * BITS[d] // 8}
    at, total = {}, 0
    for part in "abcd":
        at[part] = total
        total += (sizes[part] + 31) // 32 * 32
    per_lane = (total + 31) // 32
    words = {p: max(sizes[p] // (8 if BITS[t] == 64 else 4) // 32, 1) for p, t in (("a", a), ("b", b), ("c", cc))}
    ins = " ".join(f"{kinds[t]}*{words[p]}" for p, t in (("a", a), ("b", b), ("c", cc)))
    c = tile(name, ins, per_lane, "b64" if d == "f64" else "b32", target, threads=64)
    column = 0
    for p, t in (("a", a), ("b", b), ("c", cc)):
        size = 8 if BITS[t] == 64 else 4
        for wd in range(words[p]):
            guard = ""
            if sizes[p] < 32 * size:
                c.emit(f"setp.lt.u32 %p0, %t6, {sizes[p] // size};")
                guard = "@%p0 "
            c.emit(f"mad.lo.u32 %t5, %t6, {size}, %t7;\n{guard}st.shared.b{8 * size} [%t5+{at[p] + 32 * size * wd}], "
                   f"{c.inputs[column]};")
            column += 1
    c.emit("bar.warp.sync -1;\ncvt.u64.u32 %q7, %t7;\ncvta.shared.u64 %q7, %q7;")
    nregs = dict(zip("abcd", fragments))
    types = {"a": a, "b": b, "c": cc, "d": d}
    frag = {p: [f"%f{p}{r}" for r in range(nregs[p])] for p in "abcd"}
    for p in "abcd":
        c.declare(f".reg .b{64 if types[p] == 'f64' else 32} " + ", ".join(frag[p]) + ";")
    text = f"m{m}n{n}k{k}"
    mt = {"tf32": "tf32", "b1": "b1"}
    for layout in layouts:
        la, lb = layout.split(".")
        for lc in ("row", "col") if layout == layouts[0] else ("row",):
            c.emit(f"wmma.load.a.sync.aligned.{la}.{text}.shared.{mt.get(a, a)} {braces(c, frag['a'])}, [%t7+{at['a']}], "
                   f"{k if la == 'row' else m};")
            c.emit(f"wmma.load.b.sync.aligned.{lb}.{text}.shared.{mt.get(b, b)} {braces(c, frag['b'])}, [%t7+{at['b']}], "
                   f"{n if lb == 'row' else k};")
            c.emit(f"wmma.load.c.sync.aligned.{lc}.{text}.{cc} {braces(c, frag['c'])}, [%q7+{at['c']}], "
                   f"{n if lc == 'row' else m};")
            for suffix in suffixes:
                kind = f"{d}.{cc}" if a == "f16" else f"{d}.{a}.{b}.{cc}"
                c.emit(f"wmma.mma{bmma}.sync.aligned.{layout}.{text}.{kind}{suffix} {braces(c, frag['d'])}, "
                       f"{braces(c, frag['a'])}, {braces(c, frag['b'])}, {braces(c, frag['c'])};")
                c.emit(f"wmma.store.d.sync.aligned.{lc}.{text}.shared.{d} [%t7+{at['d']}], {braces(c, frag['d'])}, "
                       f"{n if lc == 'row' else m};\nbar.warp.sync -1;")
                size = 8 if d == "f64" else 4
                for wd in range(max(sizes["d"] // size // 32, 1)):
                    r = "%d" if d == "f64" else "%x"
                    c.result(f"mad.lo.u32 %t5, %t6, {size}, %t7;\nld.shared.b{8 * size} {r}, "
                             f"[%t5+{at['d'] + 32 * size * wd}];", r)
                c.emit("bar.warp.sync -1;")
    return c


for shape in ((16, 16, 16), (8, 32, 16), (32, 8, 16)):
    text = "m%dn%dk%d" % shape
    for d in ("f16", "f32"):
        for cc in ("f16", "f32"):
            wmma(f"wmma_{text}_f16_{d}_{cc}", shape, d, "f16", "f16", cc, 75,
                 (8, 8, 4 if cc == "f16" else 8, 4 if d == "f16" else 8))
    na, nb = {16: (4, 4), 8: (2, 8), 32: (8, 2)}[shape[0]]
    wmma(f"wmma_{text}_bf16", shape, "f32", "bf16", "bf16", "f32", 80, (na, nb, 8, 8))
    na, nb = {16: (2, 2), 8: (1, 4), 32: (4, 1)}[shape[0]]
    # Rows are 16 bytes at least: shorter ones are misaligned.
    layouts = {16: ("row.col", "row.row", "col.col", "col.row"), 8: ("row.col", "row.row"), 32: ("row.col", "col.col")}
    for t in ("s8", "u8"):
        wmma(f"wmma_{text}_{t}", shape, "s32", t, t, "s32", 75, (na, nb, 8, 8), ("", ".satfinite"), layouts[shape[0]])
wmma("wmma_m16n16k8_tf32", (16, 16, 8), "f32", "tf32", "tf32", "f32", 80, (4, 4, 8, 8))
wmma("wmma_m8n8k4_f64", (8, 8, 4), "f64", "f64", "f64", "f64", 80, (1, 1, 2, 2))
for t in ("s4", "u4"):
    wmma(f"wmma_m8n8k32_{t}", (8, 8, 32), "s32", t, t, "s32", 75, (1, 1, 2, 2), ("", ".satfinite"), ("row.col",))
wmma("wmma_m8n8k128_b1", (8, 8, 128), "s32", "b1", "b1", "s32", 80, (1, 1, 2, 2), ("",), ("row.col",), ".and.popc")
