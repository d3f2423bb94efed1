"""Operations: those of ops.toml, and those that automatic entry points make from their prototypes."""

import re
from dataclasses import dataclass

from model import HANDLE_KINDS, OP_KEYS, SCALARS, DescriptionError, Op, OpField

RECORD_MAX_BYTES = (2 << 20) - 32  # WEIR_RECORD_MAX_BYTES less the record's header
FIELD = re.compile(r"(\w+) (\w+)(?:\[(\d*)\])?(?: max=(\d+))?")
C_WIRE = {
    "int": "i32", "unsigned int": "u32", "unsigned": "u32", "size_t": "u64", "float": "f32",
    "unsigned long long": "u64", "long long": "i64", "uint32_t": "u32", "uint64_t": "u64",
}


def parse_field(model, path, key, text):
    match = FIELD.fullmatch(text)
    if not match:
        raise DescriptionError(path, key, f"cannot read the field '{text}'")
    type_, name, count, maximum = match[1], match[2], match[3], int(match[4] or 0)
    kind = type_ if type_ in model.kinds else ""
    if type_ in ("bytes", "str"):
        if count is not None or not maximum:
            raise DescriptionError(path, key, f"'{text}' needs max=N and no brackets")
        return OpField(name, "u8", type_, max=maximum)
    if not (type_ in SCALARS or kind or type_ == "dptr" or is_aggregate(model, type_)):
        raise DescriptionError(path, key, f"unknown type '{type_}' in '{text}'")
    if count == "":
        if not maximum:
            raise DescriptionError(path, key, f"'{text}' needs max=N")
        return OpField(name, type_, "array", max=maximum, kind=kind)
    if maximum:
        raise DescriptionError(path, key, f"'{text}' has max= but is no array")
    shape = "fixed" if count else "scalar"
    return OpField(name, type_, shape, count=int(count or 0), kind=kind)


def is_aggregate(model, name):
    found = model.types.get(name)
    if found is None:
        return False
    return is_aggregate(model, found.value) if found.form == "alias" else found.form in ("struct", "union")


def check_fields(model, path, key, fields):
    from layout import size_align

    names = [f.name for f in fields] + [f"n_{f.name}" for f in fields if f.shape in ("array", "bytes")]
    if len(set(names)) != len(names):
        raise DescriptionError(path, key, "a field is named twice")
    total = 0
    for f in fields:
        size, alignment = size_align(model.types, f.ctype)
        if alignment > 8:
            raise DescriptionError(path, key, f"'{f.name}' is aligned to more than 8 bytes")
        total += size * max(f.count, f.max, 1) + 16
    if total > RECORD_MAX_BYTES:
        raise DescriptionError(path, key, f"may take {total} bytes: more than a record has")


BOOK_VERBS = {"make": "MAKES", "set": "SETS", "replace": "REPLACES", "past": "IS_PAST", "captured": "IS_CAPTURED",
              "captures": "CAPTURES", "names": "NAMES", "end": "ENDS", "stays": "STAYS"}


def parse_book(path, key, text, ins):
    """What the book of a session keeps of an operation: (enum weir_op_book, its fields, why it stays)."""
    match = re.fullmatch(r"(none|memory|change|end)|(make|past|captured|captures|names) (\w+)|(set|replace)((?: \w+)+)"
                         r"|stays (\w+): (.+)", text)
    if not match:
        raise DescriptionError(path, key, "book is missing, or none of its words (docs/design/api-description.md)")
    names = (match[3] or match[5] or match[6] or "").split()
    handles = [f.name for f in ins if f.shape == "scalar" and f.kind]
    for name in names:
        if name not in (f.name for f in ins) or (name == names[0] and name not in handles):
            raise DescriptionError(path, key, f"book: '{name}' is no field, or the first one has no handle")
    return BOOK_VERBS.get(match[1] or match[2] or match[4] or "stays", "LEAVES_NOTHING"), names, match[7] or ""


def parse_op(model, path, key, table):
    for name in table:
        if name not in OP_KEYS:
            raise DescriptionError(path, key, f"unknown key '{name}'")
    if not table.get("doc"):
        raise DescriptionError(path, key, "doc is missing")
    ins = [parse_field(model, path, key, text) for text in table.get("in", [])]
    outs = [parse_field(model, path, key, text) for text in table.get("out", [])]
    posted, notify = table.get("posted", False), table.get("notify", False)
    if notify and (posted or outs):
        raise DescriptionError(path, key, "a notification is not posted and has no out")
    check_fields(model, path, key, ins)
    check_fields(model, path, key, outs)
    return Op(key, str(path), table["doc"].strip(), posted, notify, ins, outs,
              book=parse_book(path, key, table.get("book", ""), ins))


