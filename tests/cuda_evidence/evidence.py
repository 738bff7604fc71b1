"""Tables of what nvcc made of the CUDA backend, and whether they keep to the budget.

    evidence.py --logs FOLDER --library libkeel_cuda.so [--cuobjdump PROGRAM] --out JSON [--accept]

FOLDER has what nvcc said of each source, with -Xptxas=-v (cmake/nvcc_log.sh). Without cuobjdump the tables of machine code are left out. Exit code 1
if something is over budget (registers.json, hot_kernels.json; --accept writes the registers as they are).
"""

import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys

from kernel_names import short_names

HERE = pathlib.Path(__file__).resolve().parent
REGISTERS_OF_SM, WARPS_OF_SM, BLOCKS_OF_SM = 65536, 64, 32
SHARED_OF_SM = {"sm_80": 164 << 10, "sm_90": 228 << 10}
REGISTERS_OF_OTHERS = 128  # of kernels that have no budget of their own yet
SHARED_OF_SYSTEM = 1024  # a block's, beside its own


# ---- what ptxas says

def read_ptxas(log):
    """[{kernel, sm, registers, spill_bytes, stack_bytes, shared_bytes}], kernels by their mangled names."""
    rows, row = [], None
    for line in log.splitlines():
        if found := re.search(r"Compiling entry function '(\w+)' for '(sm_\d+)'", line):
            row = {"kernel": found[1], "sm": found[2], "spill_bytes": 0, "stack_bytes": 0, "shared_bytes": 0}
        elif row and (found := re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line)):
            row["stack_bytes"], row["spill_bytes"] = int(found[1]), int(found[2]) + int(found[3])
        elif row and (found := re.search(r"Used (\d+) registers", line)):
            row["registers"] = int(found[1])
            if shared := re.search(r"(\d+) bytes smem", line):
                row["shared_bytes"] = int(shared[1])
            rows.append(row)
            row = None
    return rows


def logs_of_sources(folder):
    """Logs of sources that are there: a build folder keeps those of others."""
    kernels = HERE.parent.parent / "kernels"
    return [log for log in sorted(folder.rglob("*.cu.o.log")) if (kernels / str(log.relative_to(folder)).removesuffix(".o.log")).exists()]


