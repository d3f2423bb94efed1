"""Loads, stores, copies, atomics, address conversion, fences, mbarriers."""
from forms import Case, product

# Every thread has two cells of 8 bytes to read: a vector of 16 bytes, aligned to that.
CACHES = ["", ".ca", ".cg", ".cs", ".lu", ".cv"]


def read_all(c, space, address, plain=("",), wide=True):
    """Loads of all widths from 16 bytes at an address."""
    for how in plain:
        for t in ("u8", "s8", "u16", "s16", "u32", "s32", "b32", "f32"):
            c.result(f"ld{how}{space}.{t} %t0, [{address}+{4 if t[-2:] == '32' else 2 if '16' in t else 3}];\n"
                     "cvt.u64.u32 {d}, %t0;")
        for t in ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64", "f64"):
            if t != "f64" or not how:
                c.result(f"ld{how}{space}.{t} {{d}}, [{address}+8];")
        c.result(f"ld{how}{space}.u16 %h0, [{address}+6];\nmov.b32 %t0, {{%h0, %h0}};\ncvt.u64.u32 {{d}}, %t0;"
                 .replace("{%h0, %h0}", "{{%h0, %h0}}"))


def read_vectors(c, space, address, how=""):
    c.result(f"ld{how}{space}.v2.b64 {{{{{{d}}, %d1}}}}, [{address}];", "%d", "%d1")
    c.result(f"ld{how}{space}.v4.b32 {{{{%t0, %t1, %t2, %t3}}}}, [{address}];\n"
             "mov.b64 {d}, {{%t3, %t0}};\nmov.b64 %d1, {{%t1, %t2}};", "%d", "%d1")
    c.result(f"ld{how}{space}.v2.u32 {{{{%t0, %t1}}}}, [{address}+8];\nmov.b64 {{d}}, {{{{%t1, %t0}}}};")
    c.result(f"ld{how}{space}.v4.u16 {{{{%h0, %h1, %h2, %h3}}}}, [{address}+8];\n"
             "mov.b64 {d}, {{%h3, %h2, %h1, %h0}};")
    c.result(f"ld{how}{space}.v2.s16 {{{{%t0, %t1}}}}, [{address}+4];\nmov.b64 {{d}}, {{{{%t0, %t1}}}};")
    c.result(f"ld{how}{space}.v4.s8 {{{{%t0, %t1, %t2, %t3}}}}, [{address}+12];\n"
             "mov.b64 {d}, {{%t0, %t1}};\nmov.b64 %d1, {{%t2, %t3}};", "%d", "%d1")
    c.result(f"ld{how}{space}.v2.u8 {{{{%t0, %t1}}}}, [{address}+2];\nmov.b64 {{d}}, {{{{%t1, %t0}}}};")


c = Case("ld_global", "random random", "b64")
read_all(c, ".global", "%in")
c = Case("ld_generic", "random random", "b64")
c.emit("cvta.global.u64 %q0, %in;")
read_all(c, "", "%q0")
read_vectors(c, "", "%q0")
c = Case("ld_global_vectors", "random random", "b64")
read_vectors(c, ".global", "%in")
read_vectors(c, ".global", "%in", ".volatile")
c = Case("ld_global_caches", "random random", "b64")
for cache in CACHES:
    c.result(f"ld.global{cache}.u64 {{d}}, [%in];")
    c.result(f"ld.global{cache}.v2.u64 {{{{{{d}}, %d1}}}}, [%in];", "%d", "%d1")
for nc in (".nc", ".ca.nc", ".cg.nc", ".cs.nc", ".L1::no_allocate", ".nc.L1::no_allocate", ".L2::128B",
           ".nc.L1::evict_last.L2::64B"):
    c.result(f"ld.global{nc}.u64 {{d}}, [%in+8];")
c.result("ldu.global.u64 {d}, [%in];")
c.result("ldu.global.v4.u32 {{%t0, %t1, %t2, %t3}}, [%in];\nmov.b64 {d}, {{%t1, %t2}};")
c = Case("ld_order", "random random", "b64")
for how in [".weak", ".volatile"] + product(".relaxed .acquire", ".cta .gpu .sys") + ["" ]:
    c.result(f"ld{how}.global.u64 {{d}}, [%in];")
    c.result(f"ld{how}.global.u32 %t0, [%in+8];\ncvt.u64.u32 {{d}}, %t0;")
    c.result(f"ld{how}.global.s8 %t0, [%in+1];\ncvt.u64.u32 {{d}}, %t0;")

