"""Integer arithmetic, logic, shifts, bit fields, comparison and selection."""
from forms import Case, product, simple

simple("add_16", "i16 i16", "b16", "add.u16 add.s16 sub.u16 sub.s16".split())
simple("add_32", "i32 i32", "b32", "add.u32 add.s32 add.sat.s32 sub.u32 sub.s32 sub.sat.s32".split())
simple("add_64", "i64 i64", "b64", "add.u64 add.s64 sub.u64 sub.s64".split())
simple("add_x2", "i32 i32", "b32", "add.u16x2 add.s16x2".split(), 90)
simple("mul_16", "i16 i16", "b16", product("mul", ".lo .hi", ".u16 .s16"))
simple("mul_32", "i32 i32", "b32", product("mul", ".lo .hi", ".u32 .s32"))
simple("mul_64", "i64 i64", "b64", product("mul", ".lo .hi", ".u64 .s64"))
simple("mul_wide_16", "i16 i16", "b32", product("mul.wide", ".u16 .s16"))
simple("mul_wide_32", "i32 i32", "b64", product("mul.wide", ".u32 .s32"))
simple("mad_16", "i16 i16 i16", "b16", product("mad", ".lo .hi", ".u16 .s16"))
simple("mad_32", "i32 i32 i32", "b32", product("mad", ".lo .hi", ".u32 .s32") + ["mad.hi.sat.s32"])
simple("mad_64", "i64 i64 i64", "b64", product("mad", ".lo .hi", ".u64 .s64"))
simple("mad_wide_16", "i16 i16 i32", "b32", product("mad.wide", ".u16 .s16"))
simple("mad_wide_32", "i32 i32 i64", "b64", product("mad.wide", ".u32 .s32"))
simple("mul24", "i32 i32", "b32", product("mul24", ".lo .hi", ".u32 .s32"))
simple("mad24", "i32 i32 i32", "b32", product("mad24", ".lo .hi", ".u32 .s32") + ["mad24.hi.sat.s32"])
for width in (16, 32, 64):
    b, i, both = f"b{width}", f"i{width}", f".u{width} .s{width}"
    simple(f"sad_{width}", f"{i} {i} {i}", b, product("sad", both))
    simple(f"div_{width}", f"{i} {i}", b, product("div rem", both))
    simple(f"minmax_{width}", f"{i} {i}", b, product("min max", both))
    simple(f"abs_{width}", i, b, product("abs neg", f".s{width}"))
    simple(f"logic_{width}", f"{i} {i}", b, product("and or xor", f".b{width}"))
    simple(f"not_{width}", i, b, product("not cnot", f".b{width}"))
    simple(f"shift_{width}", f"{i} shift", b, [f"shl.b{width}"] + product("shr", both, "") + [f"shr.b{width}"])
simple("minmax_x2", "i32 i32", "b32", product("min max", ".u16x2 .s16x2") + product("min.relu max.relu", ".s16x2 .s32"),
       90)

# Division by small constants takes another way through the assembler.
c = Case("div_constant", "i32 i64", "b64")
for divisor in ("1", "-1", "2", "3", "7", "10", "-10", "16", "641", "1000000007"):
    c.result(f"div.s64 {{d}}, {{b}}, {divisor};")
    c.result(f"rem.s32 %t0, {{a}}, {divisor}; cvt.s64.s32 {{d}}, %t0;")

c = simple("popc_32", "i32", "b32", "popc.b32 clz.b32 brev.b32 bfind.u32 bfind.s32 bfind.shiftamt.u32 "
           "bfind.shiftamt.s32".split())
c = simple("popc_64", "i64", "b32", "popc.b64 clz.b64 bfind.u64 bfind.s64 bfind.shiftamt.u64 "
           "bfind.shiftamt.s64".split())
