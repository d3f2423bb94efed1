"""proto/host_dispatch.h and .c, host_hand.h, and host_auto.c: operations at the worker."""

from emit_guest import kind
from emit_words import wrap
from writer import header, source


def served(model):
    return [op for op in model.ops.values() if not op.notify]


def signature(op):
    """A handler gets the structs that have fields."""
    params = ["struct weir_session *s"]
    params += [f"const struct weir_op_{op.name}_in *in"] * bool(op.ins)
    params += [f"struct weir_op_{op.name}_out *out"] * bool(op.outs)
    return wrap(f"CUresult weir_host_{op.name}(", params, ")")


def emit_hand(model):
    lines = "\n".join("\n".join(signature(op)) + ";" for op in served(model))
    return header(f"""/*
 * The worker's half of each operation: by hand in host_backend, or host_auto.c.
 *
 * in is decoded and checked for form only, and borrowed for the call. out arrives zeroed; its pointers
 * must stay valid until the reply is sent (weir_session_alloc()), and it is sent also on failure. A
 * struct without fields is not passed.
 */
#include "proto/ops.h"

struct weir_session;

{lines}""")


def emit_dispatch(model):
    def call(op):
        unused = "".join(f"    (void){name};\n" for name, fields in (("in", op.ins), ("out", op.outs)) if not fields)
        passed = ", ".join(["s", *["in"] * bool(op.ins), *["out"] * bool(op.outs)])
        return (f"static CUresult call_{op.name}(struct weir_session *s, const void *in, void *out)\n"
                f"{{\n{unused}    return weir_host_{op.name}({passed});\n}}")

    calls = "\n\n".join(call(op) for op in served(model))
    rows = "\n".join(f"    [WEIR_OP_{op.name}] = call_{op.name}," for op in served(model))
    head = header("""/* From the number of an operation to its handler. */
#include "proto/ops.h"

struct weir_session;

typedef CUresult (*weir_host_fn)(struct weir_session *s, const void *in, void *out);

/* NULL for notifications, which a guest must not send. */
extern const weir_host_fn weir_host_table[WEIR_OP_COUNT];""")
    body = source(f"""#include "proto/host_dispatch.h"
#include "proto/host_hand.h"

{calls}

const weir_host_fn weir_host_table[WEIR_OP_COUNT] = {{
{rows}
}};""")
    return head, body


def checked(call):
    return [f"    result = {call};", "    if (result != CUDA_SUCCESS) {", "        return result;", "    }"]


def allocated(name, ctype, count):
    return [f"    if ({count}) {{",
            f"        {name} = weir_session_alloc(s, {count} * sizeof({ctype}));",
            f"        if (!{name}) {{", "            return CUDA_ERROR_OUT_OF_MEMORY;", "        }",
            "    }"]


def emit_in_array(a, args):
    """Counts of arrays that share a length must agree; handles are translated into a new array."""
    n = a.name
    lines = []
    first = next(b for b in args if b.role in ("in_array", "in_bytes") and b.length == a.length)
    if first is not a:
        empty = f"in->n_{n} && " if a.optional else ""
        lines += [f"    if ({empty}in->n_{n} != in->n_{first.name}) {{",
                  "        return CUDA_ERROR_INVALID_VALUE;", "    }"]
    if not a.kind:
        return lines
    lines.append(f"    {a.ctype} *{n} = NULL;")
    lines += allocated(n, a.ctype, f"in->n_{n}")
    return lines + [f"    for (uint32_t i = 0; i < in->n_{n}; i++) {{",
                    f"        result = weir_session_use(s, {kind(a)}, in->{n}[i], (void **)&{n}[i]);",
                    "        if (result != CUDA_SUCCESS) {", "            return result;", "        }",
                    "    }"]


