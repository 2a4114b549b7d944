// Copies that are nodes of a CUDA graph beside copies that a stream issues: who shares an engine, what a node costs,
// which sizes run slower, and what a copy on the device in front of a graph takes.
//
//   h200_graph_copies [section ...]        share, order, turns, nodes, sizes, device; all when none is named

#include <cstring>
#include <functional>

#include "h200_graph_common.cuh"

namespace {

constexpr std::size_t kMib = 1 << 20;
constexpr std::size_t kGib = 1 << 30;

struct Machine {
    cudaStream_t main = new_stream(), graph = new_stream(), other = new_stream(), capture = new_stream();
    cudaStream_t side = new_stream();
    char* device = nullptr;  ///< 9 GiB
    char* host = nullptr;    ///< 2 GiB
    Gate gate;
    Machine() {
        CHECK(cudaMalloc(&device, 9 * kGib));
        CHECK(cudaHostAlloc(&host, 2 * kGib, 0));
        std::memset(host, 1, 2 * kGib);
        CHECK(cudaMemset(device, 2, 9 * kGib));
        for (int i = 0; i < 400; ++i) spin<<<132 * 8, 128, 0, main>>>(5000000);
        CHECK(cudaDeviceSynchronize());
    }
};

enum Direction { kOut, kIn, kInside };
constexpr const char* kDirectionNames[] = {"D2H", "H2D", "D2D"};

/// `lane` picks a half of the host buffer, so that two lanes touch different bytes.
void copy(Machine& machine, Direction direction, std::size_t at, std::size_t bytes, int lane, cudaStream_t stream) {
    if (direction != kInside) at %= kGib;
    char* device = machine.device + lane * 2 * kGib + at;
    if (direction == kInside) {
        CHECK(cudaMemcpyAsync(device + 4 * kGib, device, bytes, cudaMemcpyDeviceToDevice, stream));
        return;
    }
    char* host = machine.host + lane * kGib + at;
    if (direction == kOut)
        CHECK(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream));
    else
        CHECK(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream));
}

double since_us(cudaEvent_t begin, cudaEvent_t end) {
    float milliseconds;
    CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
    return milliseconds * 1000.0;
}

/// A run of copies of one size, as graph nodes or by a stream, an event after each.
class Lane {
public:
    Lane(Machine& machine, Direction direction, bool in_graph, int lane, int copies, std::size_t bytes)
        : machine_(machine), direction_(direction), in_graph_(in_graph), lane_(lane), copies_(copies), bytes_(bytes) {
        for (int i = 0; i < copies; ++i) done_.push_back(new_event(0));
        stream_ = lane ? machine.other : machine.graph;
        if (!in_graph) return;
        exec_ = stowed(capture_template(machine.capture, [&] {
            for (int i = 0; i < copies_; ++i) {
                copy(machine_, direction_, i * bytes_, bytes_, lane_, machine_.capture);
                CHECK(cudaEventRecordWithFlags(done_[i], machine_.capture, cudaEventRecordExternal));
            }
        }));
        CHECK(cudaGraphUpload(exec_, stream_));
        CHECK(cudaDeviceSynchronize());
    }
    ~Lane() {
        for (const cudaEvent_t event : done_) CHECK(cudaEventDestroy(event));
        if (exec_) CHECK(cudaGraphExecDestroy(exec_));
    }
    Lane(const Lane&) = delete;
    Lane& operator=(const Lane&) = delete;
    void issue() {
        follow(machine_.main, stream_);
        if (in_graph_) {
            CHECK(cudaGraphLaunch(exec_, stream_));
            return;
        }
        for (int i = 0; i < copies_; ++i) {
            copy(machine_, direction_, i * bytes_, bytes_, lane_, stream_);
            CHECK(cudaEventRecord(done_[i], stream_));
        }
    }
    [[nodiscard]] std::vector<double> ends_us(cudaEvent_t begin) const {
        std::vector<double> ends;
        for (const cudaEvent_t event : done_) ends.push_back(since_us(begin, event));
        return ends;
    }
    [[nodiscard]] std::string name() const {
        return std::string(kDirectionNames[direction_]) + (in_graph_ ? " in a graph" : " by a stream");
    }

private:
    static cudaGraphExec_t stowed(cudaGraph_t graph) {
        cudaGraphExec_t exec;
        CHECK(cudaGraphInstantiate(&exec, graph, 0));
        CHECK(cudaGraphDestroy(graph));
        return exec;
    }
    Machine& machine_;
    Direction direction_;
    bool in_graph_;
    int lane_, copies_;
    std::size_t bytes_;
    cudaStream_t stream_ = nullptr;
    cudaGraphExec_t exec_ = nullptr;
    std::vector<cudaEvent_t> done_;
};

