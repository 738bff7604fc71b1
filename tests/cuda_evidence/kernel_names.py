"""Names of kernels that do not depend on where the tree lies: "seam_forward: forward<RowInRegisters<128, 2>, rms, true, float>"."""

import re
import subprocess

FILE_TAG = re.compile(r"_GLOBAL__N__[0-9a-f]+_\d+_(\w+?)_cuda_cu_[0-9a-f]{8}(?:_\d+)?")
SHORTER = [(re.compile(pattern), text) for pattern, text in (
    (r"\(anonymous namespace\)::|keel::|\(bool\)|\(int\)", ""),
    (r"__nv_bfloat16|Bf16", "bf16"), (r"> >", ">>"),
    (r"\(OuterNorm\)0", "none"), (r"\(OuterNorm\)1", "rms"), (r"\(OuterNorm\)2", "layer"),
    (r"\(WeightType\)0", "fp32"), (r"\(WeightType\)1", "bf16"), (r"\(WeightType\)2", "q8_0"))]


def short_name(mangled, demangled):
    tag = FILE_TAG.search(mangled)
    name = demangled
    for pattern, text in SHORTER:
        name = pattern.sub(text, name)
    name = re.sub(r"^void ", "", name)
    depth = 0
    for i, letter in enumerate(name):  # without the arguments
        depth += {"<": 1, ">": -1}.get(letter, 0)
        if letter == "(" and depth == 0:
            name = name[:i]
            break
    return f"{tag.group(1) if tag else '?'}: {name}"


def short_names(mangled):
    """{mangled: short} of all these."""
    mangled = sorted(set(mangled))
    result = subprocess.run(["c++filt"], input="\n".join(mangled), capture_output=True, text=True, check=True)
    return {m: short_name(m, d) for m, d in zip(mangled, result.stdout.split("\n"))}
