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


def random(*shape, grad=False):
    return (torch.rand(*shape, device="cuda") * 2 - 1).requires_grad_(grad)


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
n = sizes["product"]
a, b = random(n, n), random(n, n)
measure("product", n, n, lambda: a @ b.T)
a, b = a.bfloat16(), b.bfloat16()
measure("product_bf16", n, n, lambda: a @ b.T)
del x, y, a, b

x, w, g = random(rows, d, grad=True), random(d, grad=True), random(rows, d)
measure("rms_norm", rows, d, lambda: F.rms_norm(x, (d,), w, 1e-5))
out = F.rms_norm(x, (d,), w, 1e-5)
measure("rms_norm_backward", rows, d, lambda: torch.autograd.grad(out, (x, w), g, retain_graph=True))

for width in (d, 4 * d):
    x, branch = random(rows, width, grad=True), random(rows, width, grad=True)
    g_o, g_i = random(width, grad=True), random(width, grad=True)

    def seam():
        y = F.rms_norm(x + 0.5 * branch, (width,), g_o, 1e-5)
        return y, F.rms_norm(y, (width,), g_i, 1e-5)

    measure("seam_forward", rows, width, seam)
    results = seam()
    grads = [random(rows, width), random(rows, width)]
    measure("seam_backward", rows, width, lambda: torch.autograd.grad(results, (x, branch, g_o, g_i), grads, retain_graph=True))

gate, up, g = random(rows, 3 * d, grad=True), random(rows, 3 * d, grad=True), random(rows, 3 * d)
measure("swiglu", rows, 3 * d, lambda: F.silu(gate) * up)
out = F.silu(gate) * up
measure("swiglu_backward", rows, 3 * d, lambda: torch.autograd.grad(out, (gate, up), g, retain_graph=True))

length = min(sizes["sequence"], rows)
for head_dim, tokens in ((64, min(1024, length)), (128, length)):
    heads, batch = max(1, d // head_dim), rows // tokens
    for suffix, dtype in (("", torch.float32), ("_bf16", torch.bfloat16)):
        q, k, v = (random(batch, heads, tokens, head_dim).to(dtype).requires_grad_() for _ in range(3))
        name = f"attention_{batch}x{tokens}_head_{head_dim}{suffix}"
        measure(name, rows, heads * head_dim, lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        g = random(*out.shape).to(dtype)
        measure(name + "_backward", rows, heads * head_dim, lambda: torch.autograd.grad(out, (q, k, v), g, retain_graph=True))

x, head, targets = random(rows, d, grad=True), random(vocab, d, grad=True), torch.randint(vocab, (rows,), device="cuda")
measure("cross_entropy", rows, d, lambda: torch.autograd.grad(F.cross_entropy(x @ head.T, targets, reduction="sum"), (x, head)))
del x, head

weights = random(16 * rows * d, grad=True)
weights.grad = random(16 * rows * d)
optimizer = torch.optim.AdamW([weights], lr=1e-6, fused=True)
measure("adamw", 1, 16 * rows * d, optimizer.step)