# Shared memory: two cells for each thread of the block.
SHARED = ".shared .align 16 .b8 tile[1024];"


def shared(name, ins="random random", out="b64", target=75, **kwargs):
    c = Case(name, ins, out, target, **kwargs)
    c.module.append(SHARED)
    c.emit("mov.u32 %t7, tile;\nmov.u32 %x, %tid.x;\nmad.lo.u32 %t7, %x, 16, %t7;")
    return c


c = shared("ld_shared")
c.emit("st.shared.v2.b64 [%t7], {{{a}, {b}}};")
read_all(c, ".shared", "%t7")
read_vectors(c, ".shared", "%t7")
read_vectors(c, ".shared", "%t7", ".volatile")
c = shared("ld_shared_generic")
c.emit("st.shared.v2.b64 [%t7], {{{a}, {b}}};\ncvt.u64.u32 %q0, %t7;\ncvta.shared.u64 %q0, %q0;")
read_all(c, "", "%q0")
read_vectors(c, "", "%q0")
c = Case("ld_local", "random random", "b64")
c.declare(".local .align 16 .b8 mine[64];")
c.emit("mov.u64 %q0, mine;\ncvt.u32.u64 %x, {a};\nand.b32 %x, %x, 32;\ncvt.u64.u32 %q1, %x;\nadd.u64 %q0, %q0, %q1;\n"
       "st.local.v2.b64 [%q0], {{{a}, {b}}};")
read_all(c, ".local", "%q0")
read_vectors(c, ".local", "%q0")
c.emit("cvta.local.u64 %q1, %q0;")
read_vectors(c, "", "%q1")
c = Case("ld_const", "i32:0..7", "b64")
c.module.append(".const .align 16 .b64 table[8] = {0x0123456789abcdef, 0xfedcba9876543210, 1, 2, 0x8000800080008000, "
                "0x7fff7fff7fff7fff, -1, -2};")
c.emit("mov.u64 %q0, table;\nmul.wide.u32 %q1, {a}, 8;\nand.b64 %q1, %q1, 48;\nadd.u64 %q0, %q0, %q1;")
read_all(c, ".const", "%q0")
read_vectors(c, ".const", "%q0")
c = Case("ld_param", "i32:0..1", "b64")
c.result("ld.param.u32 %t0, [n];\ncvt.u64.u32 {d}, %t0;")
c.result("ld.param.s16 %t0, [n];\ncvt.u64.u32 {d}, %t0;")
c.result("ld.param.u8 %t0, [n+1];\ncvt.u64.u32 {d}, %t0;")
c.result("ld.param.v2.u16 {{%t0, %t1}}, [n];\nmov.b64 {d}, {{%t0, %t1}};")
c = Case("ld_b128", "random random", "b64", 70, version="8.3")
c.declare(".reg .b128 %w0;")
c.result("ld.global.b128 %w0, [%in];\nmov.b128 {{{d}, %d1}}, %w0;", "%d", "%d1")
c.target = 75

# Stores: what is not written keeps its 0xee.
STORES = ["u8", "s8", "b8", "u16", "s16", "b16", "u32", "s32", "b32", "f32", "u64", "s64", "b64", "f64"]
VECTORS = ["v2.b8", "v4.u8", "v2.u16", "v4.b16", "v2.u32", "v2.f32", "v4.b8"]


def value_of(t):
    w = t[-2:].strip("bus")
    return {"8": "%t0", "16": "%h0", "32": "%t0", "64": "{a}"}[w]


c = Case("st_global", "random random", "b64")
c.emit("cvt.u32.u64 %t0, {a};\ncvt.u32.u64 %t1, {b};\ncvt.u16.u64 %h0, {a};\ncvt.u16.u64 %h1, {b};")
for how in ["", ".wb", ".cg", ".cs", ".wt", ".L1::evict_first", ".L1::no_allocate"]:
    for t in STORES if not how else ["u8", "b16", "u32", "b64"]:
        c.emit(f"st.global{how}.{t} {c.slot()}, {value_of(t)};")
        c.n_results += 1
