"""proto/ops.h and ops.c: the operations' structs and their flat codec."""

from layout import round_up, size_align
from writer import c_string, header, source

COUNTED = ("array", "bytes", "str")


def member(f):
    """The field in the struct that callers fill."""
    if f.shape == "scalar":
        return f"    {f.ctype} {f.name};"
    if f.shape == "fixed":
        return f"    {f.ctype} {f.name}[{f.count}];"
    if f.shape == "str":
        return f"    const char *{f.name};"
    pointer = "const void *" if f.shape == "bytes" else f"const {f.ctype} *"
    return f"    {pointer}{f.name};\n    uint32_t n_{f.name};"


def emit_struct(op, way, fields):
    members = "\n".join(member(f) for f in fields) or "    uint8_t none;"
    return f"struct weir_op_{op.name}_{way} {{\n{members}\n}};"


def wire_members(model, fields):
    """Members of the fixed part at natural alignment, padding spelt out; and its size."""
    lines, offset, pads = [], 0, 0

    def pad_to(alignment):
        nonlocal offset, pads
        gap = round_up(offset, alignment) - offset
        if gap:
            lines.append(f"    uint8_t pad{pads}[{gap}];")
            pads += 1
            offset += gap

    for f in fields:
        counted = f.shape in COUNTED
        size, alignment = (4, 4) if counted else size_align(model.types, f.ctype)
        pad_to(alignment)
        if counted:
            lines.append(f"    uint32_t n_{f.name};")
        else:
            lines.append(f"    {f.ctype} {f.name}{f'[{f.count}]' if f.count else ''};")
            size *= f.count or 1
        offset += size
    pad_to(8)
    return lines, offset, pads


def emit_bytes(name, fields):
    lines = [f"static size_t {name}_bytes(const void *message)", "{"]
    counted = [f for f in fields if f.shape in COUNTED]
    if not counted:
        size = f"sizeof(struct wire_{name})" if fields else "0"
        return "\n".join(lines + ["    (void)message;", f"    return {size};", "}"])
    lines += [f"    const struct weir_op_{name} *m = message;",
              f"    size_t bytes = sizeof(struct wire_{name});"]
    for f in counted:
        if f.shape == "str":
            lines.append(f"    bytes = weir_codec_add_string(bytes, m->{f.name}, {f.max});")
        else:
            elem = "1" if f.shape == "bytes" else f"sizeof({f.ctype})"
            lines.append(
                f"    bytes = weir_codec_add(bytes, m->{f.name}, m->n_{f.name}, {f.max}, {elem});")
    return "\n".join(lines + ["    return bytes;", "}"])


def emit_encode(name, fields, pads):
    lines = [f"static void {name}_encode(const void *message, void *body)", "{"]
    if not fields:
        return "\n".join(lines + ["    (void)message;", "    (void)body;", "}"])
    lines += [f"    const struct weir_op_{name} *m = message;", f"    struct wire_{name} *w = body;"]
    for f in fields:
        if f.shape == "scalar":
            lines.append(f"    w->{f.name} = m->{f.name};")
        elif f.shape == "fixed":
            lines.append(f"    memcpy(w->{f.name}, m->{f.name}, sizeof(w->{f.name}));")
        elif f.shape == "str":
            lines.append(f"    w->n_{f.name} = weir_codec_string_bytes(m->{f.name});")
        else:
            lines.append(f"    w->n_{f.name} = m->n_{f.name};")
    lines += [f"    memset(w->pad{i}, 0, sizeof(w->pad{i}));" for i in range(pads)]
    counted = [f for f in fields if f.shape in COUNTED]
    if counted:
        lines.append("    uint8_t *at = (uint8_t *)body + sizeof(*w);")
    for i, f in enumerate(counted):
        value = f"m->{f.name} ? m->{f.name} : \"\"" if f.shape == "str" else f"m->{f.name}"
        elem = f" * sizeof({f.ctype})" if f.shape == "array" else ""
        call = f"weir_codec_put(at, {value}, (size_t)w->n_{f.name}{elem});"
        lines.append(f"    {'at = ' if i + 1 < len(counted) else '(void)'}{call}")
    return "\n".join(lines + ["}"])


def emit_decode(name, fields):
    lines = [f"static bool {name}_decode(const void *body, size_t bytes, void *message)", "{"]
    if not fields:
        return "\n".join(lines + ["    (void)body;", "    (void)message;", "    return bytes == 0;", "}"])
    lines += [f"    const struct wire_{name} *w = body;", f"    struct weir_op_{name} *m = message;",
              "    if (bytes < sizeof(*w)) {", "        return false;", "    }"]
    for f in fields:
        if f.shape == "scalar":
            lines.append(f"    m->{f.name} = w->{f.name};")
        elif f.shape == "fixed":
            lines.append(f"    memcpy(m->{f.name}, w->{f.name}, sizeof(m->{f.name}));")
    counted = [f for f in fields if f.shape in COUNTED]
    if not counted:
        return "\n".join(lines + ["    return bytes == sizeof(*w);", "}"])
    lines.append("    struct weir_codec_reader r = {(const uint8_t *)body + sizeof(*w), "
                 "bytes - sizeof(*w), false};")
    for f in counted:
        if f.shape == "str":
            lines.append(f"    m->{f.name} = weir_codec_take_string(&r, w->n_{f.name}, {f.max});")
            continue
        elem = "1" if f.shape == "bytes" else f"sizeof({f.ctype})"
        lines += [f"    m->{f.name} = weir_codec_take(&r, w->n_{f.name}, {f.max}, {elem});",
                  f"    m->n_{f.name} = w->n_{f.name};"]
    return "\n".join(lines + ["    return !r.bad && r.left == 0;", "}"])


