"""Sizes and alignments of C types on LP64 x86-64, for layouts that must be explicit."""

import re

BUILTIN = {
    "char": 1, "unsigned char": 1, "short": 2, "unsigned short": 2, "int": 4, "unsigned int": 4,
    "unsigned": 4, "float": 4, "double": 8, "long long": 8, "unsigned long long": 8, "size_t": 8,
    "uint8_t": 1, "uint16_t": 2, "uint32_t": 4, "uint64_t": 8, "int32_t": 4, "int64_t": 8,
}


def round_up(value, alignment):
    return (value + alignment - 1) // alignment * alignment


def size_align(types, ctype):
    """(bytes, alignment) of a C type; KeyError for one that nobody described."""
    ctype = re.sub(r"\bconst\b|\bstruct\b", "", ctype).strip()
    if ctype.endswith("*"):
        return 8, 8
    if ctype in BUILTIN:
        return BUILTIN[ctype], BUILTIN[ctype]
    found = types[ctype]
    if found.form == "alias":
        return size_align(types, found.value)
    if found.form in ("handle", "callback"):
        return 8, 8
    if found.form == "enum":
        return 4, 4
    size, alignment, _ = aggregate(types, list(found.value), found.form)
    return size, alignment


def field_size_align(types, line):
    match = re.fullmatch(r"(?:_Alignas\((\d+)\) )?(.+?)\s*(\**)(\w+)((?:\[\d+\])*)", line)
    size, alignment = size_align(types, match[2] + match[3])
    for count in re.findall(r"\d+", match[5]):
        size *= int(count)
    return size, max(alignment, int(match[1] or 1))


def aggregate(types, lines, form):
    """Consume the lines of one struct or union; (bytes, alignment, lines left)."""
    size, alignment = 0, 1
    while lines:
        line = lines.pop(0).strip()
        if line.startswith("}"):
            break
        if line.endswith("{"):
            bytes_, align, _ = aggregate(types, lines, line.split()[0])
        else:
            bytes_, align = field_size_align(types, line)
        alignment = max(alignment, align)
        size = max(size, bytes_) if form == "union" else round_up(size, align) + bytes_
    return round_up(size, alignment), alignment, lines
