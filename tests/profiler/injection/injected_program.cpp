// A program that uses CUDA and knows nothing of recording. Its argument says how:
//
//   plain      100 kernels in a range, a graph of 10 captured in another and launched 5 times; exits with 3
//   marks      10 kernels, the mark "go", 20 kernels, the mark "halt", 30 kernels
//   nothing    asks how many devices there are, and makes no context
//   contexts   5 kernels in the first context, 7 in a second one
//   fork       a child with 7 kernels, made before CUDA was used; then 5 of its own
//   busy       leaves while a kernel of some 100 ms runs
//   kill       ends itself by force after 10 kernels

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nvtx3/nvToolsExt.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>

#include "tests/profiler/cupti/busy_kernel.hpp"

namespace {

void check(cudaError_t code) {
    if (code == cudaSuccess) return;
    std::fprintf(stderr, "injected_program: %s\n", cudaGetErrorString(code));
    std::exit(9);
}

void launch(int kernels, cudaStream_t stream = nullptr, unsigned rounds = 100) {
    float* result = nullptr;
    check(cudaMalloc(reinterpret_cast<void**>(&result), sizeof(float)));
    for (int i = 0; i < kernels; ++i) check(stowage::support::launch_busy(result, rounds, stream));
}

void plain() {
    check(cudaFree(nullptr));  // what is recorded begins with CUDA's initialisation, ranges too
    nvtxRangePushA("stowage:module=core_attn;phase=forward;layer=3");
    launch(100);
    nvtxRangePop();
    cudaStream_t stream = nullptr;
    check(cudaStreamCreate(&stream));
    float* result = nullptr;
    check(cudaMalloc(reinterpret_cast<void**>(&result), sizeof(float)));
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    nvtxRangePushA("stowage:module=mlp;phase=forward;layer=3");
    for (int i = 0; i < 10; ++i) check(stowage::support::launch_busy(result, 100, stream));
    nvtxRangePop();
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    check(cudaStreamEndCapture(stream, &graph));
    check(cudaGraphInstantiate(&exec, graph, 0));
    for (int i = 0; i < 5; ++i) check(cudaGraphLaunch(exec, stream));
    check(cudaDeviceSynchronize());
}

void marks() {
    launch(10);
    check(cudaDeviceSynchronize());
    nvtxMarkA("go");
    launch(20);
    check(cudaDeviceSynchronize());
    nvtxMarkA("halt");
    launch(30);
    check(cudaDeviceSynchronize());
}

void nothing() {
    int devices = 0;
    check(cudaGetDeviceCount(&devices));
}

void contexts() {
    launch(5);
    check(cudaDeviceSynchronize());
    void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
    using Create = CUresult(CUcontext*, unsigned, CUdevice);
    auto* const create = reinterpret_cast<Create*>(dlsym(driver, "cuCtxCreate_v2"));
    CUcontext second = nullptr;
    if (create == nullptr || create(&second, 0, 0) != CUDA_SUCCESS) std::exit(8);
    launch(7);
    check(cudaDeviceSynchronize());
}

void forked() {
    const pid_t child = fork();
    if (child == 0) {
        launch(7);
        check(cudaDeviceSynchronize());
        std::exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    launch(5);
    check(cudaDeviceSynchronize());
}

void killed() {
    launch(10);
    check(cudaDeviceSynchronize());
    static_cast<void>(std::raise(SIGKILL));
}

}  // namespace

int main(int count, char** arguments) {
    const std::map<std::string, std::function<void()>> ways = {
        {"plain", plain},       {"marks", marks}, {"nothing", nothing},
        {"contexts", contexts}, {"fork", forked}, {"busy", [] { launch(1, nullptr, 40'000'000); }},
        {"kill", killed}};
    const auto found = ways.find(count > 1 ? arguments[1] : "");
    if (found == ways.end()) return 2;
    found->second();
    return 3;
}
