"""Video instructions: scalar ones with parts of registers, and those on two halves or four bytes."""
from forms import Case, product

PARTS = ["{a}, {b}", "{a}.b0, {b}.b3", "{a}.b2, {b}.h1", "{a}.h0, {b}", "{a}.h1, {b}.b1"]
TYPES = ["u32.u32", "s32.s32", "u32.s32", "s32.u32"]
for op in ("vadd", "vsub", "vabsdiff", "vmin", "vmax"):
    c = Case(op, "i32 i32 i32", "b32")
    for k, types in enumerate(TYPES):
        for d in ("u32", "s32"):
            c.each(f"{op}.{d}.{types}{{op}} {{d}}, {PARTS[k]};", ["", ".sat"])
    for parts in PARTS:
        c.result(f"{op}.s32.s32.s32 {{d}}, {parts};")
    for second in ("add", "min", "max"):
        c.result(f"{op}.s32.s32.u32.{second} {{d}}, {{a}}.b0, {{b}}.h1, {{c}};")
        c.result(f"{op}.u32.u32.u32.sat.{second} {{d}}, {{a}}, {{b}}, {{c}};")
    for part in ("b0", "b1", "b2", "b3", "h0", "h1"):
        c.result(f"{op}.u32.u32.u32 {{d}}.{part}, {{a}}, {{b}}, {{c}};")
        c.result(f"{op}.s32.s32.s32.sat {{d}}.{part}, {{a}}, {{b}}.h0, {{c}};")
for op in ("vshl", "vshr"):
    c = Case(op, "i32 shift i32", "b32")
    for mode in ("clamp", "wrap"):
        for types in ("u32.u32", "s32.s32", "u32.s32", "s32.u32"):
            d, a = types.split(".")
            c.result(f"{op}.{d}.{a}.u32.{mode} {{d}}, {{a}}, {{b}};")
        c.result(f"{op}.s32.s32.u32.sat.{mode} {{d}}, {{a}}.h1, {{b}}.b0;")
        c.result(f"{op}.u32.u32.u32.{mode}.add {{d}}, {{a}}, {{b}}, {{c}};")
        c.result(f"{op}.s32.s32.u32.{mode}.max {{d}}, {{a}}.b1, {{b}}, {{c}};")
        c.result(f"{op}.u32.u32.u32.{mode} {{d}}.b2, {{a}}, {{b}}, {{c}};")
c = Case("vmad", "i32 i32 i32", "b32")
for types in ("u32.u32.u32", "s32.s32.s32", "s32.u32.s32", "s32.s32.u32"):
    for tail in ("", ".sat", ".shr7", ".shr15", ".sat.shr7"):
        c.result(f"vmad.{types}{tail} {{d}}, {{a}}, {{b}}, {{c}};")
    c.result(f"vmad.{types} {{d}}, {{a}}.b0, {{b}}.h1, {{c}};")
c.result("vmad.u32.u32.u32.po {d}, {a}, {b}, {c};")
c.result("vmad.s32.s32.s32 {d}, -{a}, {b}, {c};")
c.result("vmad.s32.s32.s32.shr7 {d}, {a}, {b}, -{c};")
c = Case("vset", "i32 i32 i32", "b32")
for cmp in ("eq", "ne", "lt", "le", "gt", "ge"):
    for types in TYPES:
        c.result(f"vset.{types}.{cmp} {{d}}, {{a}}, {{b}};")
    c.result(f"vset.u32.s32.{cmp} {{d}}, {{a}}.b1, {{b}}.h0;")
    c.result(f"vset.s32.s32.{cmp}.add {{d}}, {{a}}, {{b}}, {{c}};")
    c.result(f"vset.u32.u32.{cmp} {{d}}.h1, {{a}}.b0, {{b}}.b0, {{c}};")
for n, select in ((2, ["h10", "h32", "h12", "h03", "h20"]), (4, ["b3210", "b7654", "b0246", "b1357", "b4321"])):
    masks = [".h0", ".h1", ".h10"] if n == 2 else [".b0", ".b3", ".b10", ".b321", ".b3210"]
    for op in ("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax"):
        c = Case(f"{op}{n}", "i32 i32 i32", "b32")
        for types in TYPES:
            for d in ("u32", "s32"):
                c.result(f"{op}{n}.{d}.{types} {{d}}, {{a}}, {{b}}, {{c}};")
                c.result(f"{op}{n}.{d}.{types}.sat {{d}}, {{a}}, {{b}}, {{c}};")
        c.result(f"{op}{n}.s32.s32.s32.add {{d}}, {{a}}, {{b}}, {{c}};")
        c.result(f"{op}{n}.u32.u32.u32.add {{d}}, {{a}}, {{b}}, {{c}};")
        for mask in masks:
            c.result(f"{op}{n}.u32.u32.u32 {{d}}{mask}, {{a}}, {{b}}, {{c}};")
            c.result(f"{op}{n}.s32.s32.s32.add {{d}}{mask}, {{a}}, {{b}}, {{c}};")
        for k, s in enumerate(select):
            other = select[(k + 2) % len(select)]
            c.result(f"{op}{n}.u32.u32.u32 {{d}}, {{a}}.{s}, {{b}}.{other}, {{c}};")
    c = Case(f"vset{n}", "i32 i32 i32", "b32")
    for cmp in ("eq", "ne", "lt", "le", "gt", "ge"):
        for types in TYPES:
            c.result(f"vset{n}.{types}.{cmp} {{d}}, {{a}}, {{b}}, {{c}};")
        c.result(f"vset{n}.u32.u32.{cmp}.add {{d}}, {{a}}, {{b}}, {{c}};")
        c.result(f"vset{n}.s32.s32.{cmp} {{d}}{masks[1]}, {{a}}.{select[1]}, {{b}}, {{c}};")
