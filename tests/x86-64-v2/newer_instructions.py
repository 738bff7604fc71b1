#!/usr/bin/env python3
"""newer_instructions.py FILE...: looks for instructions that x86-64-v2 lacks (AVX, FMA, BMI) in all functions of programs and
libraries but the kernels built for newer instruction sets (namespaces isa_avx2 and isa_avx512). Such a function runs, and
fails, on older processors: mostly an inline function of which the linker kept the copy of a newer file. Prints one line a
function; exit code 1 if there is one, or if a FILE has no function at all."""
import re
import subprocess
import sys

FUNCTION = re.compile(r"^[0-9a-f]+ <(.+)>:$")
MNEMONIC = re.compile(r"^ +[0-9a-f]+:\t(?:(?:rep|repz|repnz|lock|data16|bnd|notrack) )*([a-z0-9]+)")
# All AVX mnemonics start with v or k; tzcnt is missing since older processors run it as bsf.
NEWER = re.compile(r"v(?!er[rw]$|m[a-z]*(call|launch|resume|xoff|func|run|load|save)$).*|k(mov|or|and|not|xor|xnor|shift|unpck|test|add).*"
                   r"|andn|bextr|blsi|blsmsk|blsr|bzhi|mulx|pdep|pext|rorx|sarx|shlx|shrx|lzcnt|movbe")
NEWER_KERNEL = re.compile(r"8isa_avx2|10isa_avx512")  # in mangled names


def newer_functions(path):
    """(number of functions, {mangled name: first newer instruction} of those outside the newer kernels)."""
    functions, found, name = 0, {}, ""
    with subprocess.Popen(["objdump", "-d", "--no-show-raw-insn", path], stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if start := FUNCTION.match(line):
                name = start.group(1)
                functions += 1
            elif (instruction := MNEMONIC.match(line)) and NEWER.fullmatch(instruction.group(1)) and not NEWER_KERNEL.search(name):
                found.setdefault(name, line.split("\t", 1)[1].strip())
    return (functions if process.returncode == 0 else 0), found


status = 0
for path in sys.argv[1:]:
    functions, found = newer_functions(path)
    for name, instruction in found.items():
        print(f"{path}: {name}: {instruction}")
    if functions == 0:
        print(f"{path}: no functions found")
    if found or functions == 0:
        status = 1
sys.exit(status or len(sys.argv) < 2)
