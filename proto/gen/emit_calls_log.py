"""proto/calls_log_table.h and .c: how WEIR_TRACE prints the arguments of every exported symbol."""

import re

from writer import header, source

INTEGERS = {
    "char": "I8", "unsigned char": "U8", "unsigned short": "U16", "int": "I32", "unsigned": "U32",
    "unsigned int": "U32", "long long": "I64", "unsigned long long": "U64", "size_t": "U64",
    "float": "F32", "double": "F64", "uint8_t": "U8", "uint16_t": "U16", "uint32_t": "U32",
    "uint64_t": "U64", "int32_t": "I32", "int64_t": "I64",
}
ADDRESSES = ("CUdeviceptr", "CUdeviceptr_v1", "CUdeviceptr_v2")
# Pointers that are not const and yet are only read, or are arrays whose length another argument has.
NOT_OUT = {"kernelParams", "extra", "optionValues", "data", "dataSizes", "sizes", "attrsIdxs", "srcSizes",
           "attributes", "options", "jitOptions", "jitOptionsValues", "libraryOptions", "libraryOptionValues",
           "numOptions", "dptrs", "values", "elemSize", "sizes_bytes"}
# Arrays of structs, or too long to be of use: only their address is printed.
ADDRESS_ONLY = {"CUgraphEdgeData", "CUmemAccessDesc", "CUtensorMap", "CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS",
                "CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS", "CUDA_MEMCPY3D_BATCH_OP", "CUmemcpyAttributes",
                "CUarrayMapInfo", "CUstreamBatchMemOpParams", "CUDA_LAUNCH_PARAMS", "CUdevResource",
                "CUasyncNotificationInfo", "CUmemDecompressParams", "CUlogIterator"}


def resolve(model, name):
    """The type behind an alias, as (name, Type or None)."""
    while name in model.types and model.types[name].form == "alias":
        name = model.types[name].value.strip()
    return name, model.types.get(name)


def scalar_form(model, ctype):
    """(form, enum or struct type) of a value, or None for what is not one value."""
    if ctype in ADDRESSES:
        return "HEX", None
    if ctype.endswith("*"):
        return "HEX", None
    name, found = resolve(model, ctype)
    if found is None:
        return (INTEGERS[name], None) if name in INTEGERS else None
    if found.form in ("handle", "callback"):
        return "HEX", None
    if found.form == "enum":
        return "ENUM", name
    if found.form == "struct" and ctype not in ADDRESS_ONLY and name not in ADDRESS_ONLY:
        return "STRUCT", name
    return None


def is_one_out(param, pointee):
    if param.name in NOT_OUT or re.search(r"(Out|_out)?(List|Array|Params)$", param.name):
        return False
    plural = re.search(r"(?<!u)s(Out|_out)?$", param.name) and not re.match(
        r"(p_?)?(num|count|flags?|.*[fF]lags|.*Bytes|.*Blocks|bytes)", param.name)
    return not plural or pointee in ("size_t", "int", "unsigned int")


def describe(model, param):
    """(form, table, how) of a parameter; how: VALUE, OUT (one value behind it), IN (a struct)."""
    ctype = param.type
    if param.dims:
        return "HEX", None, "VALUE"
    if ctype == "const char *":
        return "STRING", None, "VALUE"
    if ctype == "const char **":
        return "STRING", None, "OUT"
    if ctype == "char *":
        return ("HEX", None, "VALUE") if param.name == "luid" else ("STRING", None, "TEXT_OUT")
    if ctype.endswith("*"):
        const = ctype.startswith("const ")
        pointee = ctype.removeprefix("const ")[:-1].strip()
        form = scalar_form(model, pointee) if pointee != "void" else None
        if form is None or pointee in ADDRESS_ONLY or param.name in NOT_OUT:
            return "HEX", None, "VALUE"
        if form[0] == "STRUCT":
            return ("STRUCT", form[1], "IN" if const else "OUT")
        if (const and not pointee.endswith("*")) or not is_one_out(param, pointee):
            return "HEX", None, "VALUE"
        if re.search(r"[fF]lags$", param.name) and form[0] in ("U32", "I32"):
            return "HEX32", None, "OUT"
        return form[0], form[1], "OUT"
    form = scalar_form(model, ctype)
    if form is None:
        return "OPAQUE", None, "STRUCT"
    if form[0] == "STRUCT":
        return "STRUCT", form[1], "STRUCT"
    if form[0] == "U32" and re.search(r"[fF]lags$", param.name):
        return "HEX", None, "VALUE"
    return form[0], form[1], "VALUE"


def as_word(model, param):
    """The C expression that makes a 64-bit word of an argument."""
    form, _, how = describe(model, param)
    if how == "STRUCT":
        return f"(uint64_t)(uintptr_t)&{param.name}"
    if form == "F32" and how == "VALUE":
        return f"weir_calls_log_float({param.name})"
    _, found = resolve(model, param.type)
    pointer = param.type.endswith("*") or param.dims or (found and found.form in ("handle", "callback"))
    return f"(uint64_t)(uintptr_t){param.name}" if pointer else f"(uint64_t){param.name}"


