"""The description of the Driver API, read and checked: types, errors, entry points, operations.

Every mistake in a description is a DescriptionError that names the file and the key.
"""

import re
import tomllib
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from pathlib import Path

import words

SCALARS = {
    "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t",
    "i32": "int32_t", "i64": "int64_t", "f32": "float", "f64": "double",
}
ENTRY_KEYS = {
    "proto", "since", "variant", "default_stream", "before_init", "undeclared", "same_as",
    "guest", "host", "book", "softgpu", "why", "args", "unsafe_in_capture", "field", "forward", "give", "then", "checks",
}
OP_KEYS = {"posted", "notify", "book", "doc", "in", "out"}
# C types of handles, and the kind that each one is on the wire. CUkernel and CUfunction are one kind.
HANDLE_KINDS = {
    "CUcontext": "context", "CUstream": "stream", "CUevent": "event", "CUmodule": "module",
    "CUlibrary": "library", "CUfunction": "function", "CUkernel": "function", "CUgraph": "graph",
    "CUgraphNode": "node", "CUgraphExec": "exec", "CUarray": "array",
    "CUmipmappedArray": "mipmap", "CUmemoryPool": "pool", "CUlinkState": "link",
    "CUuserObject": "userobj",
}


class DescriptionError(Exception):
    """A mistake in a description file."""

    def __init__(self, path, key, message):
        super().__init__(f"{Path(path).name}: [{key}]: {message}")


@dataclass
class Param:
    type: str
    name: str
    dims: str = ""  # "[3]" for array parameters

    @property
    def declaration(self):
        return f"{self.type}{'' if self.type.endswith('*') else ' '}{self.name}{self.dims}"


@dataclass
class Entry:
    """One exported symbol, without its per-thread variant."""

    name: str
    path: str
    params: list
    since: int = 0
    variant: int = 0
    variant_suffix: str = ""
    default_stream: bool = False
    before_init: bool = False
    undeclared: bool = False
    same_as: str = ""
    guest: str = "none"
    host: str = "none"
    book: str = ""  # ops.py
    softgpu: object = False  # true: by hand; or a word
    why: str = ""
    unsafe_in_capture: str = ""
    field: str = ""  # these five: words.py
    forward: str = ""
    give: str = ""
    then: str = ""
    checks: str = ""
    args: dict = dataclass_field(default_factory=dict)
    group: str = ""

    @property
    def base(self):
        return re.sub(r"_v\d$", "", self.name)

    @property
    def parameter_list(self):
        return ", ".join(p.declaration for p in self.params) or "void"

    @property
    def symbols(self):
        return [self.name] + ([self.name + self.variant_suffix] if self.variant else [])

    @property
    def passes_default_stream(self):
        return self.default_stream or self.variant_suffix == "_ptds"


@dataclass
class Type:
    name: str
    form: str  # alias, handle, callback, enum, struct, union
    value: object


@dataclass
class OpField:
    """A field of an operation. shape: scalar, fixed, array, bytes, str."""

    name: str
    type: str
    shape: str
    count: int = 0  # elements of a fixed array
    max: int = 0  # most elements of a counted one
    kind: str = ""  # handle kind

    def __post_init__(self):
        self.is_struct = not (self.type in SCALARS or self.kind or self.type == "dptr")
        self.ctype = SCALARS.get(self.type, "uint64_t" if not self.is_struct else self.type)


@dataclass
class Op:
    name: str
    path: str
    doc: str
    posted: bool
    notify: bool
    ins: list
    outs: list
    entry: Entry = None  # of an op that an automatic entry point makes
    id: int = -1
    book: tuple = ("LEAVES_NOTHING", [], "")  # enum weir_op_book, its fields, why it stays


@dataclass
class Model:
    types: dict
    constants: dict
    errors: dict
    entries: dict
    groups: dict
    ops: dict
    kinds: list
    objects: dict
    structs: dict


def load_toml(path):
    try:
        with open(path, "rb") as stream:
            return tomllib.load(stream)
    except tomllib.TOMLDecodeError as error:
        raise DescriptionError(path, "toml", str(error)) from None


def parse_param(text, path, key):
    text = text.strip()
    dims = ""
    match = re.fullmatch(r"(.*?)((?:\[\w*\])+)", text)
    if match:
        text, dims = match[1].strip(), match[2]
    match = re.fullmatch(r"((?:const |unsigned |long |struct )*[\w ]*?\w(?: const)?\s*(?:\*\s*(?:const\s*)?)*)"
                         r"(?<=[\s*])(\w+)", text)
    if not match:
        raise DescriptionError(path, key, f"cannot read the parameter '{text}'")
    return Param(re.sub(r"\s+", " ", match[1].strip()), match[2], dims)


def parse_proto(text, path, key):
    match = re.fullmatch(r"CUresult (\w+)\((.*)\)", text.strip())
    if not match:
        raise DescriptionError(path, key, "proto is not 'CUresult name(parameters)'")
    if match[1] != key:
        raise DescriptionError(path, key, f"proto declares {match[1]}")
    if match[2] == "void":
        return []
    return [parse_param(part, path, key) for part in match[2].split(",")]


