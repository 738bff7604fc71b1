"""The same operations by PyTorch, for those of device_bench: JSON lines. Exit code 77 without torch or a GPU."""

import json
import statistics
import sys
import time

sizes = json.loads(sys.argv[1])
try:
    import torch
    import torch.nn.functional as F
except ImportError as problem:
    print(f"torch cannot be imported: {problem}")
    sys.exit(77)
if not torch.cuda.is_available():
    print("torch sees no GPU")
    sys.exit(77)
torch.backends.cuda.matmul.allow_tf32 = False  # fp32 as ours


TYPES = {"": torch.float32, "_bf16": torch.bfloat16}


def random(*shape, grad=False, dtype=torch.float32):
    return (torch.rand(*shape, device="cuda") * 2 - 1).to(dtype).requires_grad_(grad)


def measure(op, rows, d, work):
    try:
        work()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        work()
        torch.cuda.synchronize()
        runs = max(1, min(1000, int(sizes["milliseconds"] * 1e-3 / 7 / max(time.perf_counter() - begin, 1e-7))))
        seconds = []
        for _ in range(7):
            begin = time.perf_counter()
            for _ in range(runs):
                work()
            torch.cuda.synchronize()
            seconds.append((time.perf_counter() - begin) / runs)
    except RuntimeError as problem:
        print(f"{op}: {problem}", file=sys.stderr)
        return
    print(json.dumps({"op": op, "rows": rows, "d": d, "seconds": statistics.median(seconds), "torch": torch.__version__}), flush=True)


rows, d, vocab = sizes["rows"], sizes["width"], sizes["vocab"]
x, y = random(8 * rows, d), random(8 * rows, d)
measure("copy", 8 * rows, d, lambda: y.copy_(x))
del x, y
n = sizes["product"]
length = min(sizes["sequence"], rows)
for suffix, dtype in TYPES.items():
    a, b = random(n, n, dtype=dtype), random(n, n, dtype=dtype)
    measure("product" + suffix, n, n, lambda: a @ b.T)
    del a, b

    x, w, g = random(rows, d, grad=True, dtype=dtype), random(d, grad=True, dtype=dtype), random(rows, d, dtype=dtype)
    measure("rms_norm" + suffix, rows, d, lambda: F.rms_norm(x, (d,), w, 1e-5))
    out = F.rms_norm(x, (d,), w, 1e-5)
    measure("rms_norm_backward" + suffix, rows, d, lambda: torch.autograd.grad(out, (x, w), g, retain_graph=True))

    for width in (d, 4 * d):
        x, branch = random(rows, width, grad=True), random(rows, width, grad=True, dtype=dtype)
        g_o, g_i = random(width, grad=True), random(width, grad=True)

        def seam():
            y = F.rms_norm(x + 0.5 * branch, (width,), g_o, 1e-5)
            return y, F.rms_norm(y, (width,), g_i, 1e-5).to(dtype)

        measure("seam_forward" + suffix, rows, width, seam)
        results = seam()
        grads = [random(rows, width), random(rows, width, dtype=dtype)]
        measure("seam_backward" + suffix, rows, width, lambda: torch.autograd.grad(results, (x, branch, g_o, g_i), grads, retain_graph=True))

    gate, up = random(rows, 3 * d, grad=True, dtype=dtype), random(rows, 3 * d, grad=True, dtype=dtype)
    g = random(rows, 3 * d, dtype=dtype)
    measure("swiglu" + suffix, rows, 3 * d, lambda: F.silu(gate) * up)
    out = F.silu(gate) * up
    measure("swiglu_backward" + suffix, rows, 3 * d, lambda: torch.autograd.grad(out, (gate, up), g, retain_graph=True))

    for head_dim, tokens in ((64, min(1024, length)), (128, length)):
        heads, batch = max(1, d // head_dim), rows // tokens
        q, k, v = (random(batch, heads, tokens, head_dim, grad=True, dtype=dtype) for _ in range(3))
        name = f"attention_{batch}x{tokens}_head_{head_dim}"
        measure(name + suffix, rows, heads * head_dim, lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        g = random(*out.shape, dtype=dtype)
        measure(name + "_backward" + suffix, rows, heads * head_dim, lambda: torch.autograd.grad(out, (q, k, v), g, retain_graph=True))

    x, head = random(rows, d, grad=True, dtype=dtype), random(vocab, d, grad=True, dtype=dtype)
    targets = torch.randint(vocab, (rows,), device="cuda")
    measure("cross_entropy" + suffix, rows, d,
            lambda: torch.autograd.grad(F.cross_entropy((x @ head.T).float(), targets, reduction="sum"), (x, head)))
    del x, head

weights = random(16 * rows * d, grad=True)
weights.grad = random(16 * rows * d)
optimizer = torch.optim.AdamW([weights], lr=1e-6, fused=True)
measure("adamw", 1, 16 * rows * d, optimizer.step)