for how in [".weak", ".volatile"] + product(".relaxed .release", ".cta .gpu .sys"):
    for t in ["u8", "b16", "u32", "b64"]:
        c.emit(f"st{how}.global.{t} {c.slot()}, {value_of(t)};")
        c.n_results += 1
for t in VECTORS:
    n = int(t[1])
    names = (["%h0", "%h1", "%h0", "%h0"] if t.endswith("16") else ["%t0", "%t1", "%t1", "%t0"])[:n]
    c.emit(f"st.global.{t} {c.slot()}, {{{{{', '.join(names)}}}}};")
    c.n_results += 1
c.emit("and.b32 %x, %me, 1;\nsetp.eq.u32 %p0, %x, 0;")
c.emit(f"@%p0 st.global.v2.b64 {c.slot()}, {{{{{{a}}, {{b}}}}}};")
c.n_results += 1
c.emit(f"@%p0 st.global.v4.b32 {c.slot()}, {{{{%t0, %t1, %t1, %t0}}}};")
c.n_results += 1
for name, space, at in (("st_shared", ".shared", "%t7"), ("st_generic", "", "%q0")):
    c = shared(name)
    c.emit("cvt.u64.u32 %q0, %t7;\ncvta.shared.u64 %q0, %q0;\ncvt.u32.u64 %t0, {a};\ncvt.u32.u64 %t1, {b};\n"
           "cvt.u16.u64 %h0, {a};\ncvt.u16.u64 %h1, {b};")
    stores = [f"st{space}.{t} [{at}+8], {value_of(t)};" for t in STORES]
    stores += [f"st.volatile{space}.{t} [{at}+8], {value_of(t)};" for t in ["u8", "b64"]]
    stores += [f"st{space}.v4.b32 [{at}], {{{{%t0, %t1, %t1, %t0}}}};", f"st{space}.v2.b64 [{at}], {{{{{{b}}, {{a}}}}}};",
               f"st{space}.v4.b8 [{at}+4], {{{{%t0, %t1, %t1, %t0}}}};",
               f"st{space}.v4.b16 [{at}+8], {{{{%h0, %h1, %h1, %h0}}}};"]
    for line in stores:
        c.result("mov.b64 %q1, 0x1122334455667788;\nst.shared.v2.b64 [%t7], {{%q1, %q1}};\n" + line
                 + "\nld.shared.v2.b64 {{{d}, %d1}}, [%t7];", "%d", "%d1")

# Copies that the program may overlap with other work.
c = shared("cp_async", target=80)
c.emit("cvt.u32.u64 %t0, {a};\nand.b32 %t0, %t0, 15;\nmin.u32 %t1, %t0, 8;\nmin.u32 %t2, %t0, 4;\nsetp.gt.u32 %p0, %t0, 7;")
ZERO = "mov.b64 %q1, -1;\nst.shared.v2.b64 [%t7], {{%q1, %q1}};\n"
DONE = "\ncp.async.commit_group;\ncp.async.wait_group 0;\nld.shared.v2.b64 {{{d}, %d1}}, [%t7];"
for op in ("ca.shared.global [%t7], [%in], 4", "ca.shared.global [%t7+8], [%in], 8", "ca.shared.global [%t7], [%in], 16",
           "cg.shared.global [%t7], [%in], 16", "ca.shared.global [%t7], [%in], 4, %t2",
           "ca.shared.global [%t7], [%in+8], 8, %t1", "cg.shared.global [%t7], [%in], 16, %t0",
           "cg.shared.global.L2::128B [%t7], [%in], 16", "ca.shared.global [%t7], [%in], 16, 0",
           "cg.shared.global [%t7], [%in], 16, %p0", "ca.shared.global [%t7], [%in], 4, %p0"):
    c.result(ZERO + f"cp.async.{op};" + DONE, "%d", "%d1")
