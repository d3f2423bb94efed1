"""torch.fft over sizes that take different cuFFT plans."""
import result

torch = result.torch_ready()
for size in (16, 1000, 1021, 4096, 65536):
    x = torch.randn(8, size).cuda()
    spectrum = torch.fft.rfft(x)
    result.tensor(f"rfft_{size}", torch.view_as_real(spectrum))
    again = torch.fft.irfft(spectrum, n=size)
    result.check(torch.allclose(again, x, atol=1e-3), f"irfft undoes rfft of {size}")
    result.tensor(f"irfft_{size}", again)
image = torch.randn(4, 128, 96).cuda()
result.tensor("fft2", torch.view_as_real(torch.fft.fft2(image)))
result.tensor("fftn_double", torch.view_as_real(torch.fft.fftn(image.double())))
result.tensor("fft_half", torch.view_as_real(torch.fft.fft(torch.randn(4, 256).cuda().half()).to(torch.complex64)))
result.tensor("stft", torch.view_as_real(torch.stft(torch.randn(2, 8000).cuda(), 400, 160, return_complex=True,
                                                    window=torch.hann_window(400).cuda())))
result.done()
