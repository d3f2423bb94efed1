"""Sparse matrices: COO and CSR products, conversions, and a gradient."""
import result

torch = result.torch_ready()
dense = torch.randn(512, 384).cuda()
dense[torch.rand(512, 384).cuda() < 0.95] = 0
other = torch.randn(384, 64).cuda()
expected = dense @ other
for name, matrix in (("coo", dense.to_sparse()), ("csr", dense.to_sparse_csr())):
    product = matrix @ other
    result.check(torch.allclose(product, expected, atol=1e-2), f"{name} product")
    result.tensor(f"{name}_product", product)
    result.tensor(f"{name}_vector", matrix @ other[:, 0].contiguous())
    result.tensor(f"{name}_dense", matrix.to_dense())
square = dense.to_sparse() @ dense.T.contiguous().to_sparse()
result.tensor("coo_coo", square.to_dense())
result.tensor("coalesced", torch.sparse_coo_tensor(torch.tensor([[0, 1, 0], [2, 0, 2]]).cuda(),
                                                   torch.tensor([1., 2., 3.]).cuda(), (2, 3)).coalesce().values())
values = dense.to_sparse().requires_grad_()
torch.sparse.mm(values, other).square().sum().backward()
result.tensor("gradient", values.grad.coalesce().values())
result.done()