c.result(ZERO + "cp.async.ca.shared.global [%t7], [%in], 16;\ncp.async.wait_all;\nld.shared.v2.b64 {{{d}, %d1}}, [%t7];",
         "%d", "%d1")

c = shared("cp_async_bulk", target=90)
c.module.append(".shared .align 8 .b64 own[64];")
c.emit("mov.u32 %t1, %tid.x;\nmov.u32 %t6, own;\nmad.lo.u32 %t6, %t1, 8, %t6;\nmbarrier.init.shared::cta.b64 [%t6], 1;\n"
       "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%t6], 16;\nfence.proxy.async.shared::cta;\n"
       "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%t7], [%in], 16, [%t6];\n"
       "wait:\nmbarrier.try_wait.parity.shared::cta.b64 %p1, [%t6], 0;\n@!%p1 bra wait;")
c.result("ld.shared.v2.b64 {{{d}, %d1}}, [%t7];", "%d", "%d1")
# Back to global memory: every other thread has 16 bytes, aligned to that.
c.emit("and.b32 %x, %me, 1;\nsetp.eq.u32 %p0, %x, 0;\nst.shared.v2.b64 [%t7], {{{b}, {a}}};\n"
       f"fence.proxy.async.shared::cta;\n@%p0 cp.async.bulk.global.shared::cta.bulk_group {c.slot()}, [%t7], 16;\n"
       "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;")
c.n_results += 1

# What an address is of.
c = shared("isspacep", "thread")
c.declare(".local .align 8 .b8 mine[16];")
c.module.append(".const .b64 fixed = 5;")
c.emit("cvta.global.u64 %q0, %in;\ncvt.u64.u32 %q1, %t7;\ncvta.shared.u64 %q1, %q1;\nmov.u64 %q2, mine;\n"
       "st.local.u64 [%q2], %q0;\ncvta.local.u64 %q2, %q2;\nmov.u64 %q3, fixed;\ncvta.const.u64 %q3, %q3;")
for q in range(4):
    for space in ("global", "shared", "local", "const"):
        c.result(f"isspacep.{space} %pd, %q{q};\nselp.b64 {{d}}, 1, 0, %pd;".replace("%pd", "%p0"))
c = shared("cvta", "random random")
c.declare(".local .align 8 .b8 mine[16];")
c.emit("st.shared.b64 [%t7], {a};\ncvt.u64.u32 %q1, %t7;\ncvta.shared.u64 %q0, %q1;")
c.result("cvta.to.shared.u64 %q2, %q0;\nsub.u64 {d}, %q2, %q1;")
c.result("ld.u64 {d}, [%q0];")
c.emit("mov.u64 %q1, mine;\nst.local.b64 [%q1], {b};\ncvta.local.u64 %q0, %q1;")
c.result("cvta.to.local.u64 %q2, %q0;\nsub.u64 {d}, %q2, %q1;")
c.result("ld.u64 {d}, [%q0];")
c.emit("cvta.global.u64 %q0, %in;")
c.result("cvta.to.global.u64 %q2, %q0;\nsub.u64 {d}, %q2, %in;")

# Atomics: every thread on a cell of its own, so that old and new are known.
def own(name, t, ops, ins=None, target=75, version="8.5", spaces=("global", "shared", "generic"), red=True,
        scopes=("",)):
    """atom and red of a type in all spaces: result 1 is the memory after it, result 2 what was there."""
    w = 64 if t[-2:] == "64" else 32
    plain = t in ("b32", "u32", "s32", "b64", "u64", "s64")
    kind = ins or (f"i{w}" if plain else t)
    c = shared(name, f"{kind} {kind} {kind}", f"b{w}" if plain else t, target, version=version)
    c.emit("cvt.u64.u32 %q0, %t7;\ncvta.shared.u64 %q0, %q0;")
    for space in spaces:
        for op in ops:
            operands = "{b}, {c}" if op.startswith("cas") else "{b}"
            s = "" if space == "generic" else "." + space
            for scope in scopes:
                if space == "global":
                    at = c.slot()
                    c.emit(f"st.global.b{w} {at}, {{a}};")
                    c.emit(f"atom{scope}{s}.{op}.{t} {{d}}, {at}, {operands};")
                    c.n_results += 1
                    c.store("%d")
                    if red and not op.startswith(("cas", "exch")):
                        at = c.slot()
                        c.emit(f"st.global.b{w} {at}, {{a}};\nred{scope}{s}.{op}.{t} {at}, {operands};")
                        c.n_results += 1
                else:
                    at = "[%t7]" if space == "shared" else "[%q0]"
                    c.result(f"st.shared.b{w} [%t7], {{a}};\natom{scope}{s}.{op}.{t} {{d}}, {at}, {operands};\n"
                             f"ld.shared.b{w} %d1, [%t7];", "%d1", "%d")
                    if red and not op.startswith(("cas", "exch")):
                        c.result(f"st.shared.b{w} [%t7], {{a}};\nred{scope}{s}.{op}.{t} {at}, {operands};\n"
                                 f"ld.shared.b{w} {{d}}, [%t7];")
    return c


