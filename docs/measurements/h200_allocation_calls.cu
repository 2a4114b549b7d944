// cudaMalloc by size while the device is idle, runs a kernel that only spins, streams memory, or copies to the host.
//
//     nvcc -O2 -arch=sm_90 h200_allocation_calls.cu -o allocation_calls && ./allocation_calls > allocation_calls.csv
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

using Clock = std::chrono::steady_clock;

static void check(cudaError_t code) {
    if (code == cudaSuccess) return;
    std::fprintf(stderr, "%s\n", cudaGetErrorString(code));
    std::exit(1);
}

__global__ void spin(unsigned long long nanoseconds) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    while (now - begin < nanoseconds);
}

__global__ void stream(const float4* from, float4* to, size_t count) {
    for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x)
        to[i] = from[i];
}

int main() {
    const size_t mib = size_t{1} << 20;
    cudaStream_t work;
    check(cudaStreamCreateWithFlags(&work, cudaStreamNonBlocking));
    char *a, *b, *host;
    check(cudaMalloc(&a, 512 * mib));
    check(cudaMalloc(&b, 512 * mib));
    check(cudaMallocHost(&host, 512 * mib));
    const char* states[] = {"idle", "spin", "stream", "copy", "short kernels"};
    std::printf("pass,state,mib,call,us\n");
    for (int pass = 0; pass < 3; ++pass)
        for (int state = 0; state < 5; ++state)
            for (const size_t size : {2, 20, 32, 64, 128, 256, 1024}) {
                const int count = size > 256 ? 6 : 16;
                std::vector<void*> taken;
                std::vector<double> allocate, release;
                check(cudaDeviceSynchronize());
                for (int i = 0; i < count; ++i) {
                    // Work for some 4 ms that begins behind nothing.
                    if (state == 1) spin<<<1, 1, 0, work>>>(4000000ULL);
                    if (state == 2)
                        for (int k = 0; k < 12; ++k)
                            stream<<<264, 512, 0, work>>>(reinterpret_cast<float4*>(a), reinterpret_cast<float4*>(b),
                                                          512 * mib / 16);
                    if (state == 3)
                        for (int k = 0; k < 8; ++k)
                            check(cudaMemcpyAsync(host, a, 28 * mib, cudaMemcpyDeviceToHost, work));
                    if (state == 4)
                        for (int k = 0; k < 400; ++k) spin<<<132, 128, 0, work>>>(10000ULL);
                    const auto wait = Clock::now();
                    while (Clock::now() - wait < std::chrono::microseconds(300)) {
                    }
                    void* block = nullptr;
                    const auto begin = Clock::now();
                    check(cudaMalloc(&block, size * mib));
                    allocate.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
                    taken.push_back(block);
                    check(cudaDeviceSynchronize());
                }
                for (void* block : taken) {
                    if (state == 1) spin<<<1, 1, 0, work>>>(2000000ULL);
                    const auto begin = Clock::now();
                    check(cudaFree(block));
                    release.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
                    check(cudaDeviceSynchronize());
                }
                for (auto* list : {&allocate, &release}) {
                    std::sort(list->begin(), list->end());
                    const auto at = [&](double share) {
                        return (*list)[static_cast<size_t>(share * static_cast<double>(list->size() - 1))];
                    };
                    std::printf("%d,%s,%zu,%s,%.1f,%.1f,%.1f\n", pass, states[state], size,
                                list == &allocate ? "malloc" : "free", at(0.1), at(0.5), at(0.9));
                }
            }
}
