"""proto/guest_calls.h (typed wrappers of every operation) and guest_auto.c (automatic entry points)."""

from emit_exports import impl_params
from writer import header, source


def emit_calls(model):
    parts = []
    for op in model.ops.values():
        if op.notify:
            continue
        n = op.name
        parts.append(f"""/** {op.doc} */
static inline CUresult weir_call_{n}(struct weir_channel *c, const struct weir_op_{n}_in *in,
                                     struct weir_op_{n}_out *out)
{{
    return weir_channel_call(c, WEIR_OP_{n}, in, out);
}}""")
        if op.posted:
            parts.append(f"""static inline CUresult weir_post_{n}(struct weir_channel *c, const struct weir_op_{n}_in *in)
{{
    return weir_channel_post(c, WEIR_OP_{n}, in);
}}""")
    bodies = "\n\n".join(parts)
    return header(f"""/* One typed function per operation over the channel: call waits for the reply, post does not. */
#include "proto/ops.h"

struct weir_channel;

/**
 * Send an operation and wait for its reply.
 *
 * @param channel  internally locked.
 * @param in       the operation's in struct; NULL when it has no fields.
 * @param out      the operation's out struct, written when the host answered with a well-formed body;
 *                 its pointers are valid until the calling thread's next call. NULL when it has no fields.
 * @return the host's CUresult, or the session's error.
 * @thread any
 */
CUresult weir_channel_call(struct weir_channel *channel, enum weir_op op, const void *in, void *out);

/**
 * Send an operation without a reply; an error that the host meets surfaces at a later call.
 *
 * @return CUDA_SUCCESS, or the session's error.
 * @thread any
 */
CUresult weir_channel_post(struct weir_channel *channel, enum weir_op op, const void *in);

{bodies}""")


def fail_if(condition, code="CUDA_ERROR_INVALID_VALUE"):
    return [f"    if ({condition}) {{", f"        return {code};", "    }"]


def checked(call):
    return [f"    result = {call};", "    if (result != CUDA_SUCCESS) {", "        return result;", "    }"]


def kind(arg):
    return f"WEIR_KIND_{arg.kind.upper()}"


def emit_checks(args):
    lines = []
    for a in args:
        n = a.name
        if a.role in ("out_value", "out_handle", "count", "new", "in_value", "in_string"):
            if not a.optional:
                lines += fail_if(f"!{n}")
        elif a.role in ("in_array", "in_bytes"):
            null = "" if a.optional else f" || ({a.length} && !{n})"
            lines += fail_if(f"{a.length} > {a.max}{null}")
    return lines


def emit_fill(args):
    lines = []
    for a in args:
        n = a.name
        if a.role in ("scalar", "dptr"):
            lines.append(f"    in.{n} = {n};" if a.wire != "u32" else f"    in.{n} = (uint32_t){n};")
        elif a.role == "device":
            lines += checked(f"weir_guest_device({n}, &in.{n})")
        elif a.role == "handle":
            lines += checked(f"weir_guest_use({kind(a)}, (const void *){n}, &in.{n})")
        elif a.role == "in_value":
            lines.append(f"    in.{n} = *{n};")
        elif a.role in ("in_array", "in_bytes"):
            cast = "(const uint64_t *)" if a.kind else ""
            lines += [f"    in.{n} = {cast}{n};",
                      f"    in.n_{n} = {f'{n} ? ' if a.optional else ''}(uint32_t){a.length}"
                      f"{' : 0' if a.optional else ''};"]
        elif a.role == "in_string":
            lines.append(f"    in.{n} = {n};")
        elif a.role == "count":
            most = next(b.max for b in args if b.role == "out_array" and b.length == n)
            lines.append(f"    in.{n} = *{n} < {most} ? *{n} : {most};")
        if a.want:
            lines.append(f"    in.want |= {n} ? {a.want}u : 0;")
    for a in args:
        if a.role == "new":
            lines += checked(f"weir_guest_reserve({kind(a)}, &in.{a.name})")
    return lines


def emit_array_result(a):
    """Copy what came into the program's array; handles that are fewer than the room leave NULLs."""
    n, length = a.name, a.length
    lines = [f"    if ({n}) {{", f"        size_t n = out.n_{n} < in.{length} ? out.n_{n} : in.{length};", "        if (n) {",
             f"            memcpy({n}, out.{n}, n * sizeof(*{n}));", "        }"]
    if a.kind:
        lines += [f"        memset({n} + n, 0, (*{length} - n) * sizeof(*{n}));",
                  f"        result = weir_guest_adopt({kind(a)}, (uint64_t *){n}, (uint32_t)n);",
                  "        if (result != CUDA_SUCCESS) {", "            return result;", "        }"]
    return lines + ["    }"]


def emit_results(args):
    lines = []
    for a in args:
        n = a.name
        guard = f"    if ({n}) {{" if a.optional and a.role.startswith("out_") else None
        if a.role == "out_array":
            lines += emit_array_result(a)
        elif a.role == "out_value":
            body = f"*{n} = ({a.ctype})out.{n};" if a.wire in ("u32", "u64", "i32") else f"*{n} = out.{n};"
            lines += [guard, f"        {body}", "    }"] if guard else [f"    {body}"]
        elif a.role == "out_handle":
            lines += checked(f"weir_guest_adopt({kind(a)}, &out.{n}, 1)")
            body = f"*{n} = ({a.ctype})(uintptr_t)out.{n};"
            lines += [guard, f"        {body}", "    }"] if guard else [f"    {body}"]
        elif a.role == "new":
            lines.append(f"    *{n} = ({a.ctype})(uintptr_t)in.{n};")
        elif a.drop:
            lines.append(f"    weir_guest_drop({kind(a)}, in.{n});")
    # The counts last: the arrays were copied by the counts that were asked for.
    return lines + [f"    *{a.name} = out.{a.name};" for a in args if a.role == "count"]


def emit_auto(entry, op):
    args = op.args
    failed = [f"        weir_guest_drop({kind(a)}, in.{a.name});" for a in args if a.role == "new"]
    lines = [f"CUresult weir_guest_{entry.name}({impl_params(entry)})", "{",
             *emit_checks(args),
             f"    struct weir_op_{op.name}_in in = {{0}};",
             f"    struct weir_op_{op.name}_out out = {{0}};"]
    fill = emit_fill(args)
    if any("result = " in line for line in fill):
        lines += ["    CUresult result;", *fill, "    result ="]
    else:
        lines += [*fill, "    CUresult result ="]
    lines[-1] += f" weir_call_{op.name}(weir_guest_channel(), &in, &out);"
    lines += ["    if (result != CUDA_SUCCESS) {", *failed, "        return result;", "    }",
              *emit_results(args), "    return CUDA_SUCCESS;", "}"]
    return "\n".join(lines)


def emit(model):
    bodies = "\n\n".join(emit_auto(op.entry, op) for op in model.ops.values()
                         if op.entry and op.entry.guest == "auto")
    auto = source(f"""#include "proto/guest_calls.h"
#include "proto/guest_hand.h"
#include "proto/wire/guest_api.h"

#include <string.h>

{bodies}""")
    return {"proto/guest_calls.h": emit_calls(model), "proto/guest_auto.c": auto}
