"""Floating-point arithmetic, exact and approximate."""
from forms import Case, product, simple

ROUNDS = ".rn .rz .rm .rp"
simple("add_f32", "f32 f32", "f32", product("add sub", "- " + ROUNDS, "- .ftz", "- .sat", ".f32"))
simple("mul_f32", "f32 f32", "f32", product("mul", "- " + ROUNDS, "- .ftz", "- .sat", ".f32"))
simple("fma_f32", "f32 f32 f32", "f32", product("fma", ROUNDS, "- .ftz", "- .sat", ".f32"))
simple("mad_f32", "f32 f32 f32", "f32", product("mad", ROUNDS, "- .ftz", "- .sat", ".f32"))
simple("add_f64", "f64 f64", "f64", product("add sub mul", "- " + ROUNDS, ".f64"))
simple("fma_f64", "f64 f64 f64", "f64", product("fma mad", ROUNDS, ".f64"))
simple("div_f32", "f32 f32", "f32", product("div", ROUNDS, "- .ftz", ".f32"))
simple("div_f64", "f64 f64", "f64", product("div", ROUNDS, ".f64"))
simple("rcp_f32", "f32", "f32", product("rcp sqrt", ROUNDS, "- .ftz", ".f32"))
simple("rcp_f64", "f64", "f64", product("rcp sqrt", ROUNDS, ".f64"))
simple("abs_f32", "f32", "f32", product("abs neg", "- .ftz", ".f32"))
simple("abs_f64", "f64", "f64", product("abs neg", ".f64"))
simple("copysign_f32", "f32 f32", "f32", ["copysign.f32"])
simple("copysign_f64", "f64 f64", "f64", ["copysign.f64"])
simple("minmax_f32", "f32 f32", "f32", product("min max", "- .ftz", ".f32"))
simple("minmax_nan_f32", "f32 f32", "f32", product("min max", "- .ftz", "- .NaN", "- .xorsign.abs", ".f32"), 86)
simple("minmax_f64", "f64 f64", "f64", product("min max", ".f64"))
for t in ("f32", "f64"):
    c = Case(f"testp_{t}", t, "b32")
    c.bits(f"testp.{{op}}.{t} {{d}}, {{a}};", "finite infinite number notanumber normal subnormal".split())
FLOAT_CMP = "eq ne lt le gt ge equ neu ltu leu gtu geu num nan".split()
for t, target in (("f32", 75), ("f64", 75), ("f16", 75), ("bf16", 90)):
    c = Case(f"setp_{t}", f"{t} {t}", "b32", target)
    ops = [f"{cmp}.{t}" for cmp in FLOAT_CMP]
    if t in ("f32", "f16"):
        ops += [f"{cmp}.ftz.{t}" for cmp in FLOAT_CMP]
    c.bits("setp.{op} {d}, {a}, {b};", ops)
    c = Case(f"set_{t}", f"{t} {t}", "b32", target)
    c.each("set.{op} {d}, {a}, {b};", [f"{cmp}.u32.{t}" for cmp in ("lt", "neu", "num")]
           + ([f"{cmp}.f32.{t}" for cmp in ("ge", "equ", "nan")] if t in ("f32", "f64") else []))
for t, target in (("f16x2", 75), ("bf16x2", 90)):
    c = Case(f"setp_{t}", f"{t} {t}", "b32", target)
    c.bits(f"setp.{{op}}.{t} {{d}}|%p1, {{a}}, {{b}};", FLOAT_CMP)
    c.bits(f"setp.{{op}}.{t} %p1|{{d}}, {{a}}, {{b}};", FLOAT_CMP)
    c = Case(f"set_{t}", f"{t} {t}", "b32", target)
    c.each("set.{op} {d}, {a}, {b};", [f"{cmp}.{t}.{t}" for cmp in ("lt", "neu", "num")])
for t, target in (("f16", 75), ("bf16", 90)):
    c = Case(f"set_to_{t}", f"{t} {t}", t, target)
    c.each("set.{op} {d}, {a}, {b};", [f"{cmp}.{t}.{t}" for cmp in ("lt", "neu", "num")])
    # PTX says 1.0 in 16 bits, widened with zeros. The driver's compiler has it in both halves of a register, harmlessly
    # but for this cvt, which it leaves out.
    c.bound("bits", 16, "an H200 shows 1.0 twice: cvt.u32.u16 of what set gives leaves the register's high half as it is")