def emit_field_table(op, way, fields):
    rows = []
    for f in fields:
        struct = f"struct weir_op_{op.name}_{way}"
        elem = "1" if f.shape in ("bytes", "str") else f"sizeof({f.ctype})"
        count_at = f"offsetof({struct}, n_{f.name})" if f.shape in ("array", "bytes") else "0"
        kind = f"WEIR_KIND_{f.kind.upper()}" if f.kind else "0"
        rows.append(f'    {{"{f.name}", WEIR_FIELD_{f.shape.upper()}, offsetof({struct}, {f.name}), '
                    f"{elem}, {max(f.count, 1)}, {f.max}, {count_at}, {kind}}},")
    if not rows:
        return ""
    body = "\n".join(rows)
    return f"static const struct weir_op_field {op.name}_{way}_fields[] = {{\n{body}\n}};"


def emit_message(model, op, way, fields):
    name = f"{op.name}_{way}"
    parts = []
    pads = 0
    if fields:
        members, size, pads = wire_members(model, fields)
        body = "\n".join(members)
        parts.append(f"struct __attribute__((may_alias)) wire_{name} {{\n{body}\n}};\n"
                     f'_Static_assert(sizeof(struct wire_{name}) == {size}, "layout on the wire");')
    parts += [emit_bytes(name, fields), emit_encode(name, fields, pads), emit_decode(name, fields)]
    table = emit_field_table(op, way, fields)
    return "\n\n".join(parts + ([table] if table else []))


def emit_row(op):
    flags = " | ".join(["WEIR_OP_POSTED"] * op.posted + ["WEIR_OP_NOTIFY"] * op.notify) or "0"

    def half(way, fields):
        name = f"{op.name}_{way}"
        table = f"{name}_fields" if fields else "NULL"
        return (f"        .{way}_struct_bytes = sizeof(struct weir_op_{name}),\n"
                f"        .n_{way}_fields = {len(fields)},\n"
                f"        .{way}_bytes = {name}_bytes,\n        .{way}_encode = {name}_encode,\n"
                f"        .{way}_decode = {name}_decode,\n        .{way}_fields = {table},")

    verb, fields, why = op.book
    book = "" if verb == "LEAVES_NOTHING" else f"        .book = WEIR_OP_{verb},\n"
    if fields:
        mask = sum(1 << [f.name for f in op.ins].index(field) for field in fields)
        book += f"        .book_fields = {mask:#x},\n"
        book += f"        .why = {c_string(why)},\n" if why else ""
    return (f"    [WEIR_OP_{op.name}] = {{\n        .name = {c_string(op.name)},\n"
            f"        .flags = {flags},\n{book}{half('in', op.ins)}\n{half('out', op.outs)}\n    }},")


def emit_header(model):
    ids = "\n".join(f"    WEIR_OP_{op.name} = {op.id}," for op in model.ops.values())
    structs = "\n\n".join(
        f"/* {op.doc} */\n{emit_struct(op, 'in', op.ins)}\n{emit_struct(op, 'out', op.outs)}"
        for op in model.ops.values())
    maxima = "\n".join(f"    WEIR_OP_{op.name}_{way}_{f.name}_max = {f.max},"
                       for op in model.ops.values() for way, fields in (("in", op.ins), ("out", op.outs))
                       for f in fields if f.shape == "array")
    any_in = "\n".join(f"    struct weir_op_{n}_in {n};" for n in model.ops)
    any_out = "\n".join(f"    struct weir_op_{n}_out {n};" for n in model.ops)
    return header(f"""/*
 * The operations of the wire and their structs. Ids are those of proto/wire.lock and never change.
 *
 * Pointers in a struct are borrowed: from the caller when encoding, from the record when decoded.
 * Array counts are the n_ fields; a NULL string is sent as "".
 */
#include "proto/cuda_abi.h"
#include "proto/wire/op_info.h"
#include <stdint.h>

enum weir_op {{
{ids}
    WEIR_OP_COUNT
}};

/* The most elements of each array. */
enum {{
{maxima}
}};

{structs}

/* Room for any operation's structs. */
union weir_op_any_in {{
{any_in}
}};
union weir_op_any_out {{
{any_out}
}};

extern const struct weir_op_info weir_ops[WEIR_OP_COUNT];""")


def emit_source(model):
    messages = "\n\n".join(
        emit_message(model, op, "in", op.ins) + "\n\n" + emit_message(model, op, "out", op.outs)
        for op in model.ops.values())
    rows = "\n".join(emit_row(op) for op in model.ops.values())
    return source(f"""#include "proto/ops.h"
#include "proto/wire/codec.h"
#include "proto/wire/kinds.h"

#include <stddef.h>
#include <string.h>

{messages}

const struct weir_op_info weir_ops[WEIR_OP_COUNT] = {{
{rows}
}};""")


def emit(model):
    return {"proto/ops.h": emit_header(model), "proto/ops.c": emit_source(model)}