for w in (32, 64):
    own(f"atom_logic_{w}", f"b{w}", ["and", "or", "xor"])
    own(f"atom_exch_{w}", f"b{w}", ["exch", "cas"])
    own(f"atom_add_u{w}", f"u{w}", ["add", "min", "max"])
    own(f"atom_minmax_s{w}", f"s{w}", ["min", "max"])
own("atom_add_s32", "s32", ["add"])
own("atom_inc", "u32", ["inc", "dec"])
own("atom_inc_small", "u32", ["inc", "dec"], "i32:0..9")
own("atom_cas_equal", "b32", ["cas"], "i32:0..2")
own("atom_add_f32", "f32", ["add"])
own("atom_add_f64", "f64", ["add"])
own("atom_add_f16x2", "f16x2", ["add.noftz"])
own("atom_add_bf16x2", "bf16x2", ["add.noftz"], target=90)
own("atom_scopes", "u32", ["add"], spaces=("global", "generic"),
    scopes=product("- .relaxed .acquire .release .acq_rel", ".cta .gpu .sys")[:6]
    + [".acquire.gpu", ".acq_rel.sys"], red=False)
own("atom_scopes_shared", "u32", ["add", "max"], spaces=("shared",),
    scopes=[".relaxed.cta", ".acquire.cta", ".release.cta", ".acq_rel.cta"], red=False)

for t, target in (("f16", 75), ("bf16", 90)):
    c = shared(f"atom_add_{t}", f"{t} {t}", t, target)
    for space, at in (("", "[%q0]"), (".shared", "[%t7]")):
        c.emit("cvt.u64.u32 %q0, %t7;\ncvta.shared.u64 %q0, %q0;")
        c.result(f"st.shared.b16 [%t7], {{a}};\natom{space}.add.noftz.{t} {{d}}, {at}, {{b}};\nld.shared.b16 %d1, [%t7];",
                 "%d1", "%d")
    at = c.slot()
    c.emit(f"mov.b32 %x, 0;\nst.global.b32 {at}, %x;\nst.global.b16 {at}, {{a}};\n"
           f"atom.global.add.noftz.{t} {{d}}, {at}, {{b}};")
    c.n_results += 1
    c.store("%d")
c = shared("atom_cas_16", "i16 i16:0..3 i16", "b16")
c.result("and.b16 %h0, {a}, 3;\nst.shared.b16 [%t7], %h0;\natom.shared.cas.b16 {d}, [%t7], {b}, {c};\n"
         "ld.shared.b16 %d1, [%t7];", "%d1", "%d")
at = c.slot()
c.emit(f"mov.b32 %x, 0;\nst.global.b32 {at}, %x;\nst.global.b16 {at}, %h0;\natom.global.cas.b16 {{d}}, {at}, {{b}}, {{c}};")
c.n_results += 1
c.store("%d")
c = shared("atom_b128", "i64:0..1 i64:0..1 random random", "b64", 90)
c.declare(".reg .b128 %w<4>;")
c.emit("mov.b128 %w1, {{{a}, {b}}};\nmov.b128 %w2, {{{c}, {e}}};\nmov.b64 %q1, 0;\nmov.b128 %w3, {{%q1, %q1}};")
for op in ("exch.b128 %w0, [%t7], %w2", "cas.b128 %w0, [%t7], %w3, %w2"):
    c.result(f"st.shared.v2.b64 [%t7], {{{{{{a}}, {{b}}}}}};\natom.shared.{op};\nmov.b128 {{{{{{d}}, %d1}}}}, %w0;\n"
             "ld.shared.v2.b64 {{%d2, %d3}}, [%t7];", "%d", "%d1", "%d2", "%d3")