@dataclass
class Arg:
    """How one parameter of an automatic entry point travels.

    role: scalar, device, dptr, handle, in_value, in_array, in_string, in_bytes, length (of in arrays),
    out_value, out_handle, out_array, count (in and out), new.
    """

    param: object
    role: str
    wire: str  # wire type or struct
    kind: str = ""
    drop: bool = False
    destroy: bool = False  # dropped by the host's own function instead of the driver's
    optional: bool = False
    length: str = ""
    max: int = 0
    want: int = 0  # bit of the want mask

    @property
    def name(self):
        return self.param.name

    @property
    def ctype(self):
        """The type that is passed or pointed to."""
        return re.sub(r"\bconst\b|\*", "", self.param.type).strip()


def wire_type(model, ctype):
    """(role, wire type, handle kind) of a value of this C type, or None."""
    if ctype in HANDLE_KINDS:
        return "handle", HANDLE_KINDS[ctype], HANDLE_KINDS[ctype]
    if ctype in ("CUdeviceptr", "CUdeviceptr_v2"):
        return "dptr", "dptr", ""
    if ctype in ("CUdevice", "CUdevice_v1"):
        return "device", "i32", ""
    if ctype in C_WIRE:
        return "scalar", C_WIRE[ctype], ""
    found = model.types.get(ctype)
    if found is None or found.form in ("handle", "callback"):
        return None
    if found.form == "alias":
        return wire_type(model, found.value)
    if found.form == "enum":
        return "scalar", "u32", ""
    return "struct", ctype, ""


def parse_annotation(entry, name, text):
    """The words of one args.<name> as a dictionary."""
    words = text.split()
    notes = {}
    while words:
        word = words.pop(0)
        if word in ("in", "out", "inout", "optional", "new", "use", "drop", "destroy", "string"):
            notes[word] = True
        elif word in ("array", "bytes") and words:
            notes[word] = words.pop(0)
        elif re.fullmatch(r"max=\d+", word):
            notes["max"] = int(word[4:])
        else:
            raise DescriptionError(entry.path, entry.name, f"args.{name}: unknown word '{word}'")
    if ("array" in notes or "string" in notes or "bytes" in notes) and "max" not in notes:
        raise DescriptionError(entry.path, entry.name, f"args.{name}: max=N is missing")
    return notes


def derive_pointer(model, entry, param, notes):
    """An argument that is a pointer."""
    def fail(message):
        raise DescriptionError(entry.path, entry.name, f"{param.name}: {message}")

    ctype = re.sub(r"\bconst\b|\*", "", param.type).strip()
    if param.type.count("*") != 1 or param.dims:
        fail("only plain pointers can be automatic")
    is_const = param.type.startswith("const ")
    common = {"optional": "optional" in notes, "max": notes.get("max", 0),
              "length": notes.get("array", notes.get("bytes", ""))}
    if "string" in notes:
        return Arg(param, "in_string", "str", **common)
    if "bytes" in notes:
        return Arg(param, "in_bytes", "bytes", **common)
    found = wire_type(model, ctype)
    if found is None:
        fail(f"type '{param.type}' cannot be automatic")
    role, wire, kind = found
    if role == "device":
        fail("pointers to devices cannot be automatic")
    if "array" in notes:
        return Arg(param, "in_array" if is_const else "out_array", wire, kind, **common)
    if is_const:
        if kind:
            fail("a pointer to handles needs 'array'")
        return Arg(param, "in_value", wire, **common)
    if "new" in notes:
        if not kind:
            fail("'new' needs a handle")
        return Arg(param, "new", wire, kind)
    if "inout" in notes:
        return Arg(param, "count", wire)
    if kind:
        if "use" not in notes:
            fail("a handle that comes out is 'new' or 'out use'")
        return Arg(param, "out_handle", wire, kind, **common)
    if "out" not in notes:
        fail("say whether the pointer is 'out'")
    return Arg(param, "out_value", wire, **common)