/// Both lanes begin together; the second may be null.
void run_lanes(Machine& machine, const std::string& section, Lane& first, Lane* second, std::size_t bytes) {
    static const cudaEvent_t begin = new_event(0);
    for (int round = 0; round < 3; ++round) {
        machine.gate.close(machine.main);
        CHECK(cudaEventRecord(begin, machine.main));
        first.issue();
        if (second) second->issue();
        machine.gate.open();
        CHECK(cudaDeviceSynchronize());
        if (round == 0) continue;
        Line line(section);
        line.add("piece_bytes", bytes).add("first", first.name()).add("first_ends_us", first.ends_us(begin));
        if (second) line.add("second", second->name()).add("second_ends_us", second->ends_us(begin));
        line.print();
    }
}

// --- share: two lanes of equal pieces at once

void share(Machine& machine) {
    constexpr int kPieces = 8;
    const std::size_t bytes = 64 * kMib;
    for (const Direction direction : {kOut, kIn}) {
        for (const bool in_graph : {false, true}) {
            Lane lane(machine, direction, in_graph, 0, kPieces, bytes);
            run_lanes(machine, "share", lane, nullptr, bytes);
        }
    }
    struct Pair {
        Direction first;
        bool first_in_graph;
        Direction second;
        bool second_in_graph;
    };
    for (const Pair& pair : {Pair{kOut, false, kOut, false}, Pair{kOut, true, kOut, false},
                             Pair{kOut, true, kOut, true}, Pair{kIn, true, kIn, false}, Pair{kOut, false, kIn, false},
                             Pair{kOut, true, kIn, false}, Pair{kIn, true, kOut, false}, Pair{kOut, true, kIn, true}}) {
        Lane first(machine, pair.first, pair.first_in_graph, 0, kPieces, bytes);
        Lane second(machine, pair.second, pair.second_in_graph, 1, kPieces, bytes);
        run_lanes(machine, "share", first, &second, bytes);
    }
}

// --- order: a long queue of one kind, then a short one of the other kind a millisecond later

void order(Machine& machine) {
    static const cudaEvent_t begin = new_event(0);
    const std::size_t bytes = 64 * kMib;
    for (const int queued : {12, 120}) {
        for (const bool long_in_graph : {false, true}) {
            for (const bool short_in_graph : {false, true}) {
                Lane first(machine, kOut, long_in_graph, 0, queued, bytes);
                Lane second(machine, kOut, short_in_graph, 1, 2, bytes);
                machine.gate.close(machine.main);
                CHECK(cudaEventRecord(begin, machine.main));
                first.issue();
                spin<<<1, 32, 0, machine.main>>>(3600000);  // 1.8 ms: a copy and a half
                second.issue();
                machine.gate.open();
                CHECK(cudaDeviceSynchronize());
                Line("order")
                    .add("piece_bytes", bytes)
                    .add("first", first.name())
                    .add("first_copies", queued)
                    .add("first_last_end_us", first.ends_us(begin).back())
                    .add("second_1.8_ms_later", second.name())
                    .add("second_ends_us", second.ends_us(begin))
                    .print();
            }
        }
    }
}

// --- turns: as order, but each copy of the first lane waits for a kernel of its own, all long done when it is its turn

void turns(Machine& machine) {
    static const cudaEvent_t begin = new_event(0);
    constexpr int kCopies = 12;
    const std::size_t bytes = 64 * kMib;
    std::vector<cudaEvent_t> done;
    for (int i = 0; i < kCopies; ++i) done.push_back(new_event(0));
    for (const long long cycles : {100000LL, 2000000LL, 4000000LL}) {  // 0.05, 1 and 2 ms; a copy takes 1.2
        for (const bool short_in_graph : {false, true}) {
            Lane second(machine, kOut, short_in_graph, 1, 2, bytes);
            machine.gate.close(machine.main);
            CHECK(cudaEventRecord(begin, machine.main));
            for (int i = 0; i < kCopies; ++i) {
                spin<<<1, 32, 0, machine.main>>>(cycles);
                follow(machine.main, machine.graph);
                copy(machine, kOut, i * bytes, bytes, 0, machine.graph);
                CHECK(cudaEventRecord(done[i], machine.graph));
                if (i == 3) second.issue();
            }
            machine.gate.open();
            CHECK(cudaDeviceSynchronize());
            std::vector<double> ends;
            for (const cudaEvent_t event : done) ends.push_back(since_us(begin, event));
            Line("turns")
                .add("piece_bytes", bytes)
                .add("kernel_before_each_us", static_cast<double>(cycles) / 1980)
                .add("first_ends_us", ends)
                .add("second_after_four_kernels", second.name())
                .add("second_ends_us", second.ends_us(begin))
                .print();
        }
    }
}

// --- nodes: a run of dependent copies, in a graph and in a stream, without events between