c = Case("atom_vector_f32", "f32*8", "f32", 90)
for n in (2, 4):
    mem, add, got = (f"{{{{{', '.join(names[:n])}}}}}" for names in (
        ["{i[0]}", "{i[1]}", "{i[2]}", "{i[3]}"], ["{i[4]}", "{i[5]}", "{i[6]}", "{i[7]}"],
        ["%d", "%d1", "%d2", "%d3"]))
    # Every fourth thread: 16 bytes of the output are one vector, aligned to it.
    at = c.slot()
    c.emit("and.b32 %x, %me, 3;\nsetp.eq.u32 %p0, %x, 0;\nmov.b32 %d, 0;\nmov.b32 %d1, 0;\nmov.b32 %d2, 0;\nmov.b32 %d3, 0;")
    c.emit(f"@%p0 st.global.v{n}.b32 {at}, {mem};")
    c.emit(f"@%p0 atom.global.add.v{n}.f32 {got}, {at}, {add};")
    c.n_results += 1
    for k in range(n):
        c.store(["%d", "%d1", "%d2", "%d3"][k])
for t, suffix in (("f16x2", ".noftz"), ("bf16x2", ".noftz")):
    c = Case(f"atom_vector_{t}", f"{t}*4", t, 90)
    for op in ("add", "min", "max"):
        at = c.slot()
        c.emit("and.b32 %x, %me, 1;\nsetp.eq.u32 %p0, %x, 0;\nmov.b32 %d, 0;\nmov.b32 %d1, 0;")
        c.emit(f"@%p0 st.global.v2.b32 {at}, {{{{{{a}}, {{b}}}}}};\n"
               f"@%p0 atom.global.{op}{suffix}.v2.{t} {{{{{{d}}, %d1}}}}, {at}, {{{{{{c}}, {{e}}}}}};")
        c.n_results += 1
        c.store("%d")
        c.store("%d1")

# All threads of a block on one cell: only what does not depend on their order.
c = Case("atom_contended", "i32 i64", "b64")
c.module.append(".shared .align 8 .b64 cell;")
c.emit("mov.u32 %t7, cell;\nmov.u32 %t1, %tid.x;\nsetp.eq.u32 %p0, %t1, 0;\nmov.b64 %q0, 0;")
for op, value in (("add.u32", "{a}"), ("max.s32", "{a}"), ("min.s32", "{a}"), ("or.b32", "{a}"), ("xor.b32", "{a}"),
                  ("add.u64", "{b}"), ("max.u64", "{b}"), ("min.s64", "{b}"), ("xor.b64", "{b}"), ("inc.u32", "%t6")):
    c.result(f"mov.u32 %t6, 40;\nbar.sync 0;\n@%p0 st.shared.b64 [%t7], %q0;\nbar.sync 0;\nred.shared.{op} [%t7], {value};\n"
             "bar.sync 0;\nld.shared.b64 {d}, [%t7];")

# Order of memory: these do nothing that one thread could see.
c = shared("fence", "random random")
for op in ["membar.cta", "membar.gl", "membar.sys"] + product("fence", ".sc .acq_rel", ".cta .gpu .sys"):
    c.result(f"st.shared.b64 [%t7], {{a}};\n{op};\nld.shared.b64 {{d}}, [%t7];")
c = shared("fence_90", "random random", target=90)
for op in ["fence.acq_rel.cluster", "fence.sc.cluster", "fence.proxy.alias", "fence.proxy.async",
           "fence.proxy.async.shared::cta", "fence.mbarrier_init.release.cluster", "fence.proxy.async.global"]:
    c.result(f"st.shared.b64 [%t7], {{a}};\n{op};\nld.shared.b64 {{d}}, [%t7];")
