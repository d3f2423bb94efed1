"""docs/coverage.md: what is carried, function by function."""

SOFT = {True: "yes", False: "-", "field": "field", "forward": "forward"}
WORDS = {"auto": "automatic", "hand": "by hand", "none": "-", "field": "field", "forward": "forward"}
GENERATED = ("auto", "field", "forward")


def state(entry):
    """(guest, host) words of one entry."""
    if entry.same_as:
        return f"as {entry.same_as}", ""
    return WORDS[entry.guest], WORDS[entry.host] if entry.host != "none" else ""


def resolved(model, entry):
    return model.entries[entry.same_as] if entry.same_as else entry


def emit_group(model, group, entries):
    lines = [f"## {group}", "", "| function | since | guest | host | softgpu | why by hand |",
             "|---|---|---|---|---|---|"]
    for entry in entries:
        guest, host = state(entry)
        since = f"{entry.since // 1000}.{entry.since % 1000 // 10}" if entry.since else ""
        variant = f" ({entry.variant_suffix})" if entry.variant else ""
        soft = SOFT[resolved(model, entry).softgpu]
        why = entry.why if entry.guest == "hand" else ""
        lines.append(f"| {entry.name}{variant} | {since} | {guest} | {host} | {soft} | {why} |")
    return lines + [""]


def emit_text(model):
    entries = list(model.entries.values())
    symbols = sum(len(e.symbols) for e in entries)
    carried = sum(resolved(model, e).guest != "none" for e in entries)
    generated = sum(resolved(model, e).guest in GENERATED for e in entries)
    soft = sum(bool(resolved(model, e).softgpu) for e in entries)
    lines = [
        "# What of the Driver API is carried", "",
        "Generated from `proto/api` by `python3 proto/gen/weirgen.py --coverage docs/coverage.md`; a test",
        "checks that it is current. A dash: the symbol is exported and answers CUDA_ERROR_NOT_SUPPORTED.",
        "A suffix in parentheses: the function has that per-thread variant, carried alike.", "",
        "| | |", "|---|---|",
        f"| symbols exported | {symbols} |",
        f"| functions, counting versions and not variants | {len(entries)} |",
        f"| carried by the guest library | {carried} |",
        f"| of these with a generated body in the guest | {generated} |",
        f"| offered by softgpu | {soft} |", ""]
    for group, members in model.groups.items():
        lines += emit_group(model, group, members)
    return "\n".join(lines).rstrip() + "\n"
