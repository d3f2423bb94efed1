"""cvt: between all types, in all rounding modes and saturations."""
from forms import Case, product, simple

INTS = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"]


def width(t):
    return int(t[1:])


def register(t):
    return {8: "i32", 16: "i16", 32: "i32", 64: "i64"}[width(t)]


def out_of(t):
    """What a result of that integer type is kept in: narrow ones are extended, as PTX says."""
    return {8: "b32", 16: "b16", 32: "b32", 64: "b64"}[width(t)]


def holds(d, result, s, source):
    """Every number of the source is one of the result: then there is no .sat."""
    return result >= source if d == s else d == "s" and result > source


# Integer to integer, one file for each width of source and of result.
for source in (8, 16, 32, 64):
    for result in (8, 16, 32, 64):
        c = Case(f"cvt_i{result}_i{source}", register(f"u{source}"), out_of(f"u{result}"))
        for s in "us":
            for d in "us":
                for sat in ("", ".sat") if not holds(d, result, s, source) else ("",):
                    c.result(f"cvt{sat}.{d}{result}.{s}{source} {{d}}, {{a}};")

ROUND_INT = ".rni .rzi .rmi .rpi"
for t in ("f16", "f32", "f64"):
    ftz = "- .ftz" if t == "f32" else "-"
    for w in (8, 16, 32, 64):
        c = Case(f"cvt_i{w}_{t}", t, out_of(f"u{w}"))
        c.each("cvt{op} {d}, {a};", product(ROUND_INT, ftz, "- .sat", f".u{w} .s{w}", f".{t}"))
        c = Case(f"cvt_{t}_i{w}", register(f"u{w}"), t)
        c.each("cvt{op} {d}, {a};", product(".rn .rz .rm .rp", "- .sat", f".{t}", f".u{w} .s{w}"))
for w in (16, 32, 64):
    c = Case(f"cvt_i{w}_bf16", "bf16", out_of(f"u{w}"), 90)
    c.each("cvt{op} {d}, {a};", product(ROUND_INT, f".u{w} .s{w}", ".bf16"))
    c = Case(f"cvt_bf16_i{w}", register(f"u{w}"), "bf16", 90)
    c.each("cvt{op} {d}, {a};", product(".rn .rz .rm .rp", ".bf16", f".u{w} .s{w}"))

ROUNDS = ".rn .rz .rm .rp"
simple("cvt_f32_f32", "f32", "f32", product("cvt", ROUND_INT, "- .ftz", "- .sat", ".f32.f32")
       + ["cvt.ftz.f32.f32", "cvt.sat.f32.f32", "cvt.ftz.sat.f32.f32"])
simple("cvt_f64_f64", "f64", "f64", product("cvt", ROUND_INT, "- .sat", ".f64.f64") + ["cvt.sat.f64.f64"])
simple("cvt_f16_f16", "f16", "f16", product("cvt", ROUND_INT, "- .sat", ".f16.f16") + ["cvt.sat.f16.f16"])
simple("cvt_f32_f64", "f64", "f32", product("cvt", ROUNDS, "- .ftz", "- .sat", ".f32.f64"))
simple("cvt_f64_f32", "f32", "f64", product("cvt", "- .ftz", "- .sat", ".f64.f32"))
simple("cvt_f16_f32", "f32", "f16", product("cvt", ROUNDS, "- .ftz", "- .sat", ".f16.f32"))
simple("cvt_f32_f16", "f16", "f32", product("cvt", "- .ftz", "- .sat", ".f32.f16"))
simple("cvt_f16_f64", "f64", "f16", product("cvt", ROUNDS, "- .sat", ".f16.f64"))
simple("cvt_f64_f16", "f16", "f64", product("cvt", "- .sat", ".f64.f16"))
simple("cvt_bf16_f32", "f32", "bf16", product("cvt", ".rn .rz", "- .relu", ".bf16.f32"), 80)
simple("cvt_bf16_f32_more", "f32", "bf16", product("cvt", ".rm .rp .rn", ".bf16.f32"), 90)
simple("cvt_f16_f32_relu", "f32", "f16", product("cvt", ".rn .rz", ".relu", ".f16.f32"), 80)
simple("cvt_f32_bf16", "bf16", "f32", ["cvt.f32.bf16"], 90)
simple("cvt_bf16_f64", "f64", "bf16", product("cvt", ROUNDS, ".bf16.f64"), 90)
simple("cvt_f64_bf16", "bf16", "f64", ["cvt.f64.bf16"], 90)
simple("cvt_bf16_f16", "f16", "bf16", product("cvt", ROUNDS, ".bf16.f16"), 90)
simple("cvt_f16_bf16", "bf16", "f16", product("cvt", ROUNDS, ".f16.bf16"), 90)
simple("cvt_bf16_bf16", "bf16", "bf16", product("cvt", ROUND_INT, ".bf16.bf16"), 90)
for t in ("f16x2", "bf16x2"):
    simple(f"cvt_{t}_f32", "f32 f32", t, product("cvt", ".rn .rz", "- .relu", f".{t}.f32"), 80)
simple("cvt_satfinite", "f32 f32", "b32", product("cvt", ".rn .rz", "- .relu", ".satfinite", ".f16x2.f32 .bf16x2.f32"),
       80, version="8.6")
simple("cvt_tf32", "f32", "b32", ["cvt.rna.tf32.f32"], 80)
simple("cvt_tf32_more", "f32", "b32", product("cvt", ".rn .rz", "- .relu", ".tf32.f32"), 90)
simple("cvt_tf32_satfinite", "f32", "b32", ["cvt.rna.satfinite.tf32.f32"], 80)
for t in ("e4m3x2", "e5m2x2"):
    c = simple(f"cvt_{t}_f32", "f32 f32", "b16", product("cvt.rn.satfinite", "- .relu", f".{t}.f32"), 89)
    simple(f"cvt_{t}_f16x2", "f16x2", "b16", product("cvt.rn.satfinite", "- .relu", f".{t}.f16x2"), 89)
    simple(f"cvt_f16x2_{t}", "r16", "b32", product("cvt.rn", "- .relu", f".f16x2.{t}"), 89)
simple("cvt_pack", "i32 i32 ", "b32", product("cvt.pack.sat", ".u16 .s16", ".s32"))
c = Case("cvt_pack_narrow", "i32 i32 i32", "b32")
c.each("cvt.pack.sat.{op}.s32.b32 {d}, {a}, {b}, {c};", "u8 s8 u4 s4 u2 s2".split())

# A result register wider than the type is extended; a source wider than it is cut.
c = Case("cvt_wider_registers", "i64 f32", "b64")
c.each("cvt.{op} {d}, {a};", ["u8.u64", "s8.s64", "u16.u64", "s16.s64", "u32.s64", "s32.u64"])
c.emit("cvt.u32.u64 %t0, {a};")
c.each("cvt.{op} {d}, %t0;", ["u8.u32", "s8.u32", "u16.u32", "s16.u32", "u8.u8", "s8.s8", "s16.s8", "u16.s8",
                              "sat.s8.s32", "sat.u8.s32"])
c.each("cvt.{op} {d}, {b};", ["rzi.s8.f32", "rzi.u8.f32", "rzi.s16.f32", "rzi.u16.f32", "rni.s32.f32"])