c = Case("hints", "random random", "b64", 90)
for op in ("prefetch.global.L1 [%in]", "prefetch.global.L2 [%in]", "prefetch.global.L2::evict_last [%in]",
           "prefetchu.L1 [%q0]", "griddepcontrol.launch_dependents", "griddepcontrol.wait", "nanosleep.u32 20",
           "pmevent 3", "applypriority.global.L2::evict_normal [%in], 128"):
    aligned = "and.b64 %in, %in, -128;\n" if "apply" in op else ""
    c.result(f"ld.global.b64 {{d}}, [%in];\ncvta.global.u64 %q0, %in;\n{aligned}{op};")

c = Case("cache_policies", "random random", "b64", 80)
for how in ("fractional.L2::evict_last.b64 %q0, 0.5", "fractional.L2::evict_first.b64 %q0",
            "range.global.L2::evict_last.L2::evict_unchanged.b64 %q0, [%in], 256, 512"):
    c.result(f"createpolicy.{how};\nld.global.L2::cache_hint.b64 {{d}}, [%in], %q0;")
    c.result(f"ld.global.L2::cache_hint.v2.b64 {{{{{{d}}, %d1}}}}, [%in], %q0;", "%d", "%d1")
    at = c.slot()
    c.emit(f"st.global.L2::cache_hint.b64 {at}, {{a}}, %q0;")
    c.n_results += 1
    at = c.slot()
    c.emit(f"st.global.b64 {at}, {{a}};\natom.global.add.L2::cache_hint.u64 {{d}}, {at}, {{b}}, %q0;\n"
           f"red.global.add.L2::cache_hint.u64 {at}, {{b}}, %q0;")
    c.n_results += 1
    c.store("%d")
c = Case("alloca", "i32:1..6 i64", "b64")
c.emit("stacksave.u64 %q0;\nmul.wide.u32 %q1, {a}, 16;\nalloca.u64 %q2, %q1, 16;\ncvt.u32.u64 %t0, %q2;")
c.result("and.b32 %x, %t0, 15;\ncvt.u64.u32 {d}, %x;")
c.emit("mov.u32 %t1, 0;\nFILL:\nmul.wide.u32 %q3, %t1, 16;\nadd.u64 %q4, %q2, %q3;\nadd.u64 %q5, {b}, %q3;\n"
       "st.local.u64 [%q4], %q5;\nadd.u32 %t1, %t1, 1;\nsetp.lt.u32 %p0, %t1, {a};\n@%p0 bra FILL;")
c.emit("alloca.u64 %q6, 32;\nst.local.u64 [%q6], {b};\nst.local.u64 [%q6+24], {b};")
c.result("sub.u32 %t1, {a}, 1;\nmul.wide.u32 %q3, %t1, 16;\nadd.u64 %q4, %q2, %q3;\nld.local.u64 {d}, [%q4];")
c.result("ld.local.u64 {d}, [%q2];")
c.result("stackrestore.u64 %q0;\nstacksave.u64 %q5;\nsub.u64 {d}, %q5, %q0;")

# Whole phases of an mbarrier that all threads of a block take part in.
c = Case("mbarrier", "i32:1..3", "b64", 80)
c.module.append(".shared .align 8 .b64 gate;\n.shared .align 8 .b64 own[64];")
c.emit("mov.u32 %t7, gate;\nmov.u32 %t1, %tid.x;\nmov.u32 %t6, own;\nmad.lo.u32 %t6, %t1, 8, %t6;\n"
       "setp.eq.u32 %p0, %t1, 0;\n@%p0 mbarrier.init.shared.b64 [%t7], 64;\nbar.sync 0;")
