"""Instructions of a whole warp, of a block and of a cluster; branches and calls."""
from forms import Case, product

# Shuffles: c holds the segment mask and the clamp; sources are lanes that take part.
c = Case("shfl_sync", "r32 i32:0..31", "b32")
for mode, clamps in (("up", (0, 0x1800, 0x1c00, 0x1f00)), ("down", (0x1f, 0x181f, 0x1e1f, 0x101f)),
                     ("bfly", (0x1f, 0x181f, 0x1e1f, 0x0f)), ("idx", (0x1f, 0x181f, 0x1e1f, 0x07))):
    for clamp in clamps:
        c.result("shfl.sync.{mode}.b32 {d}|%p0, {a}, {b}, {clamp}, -1;\nselp.b32 %t0, 1, 0, %p0;", "%d", "%t0",
                 mode=mode, clamp=clamp)
    c.result("shfl.sync.{mode}.b32 {d}, {a}, 3, {clamp}, 0xffffffff;", mode=mode, clamp=clamps[0])
c = Case("shfl_sync_part", "r32 i32:0..15", "b32")
c.emit("and.b32 %t1, %me, 31;\nsetp.lt.u32 %p0, %t1, 16;\nmov.b32 {d}, 0;")
c.result("@%p0 shfl.sync.idx.b32 {d}, {a}, {b}, 0x1f, 0xffff;")
c.result("@%p0 bra LOW;\nor.b32 %t2, {b}, 16;\nshfl.sync.idx.b32 {d}, {a}, %t2, 0x1f, 0xffff0000;\nbra.uni JOIN;\n"
         "LOW:\nshfl.sync.bfly.b32 {d}, {a}, 5, 0x1f, 0xffff;\nJOIN:")

for name, ins in (("vote", "i32:0..1"), ("vote_rare", "i32:0..40")):
    c = Case(name, ins, "b32")
    c.emit("setp.ne.u32 %p0, {a}, 0;")
    c.result("vote.sync.ballot.b32 {d}, %p0, -1;")
    c.result("vote.sync.ballot.b32 {d}, !%p0, -1;")
    c.bits("vote.sync.{op}.pred {d}, %p0, -1;", ["all", "any", "uni"])
    c.bits("vote.sync.{op}.pred {d}, !%p0, -1;", ["all", "any", "uni"])
    c.emit("and.b32 %t1, %me, 31;\nsetp.lt.u32 %p1, %t1, 7;\nmov.b32 {d}, 0;")
    c.result("@%p1 vote.sync.ballot.b32 {d}, %p0, 0x7f;")
    c.result("@!%p1 vote.sync.ballot.b32 {d}, %p0, 0xffffff80;")
c = Case("match", "i32:0..3 i64:0..2", "b32")
c.result("match.any.sync.b32 {d}, {a}, -1;")
c.result("match.any.sync.b64 {d}, {b}, -1;")
c.result("match.all.sync.b32 {d}|%p0, {a}, -1;\nselp.b32 %t0, 1, 0, %p0;", "%d", "%t0")
c.result("shr.u32 %t1, %me, 6;\nmatch.all.sync.b32 {d}|%p0, %t1, -1;\nselp.b32 %t0, 1, 0, %p0;", "%d", "%t0")
c.result("match.all.sync.b64 {d}|%p0, {b}, -1;\nselp.b32 %t0, 1, 0, %p0;", "%d", "%t0")
c.emit("and.b32 %t1, %me, 31;\nsetp.lt.u32 %p1, %t1, 9;\nmov.b32 {d}, 0;")
c.result("@%p1 match.any.sync.b32 {d}, {a}, 0x1ff;")
for name, ins in (("redux", "i32"), ("redux_random", "r32")):
    c = Case(name, ins, "b32", 80)
    for op in ("add.u32", "add.s32", "min.u32", "max.u32", "min.s32", "max.s32", "and.b32", "or.b32", "xor.b32"):
        c.result("redux.sync.{op} {d}, {a}, -1;", op=op)
    c.emit("and.b32 %t1, %me, 31;\nsetp.lt.u32 %p1, %t1, 9;\nmov.b32 {d}, 0;")
    c.result("@%p1 redux.sync.add.s32 {d}, {a}, 0x1ff;")
    c.result("@%p1 redux.sync.max.s32 {d}, {a}, 0x1ff;")