def emit_prepare(args):
    """Locals for everything that is not passed as it came."""
    lines = []
    for a in args:  # counts bound the allocations below
        if a.role == "count":
            most = next(b.max for b in args if b.role == "out_array" and b.length == a.name)
            lines += [f"    if (in->{a.name} > {most}) {{", "        return CUDA_ERROR_INVALID_VALUE;",
                      "    }", f"    {a.ctype} {a.name} = in->{a.name};"]
    for a in args:
        n = a.name
        if a.role == "handle":
            lines.append(f"    {a.ctype} {n};")
            if a.kind == "stream":
                lines += checked(f"weir_session_stream_begin(s, in->{n}, &{n})")
            else:
                lines += checked(f"weir_session_use(s, {kind(a)}, in->{n}, (void **)&{n})")
        elif a.role == "device":
            lines += [f"    CUdevice {n};", *checked(f"weir_session_device(s, in->{n}, &{n})")]
        elif a.role == "dptr":
            lines += checked(f"weir_session_check_dptr(s, in->{n}, 1)")
        elif a.role == "in_array":
            lines += emit_in_array(a, args)
        elif a.role == "new":
            lines += [*checked(f"weir_session_free_name(s, {kind(a)}, in->{n})"),
                      f"    {a.ctype} {n} = NULL;"]
        elif a.role == "out_handle":
            lines.append(f"    {a.ctype} {n} = NULL;")
        elif a.role == "out_value":
            lines.append(f"    {a.ctype} {n} = {{0}};" if a.wire not in SIMPLE else f"    {a.ctype} {n} = 0;")
        elif a.role == "out_array":
            lines.append(f"    {a.ctype} *{n} = NULL;")
            wanted = f"in->want & {a.want} && in->{a.length}" if a.want else f"in->{a.length}"
            block = allocated(n, a.ctype, f"in->{a.length}")
            lines += [f"    if ({wanted}) {{", *block[1:]]
    return lines


SIMPLE = ("u8", "u16", "u32", "u64", "i32", "i64", "f32", "f64")


def pass_arg(a, args):
    n = a.name
    if a.role == "scalar":
        return f"({a.ctype})in->{n}"
    if a.role == "dptr":
        return f"in->{n}"
    if a.role == "in_value":
        return f"&in->{n}"
    if a.role == "in_array" and not a.kind or a.role in ("in_string", "in_bytes"):
        return f"in->{n}"
    if a.role == "length":
        first = next(b for b in args if b.length == n and b.role in ("in_array", "in_bytes"))
        return f"in->n_{first.name}"
    if a.role in ("new", "out_handle", "out_value", "count"):
        return f"&{n}"
    return n


def emit_out_array(a):
    n = a.name
    lines = [f"    if ({n}) {{",
             f"        uint32_t n = (uint32_t)({a.length} < in->{a.length} ? {a.length} : in->{a.length});"]
    if a.kind:
        lines += ["        uint64_t *names = weir_session_alloc(s, (n ? n : 1) * sizeof(*names));",
                  "        if (!names) {", "            return CUDA_ERROR_OUT_OF_MEMORY;", "        }",
                  "        for (uint32_t i = 0; i < n; i++) {",
                  f"            result = weir_session_name(s, {kind(a)}, {n}[i], &names[i]);",
                  "            if (result != CUDA_SUCCESS) {", "                return result;",
                  "            }", "        }", f"        out->{n} = names;"]
    else:
        lines.append(f"        out->{n} = {n};")
    return lines + [f"        out->n_{n} = n;", "    }"]


def emit_finish(args):
    lines = []
    for a in args:
        n = a.name
        if a.role == "new":
            lines += checked(f"weir_session_put(s, {kind(a)}, in->{n}, {n})")
        elif a.role == "out_handle":
            lines += checked(f"weir_session_name(s, {kind(a)}, {n}, &out->{n})")
        elif a.role == "out_value":
            cast = "(uint32_t)" if a.wire == "u32" else ""
            lines.append(f"    out->{n} = {cast}{n};")
        elif a.role == "out_array":
            lines += emit_out_array(a)
        elif a.role == "count":
            lines.append(f"    out->{n} = {n};")
        elif a.drop:
            lines.append(f"    weir_session_drop(s, {kind(a)}, in->{n});")
    return lines


def emit_auto(op):
    args = op.args
    call = ", ".join(pass_arg(a, args) for a in args)
    lines = [*signature(op), "{"]
    destroyed = next((a for a in args if a.destroy), None)
    if destroyed:
        lines += [f"    return weir_session_remove(s, {kind(destroyed)}, in->{destroyed.name});", "}"]
        return "\n".join(lines)
    lines += ["    CUresult result;", *emit_prepare(args),
              f"    result = weir_session_driver(s)->{op.name}({call});",
              "    if (result != CUDA_SUCCESS) {", "        return result;", "    }",
              *emit_finish(args), "    return CUDA_SUCCESS;", "}"]
    return "\n".join(lines)


def emit(model):
    head, body = emit_dispatch(model)
    autos = [op for op in model.ops.values() if op.entry and op.entry.host == "auto"]
    auto = source("\n\n".join(
        ['#include "proto/host_hand.h"\n#include "proto/wire/session_api.h"\n\n#include <stddef.h>']
        + [emit_auto(op) for op in autos]))
    return {"proto/host_hand.h": emit_hand(model), "proto/host_dispatch.h": head,
            "proto/host_dispatch.c": body, "proto/host_auto.c": auto}
