// What CUDA graphs cost the host and the device in time: launch by node count, kernels in a graph against kernels in a
// stream, and the seams between graphs, streams and external events.
//
//   h200_graph_time [section ...]        host, calls, chain, relaunch, start, seams, layers; all when none is named

#include <cstring>
#include <functional>

#include "h200_graph_common.cuh"

namespace {

constexpr std::size_t kMib = 1 << 20;
constexpr long long kFiveMicroseconds = 9500;  // cycles, near 1980 MHz

struct Machine {
    cudaStream_t main = new_stream();
    cudaStream_t graph = new_stream();
    std::vector<cudaStream_t> side{new_stream(), new_stream()};
    char* device = nullptr;
    char* host = nullptr;
    StampList* list = nullptr;
    Gate gate;
    Machine() {
        CHECK(cudaMalloc(&device, 512 * kMib));
        CHECK(cudaHostAlloc(&host, 512 * kMib, 0));
        CHECK(cudaMalloc(&list, sizeof(StampList)));
        std::memset(host, 1, 512 * kMib);
        CHECK(cudaMemset(device, 2, 512 * kMib));
        // A busy second, so that clocks are up.
        for (int i = 0; i < 400; ++i) spin<<<132 * 8, 128, 0, main>>>(5000000);
        CHECK(cudaDeviceSynchronize());
    }
};

void kernel(cudaStream_t stream, long long cycles = 0) { spin<<<132, 128, 0, stream>>>(cycles); }

// --- host: capture, instantiate and launch by what the graph holds

struct Shape {
    const char* name;
    int kernels = 1, branches = 1, copies = 0, inline_copies = 0, inward = 0, events = 0;
    std::size_t copy_bytes = 65536;
};

void build(Machine& machine, const Shape& shape, const std::vector<cudaEvent_t>& events) {
    cudaStream_t main = machine.graph;
    kernel(main);
    for (int i = 1; i < shape.branches; ++i) follow(main, machine.side[i - 1]);
    for (int i = 1; i + 1 < shape.kernels; ++i) {
        const int branch = i % shape.branches;
        kernel(branch ? machine.side[branch - 1] : main);
    }
    for (int i = 1; i < shape.branches; ++i) follow(machine.side[i - 1], main);
    if (shape.copies) follow(main, machine.side[0]);
    const auto kind = shape.inward ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost;
    for (int i = 0; i < shape.copies + shape.inline_copies; ++i) {
        const std::size_t at = i * shape.copy_bytes;
        char* to = (shape.inward ? machine.device : machine.host) + at;
        const char* from = (shape.inward ? machine.host : machine.device) + at;
        CHECK(cudaMemcpyAsync(to, from, shape.copy_bytes, kind, shape.copies ? machine.side[0] : main));
    }
    if (shape.kernels > 1) kernel(main);
    for (int i = 0; i < shape.events; ++i) CHECK(cudaEventRecordWithFlags(events[i], main, cudaEventRecordExternal));
    if (shape.copies) follow(machine.side[0], main);
}

void measure_host(Machine& machine, const Shape& shape) {
    std::vector<cudaEvent_t> events;
    for (int i = 0; i < shape.events; ++i) events.push_back(new_event());
    std::vector<double> captures, instantiates, uploads, firsts, firsts_without_upload, idles, busies, destroys;
    for (int round = 0; round < 6; ++round) {
        cudaGraph_t graph;
        captures.push_back(
            time_us([&] { graph = capture_template(machine.graph, [&] { build(machine, shape, events); }); }));
        cudaGraphExec_t exec;
        instantiates.push_back(time_us([&] { CHECK(cudaGraphInstantiate(&exec, graph, 0)); }));
        const bool upload = round % 2 == 0;
        if (upload) uploads.push_back(time_us([&] { CHECK(cudaGraphUpload(exec, machine.graph)); }));
        CHECK(cudaDeviceSynchronize());
        (upload ? firsts : firsts_without_upload).push_back(time_us([&] {
            CHECK(cudaGraphLaunch(exec, machine.graph));
        }));
        CHECK(cudaDeviceSynchronize());
        for (int i = 0; i < 12; ++i) {
            idles.push_back(time_us([&] { CHECK(cudaGraphLaunch(exec, machine.graph)); }));
            CHECK(cudaDeviceSynchronize());
        }
        for (int i = 0; i < 12; ++i) busies.push_back(time_us([&] { CHECK(cudaGraphLaunch(exec, machine.graph)); }));
        CHECK(cudaDeviceSynchronize());
        destroys.push_back(time_us([&] { CHECK(cudaGraphExecDestroy(exec)); }));
        CHECK(cudaGraphDestroy(graph));
    }
    Line("host")
        .add("shape", shape.name)
        .add("kernels", shape.kernels)
        .add("branches", shape.branches)
        .add("copies", shape.copies + shape.inline_copies)
        .add("events", shape.events)
        .add("capture_us", median(captures))
        .add("instantiate_us", median(instantiates))
        .add("upload_us", median(uploads))
        .add("first_launch_after_upload_us", median(firsts))
        .add("first_launch_us", median(firsts_without_upload))
        .add("launch_idle_us", median(idles))
        .add("launch_busy_us", median(busies))
        .add("destroy_us", median(destroys))
        .print();
}

void host(Machine& machine) {
    for (const int kernels : {1, 2, 5, 10, 24, 50, 100, 200, 500, 1000, 2000, 5000}) {
        measure_host(machine, {"chain", kernels});
    }
    for (const int kernels : {24, 200, 1000}) {
        for (const int branches : {2, 3}) measure_host(machine, {"branches", kernels, branches});
    }
    for (const int copies : {1, 2, 4, 8, 16}) measure_host(machine, {"forked D2H 64 KiB", 24, 1, copies});
    for (const int copies : {1, 4}) measure_host(machine, {"D2H 64 KiB in the chain", 24, 1, 0, copies});
    for (const int copies : {1, 4}) measure_host(machine, {"forked H2D 64 KiB", 24, 1, copies, 0, 1});
    for (const int copies : {1, 4}) {
        measure_host(machine, {"forked D2H 16 MiB", 24, 1, copies, 0, 0, 0, 16 * kMib});
        measure_host(machine, {"forked D2H 64 KiB and event", 24, 1, copies, 0, 0, 1});
    }
    for (const int events : {1, 4}) measure_host(machine, {"external events", 24, 1, 0, 0, 0, events});
}

// --- calls: the host's price of what stands around a graph

double call_us(const std::function<void()>& call, int calls = 400) {
    std::vector<double> rounds;
    for (int round = 0; round < 7; ++round) {
        CHECK(cudaDeviceSynchronize());
        rounds.push_back(time_us([&] {
                             for (int i = 0; i < calls; ++i) call();
                         }) /
                         calls);
    }
    CHECK(cudaDeviceSynchronize());
    return median(rounds);
}

double captured_call_us(Machine& machine, const std::function<void()>& call, int calls = 400) {
    std::vector<double> rounds;
    for (int round = 0; round < 7; ++round) {
        cudaGraph_t graph = capture_template(machine.graph, [&] {
            kernel(machine.graph);
            rounds.push_back(time_us([&] {
                                 for (int i = 0; i < calls; ++i) call();
                             }) /
                             calls);
        });
        CHECK(cudaGraphDestroy(graph));
    }
    return median(rounds);
}

void calls(Machine& machine) {
    const cudaEvent_t event = new_event(), waited = new_event();
    CHECK(cudaEventRecord(waited, machine.main));
    const auto copy = [&](std::size_t bytes) {
        CHECK(cudaMemcpyAsync(machine.device, machine.device + 256 * kMib, bytes, cudaMemcpyDeviceToDevice,
                              machine.main));
    };
    Line("calls")
        .add("event_record_us", call_us([&] { CHECK(cudaEventRecord(event, machine.main)); }))
        .add("event_query_us", call_us([&] { cudaEventQuery(waited); }))
        .add("stream_wait_event_us", call_us([&] { CHECK(cudaStreamWaitEvent(machine.main, waited, 0)); }))
        .add("kernel_us", call_us([&] { kernel(machine.main); }))
        .add("copy_d2d_64kib_us", call_us([&] { copy(65536); }))
        .add("copy_d2d_16mib_us", call_us([&] { copy(16 * kMib); }, 100))
        .add("copy_d2d_64mib_us", call_us([&] { copy(64 * kMib); }, 50))
        .add("copy_d2d_256mib_us", call_us([&] { copy(256 * kMib); }, 20))
        .print();
    cudaStream_t graph = machine.graph;
    Line("calls while capturing")
        .add("event_record_us", captured_call_us(machine, [&] { CHECK(cudaEventRecord(event, graph)); }))
        .add(
            "event_record_external_us",
            captured_call_us(machine, [&] { CHECK(cudaEventRecordWithFlags(waited, graph, cudaEventRecordExternal)); }))
        .add("stream_wait_event_us", captured_call_us(machine,
                                                      [&] {
                                                          CHECK(cudaEventRecord(event, graph));
                                                          CHECK(cudaStreamWaitEvent(graph, event, 0));
                                                      }))
        .add("stream_wait_event_external_us",
             captured_call_us(machine, [&] { CHECK(cudaStreamWaitEvent(graph, waited, cudaEventWaitExternal)); }))
        .add("kernel_us", captured_call_us(machine, [&] { kernel(graph); }))
        .add("copy_d2h_64kib_us",
             captured_call_us(
                 machine,
                 [&] { CHECK(cudaMemcpyAsync(machine.host, machine.device, 65536, cudaMemcpyDeviceToHost, graph)); }))
        .print();
}

// --- chain: dependent kernels in a graph and in a stream, the host far ahead

double gated_us(Machine& machine, const std::function<void()>& issue) {
    static const cudaEvent_t begin = new_event(0), end = new_event(0);
    std::vector<double> rounds;
    for (int round = 0; round < 9; ++round) {
        machine.gate.close(machine.main);
        CHECK(cudaEventRecord(begin, machine.main));
        issue();
        CHECK(cudaEventRecord(end, machine.main));
        machine.gate.open();
        CHECK(cudaDeviceSynchronize());
        if (machine.gate.expired()) return -1;
        float milliseconds;
        CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
        rounds.push_back(milliseconds * 1000.0);
    }
    return median(rounds);
}

void chain(Machine& machine) {
    Line("chain").add("where", "nothing between the events").add("us", gated_us(machine, [] {})).print();
    for (const long long cycles : {0LL, kFiveMicroseconds}) {
        for (const int kernels : {1, 2, 5, 10, 20, 50, 100, 200, 400}) {
            const auto issue = [&](cudaStream_t stream) {
                for (int i = 0; i < kernels; ++i) kernel(stream, cycles);
            };
            const cudaGraphExec_t exec = capture(machine.graph, [&] { issue(machine.graph); });
            CHECK(cudaGraphUpload(exec, machine.main));
            CHECK(cudaDeviceSynchronize());
            Line("chain")
                .add("where", "132 x 128 threads")
                .add("cycles", cycles)
                .add("kernels", kernels)
                .add("stream_us", gated_us(machine, [&] { issue(machine.main); }))
                .add("graph_us", gated_us(machine, [&] { CHECK(cudaGraphLaunch(exec, machine.main)); }))
                .print();
            CHECK(cudaGraphExecDestroy(exec));
        }
    }
}

// --- relaunch: what a launch adds on the device, the host far ahead: the slope over the number of launches

void relaunch(Machine& machine) {
    struct Kind {
        const char* name;
        bool fork, copy, event;
    };
    const cudaEvent_t event = new_event();
    for (const Kind& kind :
         {Kind{"one branch", false, false, false}, Kind{"one branch and an external event", false, false, true},
          Kind{"forked empty kernel", true, false, false}, Kind{"forked copy of 4 KiB", true, true, false},
          Kind{"forked copy of 4 KiB and an external event", true, true, true}}) {
        for (const int kernels : {2, 12, 24, 100}) {
            const auto make = [&] {
                return capture(machine.graph, [&] {
                    cudaStream_t main = machine.graph, side = machine.side[0];
                    kernel(main, kFiveMicroseconds);
                    if (kind.fork) follow(main, side);
                    if (kind.copy)
                        CHECK(cudaMemcpyAsync(machine.host, machine.device, 4096, cudaMemcpyDeviceToHost, side));
                    else if (kind.fork)
                        kernel(side);
                    for (int i = 1; i < kernels; ++i) kernel(main, kFiveMicroseconds);
                    if (kind.event) CHECK(cudaEventRecordWithFlags(event, main, cudaEventRecordExternal));
                    if (kind.fork) follow(side, main);
                });
            };
            const cudaGraphExec_t execs[] = {make(), make()};
            for (const cudaGraphExec_t exec : execs) CHECK(cudaGraphUpload(exec, machine.main));
            CHECK(cudaDeviceSynchronize());
            const auto launches = [&](int count, int distinct) {
                return gated_us(machine, [&] {
                    for (int i = 0; i < count; ++i) CHECK(cudaGraphLaunch(execs[i % distinct], machine.main));
                });
            };
            const auto with_kernels = [&](int count) {
                return gated_us(machine, [&] {
                    for (int i = 0; i < count; ++i) {
                        CHECK(cudaGraphLaunch(execs[i % 2], machine.main));
                        kernel(machine.main, kFiveMicroseconds);
                    }
                });
            };
            Line("relaunch")
                .add("graph", kind.name)
                .add("kernels", kernels)
                .add("the_same_us", (launches(24, 1) - launches(4, 1)) / 20)
                .add("two_in_turn_us", (launches(24, 2) - launches(4, 2)) / 20)
                .add("and_a_kernel_between_us", (with_kernels(24) - with_kernels(4)) / 20)
                .print();
            for (const cudaGraphExec_t exec : execs) CHECK(cudaGraphExecDestroy(exec));
        }
    }
}

// --- start: from the host's call on an idle device to the first thread

double start_us(Machine& machine, int* flag, const std::function<void()>& launch) {
    std::vector<double> rounds;
    for (int round = 0; round < 41; ++round) {
        *static_cast<volatile int*>(flag) = 0;
        CHECK(cudaDeviceSynchronize());
        const double begin = now_us();
        launch();
        while (*static_cast<volatile int*>(flag) == 0) {
        }
        rounds.push_back(now_us() - begin);
    }
    CHECK(cudaDeviceSynchronize());
    return median(rounds);
}

void start(Machine& machine) {
    int* flag;
    CHECK(cudaHostAlloc(&flag, 64, cudaHostAllocMapped));
    Line("start")
        .add("what", "kernel")
        .add("us", start_us(machine, flag, [&] { flag_host<<<1, 1, 0, machine.main>>>(flag, 1); }))
        .print();
    for (const int forked : {0, 1}) {
        for (const int kernels : {1, 2, 10, 24, 100, 1000}) {
            const cudaGraphExec_t exec = capture(machine.graph, [&] {
                flag_host<<<1, 1, 0, machine.graph>>>(flag, 1);
                if (forked) {
                    follow(machine.graph, machine.side[0]);
                    CHECK(
                        cudaMemcpyAsync(machine.host, machine.device, 65536, cudaMemcpyDeviceToHost, machine.side[0]));
                }
                for (int i = 1; i < kernels; ++i) kernel(machine.graph);
                if (forked) follow(machine.side[0], machine.graph);
            });
            CHECK(cudaGraphUpload(exec, machine.main));
            Line("start")
                .add("what", forked ? "graph with a forked copy" : "graph")
                .add("kernels", kernels)
                .add("us", start_us(machine, flag, [&] { CHECK(cudaGraphLaunch(exec, machine.main)); }))
                .print();
            CHECK(cudaGraphExecDestroy(exec));
        }
    }
}

// --- seams: gaps between the end of a kernel and the start of the next, by stamps

void reset(Machine& machine) {
    CHECK(cudaMemset(machine.list, 0, sizeof(unsigned)));
    CHECK(cudaDeviceSynchronize());
}

std::vector<Stamp> stamps(Machine& machine) {
    CHECK(cudaDeviceSynchronize());
    StampList* copy = new StampList;
    CHECK(cudaMemcpy(copy, machine.list, sizeof(StampList), cudaMemcpyDeviceToHost));
    std::vector<Stamp> result(copy->stamps, copy->stamps + copy->count);
    delete copy;
    std::sort(result.begin(), result.end(), [](const Stamp& a, const Stamp& b) { return a.start < b.start; });
    return result;
}

void stamped(Machine& machine, cudaStream_t stream, unsigned long long tag, long long cycles = kFiveMicroseconds) {
    stamp<<<1, 32, 0, stream>>>(machine.list, tag, cycles);
}

/// Median of the gaps between neighbours whose tags satisfy `wanted`.
template <class Wanted>
double gap_us(const std::vector<Stamp>& all, Wanted wanted) {
    std::vector<double> gaps;
    for (std::size_t i = 1; i < all.size(); ++i) {
        if (wanted(all[i - 1].tag, all[i].tag)) {
            gaps.push_back((static_cast<double>(all[i].start) - static_cast<double>(all[i - 1].end)) / 1000.0);
        }
    }
    return median(gaps);
}

enum SeamKind { kPlain, kEvent, kForkedKernel, kForkedCopy, kForkedCopyAndEvent };
constexpr const char* kSeamNames[] = {"one branch", "one branch and an external event", "forked empty kernel",
                                      "forked copy of 64 KiB", "forked copy of 64 KiB and an external event"};

/// A graph of `kernels` stamped kernels, tags 1 for the first, 2 for the middle ones, 3 for the last.
cudaGraphExec_t seam_graph(Machine& machine, SeamKind kind, int kernels, cudaEvent_t event) {
    return capture(machine.graph, [&] {
        cudaStream_t main = machine.graph, side = machine.side[0];
        for (int i = 0; i < kernels; ++i) {
            stamped(machine, main, i == 0 ? 1 : i + 1 == kernels ? 3 : 2);
            if (i == 0 && kind >= kForkedKernel) {
                follow(main, side);
                if (kind == kForkedKernel)
                    kernel(side);
                else
                    CHECK(cudaMemcpyAsync(machine.host, machine.device, 65536, cudaMemcpyDeviceToHost, side));
            }
        }
        if (kind == kEvent || kind == kForkedCopyAndEvent) {
            CHECK(cudaEventRecordWithFlags(event, main, cudaEventRecordExternal));
        }
        if (kind >= kForkedKernel) follow(side, main);
    });
}

void seams(Machine& machine) {
    reset(machine);
    machine.gate.close(machine.main);
    for (int i = 0; i < 200; ++i) stamped(machine, machine.main, 2);
    machine.gate.open();
    Line("seams")
        .add("graph", "none, a stream")
        .add("inside_us", gap_us(stamps(machine), [](auto, auto) { return true; }))
        .print();
    for (const SeamKind kind : {kPlain, kEvent, kForkedKernel, kForkedCopy, kForkedCopyAndEvent}) {
        for (const int kernels : {4, 24}) {
            const cudaEvent_t event = new_event();
            const cudaGraphExec_t first = seam_graph(machine, kind, kernels, event);
            const cudaGraphExec_t second = seam_graph(machine, kind, kernels, event);
            CHECK(cudaGraphUpload(first, machine.main));
            CHECK(cudaGraphUpload(second, machine.main));
            Line line("seams");
            line.add("graph", kSeamNames[kind]).add("kernels", kernels);
            const auto run = [&](const std::function<void(int)>& issue) {
                reset(machine);
                machine.gate.close(machine.main);
                for (int i = 0; i < 16; ++i) issue(i);
                machine.gate.open();
                return stamps(machine);
            };
            const auto same = run([&](int) { CHECK(cudaGraphLaunch(first, machine.main)); });
            const auto two = run([&](int i) { CHECK(cudaGraphLaunch(i % 2 ? second : first, machine.main)); });
            const auto mixed = run([&](int i) {
                stamped(machine, machine.main, 4);
                CHECK(cudaGraphLaunch(i % 2 ? second : first, machine.main));
                stamped(machine, machine.main, 5);
            });
            line.add("inside_us", gap_us(same, [](auto a, auto b) { return a <= 2 && b >= 2 && b <= 3 && a + b > 3; }))
                .add("again_us", gap_us(same, [](auto a, auto b) { return a == 3 && b == 1; }))
                .add("another_us", gap_us(two, [](auto a, auto b) { return a == 3 && b == 1; }))
                .add("kernel_to_graph_us", gap_us(mixed, [](auto a, auto b) { return a == 4 && b == 1; }))
                .add("graph_to_kernel_us", gap_us(mixed, [](auto a, auto b) { return a == 3 && b == 5; }))
                .add("kernel_to_kernel_us", gap_us(mixed, [](auto a, auto b) { return a == 5 && b == 4; }))
                .add("expired", machine.gate.expired() ? 1 : 0)
                .print();
            CHECK(cudaGraphExecDestroy(first));
            CHECK(cudaGraphExecDestroy(second));
        }
    }
}

// --- layers: a captured layer with a copy tail between eager kernels, as an offloading trainer replays it

struct LayerCase {
    std::size_t bytes;
    long long eager_cycles;
    bool late, inward, eager;
};

/// Four kernels; the copy leaves after the second; an event after the last; then the copy is joined.
/// `late` gives the copy to its stream only after the event.
void issue_layer(Machine& machine, const LayerCase& wanted, int layer, cudaEvent_t event) {
    cudaStream_t main = machine.graph, side = machine.side[0];
    const auto copy = [&] {
        if (wanted.bytes == 0) return;
        char* host = machine.host + (layer % 2) * 256 * kMib;
        char* device = machine.device + (layer % 2) * 256 * kMib;
        CHECK(cudaMemcpyAsync(wanted.inward ? device : host, wanted.inward ? host : device, wanted.bytes,
                              wanted.inward ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, side));
        stamped(machine, side, layer * 100 + 50, 0);
    };
    for (int i = 0; i < 4; ++i) {
        stamped(machine, main, layer * 100 + i);
        if (i == 1 && wanted.bytes) follow(main, side);
        if (i == 1 && !wanted.late) copy();
    }
    CHECK(cudaEventRecordWithFlags(event, main, wanted.eager ? 0 : cudaEventRecordExternal));
    if (wanted.late) copy();
    if (wanted.bytes) follow(side, main);
}

void measure_layers(Machine& machine, const LayerCase& wanted) {
    const std::size_t bytes = wanted.bytes;
    constexpr int kLayers = 4;
    std::vector<cudaEvent_t> events;
    std::vector<cudaGraphExec_t> execs;
    for (int layer = 0; layer < kLayers; ++layer) {
        events.push_back(new_event());
        if (wanted.eager) continue;
        execs.push_back(capture(machine.graph, [&] { issue_layer(machine, wanted, layer, events.back()); }));
        CHECK(cudaGraphUpload(execs.back(), machine.graph));
    }
    std::vector<double> enter, resume, tail, next;
    for (int round = 0; round < 6; ++round) {
        reset(machine);
        machine.gate.close(machine.main);
        stamped(machine, machine.main, 90);
        for (int layer = 0; layer < kLayers; ++layer) {
            follow(machine.main, machine.graph);
            if (wanted.eager)
                issue_layer(machine, wanted, layer, events[layer]);
            else
                CHECK(cudaGraphLaunch(execs[layer], machine.graph));
            CHECK(cudaStreamWaitEvent(machine.main, events[layer], 0));
            stamped(machine, machine.main, (layer + 1) * 100 + 90, wanted.eager_cycles);
        }
        machine.gate.open();
        const std::vector<Stamp> all = stamps(machine);
        if (round == 0) continue;
        const auto find = [&](unsigned long long tag) {
            for (const Stamp& each : all) {
                if (each.tag == tag) return each;
            }
            return Stamp{};
        };
        const auto between = [](unsigned long long from, unsigned long long to) {
            return (static_cast<double>(to) - static_cast<double>(from)) / 1000.0;
        };
        for (int layer = 0; layer < kLayers; ++layer) {
            const auto at = [&](int i) { return find(layer * 100 + i); };
            enter.push_back(between(at(90).end, at(0).start));
            resume.push_back(between(at(3).end, find((layer + 1) * 100 + 90).start));
            if (bytes) tail.push_back(between(at(3).end, at(50).start));
            if (bytes && layer + 1 < kLayers) next.push_back(between(at(50).end, find((layer + 1) * 100).start));
        }
    }
    Line("layers")
        .add("layer", wanted.eager ? "eager on a stream of its own" : "a graph")
        .add("copy", wanted.inward ? "H2D" : "D2H")
        .add("copy_bytes", bytes)
        .add("copy_given", wanted.late ? "after the event" : "before the event")
        .add("eager_cycles", wanted.eager_cycles)
        .add("eager_kernel_to_graph_us", enter)
        .add("last_kernel_to_eager_kernel_us", median(resume))
        .add("last_kernel_to_end_of_copy_us", median(tail))
        .add("end_of_copy_to_next_graph_us", next)
        .add("expired", machine.gate.expired() ? 1 : 0)
        .print();
    for (const cudaGraphExec_t exec : execs) CHECK(cudaGraphExecDestroy(exec));
}

void layers(Machine& machine) {
    for (const bool inward : {false, true}) {
        for (const std::size_t bytes : {std::size_t{0}, std::size_t{65536}, 16 * kMib, 128 * kMib}) {
            for (const long long cycles : {kFiveMicroseconds, 2000000LL}) {
                measure_layers(machine, {bytes, cycles, false, inward, false});
                measure_layers(machine, {bytes, cycles, true, inward, false});
                measure_layers(machine, {bytes, cycles, true, inward, true});
            }
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    CHECK(cudaSetDevice(0));
    Machine machine;
    const std::pair<const char*, void (*)(Machine&)> sections[] = {
        {"host", host},   {"calls", calls}, {"chain", chain},  {"relaunch", relaunch},
        {"start", start}, {"seams", seams}, {"layers", layers}};
    for (const auto& [name, run] : sections) {
        bool wanted = argc < 2;
        for (int i = 1; i < argc; ++i) wanted = wanted || std::strcmp(argv[i], name) == 0;
        if (wanted) run(machine);
    }
}