c = Case("elect", "i32", "b32", 90)
c.result("elect.sync {d}|%p0, -1;\nselp.b32 %t0, 1, 0, %p0;", "%d", "%t0")
c.emit("and.b32 %t1, %me, 31;\nsetp.gt.u32 %p1, %t1, 4;\nmov.b32 {d}, 99;")
c.result("@!%p1 bra SKIP;\nelect.sync {d}|%p0, 0xffffffe0;\nselp.b32 {d}, 1, 0, %p0;\nSKIP:")
c = Case("activemask", "i32", "b32")
c.result("activemask.b32 {d};")
c.result("bar.warp.sync -1;\nmov.b32 {d}, 5;")
c = Case("special_registers", "i32", "b32")
for r in ("tid.x", "tid.y", "tid.z", "ntid.x", "ntid.y", "ntid.z", "ctaid.x", "ctaid.y", "nctaid.x", "nctaid.z",
          "laneid", "lanemask_eq", "lanemask_le", "lanemask_lt", "lanemask_ge", "lanemask_gt", "dynamic_smem_size"):
    c.result("mov.u32 {d}, %{r};", r=r)

# Barriers of a block.
c = Case("bar", "i32:0..1 i32", "b32")
c.module.append(".shared .align 4 .b32 tile[64];")
c.emit("mov.u32 %t7, tile;\nmov.u32 %t1, %tid.x;\nmad.lo.u32 %t6, %t1, 4, %t7;\nxor.b32 %t2, %t1, 33;\n"
       "mad.lo.u32 %t5, %t2, 4, %t7;\nsetp.ne.u32 %p0, {a}, 0;")
for k, op in enumerate(("bar.sync 0", "bar.sync 1, 64", "barrier.sync 2", "barrier.sync.aligned 3, 64", "bar.sync 15",
                        "barrier.cta.sync 4", "bar.cta.sync 5, 64")):
    c.result("add.u32 %x, {b}, {k};\nst.shared.b32 [%t6], %x;\n{op};\nld.shared.b32 {d}, [%t5];\n{op};", op=op, k=k)
for op in ("bar.red.popc.u32 {d}, 0", "bar.red.popc.u32 {d}, 1, 64", "barrier.red.popc.u32 {d}, 2",
           "barrier.cta.red.popc.aligned.u32 {d}, 3, 64"):
    c.result(op + ", %p0;")
    c.result(op + ", !%p0;")
for op in ("and", "or"):
    c.bits(f"bar.red.{op}.pred {{d}}, 0, {{op}};", ["%p0", "!%p0"])
    c.bits(f"barrier.red.{op}.pred {{d}}, 1, 64, {{op}};", ["%p0", "!%p0"])
# One warp makes, the other takes.
c.result("setp.lt.u32 %p1, %t1, 32;\nst.shared.b32 [%t6], {b};\nmov.b32 {d}, 7;\n@!%p1 bra TAKE;\n"
         "bar.arrive 6, 64;\nbra DONE;\nTAKE:\nbar.sync 6, 64;\nld.shared.b32 {d}, [%t5];\nDONE:\nbar.sync 0;")

