import torch, time
import torch.nn.functional as F
from torch.nn.attention import sdpa_kernel, SDPBackend
print("cudnn", torch.backends.cudnn.version())
def run(h, g, s, dq, dv, det):
    torch.use_deterministic_algorithms(det, warn_only=True)
    q=torch.randn(1,h,s,dq,device='cuda',dtype=torch.bfloat16,requires_grad=True)
    k=torch.randn(1,g,s,dq,device='cuda',dtype=torch.bfloat16,requires_grad=True)
    v=torch.randn(1,g,s,dv,device='cuda',dtype=torch.bfloat16,requires_grad=True)
    do=torch.randn(1,h,s,dv,device='cuda',dtype=torch.bfloat16)
    e=lambda: torch.cuda.Event(enable_timing=True)
    f=[];b=[]
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        for i in range(60):
            a0,a1,a2=e(),e(),e()
            torch.cuda._sleep(400000)
            a0.record(); o=F.scaled_dot_product_attention(q,k,v,is_causal=True,enable_gqa=(h!=g)); a1.record()
            torch.cuda._sleep(200000)
            a3=e(); a3.record(); torch.autograd.grad(o,(q,k,v),do); a2.record()
            torch.cuda.synchronize(); f.append(a0.elapsed_time(a1)*1e3); b.append(a3.elapsed_time(a2)*1e3)
    f=sorted(f[10:]);b=sorted(b[10:])
    print(f"torch heads {h} groups {g} seq {s} {dq}/{dv} det {det}: forward {f[len(f)//2]:.0f} us backward {b[len(b)//2]:.0f} us",flush=True)
for det in (False,True):
    for c in ((32,32,4096,128,128),(32,8,4096,128,128),(128,128,4096,192,128)):
        try: run(*c,det)
        except Exception as x: print(c,det,x)
