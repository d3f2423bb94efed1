"""torch.linalg: cuSOLVER, cuBLAS and MAGMA paths, single matrices and batches."""
import result

torch = result.torch_ready()
for dtype in (torch.float32, torch.float64):
    tag = str(dtype).split(".")[1]
    for shape in ((64, 64), (257, 257), (16, 24, 24)):
        name = f"{tag}_{'x'.join(map(str, shape))}"
        a = torch.randn(*shape, dtype=dtype).cuda()
        eye = torch.eye(shape[-1], dtype=dtype, device="cuda")
        spd = a @ a.mT + shape[-1] * eye
        b = torch.randn(*shape[:-1], 3, dtype=dtype).cuda()
        tolerance = 1e-2 if dtype == torch.float32 else 1e-8
        u, s, vh = torch.linalg.svd(a)
        result.check(torch.allclose(u @ torch.diag_embed(s) @ vh, a, atol=tolerance), f"svd {name}")
        result.tensor(f"svd_{name}", s)
        values, vectors = torch.linalg.eigh(spd)
        result.check(torch.allclose(spd @ vectors, vectors * values.unsqueeze(-2), atol=tolerance * 100),
                     f"eigh {name}")
        result.tensor(f"eigh_{name}", values)
        result.tensor(f"solve_{name}", torch.linalg.solve(a, b))
        q, r = torch.linalg.qr(a)
        result.check(torch.allclose(q @ r, a, atol=tolerance), f"qr {name}")
        result.tensor(f"qr_{name}", r)
        result.tensor(f"cholesky_{name}", torch.linalg.cholesky(spd))
        result.tensor(f"inv_{name}", torch.linalg.inv(spd))
        result.tensor(f"det_{name}", torch.linalg.slogdet(spd)[1])
        result.tensor(f"lstsq_{name}", torch.linalg.lstsq(spd, b).solution)
        result.tensor(f"triangular_{name}", torch.linalg.solve_triangular(r + eye * 4, b, upper=True))
    result.tensor(f"eigvals_{tag}", torch.linalg.eigvals(torch.randn(32, 32, dtype=dtype).cuda()).abs().sort()[0])
result.done()