# Clusters of one block, and of two: each reads what the other wrote.
for size in (1, 2):
    c = Case(f"cluster_{size}", "i32", "b32", 90)
    if size == 2:
        c.directive = " .reqnctapercluster 2, 1, 1"
    c.module.append(".shared .align 4 .b32 tile[64];")
    c.emit("mov.u32 %t7, tile;\nmov.u32 %t1, %tid.x;\nmad.lo.u32 %t6, %t1, 4, %t7;\nst.shared.b32 [%t6], {a};\n"
           "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n"
           "mov.u32 %t2, %cluster_ctarank;\nmov.u32 %t3, %cluster_nctarank;\nadd.u32 %t4, %t2, 1;\nrem.u32 %t4, %t4, %t3;")
    for r in ("cluster_ctarank", "cluster_nctarank", "cluster_ctaid.x", "cluster_nctaid.x", "clusterid.x",
              "nclusterid.x"):
        c.result("mov.u32 {d}, %{r};", r=r)
    c.result("mapa.shared::cluster.u32 %t0, %t6, %t4;\nld.shared::cluster.u32 {d}, [%t0];")
    c.result("getctarank.shared::cluster.u32 {d}, %t0;")
    c.result("cvt.u64.u32 %q0, %t6;\ncvta.shared.u64 %q0, %q0;\nmapa.u64 %q1, %q0, %t4;\nld.u32 {d}, [%q1];")
    c.result("getctarank.u64 {d}, %q1;")
    c.bits("isspacep.{op} {d}, %q1;", ["shared::cluster"] + (["shared::cta"] if size == 2 else []))
    c.emit("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;")
    c.emit("atom.shared::cluster.add.u32 %t1, [%t0], 5;" if size == 1 else "red.shared::cluster.add.u32 [%t0], 5;")
    c.result("barrier.cluster.arrive;\nbarrier.cluster.wait;\nld.shared.u32 {d}, [%t6];")
    c.emit("barrier.cluster.arrive;\nbarrier.cluster.wait;")

# Stores that tell an mbarrier beside their target, which a cluster of one block may not make: in a cluster of two
# to the block itself, where red.async may not go, and to the other block.
for blocks in (1, 2):
    c = Case(f"st_async_{blocks}", "i32 i32", "b32", 90)
    c.directive = " .reqnctapercluster 2, 1, 1"
    c.module.append(".shared .align 16 .b32 tile[256];\n.shared .align 8 .b64 gate[64];")
    c.emit("mov.u32 %t1, %tid.x;\nmov.u32 %t6, tile;\nmad.lo.u32 %t6, %t1, 16, %t6;\nmov.u32 %t7, gate;\n"
           "mad.lo.u32 %t7, %t1, 8, %t7;\nmbarrier.init.shared::cta.b64 [%t7], 1;\n"
           "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%t7], 16;\nmov.b32 %t0, 0;\n"
           "st.shared.v4.b32 [%t6], {{%t0, %t0, %t0, %t0}};\n"
           "barrier.cluster.arrive;\nbarrier.cluster.wait;\nmov.u32 %t2, %cluster_ctarank;")
    if blocks == 2:
        c.emit("mov.u32 %t3, %cluster_nctarank;\nadd.u32 %t4, %t2, 1;\nrem.u32 %t4, %t4, %t3;")
    c.emit("mapa.shared::cluster.u32 %t0, %t6, {to};\nmapa.shared::cluster.u32 %t5, %t7, {to};",
           to="%t2" if blocks == 1 else "%t4")
    how = "shared::cluster.mbarrier::complete_tx::bytes"
    c.emit(f"st.async.weak.{how}.b32 [%t0], {{a}}, [%t5];\n"
           f"st.async.weak.{how}.v2.b32 [%t0+8], {{{{{{b}}, {{a}}}}}}, [%t5];\n"
           + (f"st.async.weak.{how}.b32 [%t0+4], {{b}}, [%t5];" if blocks == 1 else
              f"red.async.relaxed.cluster.{how}.add.u32 [%t0+4], {{b}}, [%t5];"))
    c.result("wait:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [%t7], 0;\n@!%p1 bra wait;\n"
             "ld.shared.v4.b32 {{%t0, %t1, %t2, %t3}}, [%t6];", "%t0", "%t1", "%t2", "%t3")
    c.emit("barrier.cluster.arrive;\nbarrier.cluster.wait;")

