"""The figures of docs/performance.md: what bench/sweep measured, shortened, and the tables that are made of it."""

import hashlib
import json
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs/performance"
FILE = FOLDER / "figures.json"
CASES = ["barrier", "all_reduce", "reduce", "reduce_scatter", "scan", "broadcast", "all_gather", "gather", "scatter",
         "all_to_all", "send", "sendrecv"]
# By how a contender's name begins; each is shown at the setting that was its fastest.
PEERS = {"openmpi": "Open MPI", "mpich": "MPICH", "impi": "Intel MPI", "gloo": "gloo", "deepspeed": "DeepSpeed"}
OURS = {"core-job": "job memory", "core-private": "private memory", "c10d-job": "c10d, job memory",
        "c10d-private": "c10d, private memory", "core": "core", "c10d": "c10d"}
SUMMARY_BYTES = [4, 1 << 10, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26]


def short(microseconds):
    return float(f"{microseconds:.3g}")


def short_machine(line):
    """Without what a distributor or a host appends to the kernel's version."""
    return re.sub(r"Linux (\d+\.\d+)[^,;]*", r"Linux \1", line)


def place_of(case):
    """Where a case stands in the file; each stands there once."""
    return CASES.index(case["case"]), case["ranks"], case["bytes"]


def condense(files):
    """{"machine": lines, "cases": [{"case", "ranks", "bytes", "rounds", "us": {contender: [median, p99]}, "absent"}]}"""
    machines, cases = set(), []
    for file in files:
        rows = file["rows"]
        machines.add(short_machine(file["machine"]))
        case = {"case": rows[0]["case"], "ranks": rows[0]["ranks"], "bytes": rows[0]["bytes"], "rounds": file["rounds"],
                "us": {}, "absent": {}}
        for row in rows:
            if "ours_us" in row:
                case["us"][row["variant"]] = [short(row["ours_us"]), short(row["p99_us"])]
            if "peer_us" in row:
                case["us"][row["peer"]] = [short(row["peer_us"]), short(row["peer_p99_us"])]
            elif "peer" in row:
                case["absent"][row["peer"]] = row["skipped"]
        cases.append(case)
    cases.sort(key=place_of)
    return {"machine": sorted(machines), "cases": cases}


def merge(old, new):
    """`new`, and of `old` what it has not."""
    cases = {place_of(case): case for case in old["cases"] + new["cases"]}
    return {"machine": sorted({*old["machine"], *new["machine"]}), "cases": [cases[each] for each in sorted(cases)]}


def write(all_figures):
    """A line for each case, so that the file's history can be read."""
    FOLDER.mkdir(exist_ok=True)
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in all_figures["cases"])
    FILE.write_text(f'{{"machine": {json.dumps(all_figures["machine"])},\n"cases": [\n{lines}\n]}}\n')


def read():
    return json.loads(FILE.read_text())


def select(all_figures, case, ranks=None):
    return [one for one in all_figures["cases"] if one["case"] == case and ranks in (None, one["ranks"])]


def digest(all_figures, case):
    """Names what a drawing was made of."""
    text = json.dumps(select(all_figures, case), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def family(contender):
    return PEERS.get(contender.split("-")[0])


def best_peers(case):
    """By family: [median, p99, contender] of its fastest setting."""
    best = {}
    for contender, (median, p99) in case["us"].items():
        name = family(contender)
        if name and (name not in best or median < best[name][0]):
            best[name] = [median, p99, contender]
    return best


def best_peer(case):
    """[median, p99, contender] of the fastest peer, or None."""
    return min(best_peers(case).values(), default=None)


def bytes_text(size):
    if size == 0:
        return "no data"
    for unit, factor in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:g} {unit}"
    return f"{size} B"


def time_text(microseconds):
    if microseconds < 1000:
        return f"{microseconds:.3g} us"
    return f"{microseconds / 1000:.3g} ms"


def ratio_text(ratio):
    return f"{ratio:.0f}" if ratio >= 9.95 else f"{ratio:.1f}" if ratio >= 1.995 else f"{ratio:.2f}"