def parse_entry(path, key, table):
    for name in table:
        if name not in ENTRY_KEYS:
            raise DescriptionError(path, key, f"unknown key '{name}'")
    if "proto" not in table:
        raise DescriptionError(path, key, "proto is missing")
    entry = Entry(key, str(path), parse_proto(table["proto"], path, key), group=Path(path).stem)
    for name in sorted(ENTRY_KEYS - {"proto"}):
        if name in table:
            word = name == "softgpu" and table[name] in words.WORDS
            if not word and not isinstance(table[name], type(getattr(entry, name))):
                raise DescriptionError(path, key, f"'{name}' has the wrong type")
            setattr(entry, name, table[name])
    if entry.guest not in ("none", "auto", "hand", *words.WORDS) or entry.host not in ("none", "auto", "hand"):
        raise DescriptionError(path, key, "guest and host are 'none', 'auto' or 'hand'; guest also a word")
    words.check(entry, DescriptionError)
    if entry.book and entry.host == "none":
        raise DescriptionError(path, key, "book is of an operation, and there is none: host is \"none\"")
    if entry.guest == "hand" and not entry.why:
        raise DescriptionError(path, key, "guest = \"hand\" needs a why")
    if entry.guest == "auto" and entry.host == "none":
        raise DescriptionError(path, key, "guest = \"auto\" needs host = \"auto\" or \"hand\"")
    if entry.unsafe_in_capture not in ("", "always", *(p.name for p in entry.params)):
        raise DescriptionError(path, key, "unsafe_in_capture is 'always' or names a parameter")
    if not entry.since and not entry.undeclared:
        raise DescriptionError(path, key, "since is missing")
    if entry.variant:
        has_stream = any(p.type == "CUstream" for p in entry.params)
        entry.variant_suffix = "_ptsz" if has_stream or entry.default_stream else "_ptds"
    return entry


def check_same_as(entries):
    for entry in entries.values():
        if not entry.same_as:
            continue
        target = entries.get(entry.same_as)
        if target is None or target.same_as:
            raise DescriptionError(entry.path, entry.name, f"same_as names no entry '{entry.same_as}'")
        if [(p.type, p.dims) for p in entry.params] != [(p.type, p.dims) for p in target.params]:
            raise DescriptionError(entry.path, entry.name, f"{entry.same_as} has other parameters")
        if entry.passes_default_stream != target.passes_default_stream:
            raise DescriptionError(entry.path, entry.name, f"{entry.same_as} has another variant form")


def load_types(path):
    data = load_toml(path)
    types = {}
    for name, table in data.get("types", {}).items():
        if len(table) != 1:
            raise DescriptionError(path, name, "a type has exactly one form")
        form, value = next(iter(table.items()))
        if form not in ("alias", "handle", "callback", "enum", "struct", "union"):
            raise DescriptionError(path, name, f"unknown form '{form}'")
        if form == "enum" and value != "errors":
            pairs = [re.fullmatch(r"(\w+) = (-?\w+)", text) for text in value]
            if not all(pairs):
                raise DescriptionError(path, name, "enumerators are 'NAME = value'")
            value = {pair[1]: pair[2] for pair in pairs}
        types[name] = Type(name, form, value)
    return types, data.get("constants", {})


def load_errors(path):
    errors = {}
    values = set()
    for name, table in load_toml(path).items():
        if set(table) != {"value", "text"}:
            raise DescriptionError(path, name, "an error has a value and a text")
        if table["value"] in values:
            raise DescriptionError(path, name, f"value {table['value']} is taken")
        values.add(table["value"])
        errors[name] = (table["value"], table["text"])
    return errors


def load_kinds(path):
    return re.findall(r"^WEIR_KIND\(\w+, (\w+)\)", Path(path).read_text(), re.M)


def load(api_dir, kinds_path):
    """Read everything; entry points with a host half have their op derived (see ops.py)."""
    from ops import derive_op, parse_op

    api = Path(api_dir)
    types, constants = load_types(api / "types.toml")
    errors = load_errors(api / "errors.toml")
    kinds = load_kinds(kinds_path)
    entries, groups, ops = {}, {}, {}
    for path in sorted(api.glob("*.toml")):
        if path.stem in ("types", "errors", "ops", "objects", "structs"):
            continue
        groups[path.stem] = []
        for key, table in load_toml(path).items():
            if key in entries:
                raise DescriptionError(path, key, f"described twice, also in {entries[key].path}")
            entries[key] = parse_entry(path, key, table)
            groups[path.stem].append(entries[key])
    check_same_as(entries)
    model = Model(types, constants, errors, entries, groups, ops, kinds,
                  words.load_objects(api / "objects.toml", load_toml, DescriptionError),
                  words.load_structs(api / "structs.toml", load_toml, types, DescriptionError))
    for key, table in load_toml(api / "ops.toml").items():
        ops[key] = parse_op(model, api / "ops.toml", key, table)
    for entry in entries.values():
        if entry.host != "none":
            ops[entry.name] = derive_op(model, entry)
    return model