def granular_registers(registers):
    return -(-registers // 8) * 8


def dynamic_bytes(row, hot_kernels):
    """Shared memory that launches give a kernel: rows of tiles in bf16, eight columns wider than heads (attention_tensor.cuh)."""
    for hot in hot_kernels:
        if "shared_rows" in hot and (found := re.fullmatch(hot["kernel"], row["name"])):
            return hot["shared_rows"] * (int(found[1]) + 8) * 2
    return 0


def occupancy(row):
    """Share of a multiprocessor's warps that can be there at once, by registers and shared memory; null where the size of a
    block is not known."""
    if not row.get("threads"):
        return None
    warps = -(-row["threads"] // 32)
    blocks = min(BLOCKS_OF_SM, WARPS_OF_SM // warps, REGISTERS_OF_SM // (granular_registers(row["registers"]) * 32 * warps),
                 SHARED_OF_SM[row["sm"]] // (row["shared_bytes"] + row["dynamic_bytes"] + SHARED_OF_SYSTEM))
    return round(blocks * warps / WARPS_OF_SM, 2)


# ---- what the machine code says

ACCESS = re.compile(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?(LDG|STG|LD|ST|LDL|STL|LDGSTS|HMMA|LDSM|ATOM|ATOMG|RED|REDG)\b([.\w]*)")


def width(modifiers):
    for part in modifiers.split("."):
        if part in ("U8", "S8", "8"):
            return 8
        if part in ("U16", "S16", "16"):
            return 16
        if part in ("64", "128"):
            return int(part)
    return 32


def read_sass(cuobjdump, library, sm):
    """{mangled kernel: {"load": {width: instructions}, "store": .., "local": n, "tensor": n, "atomics": n, "generic": n}}"""
    found, now = {}, None
    process = subprocess.Popen([cuobjdump, "--dump-sass", "--gpu-architecture", sm, library], stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if "Function :" in line:
            now = found.setdefault(line.split(":")[1].strip(), {"load": collections.Counter(), "store": collections.Counter(),
                                                                "local": 0, "tensor": 0, "atomics": 0, "generic": 0})
        elif now is not None and (access := ACCESS.match(line)):
            kind, modifiers = access[1], access[2]
            if kind in ("LDG", "LDGSTS", "LD"):
                now["load"][width(modifiers)] += 1
            elif kind in ("STG", "ST"):
                now["store"][width(modifiers)] += 1
            now["generic"] += kind in ("LD", "ST")
            now["local"] += kind in ("LDL", "STL")
            now["tensor"] += kind == "HMMA"
            now["atomics"] += kind in ("ATOM", "ATOMG", "RED", "REDG")
    if process.wait() != 0:
        sys.exit(f"evidence.py: error: {cuobjdump} failed")
    return found


def read_threads(cuobjdump, library, sm):
    """{mangled kernel: the most threads of its blocks}"""
    text = subprocess.run([cuobjdump, "--dump-elf", "--gpu-architecture", sm, library], stdout=subprocess.PIPE, text=True,
                          check=True).stdout
    threads, kernel, wanted = {}, None, False
    for line in text.splitlines():
        if line.startswith(".nv.info."):
            kernel, wanted = line[len(".nv.info."):].strip(), False
        elif "EIATTR_MAX_THREADS" in line:
            wanted = True
        elif wanted and (found := re.match(r"\s*Value:\s+0x([0-9a-f]+) 0x([0-9a-f]+) 0x([0-9a-f]+)", line)):
            if kernel:
                threads[kernel] = int(found[1], 16) * int(found[2], 16) * int(found[3], 16)
            wanted = False
    return threads


# ---- budget

def check_registers(rows, budget):
    """What is wrong, line by line. A kernel may use the registers of the budget, in steps of 8 as they are given out."""
    for row in rows:
        name = f"{row['name']} on {row['sm']}"
        if row["spill_bytes"]:
            yield f"{name} spills {row['spill_bytes']} bytes"
        allowed = budget.get(row["name"], REGISTERS_OF_OTHERS)
        if granular_registers(row["registers"]) > allowed:
            yield f"{name} uses {row['registers']} registers, the budget is {allowed}"


def bytes_per_element(row, hot):
    """What a thread moves in accesses of whole groups of four columns, by the element: as the code says it, less what of
    that goes with every row, or stands there for another case (hot_kernels.json says how much and why)."""
    groups = int(re.fullmatch(hot["kernel"], row["name"])[hot["groups"]]) if "groups" in hot else hot.get("groups_are", 1)
    groups *= hot.get("copies", 1)
    moved = 0
    for kind in ("load", "store"):
        wide = sum(n * bits // 8 for bits, n in row[kind].items() if bits >= 64 and not (kind == "load" and bits == 64 and "copies" in hot))
        moved += wide / (4 * groups) - 4 * hot.get(f"other_{kind}s", 0)
    return round(moved, 2)


def check_code(rows, hot_kernels, exceptions):
    for row in rows:
        name = f"{row['name']} on {row['sm']}"
        if row["local"] and not any(re.fullmatch(entry["kernel"], row["name"]) for entry in exceptions):
            yield f"{name} has {row['local']} accesses of local memory"
        if row["generic"]:
            yield f"{name} has {row['generic']} accesses through generic addresses"
        if row["atomics"]:
            yield f"{name} has {row['atomics']} atomics: sums must not depend on an order"
        hot = next((entry for entry in hot_kernels if re.fullmatch(entry["kernel"], row["name"])), None)
        if hot is None:
            continue
        row["hot"] = True
        for kind in ("load", "store"):
            narrow = sum(n for bits, n in row[kind].items() if bits < 32)
            if narrow > hot.get(f"narrow_{kind}s", 0):
                yield f"{name} has {narrow} global {kind}s below 32 bits"
            most = hot.get(f"single_{kind}s")
            if most is not None and row[kind].get(32, 0) > most:
                yield f"{name} has {row[kind][32]} {kind}s of 32 bits, {most} are right"
        if "tensor" in hot and not row["tensor"]:
            yield f"{name} does not use the tensor cores"
        if "bytes" in hot:
            row["bytes_per_element"], row["least_bytes_per_element"] = bytes_per_element(row, hot), hot["bytes"]
            if row["bytes_per_element"] != hot["bytes"]:
                yield f"{name} moves {row['bytes_per_element']} bytes an element, {hot['bytes']} are the least"
    for hot in hot_kernels:
        if not any(re.fullmatch(hot["kernel"], row["name"]) for row in rows):
            yield f"no kernel is called {hot['kernel']} (hot_kernels.json)"


# ---- output

def accept_registers(rows):
    """One entry a kernel, whatever its architecture."""
    most = collections.defaultdict(int)
    for row in rows:
        most[row["name"]] = max(most[row["name"]], granular_registers(row["registers"]))
    (HERE / "registers.json").write_text(json.dumps(most, indent=0, sort_keys=True) + "\n")


def print_table(rows):
    has_code = any("load" in row for row in rows)
    print(f"{'kernel':<96} {'sm':<6} {'regs':>4} {'spill':>5} {'smem':>6} {'block':>5} {'occup':>5}"
          + (f"  {'loads of 8/16/32/64/128':>24} {'stores':>18} {'HMMA':>5} {'B/el':>6}" if has_code else ""))
    for row in rows:
        line = (f"{row['name'][:96]:<96} {row['sm']:<6} {row['registers']:>4} {row['spill_bytes']:>5} {row['shared_bytes'] + row['dynamic_bytes']:>6} "
                f"{row.get('threads') or '-':>5} {row['occupancy'] if row['occupancy'] is not None else '-':>5}")
        if "load" in row:
            def counts(kind):
                return "/".join(str(row[kind].get(bits, 0)) for bits in (8, 16, 32, 64, 128))
            line += f"  {counts('load'):>24} {counts('store'):>18} {row['tensor'] or '-':>5} {row.get('bytes_per_element') or '-':>6}"
        print(line)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--logs", type=pathlib.Path, required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--cuobjdump")
    parser.add_argument("--out", required=True)
    parser.add_argument("--accept", action="store_true")
    arguments = parser.parse_args()

    rows = [row for log in logs_of_sources(arguments.logs) for row in read_ptxas(log.read_text(errors="replace"))
            if row["sm"] in SHARED_OF_SM]
    if not rows:
        sys.exit(f"evidence.py: error: no log in {arguments.logs} tells of registers")
    code, threads = {}, {}
    if arguments.cuobjdump:
        for sm in sorted({row["sm"] for row in rows}):
            code[sm] = read_sass(arguments.cuobjdump, arguments.library, sm)
            threads[sm] = read_threads(arguments.cuobjdump, arguments.library, sm)
    hot_kernels = json.loads((HERE / "hot_kernels.json").read_text())
    names = short_names(row["kernel"] for row in rows)
    for row in rows:
        mangled = row.pop("kernel")
        row["name"] = names[mangled]
        row["threads"] = threads.get(row["sm"], {}).get(mangled)
        row["dynamic_bytes"] = dynamic_bytes(row, hot_kernels)
        row["occupancy"] = occupancy(row)
        if arguments.cuobjdump:
            row |= code[row["sm"]][mangled]
    rows.sort(key=lambda row: (row["name"], row["sm"]))

    if arguments.accept:
        accept_registers(rows)
    problems = list(check_registers(rows, json.loads((HERE / "registers.json").read_text())))
    if arguments.cuobjdump:
        problems += check_code(rows, hot_kernels, json.loads((HERE / "local_memory.json").read_text()))
    print_table(rows)
    pathlib.Path(arguments.out).write_text(json.dumps({"kernels": rows, "problems": problems}, indent=1) + "\n")
    print(f"{len(rows)} kernels, {len(problems)} problems"
          + ("" if arguments.cuobjdump else "; machine code not looked at: no cuobjdump (tools/cuda-toolkit.sh gets it)"))
    for problem in problems:
        print(f"  {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