def table(head, rows):
    lines = [head, ["---"] * len(head)] + rows
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def ratio(case, contender):
    """How many times as long the fastest peer takes; None where one of both is absent."""
    peer = best_peer(case)
    return peer[0] / case["us"][contender][0] if peer and contender in case["us"] else None


def machine_block(all_figures):
    rounds = sorted({case["rounds"] for case in all_figures["cases"]})
    lines = [*all_figures["machine"], f"rounds: {', '.join(map(str, rounds))}"]
    return "\n".join(f"    {line}" for line in lines)


def summary_block(all_figures, ranks):
    """Ratios to the best peer, job memory / private memory, of some sizes."""
    present = {one["bytes"] for one in all_figures["cases"] if one["ranks"] == ranks}
    sizes = [size for size in SUMMARY_BYTES if size in present]
    rows = []
    for name in CASES:
        by_size = {one["bytes"]: one for one in select(all_figures, name, ranks)}
        if not by_size or name == "barrier":
            continue
        cells = []
        for size in sizes:
            case = by_size.get(size, {"us": {}})
            ratios = [ratio(case, contender) for contender in ("core-job", "core-private")]
            cells.append(" / ".join(ratio_text(one) if one else "-" for one in ratios) if any(ratios) else "")
        rows.append([f"[{name}](#{name})", *cells])
    return table(["collective", *map(bytes_text, sizes)], rows)


def case_block(all_figures, name):
    """All sizes and numbers of ranks of one collective."""
    cases = select(all_figures, name)
    ours = [contender for contender in OURS if any(contender in case["us"] for case in cases)]
    rows = []
    for case in cases:
        peer = best_peer(case)
        cells = [str(case["ranks"])] + ([bytes_text(case["bytes"])] if name != "barrier" else [])
        cells += [time_text(case["us"][contender][0]) if contender in case["us"] else "-" for contender in ours]
        cells.append(f"{time_text(peer[0])} ({peer[2]})" if peer else "-")
        ratios = [ratio(case, contender) for contender in ours[:2] if not contender.startswith("c10d")]
        cells.append(" / ".join(ratio_text(one) if one else "-" for one in ratios))
        rows.append(cells)
    head = ["ranks"] + (["size"] if name != "barrier" else []) + [OURS[contender] for contender in ours]
    return table(head + ["fastest peer", "ratio"], rows)


def slower_block(all_figures):
    """Where the fastest peer is faster than the core."""
    rows = []
    for case in all_figures["cases"]:
        for contender in ("core", "core-job", "core-private"):
            times = ratio(case, contender)
            if times is not None and times < 0.95:
                peer = best_peer(case)
                rows.append([f"[{case['case']}](#{case['case']})", str(case["ranks"]), bytes_text(case["bytes"]),
                             OURS[contender], time_text(case["us"][contender][0]),
                             f"{time_text(peer[0])} ({peer[2]})", ratio_text(times)])
    if not rows:
        return "Nowhere."
    return table(["collective", "ranks", "size", "memory", "Retinue", "fastest peer", "ratio"], rows)


def absent_block(all_figures):
    """Peers that gave no figure, and why; a reason once."""
    reasons = {}
    for case in all_figures["cases"]:
        for contender, why in case["absent"].items():
            reasons.setdefault((contender, case["ranks"], why), []).append(f"{case['case']} {bytes_text(case['bytes'])}")
    rows = []
    for (contender, ranks, why), places in sorted(reasons.items()):
        where = f"{places[0]} and {len(places) - 1} more" if len(places) > 1 else places[0]
        rows.append([contender, str(ranks), where, why])
    return table(["peer", "ranks", "case", "why"], rows) if rows else "None."


def block(all_figures, words):
    """The text of a generated block by its mark."""
    makers = {"machine": machine_block, "summary": summary_block, "case": case_block, "slower": slower_block,
              "absent": absent_block}
    what, *arguments = words
    if what not in makers:
        raise LookupError(f"there is no block '{what}'; known are {', '.join(makers)}")
    return makers[what](all_figures, *[int(word) if word.isdigit() else word for word in arguments])