def struct_fields(model, name):
    """The fields that can be printed: (C type, name, form, table). What lies in a union is left out."""
    depth, fields = 0, []
    for text in model.types[name].value:
        depth += text.count("{") - text.count("}")
        match = re.fullmatch(r"((?:const |unsigned |struct )*[\w ]+?[ *]+)(\w+)", text.strip())
        if depth or not match or match[2].startswith("reserved"):
            continue
        ctype = re.sub(r"\s+", " ", match[1].strip())
        form = scalar_form(model, ctype)
        if form:
            fields.append((match[2], *form))
    return fields


class Tables:
    """Enums and structs that were asked for, numbered."""

    def __init__(self, model):
        self.model, self.enums, self.structs = model, [], []

    def number(self, form, name):
        rows = {"ENUM": self.enums, "STRUCT": self.structs}.get(form)
        if rows is None:
            return 0
        if name not in rows:
            rows.append(name)
        return rows.index(name)


def emit_enums(model, tables):
    names, index = [], []
    for name in tables.enums:
        value = model.types[name].value
        keys = list(model.errors) if value == "errors" else list(value)
        index.append(f"    {{{len(names)}, {len(keys)}}},")
        names += [f'    {{(int64_t){key}, "{key}"}},' for key in keys]
    return names, index


def emit_structs(model, tables):
    """Fields may name further structs, so the list grows while it is walked."""
    rows, index, at = [], [], 0
    while at < len(tables.structs):
        name = tables.structs[at]
        fields = struct_fields(model, name)
        index.append(f"    {{{len(rows)}, {len(fields)}}},")
        for field, form, table in fields:
            rows.append(f'    {{"{field}", WEIR_CALLS_LOG_{form}, WEIR_CALLS_LOG_BY_VALUE, '
                        f"{tables.number(form, table)}, (uint16_t)offsetof({name}, {field})}},")
        at += 1
    return rows, index


def emit(model):
    tables = Tables(model)
    args, symbols = [], []
    for entry in model.entries.values():
        described = [(p, *describe(model, p)) for p in entry.params]
        for symbol in entry.symbols:
            symbols.append(f'    {{"{symbol}", {len(args)}, {len(described)}}},')
        args += [f'    {{"{p.name}", WEIR_CALLS_LOG_{form}, WEIR_CALLS_LOG_BY_{how}, {tables.number(form, table)}, 0}},'
                 for p, form, table, how in described]
    structs, struct_index = emit_structs(model, tables)
    enums, enum_index = emit_enums(model, tables)

    def array(kind, name, rows):
        body = "\n".join(rows)
        return f"const struct {kind} {name}[] = {{\n{body}\n}};"

    head = header("""/* What every exported symbol takes, for those who print calls. Indexed by enum weir_symbol. */
#include <stddef.h>
#include <stdint.h>

/* How one value is printed. */
enum weir_calls_log_form {
    WEIR_CALLS_LOG_I8, WEIR_CALLS_LOG_U8, WEIR_CALLS_LOG_U16, WEIR_CALLS_LOG_I32, WEIR_CALLS_LOG_U32, WEIR_CALLS_LOG_I64,
    WEIR_CALLS_LOG_U64, WEIR_CALLS_LOG_F32, WEIR_CALLS_LOG_F64, WEIR_CALLS_LOG_HEX, WEIR_CALLS_LOG_HEX32,
    WEIR_CALLS_LOG_ENUM, WEIR_CALLS_LOG_STRUCT, WEIR_CALLS_LOG_STRING, WEIR_CALLS_LOG_OPAQUE,
};

/* Where it is: in the argument's word; behind it, written by the call; a struct behind it, read by
 * the call; a struct given by value, whose address the word is; text that the call writes. */
enum weir_calls_log_by {
    WEIR_CALLS_LOG_BY_VALUE, WEIR_CALLS_LOG_BY_OUT, WEIR_CALLS_LOG_BY_IN, WEIR_CALLS_LOG_BY_STRUCT,
    WEIR_CALLS_LOG_BY_TEXT_OUT,
};

/* An argument, or a field of a struct (then at offset). table: of an enum or a struct. */
struct weir_calls_log_item {
    const char *name;
    uint8_t form;
    uint8_t by;
    uint16_t table;
    uint16_t offset;
};

struct weir_calls_log_symbol {
    const char *name;
    uint16_t first;
    uint16_t n_args;
};

struct weir_calls_log_range {
    uint16_t first;
    uint16_t count;
};

struct weir_calls_log_name {
    int64_t value;
    const char *name;
};

extern const struct weir_calls_log_symbol weir_calls_log_symbols[];
extern const struct weir_calls_log_item weir_calls_log_args[];
extern const struct weir_calls_log_item weir_calls_log_fields[];
extern const struct weir_calls_log_range weir_calls_log_structs[];
extern const struct weir_calls_log_range weir_calls_log_enums[];
extern const struct weir_calls_log_name weir_calls_log_names[];""")
    body = source("\n\n".join([
        '#include "proto/calls_log_table.h"\n#include "proto/cuda_abi.h"',
        array("weir_calls_log_symbol", "weir_calls_log_symbols", symbols),
        array("weir_calls_log_item", "weir_calls_log_args", args),
        array("weir_calls_log_item", "weir_calls_log_fields", structs),
        array("weir_calls_log_range", "weir_calls_log_structs", struct_index),
        array("weir_calls_log_range", "weir_calls_log_enums", enum_index),
        array("weir_calls_log_name", "weir_calls_log_names", enums)]))
    return {"proto/calls_log_table.h": head, "proto/calls_log_table.c": body}