c.emit("mbarrier.arrive.shared.b64 %q0, [%t7];\nwait:\nmbarrier.test_wait.shared.b64 %p1, [%t7], %q0;\n@!%p1 bra wait;")
c.result("mov.b64 {d}, 1;")
c.emit("mbarrier.init.shared.b64 [%t6], 3;\nmbarrier.arrive.shared.b64 %q0, [%t6];")
c.result("mbarrier.pending_count.b64 %t2, %q0;\ncvt.u64.u32 {d}, %t2;")
c.result("mbarrier.test_wait.shared.b64 %p1, [%t6], %q0;\nselp.b64 {d}, 1, 0, %p1;")
c.emit("mbarrier.arrive.noComplete.shared.b64 %q1, [%t6], 1;")
c.result("mbarrier.pending_count.b64 %t2, %q1;\ncvt.u64.u32 {d}, %t2;")
c.emit("mbarrier.arrive_drop.shared.b64 %q1, [%t6];")
c.result("mbarrier.pending_count.b64 %t2, %q1;\ncvt.u64.u32 {d}, %t2;")
c.result("mbarrier.test_wait.shared.b64 %p1, [%t6], %q0;\nselp.b64 {d}, 1, 0, %p1;")
c.emit("mbarrier.arrive.shared.b64 %q0, [%t6];\nmbarrier.arrive.shared.b64 %q1, [%t6];")
c.result("mbarrier.test_wait.shared.b64 %p1, [%t6], %q0;\nselp.b64 {d}, 1, 0, %p1;")
c.emit("mbarrier.inval.shared.b64 [%t6];")
c = Case("mbarrier_90", "i32:1..3", "b64", 90)
c.module.append(".shared .align 8 .b64 own[64];")
c.emit("mov.u32 %t1, %tid.x;\nmov.u32 %t6, own;\nmad.lo.u32 %t6, %t1, 8, %t6;\n"
       "mbarrier.init.shared::cta.b64 [%t6], {a};\nmbarrier.arrive.expect_tx.shared::cta.b64 %q0, [%t6], 32;")
c.result("mbarrier.pending_count.b64 %t2, %q0;\ncvt.u64.u32 {d}, %t2;")
c.emit("sub.u32 %t2, {a}, 1;\nsetp.ne.u32 %p0, %t2, 0;\n@%p0 mbarrier.arrive.release.cta.shared::cta.b64 %q1, [%t6], %t2;")
TEST = "mbarrier.test_wait.parity.shared::cta.b64 %p1, [%t6], 0;\nselp.b64 {d}, 1, 0, %p1;"
c.result(TEST)
c.emit("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%t6], 24;")
c.result(TEST)
c.emit("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%t6], 8;")
c.result("try:\nmbarrier.try_wait.parity.shared::cta.b64 %p1, [%t6], 0;\n@!%p1 bra try;\nselp.b64 {d}, 1, 0, %p1;")
c.result("mbarrier.test_wait.parity.shared::cta.b64 %p1, [%t6], 1;\nselp.b64 {d}, 1, 0, %p1;")
c.emit("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%t6], 16;\nmbarrier.arrive.shared::cta.b64 %q0, [%t6], {a};\n"
       "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%t6], 16;")
c.result("mbarrier.test_wait.acquire.cta.shared::cta.b64 %p1, [%t6], %q0;\nselp.b64 {d}, 1, 0, %p1;")
c = shared("cp_async_mbarrier", target=80)
c.module.append(".shared .align 8 .b64 own[64];")
c.emit("mov.u32 %t1, %tid.x;\nmov.u32 %t6, own;\nmad.lo.u32 %t6, %t1, 8, %t6;\nmbarrier.init.shared.b64 [%t6], 1;\n"
       "cp.async.ca.shared.global [%t7], [%in], 16;\ncp.async.mbarrier.arrive.noinc.shared.b64 [%t6];\n"
       "wait:\nmbarrier.test_wait.parity.shared.b64 %p1, [%t6], 0;\n@!%p1 bra wait;".replace(
           "mbarrier.test_wait.parity", "mbarrier.test_wait.parity"))
c.target = 90
c.result("ld.shared.v2.b64 {{{d}, %d1}}, [%t7];", "%d", "%d1")
c.emit("cp.async.ca.shared.global [%t7], [%in], 8;\ncp.async.mbarrier.arrive.shared.b64 [%t6];\n"
       "mbarrier.arrive.shared.b64 %q0, [%t6];\nwait2:\nmbarrier.test_wait.shared.b64 %p1, [%t6], %q0;\n@!%p1 bra wait2;")
c.result("ld.shared.v2.b64 {{{d}, %d1}}, [%t7];", "%d", "%d1")
