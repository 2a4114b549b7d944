// Rates of copies in graphs and streams, beside kernels or alone.
#include <cuda_runtime.h>
#include <algorithm>
#include <cstdio>
#include <functional>
#include <vector>
#define C(x)                                               \
    do {                                                   \
        cudaError_t e = (x);                               \
        if (e != cudaSuccess) {                            \
            printf("%s: %s\n", #x, cudaGetErrorString(e)); \
            exit(1);                                       \
        }                                                  \
    } while (0)
__global__ void spin(long long cycles) {
    long long t = clock64();
    while (clock64() - t < cycles)
        ;
}
__global__ void stream_copy(const float4* a, float4* b, size_t n) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        b[i] = a[i];
}
int main() {
    const size_t MB = 1 << 20;
    size_t piece = 32 * MB;
    const int N = 12;
    char *h, *d;
    C(cudaHostAlloc((void**)&h, N * piece, 0));
    C(cudaMalloc((void**)&d, N * piece));
    float4 *x, *y;
    size_t big = 1024 * MB;
    C(cudaMalloc((void**)&x, big));
    C(cudaMalloc((void**)&y, big));
    cudaStream_t s, c;
    C(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    C(cudaStreamCreateWithFlags(&c, cudaStreamNonBlocking));
    cudaEvent_t e0, e1, f, j;
    C(cudaEventCreate(&e0));
    C(cudaEventCreate(&e1));
    C(cudaEventCreateWithFlags(&f, cudaEventDisableTiming));
    C(cudaEventCreateWithFlags(&j, cudaEventDisableTiming));
    auto kernels = [&](int kind, int n) {
        for (int i = 0; i < n; i++) {
            if (kind == 1) spin<<<132, 256, 0, s>>>(600000);
            if (kind == 2) stream_copy<<<132 * 8, 256, 0, s>>>(x, y, big / 32);
        }
    };
    // form 0: fork once; 1: each copy behind a kernel of its own
    auto issue = [&](bool out, int kind, int form, bool h2dtoo) {
        if (form == 0) {
            C(cudaEventRecord(f, s));
            C(cudaStreamWaitEvent(c, f, 0));
            for (int i = 0; i < N; i++)
                C(out ? cudaMemcpyAsync(h + i * piece, d + i * piece, piece, cudaMemcpyDeviceToHost, c)
                      : cudaMemcpyAsync(d + i * piece, h + i * piece, piece, cudaMemcpyHostToDevice, c));
            kernels(kind, kind == 2 ? 60 : 24);
        } else
            for (int i = 0; i < N; i++) {
                kernels(kind ? kind : 0, kind == 2 ? 5 : 2);
                if (!kind) spin<<<1, 32, 0, s>>>(1000);
                C(cudaEventRecord(f, s));
                C(cudaStreamWaitEvent(c, f, 0));
                C(out ? cudaMemcpyAsync(h + i * piece, d + i * piece, piece, cudaMemcpyDeviceToHost, c)
                      : cudaMemcpyAsync(d + i * piece, h + i * piece, piece, cudaMemcpyHostToDevice, c));
            }
    };
    cudaEvent_t k0, k1;
    C(cudaEventCreate(&k0));
    C(cudaEventCreate(&k1));
    for (int out = 1; out >= 0; --out)
        for (int form = 0; form < 2; ++form)
            for (int kind = 0; kind < 3; ++kind) {
                float t[2];
                for (int g = 0; g < 2; ++g) {
                    std::vector<float> ts;
                    cudaGraphExec_t ge = nullptr;
                    auto body = [&] {
                        C(cudaEventRecord(f, s));
                        C(cudaStreamWaitEvent(c, f, 0));
                        issue(out, kind, form, false);
                        C(cudaEventRecord(j, c));
                        C(cudaStreamWaitEvent(s, j, 0));
                    };
                    if (g) {
                        cudaGraph_t gr;
                        C(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
                        body();
                        C(cudaStreamEndCapture(s, &gr));
                        C(cudaGraphInstantiate(&ge, gr, 0));
                    }
                    for (int r = 0; r < 7; ++r) {
                        C(cudaDeviceSynchronize());
                        C(cudaEventRecord(e0, s));
                        if (g)
                            C(cudaGraphLaunch(ge, s));
                        else
                            body();
                        C(cudaEventRecord(e1, s));
                        C(cudaDeviceSynchronize());
                        float m;
                        C(cudaEventElapsedTime(&m, e0, e1));
                        ts.push_back(m);
                    }
                    std::sort(ts.begin(), ts.end());
                    t[g] = ts[3];
                }
                printf(
                    "%s form %d kernels %s: %d x %zu MiB in stream %.2f ms, in graph %.2f ms (%.1f / %.1f GB/s if "
                    "copies bound)\n",
                    out ? "D2H" : "H2D", form,
                    kind == 0   ? "none"
                    : kind == 1 ? "spin"
                                : "memory",
                    N, piece / MB, t[0], t[1], N * piece / t[0] / 1e6, N * piece / t[1] / 1e6);
                fflush(stdout);
            }
}