# Half precision and pairs of it.
for t in ("f16", "f16x2"):
    simple(f"add_{t}", f"{t} {t}", t, product("add sub mul", "- .rn", "- .ftz", "- .sat", f".{t}"))
    simple(f"fma_{t}", f"{t} {t} {t}", t, product("fma.rn", "- .ftz", "- .sat", f".{t}"))
    simple(f"fma_relu_{t}", f"{t} {t} {t}", t, product("fma.rn", "- .ftz", ".relu", f".{t}"), 80)
    simple(f"fma_oob_{t}", f"{t} {t} {t}", t, product("fma.rn.oob", "- .relu", f".{t}"), 90)
    simple(f"abs_{t}", t, t, product("abs neg", "- .ftz", f".{t}"))
    simple(f"minmax_{t}", f"{t} {t}", t, product("min max", "- .ftz", "- .NaN", f".{t}"), 80)
    simple(f"minmax_xorsign_{t}", f"{t} {t}", t, product("min max", "- .ftz", "- .NaN", ".xorsign.abs", f".{t}"), 86)
    c = simple(f"ex2_{t}", t, t, [f"ex2.approx.{t}", f"tanh.approx.{t}"])
    c.bound("ulp", 1, "2^-9.9 of ex2 and 2^-10.987 of tanh are what PTX promises of them")
for t in ("bf16", "bf16x2"):
    simple(f"add_{t}", f"{t} {t}", t, product("add sub mul", "- .rn", f".{t}"), 90)
    simple(f"fma_{t}", f"{t} {t} {t}", t, product("fma.rn", "- .relu", f".{t}"), 80)
    simple(f"fma_oob_{t}", f"{t} {t} {t}", t, product("fma.rn.oob", "- .relu", f".{t}"), 90)
    simple(f"abs_{t}", t, t, product("abs neg", f".{t}"), 80)
    simple(f"minmax_{t}", f"{t} {t}", t, product("min max", "- .NaN", f".{t}"), 80)
    simple(f"minmax_xorsign_{t}", f"{t} {t}", t, product("min max", "- .NaN", ".xorsign.abs", f".{t}"), 86)
    c = simple(f"ex2_{t}", t, t, [f"ex2.approx.ftz.{t}", f"tanh.approx.{t}"], 90)
    c.bound("ulp", 1, "2^-7 of ex2 and 2^-8 of tanh are what PTX promises of them")

# Approximate: the bounds are those that PTX states (ISA 8.5, section 9.7.3), once more for our own rounding.
c = simple("rcp_approx_f32", "f32", "f32", product("rcp rsqrt sqrt", ".approx", "- .ftz", ".f32"))
c.bound("ulp", 1, "rcp.approx: at most 1 ulp", 0, 1)
c.bound("ulp", 2, "rsqrt.approx: relative error at most 2^-22.9", 2, 3)
c.bound("ulp", 2, "sqrt.approx: relative error at most 2^-23 beside rounding", 4, 5)
c = simple("rcp_approx_f64", "f64", "f64", ["rcp.approx.ftz.f64", "rsqrt.approx.ftz.f64"])
c.bound("ulp", 1 << 33, "only the high word is computed: 20 bits of mantissa, and one more for rounding")
c = simple("rsqrt_f64", "f64", "f64", ["rsqrt.approx.f64"])
c.bound("ulp", 2, "an emulation by Newton's steps")
c = simple("div_approx_f32", "f32 f32", "f32", product("div", ".approx .full", "- .ftz", ".f32"))
c.bound("ulp", 2, "div.approx and div.full: at most 2 ulp")
c = Case("sin_approx", "f32", "f32")
c.each("{op} {d}, {a};", product("sin cos", ".approx", "- .ftz", ".f32"))
c.bound("abs", 2.0e-6, "2^-20.5 within [-pi, pi]; beyond it grows with the argument, so those are left out")
c.lines = ["abs.f32 %x, %i0;", "setp.gt.f32 %p0, %x, 0f40490fdb;", "@%p0 mov.b32 %i0, 0f3f000000;"] + c.lines
c = simple("lg2_approx", "f32", "f32", product("lg2", ".approx", "- .ftz", ".f32"))
c.bound("abs", 5.0e-7, "2^-22 between 0.5 and 2 as an absolute error, relative elsewhere: see lg2_approx_large")
c.lines = ["abs.f32 %x, %i0;", "setp.lt.f32 %p0, %x, 0f3f000000;", "setp.gt.f32 %p1, %x, 0f40000000;",
           "or.pred %p0, %p0, %p1;", "@%p0 mov.b32 %i0, 0f3fa00000;"] + c.lines
c = simple("lg2_approx_large", "f32", "f32", product("lg2", ".approx", "- .ftz", ".f32"))
c.bound("ulp", 4, "relative error at most 2^-22 outside [0.5, 2]")
c.lines = ["setp.ge.f32 %p0, %i0, 0f3f000000;", "setp.le.f32 %p1, %i0, 0f40000000;",
           "and.pred %p0, %p0, %p1;", "@%p0 mov.b32 %i0, 0f40800000;"] + c.lines
c = simple("ex2_approx", "f32", "f32", product("ex2", ".approx", "- .ftz", ".f32"))
c.bound("ulp", 3, "ex2.approx: at most 2 ulp, and ours is rounded the other way at worst")
c = simple("tanh_approx", "f32", "f32", ["tanh.approx.f32"])
c.bound("ulp", 8192, "relative error at most 2^-11")