# Control flow.
c = Case("branches", "i32 i32:0..5", "b32")
c.emit("mov.b32 {d}, 0;\nsetp.lt.s32 %p0, {a}, 0;")
c.result("@%p0 bra NEGATIVE;\nmov.b32 {d}, 1;\nbra.uni END1;\nNEGATIVE:\nmov.b32 {d}, 2;\nEND1:")
c.result("mov.b32 {d}, 0;\nmov.b32 %t0, {b};\nLOOP:\nsetp.eq.u32 %p1, %t0, 0;\n@%p1 bra END2;\nadd.u32 {d}, {d}, {a};\n"
         "sub.u32 %t0, %t0, 1;\nbra LOOP;\nEND2:")
c.result("table: .branchtargets T0, T1, T2, T3, T4, T5;\nbrx.idx {b}, table;\nT0:\nmov.b32 {d}, 10;\nbra END3;\nT1:\n"
         "mov.b32 {d}, 11;\nbra END3;\nT2:\nT3:\nadd.u32 {d}, {a}, 12;\nbra END3;\nT4:\nmov.b32 {d}, 14;\nT5:\n"
         "add.u32 {d}, {d}, 15;\nEND3:")
c.result("setp.eq.u32 %p1, {b}, 5;\n@!%p1 mov.b32 {d}, 3;\n@%p1 mov.b32 {d}, 4;")
c = Case("calls", "i32 i32:0..2", "b32")
c.module.append("""\
.func (.param .b32 r) twice(.param .b32 x)
{
    .reg .b32 %a;
    ld.param.b32 %a, [x];
    add.u32 %a, %a, %a;
    st.param.b32 [r], %a;
    ret;
}
.func (.param .b32 r) square(.param .b32 x)
{
    .reg .b32 %a;
    ld.param.b32 %a, [x];
    mul.lo.u32 %a, %a, %a;
    st.param.b32 [r], %a;
    ret;
}
.func (.param .b32 r) down(.param .b32 x)
{
    .reg .b32 %a, %b;
    .reg .pred %p;
    .param .b32 give, take;
    ld.param.b32 %a, [x];
    setp.eq.u32 %p, %a, 0;
    @%p bra ZERO;
    sub.u32 %b, %a, 1;
    st.param.b32 [give], %b;
    call (take), down, (give);
    ld.param.b32 %b, [take];
    add.u32 %a, %a, %b;
ZERO:
    st.param.b32 [r], %a;
    ret;
}
.func (.param .align 8 .b8 r[16]) swap(.param .align 8 .b8 x[16])
{
    .reg .b64 %a, %b;
    ld.param.b64 %a, [x];
    ld.param.b64 %b, [x+8];
    st.param.b64 [r], %b;
    st.param.b64 [r+8], %a;
    ret;
}
.global .align 8 .u64 functions[3] = {twice, square, down};""")
c.declare(".param .b32 give;\n    .param .b32 take;\n    .param .align 8 .b8 wide[16];\n    .param .align 8 .b8 back[16];")
c.result("st.param.b32 [give], {a};\ncall (take), twice, (give);\nld.param.b32 {d}, [take];")
c.result("mul.lo.u32 %x, {b}, 7;\nst.param.b32 [give], %x;\ncall (take), down, (give);\nld.param.b32 {d}, [take];")
c.result("mul.wide.u32 %q0, {b}, 8;\nmov.u64 %q1, functions;\nadd.u64 %q1, %q1, %q0;\nld.global.u64 %q2, [%q1];\n"
         "and.b32 %x, {a}, 15;\nst.param.b32 [give], %x;\n"
         "proto: .callprototype (.param .b32 _) _ (.param .b32 _);\ncall (take), %q2, (give), proto;\n"
         "ld.param.b32 {d}, [take];")
c.result("mov.b64 %q0, {{{a}, {b}}};\nmov.b64 %q1, {{{b}, {a}}};\nst.param.b64 [wide], %q0;\nst.param.b64 [wide+8], %q1;\n"
         "call (back), swap, (wide);\nld.param.b32 {d}, [back+4];\nld.param.b32 %t0, [back+8];", "%d", "%t0")
