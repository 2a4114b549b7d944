// Device and host memory of executable graphs. One configuration a process, so that what the driver keeps for reuse
// from one cannot hide the next:
//
//   h200_graph_memory KIND NODES BRANCHES GRAPHS [auto_free]
//
// KIND: kernel8, kernel64, kernel256, kernel1024, kernel4096 (bytes of parameters), memcpy (4 KiB to pinned memory),
// memset, event (external record), or layer: kernels of 64 bytes, then a forked copy and an external event.
// Device memory is what cudaMemGetInfo says has gone, above that of one graph of one kernel launched before. At the end
// the graphs are destroyed, made again, destroyed, and cudaMalloc is asked for everything: what it gets above what was
// free is what the driver gave back when it had to.

#include <cstring>
#include <fstream>

#include "h200_graph_common.cuh"

template <int kBytes>
struct Parameters {
    char bytes[kBytes];
};
template <int kBytes>
__global__ void with_parameters(Parameters<kBytes>) {}

struct Context {
    std::vector<cudaStream_t> streams;
    char* device = nullptr;
    char* host = nullptr;
    cudaEvent_t event = nullptr;
};

template <int kBytes>
void launch(cudaStream_t stream) {
    with_parameters<kBytes><<<132, 128, 0, stream>>>(Parameters<kBytes>{});
}

void add_node(const Context& context, const std::string& kind, cudaStream_t stream) {
    if (kind == "kernel8") return launch<8>(stream);
    if (kind == "kernel256") return launch<256>(stream);
    if (kind == "kernel1024") return launch<1024>(stream);
    if (kind == "kernel4096") return launch<4096>(stream);
    if (kind == "memcpy") {
        CHECK(cudaMemcpyAsync(context.host, context.device, 4096, cudaMemcpyDeviceToHost, stream));
    } else if (kind == "memset") {
        CHECK(cudaMemsetAsync(context.device, 0, 4096, stream));
    } else if (kind == "event") {
        cudaStreamCaptureStatus status;
        CHECK(cudaStreamIsCapturing(stream, &status));
        const bool capturing = status == cudaStreamCaptureStatusActive;
        CHECK(cudaEventRecordWithFlags(context.event, stream, capturing ? cudaEventRecordExternal : 0));
    } else {
        launch<64>(stream);
    }
}

/// `nodes` nodes over `branches` chains between a first and a last node; a layer has a copy and an event more.
void add_nodes(const Context& context, const std::string& kind, int nodes, int branches) {
    cudaStream_t main = context.streams[0];
    const bool layer = kind == "layer";
    const int forked = layer ? 1 : branches;
    add_node(context, kind, main);
    for (int branch = 1; branch < forked; ++branch) follow(main, context.streams[branch]);
    for (int node = 1; node + 1 < nodes; ++node) add_node(context, kind, context.streams[node % forked]);
    for (int branch = 1; branch < forked; ++branch) follow(context.streams[branch], main);
    if (nodes > 1) add_node(context, kind, main);
    if (!layer) return;
    follow(main, context.streams[1]);
    add_node(context, "memcpy", context.streams[1]);
    add_node(context, "event", main);
    follow(context.streams[1], main);
}

long long device_bytes_used() {
    CHECK(cudaDeviceSynchronize());
    std::size_t free_bytes, total;
    CHECK(cudaMemGetInfo(&free_bytes, &total));
    return static_cast<long long>(total - free_bytes);
}

/// What cudaMalloc gets, to 2 MiB, less what cudaMemGetInfo calls free.
long long bytes_beyond_free() {
    CHECK(cudaDeviceSynchronize());
    std::size_t free_bytes, total;
    CHECK(cudaMemGetInfo(&free_bytes, &total));
    long long got = 0;
    for (std::size_t piece = 16ULL << 30; piece >= 2U << 20;) {
        void* memory;
        if (cudaMalloc(&memory, piece) == cudaSuccess) {
            got += static_cast<long long>(piece);
        } else {
            cudaGetLastError();
            piece /= 2;
        }
    }
    return got - static_cast<long long>(free_bytes);
}

long long host_bytes_used() {
    std::ifstream status("/proc/self/status");
    std::string word;
    long long kibibytes = 0;
    while (status >> word) {
        if (word == "VmRSS:") status >> kibibytes;
    }
    return kibibytes * 1024;
}