def derive_args(model, entry):
    for name in entry.args:
        if name not in [p.name for p in entry.params]:
            raise DescriptionError(entry.path, entry.name, f"args.{name}: no such parameter")
    args = []
    for param in entry.params:
        notes = parse_annotation(entry, param.name, entry.args.get(param.name, ""))
        if "*" in param.type:
            args.append(derive_pointer(model, entry, param, notes))
            continue
        found = wire_type(model, param.type)
        if found is None or found[0] == "struct" or param.dims:
            raise DescriptionError(entry.path, entry.name,
                                   f"{param.name}: type '{param.type}' cannot be automatic")
        args.append(Arg(param, found[0], found[1], found[2], drop="drop" in notes or "destroy" in notes,
                        destroy="destroy" in notes))
    by_name = {a.name: a for a in args}
    bit = 0
    for arg in args:
        if arg.length and arg.length not in by_name:
            raise DescriptionError(entry.path, entry.name, f"{arg.name}: no parameter {arg.length}")
        if arg.role in ("in_array", "in_bytes"):
            by_name[arg.length].role = "length"
        if arg.optional and arg.role.startswith("out"):
            arg.want = 1 << bit
            bit += 1
    return args


def derive_op(model, entry):
    """The operation of an automatic entry point; its plan is in op.args."""
    args = derive_args(model, entry)
    ins, outs = [], []
    for arg in args:
        value = OpField(arg.name, arg.wire, "scalar", kind=arg.kind) if arg.wire not in (
            "str", "bytes") else None
        array = OpField(arg.name, arg.wire, "array", max=arg.max, kind=arg.kind) if value else None
        if arg.role in ("scalar", "device", "dptr", "handle", "in_value", "new"):
            ins.append(value)
        elif arg.role == "in_array":
            ins.append(array)
        elif arg.role in ("in_string", "in_bytes"):
            ins.append(OpField(arg.name, "u8", arg.wire, max=arg.max))
        elif arg.role == "out_array":
            outs.append(array)
        elif arg.role in ("out_value", "out_handle"):
            outs.append(value)
        elif arg.role == "count":
            ins.append(value)
            outs.append(value)
    if any(a.want for a in args):
        ins.append(OpField("want", "u32", "scalar"))
    check_fields(model, entry.path, entry.name, ins)
    check_fields(model, entry.path, entry.name, outs)
    op = Op(entry.name, entry.path, f"{entry.name}.", False, False, ins, outs, entry,
            book=parse_book(entry.path, entry.name, entry.book, ins))
    op.args = args
    return op


def read_lock(path):
    """[(name, gone)] of wire.lock by id; the file only ever grows at its end."""
    rows = []
    for number, line in enumerate(path.read_text().splitlines() if path.exists() else [], 1):
        match = re.fullmatch(r"(\d+) (\w+)( gone)?", line)
        if not match:
            raise DescriptionError(path, f"line {number}", "not 'id name' or 'id name gone'")
        if int(match[1]) != len(rows):
            raise DescriptionError(path, match[2], f"id {match[1]} is not the next one, {len(rows)}")
        if any(match[2] == name for name, _ in rows):
            raise DescriptionError(path, match[2], "named twice")
        rows.append((match[2], bool(match[3])))
    return rows


def assign_ids(model, path, extend):
    """Give every operation its id; new ones get the next id when extend, else are an error.

    The id of an operation that is gone stays taken: nobody serves it, and it has no fields.
    """
    rows = read_lock(path)
    for name, gone in rows:
        if gone == (name in model.ops):
            raise DescriptionError(path, name, "marked gone, but it is described" if gone else
                                   "no such operation; ids are never reused: mark it 'gone'")
        if gone:
            model.ops[name] = Op(name, str(path), "Gone: its id stays taken.", False, True, [], [])
    ids = {name: number for number, (name, _) in enumerate(rows)}
    new = [name for name in model.ops if name not in ids]
    if new and not extend:
        raise DescriptionError(path, new[0], "has no id; run weirgen.py --lock")
    if new:
        with open(path, "a", encoding="ascii") as stream:
            for name in new:
                ids[name] = len(ids)
                stream.write(f"{ids[name]} {name}\n")
    for name, op in model.ops.items():
        op.id = ids[name]
    model.ops = dict(sorted(model.ops.items(), key=lambda item: item[1].id))


__all__ = ["assign_ids", "derive_op", "parse_op"]
