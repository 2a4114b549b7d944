// Pinned copies by size, one direction alone and both at once: microseconds of a copy, of back-to-back copies in one
// stream each. A pass goes over all sizes and kinds; passes are repeated so that their spread is that from run to run.
//
//     nvcc -O2 -arch=sm_90 h200_copy_rates.cu -o copy_rates && ./copy_rates > copy_rates.csv
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

static void check(cudaError_t code) {
    if (code == cudaSuccess) return;
    std::fprintf(stderr, "%s\n", cudaGetErrorString(code));
    std::exit(1);
}

struct Lane {
    cudaStream_t stream;
    cudaMemcpyKind kind;
    void* to;
    const void* from;
    cudaEvent_t begin, end;
};

static void issue(Lane& lane, size_t bytes) {
    check(cudaMemcpyAsync(lane.to, lane.from, bytes, lane.kind, lane.stream));
}

static float between(cudaEvent_t a, cudaEvent_t b) {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, a, b));
    return ms;
}

int main() {
    const size_t most = size_t{1} << 30;
    void *host_out, *host_in, *device_out, *device_in;
    check(cudaMallocHost(&host_out, most));
    check(cudaMallocHost(&host_in, most));
    check(cudaMalloc(&device_out, most));
    check(cudaMalloc(&device_in, most));
    Lane lanes[2] = {{nullptr, cudaMemcpyDeviceToHost, host_out, device_out, nullptr, nullptr},
                     {nullptr, cudaMemcpyHostToDevice, device_in, host_in, nullptr, nullptr}};
    for (Lane& lane : lanes) {
        check(cudaStreamCreateWithFlags(&lane.stream, cudaStreamNonBlocking));
        check(cudaEventCreate(&lane.begin));
        check(cudaEventCreate(&lane.end));
    }
    std::vector<size_t> sizes;
    for (size_t bytes = size_t{64} << 10; bytes <= most; bytes *= 4) sizes.push_back(bytes);
    sizes.push_back(most);
    std::printf("pass,bytes,direction,kind,us\n");
    for (int pass = 0; pass < 7; ++pass)
        for (const size_t bytes : sizes) {
            const int count = std::max<int>(4, std::min<int>(200, static_cast<int>((size_t{1} << 29) / bytes)));
            for (int which = 0; which < 2; ++which) {
                Lane& lane = lanes[which];
                issue(lane, bytes);
                check(cudaEventRecord(lane.begin, lane.stream));
                for (int i = 0; i < count; ++i) issue(lane, bytes);
                check(cudaEventRecord(lane.end, lane.stream));
                check(cudaDeviceSynchronize());
                std::printf("%d,%zu,%s,alone,%.3f\n", pass, bytes, which == 0 ? "d2h" : "h2d",
                            1e3 * between(lane.begin, lane.end) / count);
            }
            // Both at once, marked every few copies so that the marks cost nothing.
            const int group = std::max(1, count / 16);
            const int groups = count / group;
            std::vector<cudaEvent_t> marks[2];
            for (int which = 0; which < 2; ++which)
                for (int i = 0; i <= groups; ++i) {
                    cudaEvent_t mark;
                    check(cudaEventCreate(&mark));
                    marks[which].push_back(mark);
                }
            for (int i = 0; i <= groups; ++i)
                for (int which = 0; which < 2; ++which) {
                    for (int piece = 0; piece < (i == 0 ? 1 : group); ++piece) issue(lanes[which], bytes);
                    check(cudaEventRecord(marks[which][i], lanes[which].stream));
                }
            check(cudaDeviceSynchronize());
            // Copies that ended before the other lane's last one did, the first left out.
            for (int which = 0; which < 2; ++which) {
                int last = 0;
                for (int i = 1; i <= groups; ++i)
                    if (between(marks[which][i], marks[1 - which][groups]) >= 0) last = i;
                if (last > 0)
                    std::printf("%d,%zu,%s,both,%.3f\n", pass, bytes, which == 0 ? "d2h" : "h2d",
                                1e3 * between(marks[which][0], marks[which][last]) / (last * group));
            }
            for (auto& list : marks)
                for (cudaEvent_t mark : list) check(cudaEventDestroy(mark));
        }
}