int main(int argc, char** argv) {
    if (argc < 5) return std::fprintf(stderr, "KIND NODES BRANCHES GRAPHS [auto_free]\n"), 2;
    const std::string kind = argv[1];
    const int nodes = std::atoi(argv[2]), branches = std::atoi(argv[3]), graphs = std::atoi(argv[4]);
    const unsigned long long flags = argc > 5 ? cudaGraphInstantiateFlagAutoFreeOnLaunch : 0;

    CHECK(cudaSetDevice(0));
    CHECK(cudaFree(nullptr));
    const long long context_only = device_bytes_used();
    Context context;
    for (int i = 0; i < 3; ++i) context.streams.push_back(new_stream());
    CHECK(cudaMalloc(&context.device, 1 << 20));
    CHECK(cudaHostAlloc(&context.host, 1 << 20, 0));
    context.event = new_event();
    for (const cudaStream_t stream : context.streams) {
        for (const char* each :
             {"kernel8", "kernel64", "kernel256", "kernel1024", "kernel4096", "memcpy", "memset", "event"}) {
            add_node(context, each, stream);
        }
    }
    const long long before_any = device_bytes_used();
    cudaGraphExec_t first = capture(context.streams[0], [&] { launch<8>(context.streams[0]); });
    CHECK(cudaGraphLaunch(first, context.streams[0]));
    const long long after_first = device_bytes_used();

    const long long host_before = host_bytes_used();
    std::vector<cudaGraphExec_t> execs(graphs);
    std::size_t counted = 0;
    double instantiate_us = 0;
    const auto instantiate = [&] {
        for (cudaGraphExec_t& exec : execs) {
            cudaGraph_t graph =
                capture_template(context.streams[0], [&] { add_nodes(context, kind, nodes, branches); });
            CHECK(cudaGraphGetNodes(graph, nullptr, &counted));
            instantiate_us += time_us([&] { CHECK(cudaGraphInstantiate(&exec, graph, flags)); });
            CHECK(cudaGraphDestroy(graph));
        }
    };
    const auto destroy = [&] {
        for (const cudaGraphExec_t exec : execs) CHECK(cudaGraphExecDestroy(exec));
    };
    instantiate();
    const double instantiate_each = instantiate_us / graphs;
    const long long after_instantiate = device_bytes_used();
    for (const cudaGraphExec_t exec : execs) CHECK(cudaGraphUpload(exec, context.streams[0]));
    const long long after_upload = device_bytes_used();
    for (const cudaGraphExec_t exec : execs) CHECK(cudaGraphLaunch(exec, context.streams[0]));
    const long long after_launch = device_bytes_used();
    for (const cudaGraphExec_t exec : execs) CHECK(cudaGraphLaunch(exec, context.streams[0]));
    const long long after_second = device_bytes_used();
    const long long host_after = host_bytes_used();
    destroy();
    const long long after_destroy = device_bytes_used();
    CHECK(cudaDeviceGraphMemTrim(0));
    const long long after_trim = device_bytes_used();
    instantiate();
    for (const cudaGraphExec_t exec : execs) CHECK(cudaGraphLaunch(exec, context.streams[0]));
    const long long made_again = device_bytes_used();
    destroy();
    const long long regained = bytes_beyond_free();

    Line("memory")
        .add("kind", kind)
        .add("nodes", static_cast<long long>(counted))
        .add("branches", branches)
        .add("graphs", graphs)
        .add("auto_free", argc > 5 ? 1 : 0)
        .add("context_bytes", context_only)
        .add("streams_and_modules_bytes", before_any - context_only)
        .add("first_graph_bytes", after_first - before_any)
        .add("instantiated_bytes", after_instantiate - after_first)
        .add("uploaded_bytes", after_upload - after_first)
        .add("launched_bytes", after_launch - after_first)
        .add("launched_twice_bytes", after_second - after_first)
        .add("destroyed_bytes", after_destroy - after_first)
        .add("trimmed_bytes", after_trim - after_first)
        .add("made_again_bytes", made_again - after_first)
        .add("regained_by_malloc_bytes", regained)
        .add("host_bytes", host_after - host_before)
        .add("instantiate_us_each", instantiate_each)
        .print();
}