double run_us(Machine& machine, const std::function<void(cudaStream_t)>& issue) {
    static const cudaEvent_t begin = new_event(0), end = new_event(0);
    std::vector<double> rounds;
    for (int round = 0; round < 5; ++round) {
        machine.gate.close(machine.main);
        CHECK(cudaEventRecord(begin, machine.main));
        issue(machine.main);
        CHECK(cudaEventRecord(end, machine.main));
        machine.gate.open();
        CHECK(cudaDeviceSynchronize());
        if (machine.gate.expired()) return -1;
        if (round) rounds.push_back(since_us(begin, end));
    }
    return median(rounds);
}

double graph_us(Machine& machine, const std::function<void(cudaStream_t)>& issue) {
    const cudaGraphExec_t exec = capture(machine.capture, [&] { issue(machine.capture); });
    CHECK(cudaGraphUpload(exec, machine.main));
    CHECK(cudaDeviceSynchronize());
    const double time = run_us(machine, [&](cudaStream_t stream) { CHECK(cudaGraphLaunch(exec, stream)); });
    CHECK(cudaGraphExecDestroy(exec));
    return time;
}

void nodes(Machine& machine) {
    for (const Direction direction : {kOut, kIn}) {
        for (const std::size_t bytes : {std::size_t{4096}, std::size_t{65536}, kMib, 4 * kMib, 16 * kMib, 64 * kMib}) {
            for (const int count : {1, 16}) {
                const auto issue = [&](cudaStream_t stream) {
                    for (int i = 0; i < count; ++i) copy(machine, direction, i * bytes, bytes, 0, stream);
                };
                Line("nodes")
                    .add("copy", kDirectionNames[direction])
                    .add("bytes", bytes)
                    .add("copies", count)
                    .add("stream_us", run_us(machine, issue))
                    .add("graph_us", graph_us(machine, issue))
                    .print();
            }
        }
    }
}

// --- sizes: a report has 512 MiB at half speed in a graph

void sizes(Machine& machine) {
    for (const Direction direction : {kInside, kOut, kIn}) {
        for (const std::size_t mib : {256, 508, 511, 512, 513, 516, 768, 1024, 1025, 1536, 2047}) {
            const auto issue = [&](cudaStream_t stream) { copy(machine, direction, 0, mib * kMib, 0, stream); };
            if (direction != kInside && mib > 1024) continue;
            Line("sizes")
                .add("copy", kDirectionNames[direction])
                .add("mib", mib)
                .add("stream_us", run_us(machine, issue))
                .add("graph_us", graph_us(machine, issue))
                .print();
        }
    }
}

// --- device: copies on the device, as static inputs of a graph need

void device(Machine& machine) {
    for (const std::size_t kib : {64, 1024, 4096, 16384, 32768, 65536, 131072, 262144}) {
        const std::size_t bytes = kib * 1024;
        // Sources 2 GiB long in all, so that none is in the cache; a single buffer for what was just written.
        const std::size_t places = std::min<std::size_t>(2 * kGib / bytes, 64);
        constexpr int kCopies = 16;
        const auto cold = [&](cudaStream_t stream) {
            for (std::size_t i = 0; i < kCopies; ++i) copy(machine, kInside, i % places * bytes, bytes, 0, stream);
        };
        const auto hot = [&](cudaStream_t stream) {
            for (int i = 0; i < kCopies; ++i) copy(machine, kInside, 0, bytes, 0, stream);
        };
        const auto kernels = [&](cudaStream_t stream) {
            for (int i = 0; i < kCopies; ++i) spin<<<132, 128, 0, stream>>>(9500);
        };
        const auto mixed = [&](cudaStream_t stream) {
            for (std::size_t i = 0; i < kCopies; ++i) {
                spin<<<132, 128, 0, stream>>>(9500);
                copy(machine, kInside, i % places * bytes, bytes, 0, stream);
            }
        };
        Line("device")
            .add("bytes", bytes)
            .add("stream_cold_us", run_us(machine, cold) / kCopies)
            .add("stream_same_us", run_us(machine, hot) / kCopies)
            .add("graph_cold_us", graph_us(machine, cold) / kCopies)
            .add("between_kernels_stream_us", (run_us(machine, mixed) - run_us(machine, kernels)) / kCopies)
            .add("between_kernels_graph_us", (graph_us(machine, mixed) - graph_us(machine, kernels)) / kCopies)
            .print();
    }
}

}  // namespace

int main(int argc, char** argv) {
    CHECK(cudaSetDevice(0));
    Machine machine;
    const std::pair<const char*, void (*)(Machine&)> sections[] = {
        {"share", share}, {"order", order}, {"turns", turns}, {"nodes", nodes}, {"sizes", sizes}, {"device", device}};
    for (const auto& [name, run] : sections) {
        bool wanted = argc < 2;
        for (int i = 1; i < argc; ++i) wanted = wanted || std::strcmp(argv[i], name) == 0;
        if (wanted) run(machine);
    }
}
