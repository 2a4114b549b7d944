#pragma once

// What the three programs that measure CUDA graphs share: checks, clocks, JSON lines, kernels that stamp the time, and
// a gate that holds the device until the host has issued everything.

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

inline void check(cudaError_t code, const char* doing) {
    if (code == cudaSuccess) return;
    std::fprintf(stderr, "%s while %s\n", cudaGetErrorString(code), doing);
    std::exit(5);
}
#define CHECK(call) check((call), #call)

inline double now_us() {
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline double median(std::vector<double> values) {
    if (values.empty()) return -1;
    std::sort(values.begin(), values.end());
    const std::size_t middle = values.size() / 2;
    return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// One JSON object on one line of standard output.
class Line {
public:
    explicit Line(const std::string& section) { text_ = "{\"section\": \"" + section + "\""; }
    Line& add(const char* key, const std::string& value) { return raw(key, "\"" + value + "\""); }
    Line& add(const char* key, const char* value) { return add(key, std::string(value)); }
    Line& add(const char* key, double value) {
        char digits[40];
        std::snprintf(digits, sizeof digits, "%.3f", value);
        return raw(key, digits);
    }
    Line& add(const char* key, long long value) { return raw(key, std::to_string(value)); }
    Line& add(const char* key, int value) { return add(key, static_cast<long long>(value)); }
    Line& add(const char* key, std::size_t value) { return add(key, static_cast<long long>(value)); }
    Line& add(const char* key, const std::vector<double>& values) {
        std::string list = "[";
        for (const double value : values) {
            char digits[40];
            std::snprintf(digits, sizeof digits, "%s%.2f", list.size() > 1 ? ", " : "", value);
            list += digits;
        }
        return raw(key, list + "]");
    }
    void print() { std::printf("%s}\n", text_.c_str()), std::fflush(stdout); }

private:
    Line& raw(const char* key, const std::string& value) {
        text_ += std::string(", \"") + key + "\": " + value;
        return *this;
    }
    std::string text_;
};

__device__ inline unsigned long long global_nanoseconds() {
    unsigned long long value;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(value));
    return value;
}

/// Keeps every thread busy for this many cycles; none at all when `cycles` is 0.
__global__ void spin(long long cycles) {
    const long long begin = clock64();
    while (clock64() - begin < cycles) {
    }
}

struct Stamp {
    unsigned long long tag, start, end;
};
struct StampList {
    unsigned count;
    Stamp stamps[8192];
};

/// Spins and notes when it began and ended, in the order of ending. One block, one warp is enough to time gaps.
__global__ void stamp(StampList* list, unsigned long long tag, long long cycles) {
    const unsigned long long start = global_nanoseconds();
    const long long begin = clock64();
    while (clock64() - begin < cycles) {
    }
    if (threadIdx.x == 0 && blockIdx.x == 0) {
        const unsigned slot = atomicAdd(&list->count, 1U);
        list->stamps[slot] = {tag, start, global_nanoseconds()};
    }
}

/// Ends when the host opens it, or after about half a second: then `flags[1]` says that the measurement is void.
__global__ void gate(volatile int* flags) {
    const long long begin = clock64();
    while (flags[0] == 0) {
        if (clock64() - begin > 900000000LL) {
            flags[1] = 1;
            return;
        }
    }
}

/// Tells the host at once that it runs.
__global__ void flag_host(volatile int* flags, int value) {
    flags[0] = value;
    __threadfence_system();
}

/// Holds a stream until the host is far ahead.
class Gate {
public:
    Gate() { CHECK(cudaHostAlloc(&flags_, 64, cudaHostAllocMapped)); }
    void close(cudaStream_t stream) {
        flags_[0] = flags_[1] = 0;
        gate<<<1, 1, 0, stream>>>(flags_);
    }
    void open() { *static_cast<volatile int*>(flags_) = 1; }
    [[nodiscard]] bool expired() const { return flags_[1] != 0; }

private:
    int* flags_ = nullptr;
};

inline cudaStream_t new_stream() {
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}
inline cudaEvent_t new_event(unsigned flags = cudaEventDisableTiming) {
    cudaEvent_t event;
    CHECK(cudaEventCreateWithFlags(&event, flags));
    return event;
}

/// `to` waits for what `from` has been given so far: a fork or a join while capturing.
inline void follow(cudaStream_t from, cudaStream_t to) {
    cudaEvent_t event = new_event();
    CHECK(cudaEventRecord(event, from));
    CHECK(cudaStreamWaitEvent(to, event, 0));
    CHECK(cudaEventDestroy(event));
}

template <class Body>
cudaGraph_t capture_template(cudaStream_t stream, Body body) {
    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    body();
    CHECK(cudaStreamEndCapture(stream, &graph));
    return graph;
}

template <class Body>
cudaGraphExec_t capture(cudaStream_t stream, Body body) {
    cudaGraph_t graph = capture_template(stream, body);
    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    return exec;
}

template <class Body>
double time_us(Body body) {
    const double begin = now_us();
    body();
    return now_us() - begin;
}