simple("brev_64", "i64", "b64", ["brev.b64"])
simple("fns", "i32 i32:0..31 i32:-40..40", "b32", ["fns.b32"])
simple("bfe_32", "i32 shift shift", "b32", product("bfe", ".u32 .s32"))
simple("bfe_64", "i64 shift shift", "b64", product("bfe", ".u64 .s64"))
simple("bfe_32_inside", "i32 i32:0..31 i32:0..32", "b32", product("bfe", ".u32 .s32"))
simple("bfe_64_inside", "i64 i32:0..63 i32:0..64", "b64", product("bfe", ".u64 .s64"))
simple("bfi_32", "i32 i32 shift shift", "b32", ["bfi.b32"])
simple("bfi_64", "i64 i64 shift shift", "b64", ["bfi.b64"])
simple("bfi_32_inside", "i32 i32 i32:0..31 i32:0..32", "b32", ["bfi.b32"])
simple("bfi_64_inside", "i64 i64 i32:0..63 i32:0..64", "b64", ["bfi.b64"])
simple("szext", "i32 shift", "b32", product("szext", ".clamp .wrap", ".u32 .s32"))
simple("bmsk", "shift shift", "b32", product("bmsk", ".clamp .wrap", ".b32"))
simple("dp4a", "i32 i32 i32", "b32", product("dp4a", ".u32 .s32", ".u32 .s32"))
simple("dp2a", "i32 i32 i32", "b32", product("dp2a", ".lo .hi", ".u32 .s32", ".u32 .s32"))
simple("shf", "i32 i32 shift", "b32", product("shf", ".l .r", ".clamp .wrap", ".b32"))
simple("prmt", "i32 i32 i32", "b32", product("prmt.b32", ["", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"]))
c = Case("lop3", "i32 i32 i32", "b32")
for lut in (0x00, 0x01, 0x1e, 0x3c, 0x69, 0x6a, 0x80, 0x96, 0xac, 0xca, 0xd8, 0xe8, 0xfe, 0xff):
    c.result("lop3.b32 {d}, {a}, {b}, {c}, {lut};", lut=lut)
c = Case("lop3_predicate", "i32 i32 i32 i32:0..1", "b32")
c.emit("setp.ne.u32 %p0, {e}, 0;")
for op in ("or", "and"):
    for lut in (0x00, 0x80, 0x96, 0xff):
        c.result("lop3.{op}.b32 {d}|%p1, {a}, {b}, {c}, {lut}, %p0; selp.b32 %t0, 1, 0, %p1;", "%d", "%t0",
                 op=op, lut=lut)
        c.result("lop3.{op}.b32 _|%p1, {a}, {b}, {c}, {lut}, !%p0; selp.b32 %t0, 1, 0, %p1;", "%t0", op=op, lut=lut)

# Carry chains: the condition code goes from one to the next.
for width in (32, 64):
    i = f"i{width}"
    c = Case(f"carry_{width}", f"{i} {i} {i} {i}", f"b{width}")
    for sign in "us":
        t = f"{sign}{width}"
        c.result(f"add.cc.{t} {{d}}, {{a}}, {{b}};\naddc.cc.{t} %d1, {{c}}, {{e}};\naddc.{t} %d2, {{a}}, {{e}};",
                 "%d", "%d1", "%d2")
        c.result(f"sub.cc.{t} {{d}}, {{a}}, {{b}};\nsubc.cc.{t} %d1, {{c}}, {{e}};\nsubc.{t} %d2, {{a}}, {{e}};",
                 "%d", "%d1", "%d2")
        c.result(f"add.cc.{t} {{d}}, {{a}}, {{b}};\naddc.{t} %d1, 0, 0;", "%d", "%d1")
        c.result(f"sub.cc.{t} {{d}}, {{a}}, {{b}};\nsubc.{t} %d1, 0, 0;", "%d", "%d1")
        c.result(f"mad.lo.cc.{t} {{d}}, {{a}}, {{b}}, {{c}};\nmadc.hi.cc.{t} %d1, {{a}}, {{b}}, {{e}};\n"
                 f"addc.{t} %d2, {{a}}, 0;", "%d", "%d1", "%d2")
        c.result(f"mad.hi.cc.{t} {{d}}, {{a}}, {{b}}, {{c}};\nmadc.lo.cc.{t} %d1, {{a}}, {{e}}, {{b}};\n"
                 f"madc.hi.{t} %d2, {{c}}, {{e}}, {{a}};", "%d", "%d1", "%d2")

# Comparison.
SIGNED = "eq ne lt le gt ge".split()
UNSIGNED = SIGNED + "lo ls hi hs".split()
for width in (16, 32, 64):
    i = f"i{width}"
    c = Case(f"setp_{width}", f"{i} {i}", "b32")
    c.bits("setp.{op} {d}, {a}, {b};",
           [f"{cmp}.b{width}" for cmp in ("eq", "ne")] + [f"{cmp}.u{width}" for cmp in UNSIGNED]
           + [f"{cmp}.s{width}" for cmp in SIGNED])
    c = Case(f"set_{width}", f"{i} {i}", "b32")
    for d in ("u32", "s32", "f32"):
        c.each("set.{op} {d}, {a}, {b};", [f"{cmp}.{d}.{s}{width}" for s in "us" for cmp in ("eq", "lt", "ge")])
c = Case("setp_combined", "i32 i32 i32:0..1", "b32")
c.emit("setp.ne.u32 %p0, {c}, 0;")
c.bits("setp.{op} {d}, {a}, {b}, %p0;", product(["lt", "eq", "ge"], [".and.s32", ".or.s32", ".xor.s32"]))
c.bits("setp.{op} {d}|%p1, {a}, {b}, !%p0;", product(["lt", "eq", "ge"], [".and.s32", ".or.s32", ".xor.s32"]))
c.bits("setp.{op} %p1|{d}, {a}, {b}, %p0;", product(["lt", "eq", "ge"], [".and.u32", ".or.u32", ".xor.u32"]))
c.bits("setp.{op} %p1|{d}, {a}, {b};", ["lt.u32", "eq.u32", "ge.s32"])
c = Case("set_combined", "i32 i32 i32:0..1", "b32")
c.emit("setp.ne.u32 %p0, {c}, 0;")
c.each("set.{op} {d}, {a}, {b}, %p0;", product(["lt", "ne"], [".and", ".or", ".xor"], [".u32.s32", ".f32.u32"]))
c.each("set.{op} {d}, {a}, {b}, !%p0;", product(["lt", "ne"], [".and", ".or", ".xor"], [".u32.s32"]))
for width in (16, 32, 64):
    t = [f"b{width}", f"u{width}", f"s{width}"] + {16: [], 32: ["f32"], 64: ["f64"]}[width]
    c = Case(f"selp_{width}", f"i{width} i{width} i32:0..1", f"b{width}")
    c.emit("setp.ne.u32 %p0, {c}, 0;")
    c.each("selp.{op} {d}, {a}, {b}, %p0;", t)
    c.each("selp.{op} {d}, {a}, 7, !%p0;", t[:3])
    c = Case(f"slct_{width}", f"i{width} i{width} i32 f32", f"b{width}")
    c.each("slct.{op}.s32 {d}, {a}, {b}, {c};", t)
    c.each("slct.{op}.f32 {d}, {a}, {b}, {e};", t)
    c.each("slct.ftz.{op}.f32 {d}, {a}, {b}, {e};", t)

c = Case("predicates", "i32:0..1 i32:0..1", "b32")
c.emit("setp.ne.u32 %p0, {a}, 0;\nsetp.ne.u32 %p1, {b}, 0;")
c.bits("{op}.pred {d}, %p0, %p1;", ["and", "or", "xor"])
c.bits("{op}.pred {d}, %p0;", ["not", "mov"])
c = Case("mov_pack", "i64 i64", "b64")
c.result("mov.b64 {{%t0, %t1}}, {a};\nmov.b64 {d}, {{%t1, %t0}};")
c.result("mov.b64 {{%h0, %h1, %h2, %h3}}, {a};\nmov.b64 {d}, {{%h3, %h1, %h2, %h0}};")
c.result("mov.b64 {{_, %t1}}, {a};\nmov.b32 {{%h0, %h1}}, %t1;\nmov.b32 %t0, {{%h1, %h0}};\n"
         "mov.b64 {d}, {{%t0, %t1}};")
c.result("mov.b64 {d}, {a};")
c.declare(".reg .b128 %w<2>;")
c.result("mov.b128 %w0, {{{a}, {b}}};\nmov.b128 %w1, %w0;\nmov.b128 {{{d}, %d1}}, %w1;", "%d", "%d1")
c.target = 90
